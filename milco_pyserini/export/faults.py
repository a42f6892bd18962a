"""Report the faults of a server in one line: what happened, what it means, and what helps."""

import contextlib
import re
from collections.abc import Iterator

from milco_pyserini.errors import MilcoError, parameter
from milco_pyserini.export.access import API_KEY, URL

MOVED = f"If it has moved, put its URL into the environment variable {URL}."
_NODES = "Start the nodes that have stopped. {again}"
_CREDENTIALS = (
    f"Check user and password in the URL, or the key in {API_KEY}. A search takes the URL from {URL}, and sends the "
    "key only to servers that you named there, or filled from this machine."
)
_LONGEST = 300


class ServerError(Exception):
    """An answer that is not the one that was asked for.

    Args:
        reason: of the server, or what is wrong with the answer.
        kind: the server's name of the error, such as index_not_found_exception.
        status: of HTTP; 0 if there was no answer.
    """

    def __init__(self, reason: str, kind: str = "", status: int = 0) -> None:
        super().__init__(reason, kind, status)
        self.reason, self.kind, self.status = reason, kind, status

    def __str__(self) -> str:
        return self.reason


# The first row that fits counts. Pattern of "STATUS KIND: REASON", or of "TYPE: REASON" for an error without a status;
# meaning in place of the reason of the server, "" keeps it; a fix, where {again} is the advice to resume, if any.
FAULTS = (
    (r"^401|password authentication failed|no password supplied|unauthenticated", "", _CREDENTIALS),
    (r"read-only-allow-delete|flood-stage", "", "Free disk space on its nodes, which lifts the block, or set "
          "index.blocks.read_only_allow_delete to null. {again}"),
    (r"cluster_block_exception.*FORBIDDEN", "", "Remove the block from the settings of the index "
          "(index.blocks.*). {again}"),
    (r"security_exception|^403", "", f"Give its user the permission, or put the URL of another user into {URL}."),
    (r"index_closed_exception|closed$", "the index is closed", "Open it: POST /INDEX/_open. {again}"),
    (r"index_not_found", "", "Run milco export again."),
    (r"another program wrote", "", "Delete the index, and run milco export again."),
    (r"too_many_(nested_)?clauses|maxClauseCount", "",
          "Raise indices.query.bool.max_clause_count on its nodes, or prune the topics."),
    (r"^413", "the request is larger than the server, or a proxy before it, accepts (status 413)",
          "Raise http.max_content_length there, or client_max_body_size of the proxy."),
    (r"^429|ResourceExhausted", "it is busy (status 429)", "Use fewer threads, or try again later. {again}"),
    (r"(cluster_manager|master)_not_discovered|no cluster.manager|state not recovered",
          "the cluster has lost the majority of its nodes", _NODES),
    (r"missing.shards|shard_not_available|shard is not active|unavailable_shards|no_shard_available"
          r"|node_not_connected|not connected|503 search_phase", "shards of the index are missing", _NODES),
    (r"^3\d\d redirect", "", f"Put the URL of the server itself into {URL} or " + parameter("url")),
    (r"html|is not a valid one|is compressed|answers to|has more than", "",
          "Check that the URL is that of the server, and not of a login page or another program."),
    (r"answer is incomplete", "", "Try again. {again}"),
    (r"WRONG_VERSION_NUMBER|record layer|HTTP_REQUEST", "it speaks http", "Begin its URL with http://."),
    (r"mismatch, certificate is not valid", "", "Use a name in the URL that its certificate contains."),
    (r"CERTIFICATE_VERIFY_FAILED", "", "If its certificate is signed by an authority of your own, set "
          "SSL_CERT_FILE to the authority's certificate."),
    (r"RemoteProtocolError", "it closed the connection without an answer",
          "If it speaks https, begin its URL with https://. {again}"),
    (r"^(TimeoutError|ReadTimeout|ConnectTimeout|WriteTimeout|PoolTimeout|DeadlineExceeded)",
          "it does not answer in time", "Check that it is up; milco search --set timeout=120 waits longer. {again}"),
    (r"^[1-9]\d\d", "", "{again}"),
)  # fmt: skip


@contextlib.contextmanager
def server_errors(what: str, hint: str, kind: type[MilcoError] = MilcoError, again: str = "") -> Iterator[None]:
    """Convert errors of a server or its client to one line.

    Args:
        hint: for a connection that fails, or an error that is not in FAULTS.
        again: the advice to run the same command again, if that resumes.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, MilcoError | AssertionError | NameError | ImportError) or getattr(error, "filename", None):
            raise
        line, reason, status = described(error)
        fault = next((fault for fault in FAULTS if re.search(fault[0], line, re.IGNORECASE)), None)
        if fault is None:
            raise kind(f"{what}: {reason}", "" if isinstance(error, ServerError) else hint) from error
        # The same request again is refused again.
        _, meaning, fix = fault
        advice = fix.format(again="" if status == 400 else again).strip()
        raise kind(f"{what}: {meaning or reason}", advice) from error


def described(error: BaseException) -> tuple[str, str, int]:
    """Return a line for FAULTS, the reason, and the status of HTTP, 0 without an answer."""
    # qdrant_client wraps the error in `source`.
    error = getattr(error, "source", error)
    reason = " ".join(re.sub(r"</?\w+(\s[^<>]*)?>", " ", str(error).strip().partition("\n")[0]).split())[:_LONGEST]
    reason = reason or type(error).__name__
    status, kind = getattr(error, "status", 0), getattr(error, "kind", type(error).__name__)
    return f"{status or ''} {kind}: {reason}".lstrip(), reason, status
