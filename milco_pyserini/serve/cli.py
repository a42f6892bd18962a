"""milco serve: a REST API, a search page with explanations, and MCP tools for an index."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import only_index
from milco_pyserini.errors import require_package
from milco_pyserini.options import MAX_THREADS, option, options_of
from milco_pyserini.request import SearchRequest

_NETWORK = "network"
_WORK = "load"
_SOURCES = "sources"
# Options that an agent on stdin and stdout does not need.
_SERVER = ("host", "port", "token", "access_log", "trust_proxy", "k", "title", "queue")


@dataclass(frozen=True)
class ServeOptions:
    """Serve an index: a search page, a REST API (described at /docs), and MCP tools for agents (at /mcp).

    Only this machine can reach it, unless --host is given; then set a token, preferably as MILCO_TOKEN in the
    environment. --mcp serves one agent on stdin and stdout instead.

      milco serve --index indexes/sample.lucene
      milco serve --index indexes/sw.lucene indexes/sw.bm25 --fuse rrf
      curl 'http://127.0.0.1:8000/search?q=Wer+erfand+das+Telefon?&k=3'
      milco serve --index indexes/sample.lucene --mcp
      milco serve --memory notes --mcp
    """

    index: tuple[Path, ...] = option(
        (), metavar="DIR", help="index (default: the only one in indexes/); several of a collection with --fuse"
    )
    memory: Path | None = option(
        None,
        metavar="DIR",
        excludes=("index", "fuse"),
        help="notes of agents, a new directory or one that agents have written: tools to remember, recall and forget",
    )
    request: SearchRequest = options_of(SearchRequest, "fuse", "weights", "alpha")
    mcp: bool = option(
        False, excludes=_SERVER, help="MCP tools on stdin and stdout, for an agent that starts this command"
    )
    k: int = option(10, minimum=1, maximum=100, names=("--hits",), help="documents on a page of results")
    title: str = option("", metavar="TEXT", help="title of the page (default: the index's name)")
    host: str = option("127.0.0.1", group=_NETWORK, metavar="ADDRESS", help="address to listen at")
    port: int = option(
        8000, group=_NETWORK, minimum=0, maximum=65535, metavar="PORT", help="port to listen at; 0 for a free one"
    )
    token: str | None = option(
        None,
        group=_NETWORK,
        metavar="TOKEN",
        help="token that requests must carry (default: MILCO_TOKEN, which other users of this machine cannot see)",
    )
    access_log: Path | None = option(
        None,
        group=_NETWORK,
        metavar="FILE",
        help="log of all requests, a line of JSON each, without queries; - for stdout (default: none)",
    )
    trust_proxy: tuple[str, ...] = option(
        (),
        group=_NETWORK,
        metavar="ADDRESS",
        help="proxies, by address or network, whose X-Forwarded-For states the client in the log (default: none)",
    )
    set: tuple[str, ...] = option(
        (),
        repeatable=True,
        metavar="NAME=VALUE",
        excludes=("fuse",),
        group=_WORK,
        help="settings of the engine for searches, as in milco search: timeout=10 (seconds, of a filled server)",
    )
    threads: int = option(2, group=_WORK, minimum=1, maximum=MAX_THREADS, help="threads that search")
    queue: int = option(128, group=_WORK, minimum=1, metavar="N", help="requests in progress; further ones get a 503")
    encoder: str | None = option(
        None,
        group=_SOURCES,
        metavar="NAME|DIR",
        excludes=("fuse",),
        help="encoder of external vectors, the index's encoder if it moved, or its query network (no explanations); "
        "of a new memory (default: mini)",
    )
    device: str = option("auto", group=_SOURCES, metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", group=_SOURCES, metavar="DTYPE", help="auto, fast, float32, bfloat16 or int8")


def command(options: ServeOptions) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    from milco_pyserini.index.protocol import parse_settings

    for package in ("fastapi", "uvicorn"):
        require_package(package, "serve", "milco serve")
    from milco_pyserini.serve.server import serve, serve_stdio, validate_token

    paths = options.index
    if not options.mcp:
        validate_token(options.host, options.token)
    if options.memory is not None:
        from milco_pyserini.serve.memory import open_memory

        paths = (open_memory(options.memory, options.encoder).path,)
    paths = paths or (only_index(),)
    request = options.request
    for error in request.index_conflicts([str(path) for path in paths]):
        raise error
    arguments = {**asdict(options), "index": paths if request.fuse else paths[0], "alpha": request.alpha}
    arguments |= {"fuse": request.fuse, "weights": request.weights or None, "memory": options.memory is not None}
    arguments["settings"] = parse_settings(arguments.pop("set")) or None
    del arguments["request"]
    if arguments.pop("mcp"):
        serve_stdio(**{name: value for name, value in arguments.items() if name not in _SERVER})
    else:
        serve(**arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command("milco serve", ServeOptions, command, argv, interrupted="the server stopped")
