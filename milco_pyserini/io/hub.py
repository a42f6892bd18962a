"""Fetch files and snapshots from the Hugging Face hub, or find them in its cache (HF_HOME).

The only module that calls the hub. A cached copy is used without a network. If neither the cache nor the hub can
provide a file, the error is Unreachable, whichever way the network is missing.
"""

import contextlib
import errno
import logging
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path

from milco_pyserini.errors import DISK_FULL, MilcoError, Unreachable

DATASET = "dataset"
_NOT_WRITABLE = (*DISK_FULL, errno.EACCES, errno.EPERM, errno.EROFS)
_HINT = "Run the same command once with a network."
_only_cached: ContextVar[bool] = ContextVar("only_cached", default=False)


@contextlib.contextmanager
def only_cached(enabled: bool = True) -> Iterator[None]:
    """Use the cache only, in this block: a missing file is Unreachable at once, without half a minute of retries."""
    token = _only_cached.set(enabled)
    try:
        yield
    finally:
        _only_cached.reset(token)


def fetch_hub_file(
    repository: str, path: str, *, revision: str | None = None, repo_type: str | None = None, hint: str = _HINT
) -> Path:
    """Return a file of a hub repository, fetching it only if the cache does not contain it.

    Args:
        repo_type: None for a model, DATASET for a dataset.
        hint: what a user can do without a network.

    Raises:
        Unreachable: the file is not cached and there is no network.
        MilcoError: the repository or the file does not exist, or its terms have not been accepted.
    """
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repository, path, revision=revision, repo_type=repo_type, local_files_only=True))
    except FileNotFoundError:
        pass
    with _hub_errors(f"{path} of {repository}", repository, repo_type, hint):
        cached = _only_cached.get()
        return Path(hf_hub_download(repository, path, revision=revision, repo_type=repo_type, local_files_only=cached))


def cached_snapshot(repository: str, *, revision: str | None = None, repo_type: str | None = None) -> Path | None:
    """Return the cached snapshot of a repository, which may lack files; None if nothing is cached."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, revision=revision, repo_type=repo_type, local_files_only=True))
    except FileNotFoundError:
        return None


def fetch_snapshot(
    repository: str,
    patterns: Sequence[str],
    *,
    what: str | None = None,
    revision: str | None = None,
    repo_type: str | None = None,
    hint: str = _HINT,
) -> Path:
    """Fetch the files of a repository whose paths match the patterns; return the snapshot's directory.

    what: the name of the repository in errors, such as "encoder 'a/b'". Raises as fetch_hub_file() does.
    """
    from huggingface_hub import snapshot_download

    with _hub_errors(what or repository, repository, repo_type, hint):
        return Path(
            snapshot_download(
                repository,
                revision=revision,
                repo_type=repo_type,
                allow_patterns=list(patterns),
                local_files_only=_only_cached.get(),
            )
        )


def list_hub_files(
    repository: str, *, revision: str | None = None, repo_type: str | None = None, hint: str = _HINT
) -> list[str]:
    """Return the paths of all files of a repository; without a network, of those in the cache."""
    from huggingface_hub import HfApi

    try:
        with _hub_errors(f"the file list of {repository}", repository, repo_type, hint):
            if _only_cached.get():
                raise ConnectionError
            return HfApi().list_repo_files(repository, revision=revision, repo_type=repo_type)
    except MilcoError:
        cached = cached_snapshot(repository, revision=revision, repo_type=repo_type)
        if cached is None:
            raise
    return [path.relative_to(cached).as_posix() for path in cached.rglob("*") if path.is_file()]


@contextlib.contextmanager
def _hub_errors(what: str, repository: str, repo_type: str | None, hint: str) -> Iterator[None]:
    """Turn every failure of the hub's library into one MilcoError, and silence the warnings of its own attempts."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    # Without a network the library raises its own errors, those of requests, time-outs and, from 1.0 on, httpx's.
    failures: tuple[type[Exception], ...] = (OSError, RuntimeError)
    if find_spec("httpx") is not None:
        import httpx

        failures += (httpx.HTTPError,)
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    except GatedRepoError:
        page = f"https://huggingface.co/{'datasets/' if repo_type == DATASET else ''}{repository}"
        message = f"{what} is not in the local cache and the hub gives it only to users who accepted its terms"
        raise MilcoError(message, f"Accept them at {page} and log in with 'hf auth login'. {hint}") from None
    except RepositoryNotFoundError:
        raise MilcoError(
            f"{what} is not in the local cache and the hub has no public repository {repository}", hint
        ) from None
    except RevisionNotFoundError:
        raise MilcoError(f"{what} is not in the local cache and the hub has no such revision of it", hint) from None
    except failures as error:
        if isinstance(error, OSError) and error.errno in _NOT_WRITABLE:
            raise
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is not None:
            raise MilcoError(f"{what} cannot be fetched: the hub answers {status}", hint) from None
        raise Unreachable(f"{what} is not in the local cache and the hub cannot be reached", hint) from None
    finally:
        logger.setLevel(level)
