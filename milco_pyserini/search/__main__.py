"""python -m milco_pyserini.search --index indexes/miracl-ar.lucene --topics miracl-ar-dev: topics to a run."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.console import Progress, counted, duration, say
from milco_pyserini.defaults import INDEXES, RUNS, directory_name
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.files import refuse_output
from milco_pyserini.options import option, run_command

if TYPE_CHECKING:
    from milco_pyserini.encode import MilcoQueryEncoder
    from milco_pyserini.index import Hits, Index
    from milco_pyserini.index.protocol import Searcher
    from milco_pyserini.search.topics import Topics


@dataclass(frozen=True)
class Options:
    """Search an index and write a run. The index knows its encoder; topics that are encoded already need none."""

    topics: str = option(
        help="a name (miracl-ar-dev), texts (TSV, JSONL, TREC), a vector store of topics, or JSONL with id and vector "
        "(whole numbers: impacts; others: weights)"
    )
    index: Path | None = option(None, help="directory of the index (default: the only one in indexes/)")
    output: Path | None = option(None, help="the run's file (default: runs/INDEX.TOPICS.txt)")
    hits: int = option(1000, help="documents for each topic; with --max-passage, passages to start from")
    threads: int = option(1, help="threads that search")
    batch_size: int = option(64, help="topics that are encoded and searched at a time")
    alpha: float | None = option(
        None, help="weigh the queries' views: alpha x pivot + (1 - alpha) x source (default: as they are encoded)"
    )
    query_cut: int | None = option(
        None, help="seismic: strongest terms of a query that are looked up (default: the index's own)"
    )
    heap_factor: float | None = option(
        None, help="seismic: up to 1; lower is slower and finds more (default: the index's own)"
    )
    max_passage: bool = option(False, help="the index holds passages DOCID#N: rank documents by their best one")
    max_passage_delimiter: str = option("#", help="what stands between document and passage")
    max_passage_hits: int = option(100, help="with --max-passage: documents for each topic")
    output_format: str = option("trec", choices=("trec", "msmarco"), help="trec or msmarco")
    tag: str | None = option(None, help="the run's name in its last column (default: milco-ENGINE)")
    encoder: str | None = option(None, help="where the index's encoder is now; for vectors that others wrote, which")
    device: str = option("auto", help="for the encoder: auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="for the encoder: auto, float32 or bfloat16")
    overwrite: bool = option(False, help="replace what is at --output, once the new run is whole")


def command(options: Options) -> None:
    """Search and write the run. Raises MilcoError before the search if something does not fit."""
    from milco_pyserini.index import open_index
    from milco_pyserini.search.topics import read_topics

    _check(options)
    index = open_index(options.index or _only_index())
    _check_docids(index)
    if options.max_passage:
        _check_passages(index)
    output = options.output or RUNS / f"{index.path.resolve().name}.{directory_name(options.topics)}.txt"
    refuse_output(output, options.overwrite)
    topics = read_topics(options.topics, index)
    _write_run(options, index, topics, output)


def _check(options: Options) -> None:
    for name in ("hits", "threads", "batch_size", "max_passage_hits"):
        if getattr(options, name) < 1:
            raise MilcoError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least 1")
    if options.tag is not None and options.tag.split() != [options.tag]:
        raise MilcoError(f"--tag {options.tag!r} is empty or holds white space, which ends a run's column")
    if not options.max_passage_delimiter:
        raise MilcoError("--max-passage-delimiter is empty")
    if options.alpha is not None and not 0 <= options.alpha <= 1:
        raise MilcoError(f"--alpha {options.alpha}: must be from 0 to 1")


def _only_index() -> Path:
    found = sorted(path.parent for path in INDEXES.glob("*/manifest.json"))
    if len(found) != 1:
        build = "build one with python -m milco_pyserini.index --vectors VECTORS"
        which = f"there are {', '.join(map(str, found))}" if found else f"there is none in {INDEXES}/: {build}"
        raise MilcoError(f"which --index? {which}")
    return found[0]


def _check_docids(index: "Index") -> None:
    name = index.manifest["id_with_space"]
    if name is not None:
        raise MilcoError(f"{index.path}: docid {shown(name)} holds white space, which ends a run's column")


def _check_passages(index: "Index") -> None:
    # Vectors that others wrote do not say what they are: there the user must know.
    if not (index.vectors.get("split_passages") or index.vectors.get("plain")):
        raise MilcoError(
            f"--max-passage: {index.path} was not made of passages (encode --split-passages), and cutting its docids "
            "at a # would mix documents up: leave --max-passage out"
        )


def _write_run(options: Options, index: "Index", topics: "Topics", output: Path) -> None:
    from milco_pyserini.files import whole_file
    from milco_pyserini.index.settings import given
    from milco_pyserini.search.run_file import write_hits

    started = time.monotonic()
    searcher = index.searcher(given(query_cut=options.query_cut, heap_factor=options.heap_factor))
    batches = _vectors(options, index, topics)
    what = "" if topics.texts is None else " and the encoder"
    say(f"loaded {index.path}{what} in {duration(time.monotonic() - started)}")
    progress = Progress("queries", len(topics.ids))
    tag = options.tag or f"milco-{index.engine.name}"
    empty = without_hits = 0
    with whole_file(output, "w") as run:
        for names, vectors in batches:
            results = _search(options, searcher, vectors)
            for name, hits in zip(names, results, strict=True):
                write_hits(run, name, hits, options.output_format, tag)
            empty += sum(not vector for vector in vectors)
            without_hits += sum(not len(hits) for hits in results)
            progress.add(len(names), hits=sum(map(len, results)))
    progress.close(f"searched {index.path} ({index.engine.exactness}) into {output}")
    if without_hits:
        say(f"{counted(without_hits, 'query', 'queries')} without hits, {empty:,} of them without terms (empty)")


def _vectors(
    options: Options, index: "Index", topics: "Topics"
) -> Iterator[tuple[Sequence[str], Sequence[dict[str, float]]]]:
    """Ids and vectors of --batch-size topics at a time. The encoder is loaded before the first batch is asked for."""
    spans = [slice(start, start + options.batch_size) for start in range(0, len(topics.ids), options.batch_size)]
    if topics.vectors is not None:
        for name in ("encoder", "alpha"):
            if (value := getattr(options, name)) is not None:
                raise MilcoError(f"--{name} {value}: {options.topics} holds vectors, nothing is encoded")
        vectors = topics.vectors
        return ((topics.ids[span], vectors[span]) for span in spans)
    from milco_pyserini.encode import open_query_encoder

    encoder = open_query_encoder(index.vectors, options.encoder, options.device, options.dtype)
    texts = topics.texts or []
    if options.alpha is None:
        return ((topics.ids[span], encoder.encode_batch(texts[span])) for span in spans)
    if len(encoder.views) < 2:
        raise MilcoError(f"--alpha {options.alpha}: {index.path} has the {encoder.views[0]} view alone")
    return ((topics.ids[span], _weighted(encoder, texts[span], options.alpha)) for span in spans)


def _weighted(encoder: "MilcoQueryEncoder", texts: Sequence[str], alpha: float) -> list[dict[str, float]]:
    """Queries as encode_batch() gives them, with alpha x the pivot view and (1 - alpha) x the source view."""
    how = {"max_length": encoder.max_length, "views": encoder.views, "lowercase": encoder.lowercase}
    return encoder.encoder.encode_query(texts, alpha, **how).to_dicts(encoder.encoder.vocabulary)


def _search(options: Options, searcher: "Searcher", vectors: Sequence[dict[str, float]]) -> "list[Hits]":
    from milco_pyserini.search.passages import search_documents

    if not options.max_passage:
        return searcher.search(vectors, options.hits, options.threads)
    wanted, delimiter = options.max_passage_hits, options.max_passage_delimiter
    return search_documents(searcher, vectors, wanted, options.hits, delimiter, options.threads)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return run_command("milco_pyserini.search", Options, command, argv, interrupted="no run was written")


if __name__ == "__main__":
    sys.exit(main())
