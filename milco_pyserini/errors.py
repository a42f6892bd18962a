"""Errors that a user can fix: each names the value, the rule and the fix."""

import errno
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

# A full disk, an exhausted quota, or a file size limit (ulimit -f): with more space the same command succeeds.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Valid names that are listed after a guess.
_MOST_LISTED = 12


class MilcoError(Exception):
    """Bad input or a missing part. Every command prints it as one line and ends with exit code 2.

    Parameters are in backticks, as in Python: a command prints `max_length` as --max-length, `overwrite=True` as
    --overwrite and `prune=top-k:100` as --prune top-k:100 (milco_pyserini.cli.rendering).

    Args:
        message: what is wrong, with the value, and the rule: "`k=0`: must be at least 1".
        hint: the fix, as a sentence of its own: "Pass `encoder=x` or rebuild the index.". str() appends it.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message}{'' if self.message.endswith(('.', '?', '!')) else '.'} {self.hint}"


class UnknownDocument(MilcoError):  # noqa: N818
    """A docid that an index or its corpus lacks."""


class Unreachable(MilcoError):  # noqa: N818
    """A server that does not answer: a model or data hub, a download site, a search service."""


def unknown_name(
    kind: str, value: str, valid: Iterable[str], hint: str = "", synonyms: Mapping[str, str] = MappingProxyType({})
) -> MilcoError:
    """Return an error for an unknown name, with the nearest match, and the valid names unless there are too many.

    Args:
        kind: the kind of name, such as "engine".
        hint: a further sentence, on what else is accepted.
        synonyms: name in other programs -> the valid name.
    """
    names = sorted(valid)
    near = synonyms.get(value) or nearest(value, names)
    guess = f"did you mean {near!r}?" if near else ""
    rest = "" if near and len(names) > _MOST_LISTED else f"valid are {', '.join(names)}."
    return MilcoError(f"unknown {kind} {value!r}: {' '.join(filter(None, (guess, rest, hint)))}")


def validate_name(kind: str, value: str, valid: Collection[str]) -> None:
    """Raise unknown_name() if a name is not among the valid ones."""
    if value not in valid:
        raise unknown_name(kind, value, valid)


def nearest(value: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name that value probably misspells, ignoring case, or None."""
    lowered = {name.lower(): name for name in names}
    given = value.lower()
    # Many long words contain the letters of a short name, such as a language code; only those that begin with it count.
    alike = [name for name in lowered if 2 * len(name) > len(given) or given.startswith(name)]
    near = get_close_matches(given, alike, n=1, cutoff=cutoff)
    # "arabic" begins with "ar".
    near = near or sorted(filter(given.startswith, alike), key=len)[-1:]
    return lowered[near[0]] if near else None


def validate_unique(what: str, values: Iterable[object], hint: str = "Once is enough.") -> None:
    """Raise MilcoError if a value is given twice. what: the parameter or kind of value, such as "`prune`"."""
    seen = set()
    for value in values:
        if value in seen:
            raise MilcoError(f"{what} {value} is given twice", hint)
        seen.add(value)


def shown(value: str, limit: int = 60) -> str:
    """Return a value in quotes for a message, truncated if it is long: an id may be a document's text by mistake."""
    return repr(value if len(value) <= limit else value[: limit - 1] + "…")
