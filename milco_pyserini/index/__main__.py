"""python -m milco_pyserini.index --vectors vectors/miracl-ar: a vector store to an index."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.console import counted, say
from milco_pyserini.defaults import INDEXES, directory_name
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option, run_command


@dataclass(frozen=True)
class Options:
    """Build an index of a vector store: lucene (exact whole numbers, what Pyserini and Anserini read) or
    exact (float scores, the ground truth). The index takes its name when it is whole, and knows its encoder.
    """

    vectors: Path = option(help="vector store, as milco_pyserini.encode writes it")
    engine: str = option("lucene", help="lucene or exact")
    output: Path | None = option(None, help="directory of the index (default: indexes/NAME.ENGINE)")
    threads: int = option(1, help="threads that write to Lucene; each begins a segment of its own")
    plain: bool = option(False, help="--vectors is Anserini JSONL that others wrote: a directory or a file")
    scale: float | None = option(None, help="with --plain: impact = round(weight x scale), if weights are not whole")
    overwrite: bool = option(False, help="replace what is at --output, once the new index is whole")


def command(options: Options) -> None:
    """Build the index. Raises MilcoError before anything is written if that cannot be done."""
    from milco_pyserini.files import refuse_existing_directory
    from milco_pyserini.index.directory import build_index, is_index
    from milco_pyserini.index.registry import find_engine
    from milco_pyserini.sparse import open_store
    from milco_pyserini.sparse.quantization import check_scale

    if options.threads < 1:
        raise MilcoError(f"--threads {options.threads}: must be at least 1")
    if options.scale is not None and not options.plain:
        raise MilcoError("--scale is for --plain: a vector store states its own")
    check_scale(1.0 if options.scale is None else options.scale)
    engine = find_engine(options.engine)
    output = options.output or INDEXES / f"{directory_name(options.vectors.name)}.{engine.name}"
    refuse_existing_directory(output, options.overwrite, is_index)
    store = open_store(options.vectors, options.plain, 1.0 if options.scale is None else options.scale)
    manifest = build_index(store, engine, output, options.threads, options.overwrite).manifest
    if manifest["empty_documents"]:
        empty = counted(manifest["empty_documents"], "document")
        say(f"left out {empty} without terms (empty), which no query could find")


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return run_command("milco_pyserini.index", Options, command, argv, interrupted="no index was written")


if __name__ == "__main__":
    sys.exit(main())
