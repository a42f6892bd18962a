"""milco serve: a page to search an index and see why its documents match."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import only_index
from milco_pyserini.options import option


@dataclass(frozen=True)
class ServeOptions:
    """Serve a page to search an index, in any language, and see why its documents match.

    Anyone who can reach --host can read the documents; by default, that is this machine only.

      milco serve --index indexes/sample.lucene
    """

    index: Path | None = option(None, metavar="DIR", help="directory of the index (default: the only one in indexes/)")
    host: str = option("127.0.0.1", metavar="ADDRESS", help="address to listen at")
    port: int = option(8000, minimum=0, maximum=65535, metavar="PORT", help="port to listen at; 0 for a free one")
    hits: int = option(10, minimum=1, maximum=100, metavar="K", help="documents per query")
    alpha: float | None = option(
        None,
        minimum=0,
        maximum=1,
        metavar="A",
        help="weight of a query's pivot view, with 1 - A for its source view (default: both count in full)",
    )
    corpus: str | None = option(
        None, metavar="NAME|PATH", help="current location of the index's documents (default: where they were encoded)"
    )
    encoder: str | None = option(
        None, metavar="NAME|DIR", help="current location of the index's encoder, or the encoder for external vectors"
    )
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16")


def command(options: ServeOptions) -> None:
    """Serve until Ctrl-C."""
    from milco_pyserini.serve import serve

    serve(**{**asdict(options), "index": options.index or only_index()})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command("milco serve", ServeOptions, command, argv, interrupted="the server stopped")
