"""milco search --index indexes/miracl-ar.lucene --topics miracl-ar-dev: topics to a run.

milco search fuse --runs runs/bm25.txt runs/milco.txt: several runs to one.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import Progress, counted, duration, say
from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.defaults import INDEXES, RUNS, directory_name
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.io.files import validate_output_file
from milco_pyserini.options import MAX_THREADS, option

if TYPE_CHECKING:
    from milco_pyserini.encode import MilcoQueryEncoder
    from milco_pyserini.index import Hits, Index
    from milco_pyserini.index.protocol import Searcher
    from milco_pyserini.search.topics import Topics

STDOUT = Path("-")


@dataclass(frozen=True)
class Options:
    """Search an index and write a run. The index knows its encoder; topics that are encoded already need none, and
    neither does an index of texts (bm25).

    "fuse" as the first word makes one run of several: fuse --help.
    """

    topics: str = option(
        help="a name (miracl-ar-dev), texts (TSV, JSONL, TREC), a vector store of topics, or JSONL with id and vector "
        "(whole numbers: impacts; others: weights)"
    )
    index: Path | None = option(None, help="directory of the index (default: the only one in indexes/)")
    output: Path | None = option(None, help="the run's file (default: runs/INDEX.TOPICS.txt); - is stdout")
    hits: int = option(1000, minimum=1, help="documents for each topic; with --max-passage, passages to start from")
    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="threads that search")
    batch_size: int = option(64, minimum=1, help="topics that are encoded and searched at a time")
    alpha: float | None = option(
        None,
        minimum=0,
        maximum=1,
        help="weigh the queries' views: alpha x pivot + (1 - alpha) x source (default: as they are encoded)",
    )
    query_cut: int | None = option(
        None, help="seismic: strongest terms of a query that are looked up (default: the index's own)"
    )
    heap_factor: float | None = option(
        None, help="seismic: up to 1; lower is slower and finds more (default: the index's own)"
    )
    ef_search: int | None = option(
        None, help="hnsw: vectors that a search keeps in view; more is slower and finds more (default: the index's own)"
    )
    max_passage: bool = option(False, help="the index holds passages DOCID#N: rank documents by their best one")
    max_passage_delimiter: str = option(PASSAGE_DELIMITER, help="what stands between document and passage")
    max_passage_hits: int = option(100, minimum=1, help="with --max-passage: documents for each topic")
    remove_query: bool = option(
        False, help="leave out the document that has the topic's id, as BEIR does for ArguAna and Quora"
    )
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
    if output != STDOUT:
        validate_output_file(output, options.overwrite)
    topics = read_topics(options.topics, index, index.engine.queries)
    _write_run(options, index, topics, output)


def _check(options: Options) -> None:
    from milco_pyserini.io.run_file import check_tag

    if options.tag is not None:
        check_tag(options.tag)
    if not options.max_passage_delimiter:
        raise MilcoError("--max-passage-delimiter is empty")


def _only_index() -> Path:
    found = sorted(path.parent for path in INDEXES.glob("*/manifest.json"))
    if len(found) != 1:
        build = "build one with milco index --vectors VECTORS"
        which = f"there are {', '.join(map(str, found))}" if found else f"there is none in {INDEXES}/: {build}"
        raise MilcoError(f"which --index? {which}")
    return found[0]


def _check_docids(index: "Index") -> None:
    name = index.manifest["id_with_space"]
    if name is not None:
        raise MilcoError(f"{index.path}: docid {shown(name)} holds white space, which ends a run's column")


def _check_passages(index: "Index") -> None:
    # Vectors that others wrote and texts do not say what they are: there the user must know.
    known = index.manifest.get("vectors", {"plain": True})
    if not (known.get("split_passages") or known.get("plain")):
        raise MilcoError(
            f"--max-passage: {index.path} was not made of passages (encode --split-passages), and cutting its docids "
            "at a # would mix documents up: leave --max-passage out"
        )


def _write_run(options: Options, index: "Index", topics: "Topics", output: Path) -> None:
    from milco_pyserini.index.protocol import TEXT
    from milco_pyserini.index.settings import given
    from milco_pyserini.io.files import atomic_file
    from milco_pyserini.io.run_file import write_hits

    started = time.monotonic()
    searcher = index.searcher(
        given(query_cut=options.query_cut, heap_factor=options.heap_factor, ef_search=options.ef_search)
    )
    batches = _queries(options, index, topics)
    what = " and the encoder" if topics.vectors is None and index.engine.queries != TEXT else ""
    say(f"loaded {index.path}{what} in {duration(time.monotonic() - started)}")
    progress = Progress("queries", len(topics.ids))
    tag = options.tag or f"milco-{index.engine.name}"
    empty = without_hits = 0
    with contextlib.nullcontext(sys.stdout) if output == STDOUT else atomic_file(output, "w") as run:
        for names, queries in batches:
            results = _search(options, searcher, names, queries)
            for name, hits in zip(names, results, strict=True):
                write_hits(run, name, hits, options.output_format, tag)
            empty += sum(not len(query) for query in queries)
            without_hits += sum(not len(hits) for hits in results)
            progress.add(len(names), hits=sum(map(len, results)))
    progress.close(f"searched {index.path} ({index.engine.exactness}) into {'stdout' if output == STDOUT else output}")
    if without_hits:
        why = f", {empty:,} of them without terms (empty)" if empty else ""
        say(f"{counted(without_hits, 'query', 'queries')} without hits{why}")


def _queries(options: Options, index: "Index", topics: "Topics") -> Iterator[tuple[Sequence[str], Sequence[Any]]]:
    """Ids and queries of --batch-size topics at a time. The encoder is loaded before the first batch is asked for."""
    make = _query_maker(options, index, topics)
    spans = [slice(start, start + options.batch_size) for start in range(0, len(topics.ids), options.batch_size)]
    return ((topics.ids[span], make(span)) for span in spans)


def _query_maker(options: Options, index: "Index", topics: "Topics") -> Callable[[slice], Sequence[Any]]:
    """What gives the queries of a span of the topics, as the index's engine takes them."""
    from milco_pyserini.index.protocol import DENSE, TEXT

    vectors, texts, kind = topics.vectors, topics.texts or [], index.engine.queries
    if vectors is not None:
        _refuse_given(options, ("encoder", "alpha"), f"{options.topics} holds vectors, nothing is encoded")
        return vectors.__getitem__
    if kind == TEXT:
        why = f"{index.engine.name} searches for the topics' words, nothing is encoded"
        _refuse_given(options, ("encoder", "alpha"), why)
        return texts.__getitem__
    if kind == DENSE:
        from milco_pyserini.encode.dense import open_dense_query_encoder

        _refuse_given(options, ("alpha",), f"{index.path} is of dense vectors, which have no views")
        dense = open_dense_query_encoder(index.vectors, options.encoder, options.device, options.dtype)
        return lambda span: list(dense.encode_batch(texts[span]))
    from milco_pyserini.encode import open_query_encoder

    encoder = open_query_encoder(index.vectors, options.encoder, options.device, options.dtype)
    alpha = options.alpha
    if alpha is None:
        return lambda span: encoder.encode_batch(texts[span])
    if len(encoder.views) < 2:
        raise MilcoError(f"--alpha {alpha}: {index.path} has the {encoder.views[0]} view alone")
    return lambda span: _weighted(encoder, texts[span], alpha)


def _refuse_given(options: Options, names: Sequence[str], why: str) -> None:
    for name in names:
        if (value := getattr(options, name)) is not None:
            raise MilcoError(f"--{name} {value}: {why}")


def _weighted(encoder: "MilcoQueryEncoder", texts: Sequence[str], alpha: float) -> list[dict[str, float]]:
    """Queries as encode_batch() gives them, with alpha x the pivot view and (1 - alpha) x the source view."""
    batch = encoder.encoder.encode_query(texts, alpha, encoder.max_length, encoder.views, encoder.lowercase)
    return batch.to_dicts(encoder.encoder.vocabulary)


def _search(options: Options, searcher: "Searcher", names: Sequence[str], queries: Sequence[Any]) -> "list[Hits]":
    from milco_pyserini.search.passages import search_documents

    wanted = options.max_passage_hits if options.max_passage else options.hits
    # The document that is to be left out may be among the best.
    fetched = wanted + options.remove_query
    if options.max_passage:
        delimiter = options.max_passage_delimiter
        results = search_documents(searcher, queries, fetched, options.hits, delimiter, options.threads)
    else:
        results = searcher.search(queries, fetched, options.threads)
    if not options.remove_query:
        return results
    return [_without(hits, name, wanted) for name, hits in zip(names, results, strict=True)]


def _without(hits: "Hits", docid: str, wanted: int) -> "Hits":
    """The best hits, as many as wanted, that are not this document."""
    from milco_pyserini.index.protocol import Hits

    places = [place for place, found in enumerate(hits.docids) if found != docid][:wanted]
    return Hits([hits.docids[place] for place in places], hits.scores[places])


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["fuse"]:
        from milco_pyserini.cli import fuse

        prog, written = "milco search fuse", "no run was written"
        return run_command(prog, fuse.Options, fuse.command, arguments[1:], interrupted=written)
    return run_command("milco search", Options, command, argv, interrupted="no run was written")
