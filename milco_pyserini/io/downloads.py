"""Files from a publisher's own server: fetched once, resumed where a transfer broke off, checked, and kept."""

import hashlib
import os
import re
import time
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from milco_pyserini.console import say
from milco_pyserini.errors import DISK_FULL, MilcoError
from milco_pyserini.io import locks
from milco_pyserini.io.files import full_disk_errors, publish

HOME = "MILCO_DATA"
# A server has stalled that sends nothing for so many seconds, or fewer bytes than these in so many seconds.
PATIENCE = 30.0
LEAST = 30_000
_ATTEMPTS = 4
_PIECE = 1 << 20
# Answers of a server that may answer otherwise in a moment.
_BUSY = {408, 425, 429, 500, 502, 503, 504}
_LENGTH = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")


def data_home() -> Path:
    """Where fetched files are kept: MILCO_DATA, or else milco_pyserini in the user's cache directory."""
    named = os.environ.get(HOME)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "milco_pyserini"


def download(url: str, target: Path, checksum: str | None = None) -> None:
    """Fetch url to target, which appears complete or not at all; a transfer that breaks off is resumed.

    checksum: of the file, in hexadecimal digits: 64 of SHA-256 or 32 of MD5. Raises MilcoError if the server cannot be
    reached, has no such file or sends too slowly, or if what came is not what it must be; OSError if target cannot be
    written.
    """
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    with full_disk_errors(target), locks.locked_file(part):
        try:
            if target.exists():
                return
            say(f"fetching {url} to {target}")
            known = _fetch(url, part, checksum is not None)
            name, found = _digest(part, checksum)
            if checksum not in (None, found):
                _empty(part)
                raise MilcoError(f"{url} is not what it was: its {name} is {found}, not {checksum}. Try again later")
            if not (known or checksum):
                say(f"{url}: without a size or a checksum to compare with, a cut transfer would not be noticed")
            _etag(part).unlink(missing_ok=True)
            publish(part, target)
        finally:
            if part.exists() and not part.stat().st_size:
                part.unlink()


def _fetch(url: str, part: Path, checked: bool) -> bool:
    """Returns whether the server said how long the file is. checked: whether the checksum is known."""
    trouble: Exception | None = None
    for attempt in range(_ATTEMPTS):
        try:
            return _resume(url, part, checked)
        except HTTPError as error:
            if error.code == 416:  # there is nothing behind what we have: it is of another file
                _empty(part)
            elif error.code not in _BUSY:
                raise MilcoError(f"{url} cannot be fetched: the server answers {error.code} {error.reason}") from None
            else:
                trouble = error
                if attempt < _ATTEMPTS - 1:
                    time.sleep(2**attempt)
        except (OSError, HTTPException) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            trouble = error
    why = f"the server answers {trouble.code} {trouble.reason}" if isinstance(trouble, HTTPError) else trouble
    raise MilcoError(
        f"{url} could not be reached ({getattr(why, 'reason', why)}). With a network the same command fetches it and "
        f"resumes where it broke off; without, give a copy as NAME@PATH, or put one in {part.parent} as "
        f"{part.name.removesuffix('.part')}"
    )


def _resume(url: str, part: Path, checked: bool) -> bool:
    """Fetch what part lacks; returns whether the server said how long it is. Raises OSError if it is not complete."""
    headers = {"User-Agent": "milco_pyserini"}
    etag, size = _etag(part), part.stat().st_size
    if size and etag.exists():
        # If the file has changed meanwhile, the server sends all of it again.
        headers |= {"Range": f"bytes={size}-", "If-Range": etag.read_text(encoding="utf-8")}
    with build_opener(_Redirects).open(Request(url, headers=headers), timeout=PATIENCE) as answer:
        if answer.headers.get_content_type() == "text/html" and not checked:
            raise MilcoError(f"{url} cannot be fetched: the server answers with a web page (it may want a login)")
        total = _total(answer, size, part)
        with part.open("ab" if answer.status == 206 else "wb") as handle:
            # After the opening, which empties the part that another entity tag was of.
            if answer.headers.get("ETag"):
                etag.write_text(answer.headers["ETag"], encoding="utf-8")
            else:
                etag.unlink(missing_ok=True)
            _copy(answer, handle)
    if total is not None and part.stat().st_size != total:
        raise OSError("the transfer broke off")
    return total is not None


def _total(answer: HTTPResponse, size: int, part: Path) -> int | None:
    """The size of the complete file, if the server says it. Raises OSError if it sends another part than asked for."""
    length = answer.headers.get("Content-Length", "")
    sent = int(length) if _LENGTH.fullmatch(length) else None
    if answer.status != 206:
        return sent
    found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != size:
        _empty(part)
        raise OSError("the server sent another part of the file than it was asked for")
    if found[2] != "*":
        return int(found[2])
    return None if sent is None else size + sent


def _copy(answer: HTTPResponse, handle: IO[bytes]) -> None:
    """Write what a server sends. Raises TimeoutError if it has stalled."""
    received, since = 0, time.monotonic()
    while piece := answer.read1(_PIECE):
        handle.write(piece)
        received += len(piece)
        if (seconds := time.monotonic() - since) >= PATIENCE:
            if received < LEAST:
                raise TimeoutError(f"the server sent {received:,} bytes in {seconds:.0f} s")
            received, since = 0, time.monotonic()


class _Redirects(HTTPRedirectHandler):
    """Follows redirects to https only, or to what the first address has."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme not in ("https", urlsplit(req.full_url).scheme):
            raise MilcoError(f"{req.full_url} redirects to {newurl}: what is fetched by https stays there")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _empty(part: Path) -> None:
    """Not removed: who holds it is alone with it."""
    os.truncate(part, 0)
    _etag(part).unlink(missing_ok=True)


def _etag(part: Path) -> Path:
    return part.with_name(f"{part.name}.etag")


def _digest(path: Path, like: str | None) -> tuple[str, str]:
    """The name and the digits of a file's checksum, by the algorithm of another one."""
    name = "md5" if like is not None and len(like) == 32 else "sha256"
    with path.open("rb") as handle:
        return {"md5": "MD5", "sha256": "SHA-256"}[name], hashlib.file_digest(handle, name).hexdigest()
