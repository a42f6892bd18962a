"""Turn what libraries raise while they load a checkpoint into one line that names the file and the fix."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milco_pyserini.errors import MilcoError

_LONGEST = 200


@contextmanager
def loading(
    path: Path, kind: str = "", fix: str = "Download it again, or give another", example: str = ""
) -> Iterator[None]:
    """Raise MilcoError for every other exception of the block: "PATH cannot be read as KIND: REASON. FIX.".

    example: what may be given instead of a checkpoint that brings its own code. transformers, tokenizers, safetensors
    and torch raise many types, plain Exception among them, with texts of many lines and advice (to run a checkpoint's
    code, to unpickle objects) that must not be passed on.
    """
    try:
        yield
    except MilcoError:
        raise
    except Exception as error:
        what = f"{path} cannot be read{kind and ' as '}{kind}"
        if "trust_remote_code" in str(error) or "custom code" in str(error):
            reason = "it needs code from its own repository, which is never run"
            fix = f"Give a checkpoint that transformers knows{example and ', such as '}{example}"
        elif isinstance(error, pickle.UnpicklingError):
            reason = "it is damaged or holds objects other than tensors, which are never unpickled"
        elif isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        else:
            reason = one_line(error)
        raise MilcoError(f"{what}: {reason}. {fix}.") from error


def one_line(error: Exception) -> str:
    """The first line of an error's text, truncated and without its full stop; its type where it has no text."""
    return (str(error).strip() or type(error).__name__).split("\n")[0][:_LONGEST].rstrip(". ")
