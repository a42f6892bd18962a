"""Download files from servers: once, verified by their checksum, and kept."""

import hashlib
import shutil
import time
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from milco_pyserini.console import log
from milco_pyserini.errors import DISK_FULL, MilcoError, Unreachable
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.locks import locked_directory

# Seconds within which the server has to send something.
_TIMEOUT = 30.0
_ATTEMPTS = 4
_RETRY_STATUS = {408, 425, 429, 500, 502, 503, 504}


def download(url: str, target: Path, checksum: str | None = None) -> None:
    """Fetch url to target, which is complete or absent. A transfer that fails is begun again, up to three times.

    Several processes may ask for the same file: one fetches it, the others wait.

    Args:
        checksum: hexadecimal digits of SHA-256 (64) or MD5 (32).

    Raises:
        Unreachable: the server does not answer, or interrupts the transfer.
        MilcoError: the server does not have the file, or the file has another checksum.
        OSError: target cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked_directory(target.parent, limit=None):
        if target.exists():
            return
        log(f"Fetching {url} to {target}")
        with atomic_file(target, "w+b") as handle:
            _fetch(url, target, handle)
            if checksum is not None:
                algorithm, name = ("md5", "MD5") if len(checksum) == 32 else ("sha256", "SHA-256")
                handle.seek(0)
                digest = hashlib.file_digest(handle, algorithm).hexdigest()  # type: ignore[arg-type]
                if digest != checksum:
                    fix = "Try again later."
                    raise MilcoError(f"{url} has changed: its {name} is {digest}, expected {checksum}", fix)


def _fetch(url: str, target: Path, handle: IO[bytes]) -> None:
    """Write the server's response to an open file."""
    request = Request(url, headers={"User-Agent": "milco_pyserini"})
    for attempt in range(_ATTEMPTS):
        handle.seek(0)
        handle.truncate()
        try:
            with urlopen(request, timeout=_TIMEOUT) as answer:
                shutil.copyfileobj(answer, handle)
                # The number of bytes that were announced and have not arrived; None if the server sent no size.
                if not answer.length:
                    return
            reason = "the transfer was interrupted"
        except HTTPError as error:
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
        "With a network the same command fetches it; without one, pass a copy as NAME@PATH, or put one in "
        f"{target.parent} as {target.name}.",
    )
