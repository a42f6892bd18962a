"""python -m milco_pyserini.index --vectors vectors/miracl-ar: a vector store to an index.

python -m milco_pyserini.index tune --index indexes/miracl-ar.seismic: the fastest settings that find enough.
"""

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
    """Build an index of a vector store: lucene (exact whole numbers, what Pyserini and Anserini read), exact (float
    scores, the ground truth) or seismic (approximate, for millions of documents; its recall is measured). The index
    takes its name when it is whole, and knows its encoder.

    "tune" as the first word finds a seismic index's settings for a wanted recall: tune --help.
    """

    vectors: Path = option(help="vector store, as milco_pyserini.encode writes it")
    engine: str = option("lucene", help="lucene, exact or seismic")
    output: Path | None = option(None, help="directory of the index (default: indexes/NAME.ENGINE)")
    threads: int = option(1, help="threads that build; in Lucene each begins a segment of its own")
    prune: tuple[str, ...] = option(
        (),
        help="leave out weak terms, without encoding again: top-k:100, percentile:50, mass:30, threshold:0.1; "
        "pivot:top-k:80 source:top-k:20 for each view by itself",
        metavar="RULE",
    )
    views: tuple[str, ...] = option((), help="views to index: pivot, source (default: all that --vectors has)")
    n_postings: int | None = option(
        None, help="seismic: postings that a term keeps, on the average; fewer build faster and find less"
    )
    topics: Path | None = option(
        None, help="seismic: vector store of topics to measure recall on (default: documents' strongest terms)"
    )
    plain: bool = option(False, help="--vectors is Anserini JSONL that others wrote: a directory or a file")
    scale: float | None = option(None, help="with --plain: impact = round(weight x scale), if weights are not whole")
    overwrite: bool = option(False, help="replace what is at --output, once the new index is whole")


def command(options: Options) -> None:
    """Build the index. Raises MilcoError before anything is written if that cannot be done."""
    from milco_pyserini.files import refuse_existing_directory
    from milco_pyserini.index.directory import build_index, is_index
    from milco_pyserini.index.recall import APPROXIMATE
    from milco_pyserini.index.registry import find_engine
    from milco_pyserini.index.settings import BUILD, adjusted, given
    from milco_pyserini.sparse import open_store
    from milco_pyserini.sparse.pruning import PrunedStore, Pruning
    from milco_pyserini.sparse.quantization import check_scale

    if options.threads < 1:
        raise MilcoError(f"--threads {options.threads}: must be at least 1")
    if options.scale is not None and not options.plain:
        raise MilcoError("--scale is for --plain: a vector store states its own")
    check_scale(1.0 if options.scale is None else options.scale)
    engine = adjusted(find_engine(options.engine), given(n_postings=options.n_postings), BUILD)
    if options.topics and engine.exactness != APPROXIMATE:
        raise MilcoError(f"--topics: {engine.name} is exact, there is no recall to measure")
    output = options.output or INDEXES / f"{directory_name(options.vectors.name)}.{engine.name}"
    refuse_existing_directory(output, options.overwrite, is_index)
    rules = [Pruning.parse(rule) for rule in options.prune]
    store = open_store(options.vectors, options.plain, 1.0 if options.scale is None else options.scale)
    pruned = PrunedStore(store, rules, options.views) if rules or options.views else None
    topics = open_store(options.topics) if options.topics else None
    index = build_index(pruned or store, engine, output, options.threads, options.overwrite, topics=topics)
    manifest = index.manifest
    if pruned is not None and pruned.emptied:
        say(f"pruning left {counted(pruned.emptied, 'document')} without terms")
    if manifest["empty_documents"]:
        empty = counted(manifest["empty_documents"], "document")
        say(f"left out {empty} without terms (empty), which no query could find")


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["tune"]:
        from milco_pyserini.index import tuning

        prog, kept = "milco_pyserini.index tune", "the index is as it was"
        return run_command(prog, tuning.Options, tuning.command, arguments[1:], interrupted=kept)
    return run_command("milco_pyserini.index", Options, command, argv, interrupted="no index was written")


if __name__ == "__main__":
    sys.exit(main())
