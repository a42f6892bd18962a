"""Errors that a user can fix: each names the value, the rule and the fix."""

import errno
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from string import Formatter
from typing import Any, NamedTuple

__all__ = ["MilcoError", "ParameterError", "UnknownDocument", "Unreachable"]

# A full disk, an exhausted quota, or a file size limit (ulimit -f): with more space the same command succeeds.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Names that others give to parameters: of other libraries, and of the other doors to the same search.
_OTHER_NAMES = {
    **dict.fromkeys(("top_k", "topk", "limit", "n", "size", "hits", "num_results", "max_results"), "k"),
    **{"q": "query", "text": "query", "question": "query", "where": "filters"},
}
# Valid names that are listed after a guess.
_MOST_LISTED = 12


class Parameter(NamedTuple):
    """A parameter that a message mentions, alone or with a value: `overwrite=True` in Python."""

    name: str
    value: Any = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        return f"{self.name}{'=' if self.name.isidentifier() else ' '}{_python(self.value)}"


class Message(str):
    """A str that knows the parameters it mentions, so that a command prints them as its options: see named().

    A template has their names in braces, and no other fields; their values are keywords. + keeps them, formatting and
    other methods of str keep only their Python names.

    >>> Message("choose another {path}, or pass {overwrite}", overwrite=True)
    'choose another path, or pass overwrite=True'
    """

    parts: tuple[str | Parameter, ...]

    def __new__(cls, template: str, **values: Any) -> "Message":
        """Return the text of a template."""
        parts: list[str | Parameter] = []
        for text, name, *_ in Formatter().parse(template):
            parts += [text] if name is None else [text, Parameter(name, values.get(name))]
        return _message(parts)

    def __add__(self, text: str) -> "Message":
        return joined((self, text))

    def __radd__(self, text: str) -> "Message":
        return joined((text, self))

    def __reduce__(self) -> tuple:
        return _message, (self.parts,)


def parameter(name: str, value: Any = None) -> Message:
    """Return a mention of a parameter, with a value unless that is None."""
    return _message((Parameter(name, value),))


def joined(texts: Iterable[str], separator: str = "") -> Message:
    """Return texts as one that mentions the parameters of all."""
    return _message([part for text in texts for part in (separator, *_parts(text))][1:])


def named(text: str, name: Callable[[Parameter], str]) -> str:
    """Return a message in which name() gives the text of parameters."""
    return "".join(part if isinstance(part, str) else name(part) for part in _parts(text))


def _message(parts: Iterable[str | Parameter]) -> Message:
    message = str.__new__(Message, "".join(map(str, parts)))
    message.parts = tuple(parts)
    return message


def _parts(text: str) -> tuple[str | Parameter, ...]:
    return text.parts if isinstance(text, Message) else (text,)


def _python(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_python, value))}]"
    return value_text(value) if isinstance(value, int | float) else repr(str(value))


def value_text(value: Any) -> str:
    """Return a value as users type it, without the zeros of a float."""
    return f"{value:.10g}" if isinstance(value, float) else str(value)


class MilcoError(Exception):
    """Bad input or a missing part. Every command prints it as one line and ends with exit code 2.

    Args:
        message: what is wrong, with the value, and the rule.
        hint: the fix, as a sentence of its own, such as Message("Pass {overwrite}.", overwrite=True). str() appends it.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return self.message + ("" if self.message.endswith((".", "?", "!")) else ".") + " " + self.hint


class ParameterError(MilcoError):
    """A parameter that is invalid.

    >>> str(ParameterError("k", 0, "must be at least 1"))
    'k=0: must be at least 1'
    >>> str(ParameterError("fuse", None, "requires several indexes", "Omit it."))
    'fuse requires several indexes. Omit it.'

    Args:
        parameter: its name in Python, which is also that of REST and MCP. A command prints its option.
        value: the value, or None for one that the rule does not depend on.
        rule: what is required; it follows the value after a colon, the name as a predicate.
        fix: as the hint of MilcoError.
    """

    def __init__(self, parameter: str, value: Any, rule: str, fix: str = "") -> None:
        mention = Parameter(parameter, value)
        super().__init__(joined((_message((mention,)), rule), " " if value is None else ": "), fix)
        self.args = (parameter, value, rule, fix)
        self.parameter = parameter
        self.value = value
        self.rule = rule


class UnknownDocument(MilcoError):  # noqa: N818
    """A docid that an index or its corpus lacks."""


class Unreachable(MilcoError):  # noqa: N818
    """A server that does not answer: a model or data hub, a download site, a search service."""


def unknown_name(kind: str, value: str, valid: Iterable[str], hint: str = "") -> MilcoError:
    """Return an error for an unknown name, with the nearest match, and the valid names unless there are too many.

    Args:
        kind: the kind of name, such as "engine".
        hint: a further sentence, on what else is accepted.
    """
    names = sorted(valid)
    near = nearest(value, names)
    guess = f"did you mean {near!r}?" if near else ""
    rest = "" if near and len(names) > _MOST_LISTED else f"valid are {', '.join(names)}."
    return MilcoError("unknown " + kind + f" {value!r}: {' '.join(filter(None, (guess, rest)))}", hint)


def validate_name(kind: str, value: str, valid: Collection[str]) -> None:
    """Raise unknown_name() if a name is not among the valid ones."""
    if value not in valid:
        raise unknown_name(kind, value, valid)


def nearest(value: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name that value probably misspells, ignoring case, or None."""
    lowered = {name.lower(): name for name in names}
    given = value.lower()
    other = _OTHER_NAMES.get(given.lstrip("-").replace("-", "_"))
    for name in (other, f"--{other}"):
        if name in lowered:
            return lowered[name]
    # Many long words contain the letters of a short name, such as a language code; only those that begin with it count.
    alike = [name for name in lowered if 2 * len(name) > len(given) or given.startswith(name)]
    near = get_close_matches(given, alike, n=1, cutoff=cutoff)
    # "arabic" begins with "ar".
    near = near or sorted(filter(given.startswith, alike), key=len)[-1:]
    return lowered[near[0]] if near else None


def validate_unique(what: str, values: Iterable[object], hint: str = "Once is enough.") -> None:
    """Raise MilcoError if a value is given twice. what: the kind of value, or parameter("prune")."""
    seen = set()
    for value in values:
        if value in seen:
            raise MilcoError(what + f" {value} is given twice", hint)
        seen.add(value)


def shown(value: str, limit: int = 60) -> str:
    """Return a value in quotes for a message, truncated if it is long: an id may be a document's text by mistake."""
    return repr(value if len(value) <= limit else value[: limit - 1] + "…")


@contextmanager
def installed_by(extra: str) -> Iterator[None]:
    """Raise MilcoError if an import within the block fails. extra: what pip installs."""
    try:
        yield
    except ImportError as error:
        is_missing = isinstance(error, ModuleNotFoundError)
        what = f"the package {error.name} is not installed" if is_missing else str(error)
        raise MilcoError(what, f"Run pip install {extra}.") from None


def require_package(package: str, extra: str, user: str) -> None:
    """Raise MilcoError unless the package of an extra is installed.

    Args:
        package: an import name.
        user: what needs the package: "engine seismic".
    """
    if find_spec(package) is None:
        raise MilcoError(user + f" needs the package {package}", f"Run pip install '.[{extra}]'.")
