"""Files from a publisher's own server: fetched once, gone on with where a transfer broke off, checked, and kept."""

import hashlib
import os
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from milco_pyserini import locks
from milco_pyserini.console import say
from milco_pyserini.errors import MilcoError
from milco_pyserini.files import publish

HOME = "MILCO_DATA"
_ATTEMPTS = 4
_SECONDS = 30
_PIECE = 1 << 20


def data_home() -> Path:
    """Where fetched files are kept: MILCO_DATA, or else milco_pyserini in the user's cache directory."""
    named = os.environ.get(HOME)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "milco_pyserini"


def download(url: str, target: Path, sha256: str | None = None) -> None:
    """Fetch url to target, which appears whole or not at all; a transfer that breaks off is gone on with.

    sha256: what the file must be. Raises MilcoError if the server cannot be reached or has no such file, or if what
    came is not what it must be; OSError if target cannot be written.
    """
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    with locks.alone_at(part):
        try:
            if target.exists():
                return
            say(f"fetching {url} to {target}")
            _fetch(url, part)
            found = _sha256(part)
            if sha256 not in (None, found):
                part.unlink()
                raise MilcoError(f"{url} is not what it was: its SHA-256 is {found}, not {sha256}. Try again later")
            _etag(part).unlink(missing_ok=True)
            publish(part, target)
        finally:
            if part.exists() and not part.stat().st_size:
                part.unlink()


def _fetch(url: str, part: Path) -> None:
    trouble: Exception | None = None
    for _ in range(_ATTEMPTS):
        try:
            if _go_on(url, part):
                return
        except HTTPError as error:
            if error.code != 416:  # there is nothing behind what we have: it is of another file
                raise MilcoError(f"{url} cannot be fetched: the server answers {error.code} {error.reason}") from None
            _etag(part).unlink(missing_ok=True)
        except (OSError, HTTPException) as error:
            trouble = error
    why = getattr(trouble, "reason", None) or trouble or "the transfer broke off"
    raise MilcoError(
        f"{url} could not be reached ({why}). With a network the same command fetches it and goes on where it broke "
        f"off; without, give a copy as NAME@PATH, or put one in {part.parent} as {part.name.removesuffix('.part')}"
    )


def _go_on(url: str, part: Path) -> bool:
    """Fetch what part lacks. Whether it is whole now, as far as the server says how long it is."""
    headers = {"User-Agent": "milco_pyserini"}
    etag = _etag(part)
    if part.exists() and etag.exists():
        # If the file has changed meanwhile, the server sends all of it again.
        headers |= {"Range": f"bytes={part.stat().st_size}-", "If-Range": etag.read_text(encoding="utf-8")}
    with urlopen(Request(url, headers=headers), timeout=_SECONDS) as answer:
        if answer.headers.get("ETag"):
            etag.write_text(answer.headers["ETag"], encoding="utf-8")
        length = answer.headers.get("Content-Length")
        with part.open("ab" if answer.status == 206 else "wb") as handle:
            written = sum(handle.write(piece) for piece in _pieces(answer))
    return length is None or written == int(length)


def _pieces(answer: Any) -> Iterator[bytes]:
    while piece := answer.read(_PIECE):
        yield piece


def _etag(part: Path) -> Path:
    return part.with_name(f"{part.name}.etag")


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
