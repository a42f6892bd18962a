"""Download files from servers: once, resumed if a transfer is interrupted, verified by their checksum, and kept."""

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

from milco_pyserini.console import log
from milco_pyserini.errors import DISK_FULL, MilcoError, Unreachable
from milco_pyserini.io.files import full_disk_errors, publish
from milco_pyserini.io.locks import locked_file

# A transfer has stalled if the server sends nothing for this many seconds, or fewer than these bytes in them.
STALL_SECONDS = 30.0
MIN_STALL_BYTES = 30_000
_ATTEMPTS = 4
_CHUNK_BYTES = 1 << 20
_RETRY_STATUS = {408, 425, 429, 500, 502, 503, 504}
_LENGTH = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")
_TOTAL = re.compile(r"bytes \*/([0-9]{1,18})")


def data_home() -> Path:
    """Return the directory of downloads: MILCO_DATA, or milco_pyserini in the user's cache directory."""
    named = os.environ.get("MILCO_DATA")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "milco_pyserini"


def download(url: str, target: Path, checksum: str | None = None) -> None:
    """Fetch url to target, which is complete or absent; an interrupted transfer is resumed, also by a later call.

    Several processes may ask for the same file: one fetches it, the others wait.

    Args:
        checksum: hexadecimal digits of SHA-256 (64) or MD5 (32).

    Raises:
        Unreachable: the server does not answer, or stalls.
        MilcoError: the server does not have the file, or the file has another checksum.
        OSError: target cannot be written.
    """
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    with full_disk_errors(target), locked_file(part):
        try:
            if target.exists():
                return
            log(f"Fetching {url} to {target}")
            size_known = _fetch(url, part, checksum is not None)
            if checksum is not None:
                algorithm, name = ("md5", "MD5") if len(checksum) == 32 else ("sha256", "SHA-256")
                with part.open("rb") as handle:
                    found = hashlib.file_digest(handle, algorithm).hexdigest()
                if found != checksum:
                    _truncate(part)
                    raise MilcoError(
                        f"{url} has changed: its {name} is {found}, expected {checksum}", "Try again later."
                    )
            elif not size_known:
                log(f"{url}: the server sent no size, so a truncated transfer would not be noticed")
            _etag(part).unlink(missing_ok=True)
            publish(part, target)
        finally:
            if part.exists() and not part.stat().st_size:
                part.unlink()


def _fetch(url: str, part: Path, has_checksum: bool) -> bool:
    """Try to complete part, several times; return True if the server sent the size of the file."""
    reason = ""
    for attempt in range(_ATTEMPTS):
        try:
            return _resume(url, part, has_checksum)
        except HTTPError as error:
            if error.code == 416:
                # Nothing follows what we have: it is complete, or belongs to another file.
                total = _TOTAL.fullmatch(error.headers.get("Content-Range", ""))
                if total is not None and int(total[1]) == part.stat().st_size:
                    return True
                _truncate(part)
                continue
            reason = f"the server answers {error.code} {error.reason}"
            if error.code not in _RETRY_STATUS:
                raise MilcoError(f"{url} cannot be fetched: {reason}") from None
            if attempt < _ATTEMPTS - 1:
                time.sleep(2**attempt)
        except (OSError, HTTPException) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            reason = str(getattr(error, "reason", error))
    raise Unreachable(
        f"{url} cannot be reached ({reason})",
        "With a network the same command fetches it, from where it stopped; without one, pass a copy as NAME@PATH, or "
        f"put one in {part.parent} as {part.name.removesuffix('.part')}.",
    )


def _resume(url: str, part: Path, has_checksum: bool) -> bool:
    """Fetch what part lacks; return True if the server sent the size. Raises OSError if it is still incomplete."""
    headers = {"User-Agent": "milco_pyserini"}
    etag, size = _etag(part), part.stat().st_size
    if size and etag.exists():
        # If the file has changed in the meantime, the server sends all of it.
        headers |= {"Range": f"bytes={size}-", "If-Range": etag.read_text(encoding="utf-8")}
    with build_opener(_SecureRedirects).open(Request(url, headers=headers), timeout=STALL_SECONDS) as answer:
        if answer.headers.get_content_type() == "text/html" and not has_checksum:
            raise MilcoError(f"{url} cannot be fetched: the server answers with a web page (it may require a login)")
        total = _total_size(answer, size, part)
        with part.open("ab" if answer.status == 206 else "wb") as handle:
            # After opening, which truncates a part with another entity tag.
            if answer.headers.get("ETag"):
                etag.write_text(answer.headers["ETag"], encoding="utf-8")
            else:
                etag.unlink(missing_ok=True)
            _copy(answer, handle)
    if total is not None and part.stat().st_size != total:
        raise OSError("the transfer was interrupted")
    return total is not None


def _total_size(answer: HTTPResponse, size: int, part: Path) -> int | None:
    """Return the size of the complete file if it was sent. Raises OSError for another range than was requested."""
    length = answer.headers.get("Content-Length", "")
    sent = int(length) if _LENGTH.fullmatch(length) else None
    if answer.status != 206:
        return sent
    found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != size:
        _truncate(part)
        raise OSError("the server sent another range of the file than was requested")
    if found[2] != "*":
        return int(found[2])
    return None if sent is None else size + sent


def _copy(answer: HTTPResponse, handle: IO[bytes]) -> None:
    """Write what a server sends. Raises TimeoutError if the transfer stalls."""
    received, since = 0, time.monotonic()
    while chunk := answer.read1(_CHUNK_BYTES):
        handle.write(chunk)
        received += len(chunk)
        if (seconds := time.monotonic() - since) >= STALL_SECONDS:
            if received < MIN_STALL_BYTES:
                raise TimeoutError(f"the server sent {received:,} bytes in {seconds:.0f} s")
            received, since = 0, time.monotonic()


class _SecureRedirects(HTTPRedirectHandler):
    """Follows redirects to https, or to the scheme of the first address, only."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme not in ("https", urlsplit(req.full_url).scheme):
            raise MilcoError(f"{req.full_url} redirects to {newurl}: downloads stay with their scheme, or https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _truncate(part: Path) -> None:
    # Not removed: this process holds its lock.
    os.truncate(part, 0)
    _etag(part).unlink(missing_ok=True)


def _etag(part: Path) -> Path:
    return part.with_name(f"{part.name}.etag")
