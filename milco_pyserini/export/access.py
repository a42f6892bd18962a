"""Access to a server: its URLs, what of them may be shown and stored, who receives the key, and how long to wait."""

import contextlib
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from milco_pyserini.console import warn
from milco_pyserini.errors import ParameterError

# Names of variables in the environment: a key, and URLs in place of those in an index directory.
API_KEY, URL = "MILCO_API_KEY", "MILCO_URL"
_POSTGRES = ("postgresql", "postgres")
# Parameters of libpq that are part of an address.
_PUBLIC = ("host", "port", "dbname", "user", "sslmode")
_ENDS: ContextVar[float] = ContextVar("ends", default=math.inf)


@dataclass(frozen=True)
class Access:
    """The URLs of a server, and the key that it receives.

    Args:
        urls: of one server, or of several nodes of a cluster, with passwords.
        key: None if the server receives none.
    """

    urls: tuple[str, ...] = field(repr=False)
    key: str | None = field(default=None, repr=False)

    @classmethod
    def named(cls, urls: Sequence[str]) -> "Access":
        """Return access to URLs that this user named: the server receives the key in the environment."""
        return cls(tuple(urls), os.environ.get(API_KEY))

    @classmethod
    def found(cls, urls: Sequence[str]) -> "Access":
        """Return access to the URLs in an index directory, which anyone may have written, or those of MILCO_URL.

        The server receives the key if MILCO_URL names it, or if this user has filled it from this machine.
        """
        # Passwords and paths may have white space.
        given = list(filter(None, re.split(r"\s+(?=\w+://)", os.environ.get(URL, "").strip())))
        own = given or (_hosts().read_text(encoding="utf-8").split() if _hosts().is_file() else [])
        known = set(map(_origin, own)).issuperset(map(_origin, given or urls))
        return cls.named(given or urls) if known else cls(tuple(urls))

    def remember(self) -> None:
        """Note that this user has filled the server, if it received the key: later searches send it, too."""
        if self.key is None:
            return
        known = _hosts().read_text(encoding="utf-8").split() if _hosts().is_file() else []
        try:
            _hosts().parent.mkdir(parents=True, exist_ok=True)
            with _hosts().open("a", encoding="utf-8") as file:
                file.writelines(f"{origin}\n" for origin in map(_origin, self.urls) if origin not in known)
        except OSError as error:
            warn(f"{_hosts()}: {error.strerror}. Searches need {URL} to send {API_KEY}")

    @property
    def shown(self) -> str:
        """The URLs without secrets, for messages."""
        return " ".join(map(public_url, self.urls))


def public_url(url: str) -> str:
    """Return scheme, user, host, port and path of a URL; a path as it is. Raises MilcoError for anything else.

    A user without a password is left out: it may be a token.

    >>> public_url("https://me:secret@search.example.org:9200/es?token=x")
    'https://me@search.example.org:9200/es'
    """
    if "://" not in url:
        is_secret = bool("@" in url or re.match(r"\s*\w+\s*=", url))
        if is_secret or re.fullmatch(r"[^/]+:\d+/?", url):
            rule = "must begin with its scheme, as in https://HOST:9200"
            raise ParameterError("url", None if is_secret else url, rule)
        return url
    try:
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
        is_valid = bool(parts.scheme and (parts.port or place or parts.scheme in _POSTGRES))
    except ValueError:
        is_valid = False
    if not is_valid or "@" in unquote(parts.path) + parts.query + parts.fragment:
        fix = "Write the characters / ? # and @ of a user or password as %2F, %3F, %23 and %40."
        raise ParameterError("url", None, "must be of the form https://USER:PASSWORD@HOST:PORT", fix)
    has_user = parts.username and (parts.password or parts.scheme in _POSTGRES)
    user = f"{quote(unquote(parts.username or ''), safe='')}@" if has_user else ""
    public = f"{parts.scheme}://{user}{place}{parts.path}"
    if parts.scheme in _POSTGRES and (kept := [pair for pair in parse_qsl(parts.query) if pair[0] in _PUBLIC]):
        public += f"?{urlencode(kept)}"
    return public


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End requests to servers within the block after these seconds, or at an earlier deadline around it."""
    token = _ENDS.set(min(_ENDS.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _ENDS.reset(token)


def remaining(most: float = math.inf) -> float:
    """Return the seconds until the deadline, up to most. Raises TimeoutError once it has passed."""
    seconds = min(most, _ENDS.get() - time.monotonic())
    if seconds <= 0:
        raise TimeoutError("no answer in time")
    return seconds


def _hosts() -> Path:
    """The file of the servers that this user has filled with a key: one per line, without secrets."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "milco_pyserini" / "servers"


def _origin(url: str) -> str:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"
