"""milco search --index indexes/miracl-ar.lucene --topics miracl-ar-dev: search topics, write a run.

milco search --query TEXT: search for one text, print hits; without --query, a terminal asks for texts.
milco search --index indexes/sw.lucene indexes/sw.bm25 --fuse rrf: search several indexes, fuse their hits.
milco search fuse --runs runs/bm25.txt runs/milco.txt: fuse runs.
milco search rerank --run runs/milco.txt --encoder BAAI/bge-reranker-v2-m3: score the texts of a run.
"""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milco_pyserini.cli.parser import Subcommand, dispatch
from milco_pyserini.cli.runs import FuseOptions, RerankOptions, fuse, make_record, rerank
from milco_pyserini.console import Progress, counted, duration, log
from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.defaults import RUNS, directory_name, only_index
from milco_pyserini.errors import MilcoError, ParameterError, shown
from milco_pyserini.options import DeviceOptions, one_of, option, options_of
from milco_pyserini.request import SearchRequest

if TYPE_CHECKING:
    from milco_pyserini.index.hits import Hits
    from milco_pyserini.search.searcher import Searcher
    from milco_pyserini.search.topics import SearchTopics

_ONE_QUERY_HITS = 10
_RUN_HITS = 1000
_RUN = "run"
# A run of topics does not have these options of one query.
_OF_A_QUERY = ("json", "min_share")
# Passages have options of their own, with Pyserini's names.
_NOT_HERE = ("k", "offset", "max_passage", "passages", "depth", "views")
_PASSAGES = "passages"
_ENCODER = "encoder"


@dataclass(frozen=True)
class SearchOptions(DeviceOptions):
    """Search an index for topics and write a TREC run, or for one query and print its hits.

    The index knows its encoder. Encoded topics need none, and neither does an index of words (bm25). Without --topics
    and --query, a terminal asks for one query after the other.

      milco search --index indexes/miracl-ar.lucene --topics miracl-ar-dev
      milco search --index indexes/sample.lucene --query "Wer entdeckte das Penicillin?"
      milco search --index indexes/sw.lucene indexes/sw.bm25 --fuse rrf --topics sample-sw
      milco search fuse --runs runs/bm25.txt runs/milco.txt
    """

    topics: str | None = option(
        None,
        metavar="NAME|FILE",
        excludes=_OF_A_QUERY,
        help="topics: a name (miracl-ar-dev), texts (TSV, JSONL, TREC), a vector store, or JSONL with id and vector",
    )
    query: str | None = option(
        None, metavar="TEXT", excludes=("max_passage_hits",), help="one query in place of --topics; hits are printed"
    )
    index: tuple[Path, ...] = option(
        (), metavar="DIR", help="index (default: the only one in indexes/); several of a collection with --fuse"
    )
    k: int | None = option(
        None,
        minimum=1,
        names=("--hits",),
        help=f"documents per query (default: {_RUN_HITS}; with --query {_ONE_QUERY_HITS})",
    )
    request: SearchRequest = options_of(SearchRequest, without=_NOT_HERE)
    hybrid: bool = option(
        False,
        excludes=("fuse", "min_share", "alpha"),
        help="fuse the hits with those of BM25 by ranks, in the index of a server that milco export --store filled "
        "(elasticsearch, opensearch, qdrant)",
    )
    set: tuple[str, ...] = option(
        (),
        repeatable=True,
        metavar="NAME=VALUE",
        parameters=("query_cut", "heap_factor"),
        excludes=("fuse",),
        help="settings of the engine for these searches, such as query_cut=20 (seismic); milco index --set help lists "
        "them",
    )
    json: bool = option(False, help="with --query: one JSON object")
    output: Path | None = option(
        None,
        group=_RUN,
        requires="topics",
        metavar="FILE",
        help="file of the run, - for stdout (default: runs/INDEX.TOPICS.txt)",
    )
    overwrite: bool = option(
        False, group=_RUN, requires="topics", help="replace a run at --output, once the new one is complete"
    )
    format: str = option("trec", group=_RUN, requires="topics", choices=("trec", "msmarco"), help="format of the run")
    tag: str | None = option(None, group=_RUN, requires="topics", help="last column (default: milco-ENGINE-OPTIONS)")
    batch_size: int = option(
        64, group=_RUN, requires="topics", minimum=1, help="topics that are encoded and searched at a time"
    )
    remove_query: bool = option(
        False,
        group=_RUN,
        requires="topics",
        help="leave out the document with the topic's id, as BEIR does for ArguAna and Quora",
    )
    max_passage: bool = option(
        False,
        group=_PASSAGES,
        help="rank documents by their best passage: docids are DOCID#N; with --topics, --k counts passages",
    )
    max_passage_delimiter: str | None = option(
        None,
        group=_PASSAGES,
        metavar="TEXT",
        requires="max_passage",
        help=f"delimiter of document and passage (default: {PASSAGE_DELIMITER}); needed if the corpus was split "
        "before encoding",
    )
    max_passage_hits: int = option(
        100,
        group=_PASSAGES,
        minimum=1,
        metavar="K",
        requires="max_passage",
        help="documents per topic (with --query: --k)",
    )
    encoder: str | None = option(
        None,
        group=_ENCODER,
        metavar="NAME|DIR",
        excludes=("fuse",),
        help="encoder of external vectors, the index's encoder if it moved, or its query network",
    )
    query_encoder: str | None = option(
        None,
        group=_ENCODER,
        metavar="NAME|DIR",
        excludes=("fuse",),
        help="a query network of the index's encoder, such as mini-query; or another encoder over the same English "
        "pieces (SPLADE), or of the vectors at --topics, which searches the English terms",
    )

    @property
    def fusion(self) -> str | None:
        """How several rankings are fused; None if there is one."""
        return "rrf" if self.hybrid else self.request.fuse

    def search_request(self) -> SearchRequest:
        """Return the request of a search for --topics or --query."""
        by_passage = self.max_passage and (self.max_passage_delimiter or True)
        # The encoder is opened with alpha.
        request = replace(self.request, max_passage=by_passage, alpha=None)
        if self.topics is None:
            return replace(request, k=self.k or _ONE_QUERY_HITS)
        k = self.k or _RUN_HITS
        return replace(request, k=self.max_passage_hits, passages=k) if by_passage else replace(request, k=k)

    def conflicts(self) -> Iterator[MilcoError]:
        """Yield errors about options that depend on the terminal, and about empty texts."""
        if self.topics is not None or not (sys.stdin.isatty() and sys.stdout.isatty()):
            yield from one_of(self, "topics", "query")
        for name in ("query", "max_passage_delimiter"):
            if (text := getattr(self, name)) is not None and not text.strip():
                yield ParameterError(name, None, "is empty")
        if not self.hybrid:
            yield from self.request.index_conflicts([str(path) for path in self.index] or ["one"])


def command(options: SearchOptions) -> None:
    """Search. Raises MilcoError before the search if something does not fit."""
    from milco_pyserini.index import open_index
    from milco_pyserini.index.protocol import QueryOptions, parse_settings
    from milco_pyserini.io.runs import validate_run_output
    from milco_pyserini.search.searched_index import SearchedIndex
    from milco_pyserini.search.searcher import Searcher
    from milco_pyserini.search.topics import read_topics

    alpha, fuse = options.request.alpha, options.request.fuse
    queries = QueryOptions(options.encoder, options.device, options.dtype, alpha, options.query_encoder)
    queries.require()
    indexes = [open_index(path) for path in options.index or [only_index()]]
    settings = parse_settings(options.set)

    def open_searcher() -> Searcher:
        searched = [SearchedIndex(index, queries, settings) for index in indexes]
        if options.hybrid:
            return Searcher(searched).with_bm25(options.request.weights)
        return Searcher(searched, fuse, options.request.weights)

    if options.topics is None:
        (prompt if options.query is None else print_hits)(open_searcher(), options)
        return
    for index in indexes:
        docid = index.manifest.id_with_space
        if docid is not None:
            raise MilcoError(
                f"{index.path}: docid {shown(docid)} has white space, which separates the columns of a run"
            )
    names = "+".join(index.path.resolve().name for index in indexes) + (f".{options.fusion}" if options.fusion else "")
    output = options.output or RUNS / f"{names}.{directory_name(options.topics)}.txt"
    validate_run_output(output, options.overwrite, options.tag)
    topics = read_topics(options.topics, indexes[0], queries)
    if topics.vectors is not None:
        encoder = None if options.query_encoder else options.encoder
        given = {"encoder": encoder, "alpha": alpha, "fuse": fuse, "hybrid": options.hybrid or None}
        for name, value in given.items():
            if value is not None:
                raise ParameterError(name, value, f"{options.topics} holds vectors, which are not encoded", "Omit it.")
    started = time.monotonic()
    searcher = open_searcher()
    # Before the encoder is loaded.
    searcher.validate(options.search_request())
    encoders = [] if topics.vectors is not None else [index.query_encoder for index in searcher.indexes]
    what = " and the encoder" if any(encoder is not None for encoder in encoders) else ""
    log(f"Loaded {searcher.name}{what} in {duration(time.monotonic() - started)}")
    write_run(searcher, topics, options, output)


def write_run(searcher: "Searcher", topics: "SearchTopics", options: SearchOptions, output: Path) -> None:
    """Search for all topics and write the run to output."""
    from milco_pyserini.index.protocol import APPROXIMATE
    from milco_pyserini.io.files import STDOUT
    from milco_pyserini.io.runs import run_output, write_hits
    from milco_pyserini.model.configuration import warn_if_trained_on
    from milco_pyserini.search.topics import search_topics

    engine = searcher.index.engine
    results = search_topics(searcher, topics, options.search_request(), options.batch_size, options.remove_query)
    progress = Progress("queries", len(topics.ids))
    encoders = [getattr(index.query_encoder, "encoder", None) for index in searcher.indexes if topics.vectors is None]
    trained_on = next(filter(None, (warn_if_trained_on(encoder, options.topics or "") for encoder in encoders)), "")
    record = make_record(
        options,
        options.fusion or engine.name,
        trained_on,
        {"k": _RUN_HITS},
        indexes=[index.record(topics.vectors is None, options.request.approximate) for index in searcher.indexes],
        topics=topics.record(),
    )
    empty = without_hits = 0
    with run_output(output, record) as run:
        for topic, query, best in results:
            write_hits(run, topic, best, options.format, record.tag)
            empty += not any(map(len, query))
            without_hits += not len(best)
            progress.add(1, hits=len(best))
    how = options.fusion or (APPROXIMATE if options.request.approximate else engine.exactness)
    progress.close(f"Searched {searcher.name} ({how}) into {'stdout' if output == STDOUT else output}")
    if without_hits:
        why = f", {empty:,} of them without terms" if empty else ""
        log(f"{counted(without_hits, 'query', 'queries')} without hits{why}")


def prompt(searcher: "Searcher", options: SearchOptions) -> None:
    """Ask for queries on the terminal and print the hits of each, until an empty line or the end of input (Ctrl-D)."""
    with contextlib.suppress(ImportError):
        # It gives input() a history and editing keys.
        import readline  # noqa: F401
    # Loads the encoder and what Java needs, and reads the filters, before the user has typed anything.
    request = options.search_request()
    searcher.validate(request)
    searcher.rank(searcher.encode(["query"], request), request)
    log(f"Loaded {searcher.name}; an empty line ends")
    try:
        while text := input("query: ").strip():
            print_hits(searcher, replace(options, query=text))
    except EOFError:
        # The cursor is after the prompt.
        sys.stdout.write("\n")


def print_hits(searcher: "Searcher", options: SearchOptions) -> None:
    """Search for one query and print its hits: a table as wide as the terminal, or a JSON object."""
    from milco_pyserini.explain.evidence import LENGTH, READ_TOKENS
    from milco_pyserini.explain.render import terminal_width

    # Before the encoder is loaded.
    request = options.search_request()
    searcher.validate(request)
    encoded = searcher.encode([options.query or ""], request)
    ranking = searcher.rank(encoded, request)[0]
    if not searcher.has_documents:
        log("No texts: the index does not store its documents (milco index --store)")
    # A line also has the title; JSON is the same on every terminal.
    length = LENGTH if options.json else terminal_width() // 2
    texts = [document and document.text for document in map(searcher.read, ranking)]
    evidence = searcher.evidence(encoded[0], [text or "" for text in texts])
    evidence.read(evidence.unclear(length), READ_TOKENS)
    snippets = [None if text is None else evidence.snippet(place, length).text for place, text in enumerate(texts)]
    if options.json:
        import orjson

        rows = [{**hit.to_json(), "snippet": snippet} for hit, snippet in zip(ranking, snippets, strict=True)]
        about: dict[str, Any] = {"index": str(searcher.index.path), "engine": searcher.index.engine.name}
        if options.fusion:
            about = {"indexes": [index.name for index in searcher.indexes], "fuse": options.fusion}
        value = {"query": options.query, **about, "total": ranking.total, "hits": rows}
        sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif ranking:
        sys.stdout.write(_table(ranking, snippets, searcher.has_documents))
        if ranking.total is not None:
            log(f"{len(ranking):,} of {counted(ranking.total, 'matching document')}")
    elif request.min_share:
        log(f"No document among the best {request.k} matches {request.min_share:.0%} of the query's weight")
    elif request.filters:
        searcher.report_filtered(encoded, request)
    else:
        log("No document has a term of this query")


def _table(hits: "Hits", snippets: Sequence[str | None], has_documents: bool) -> str:
    from milco_pyserini.explain.render import terminal_width, text_table

    rows = hits.rows()
    for row, hit, snippet in zip(rows, hits, snippets, strict=True):
        for name in hits.by_index:
            given = hit.by_index.get(name)
            row[Path(name).name] = f"{given.rank} ({given.score:,.5g})" if given else "-"
        if has_documents:
            row["text"] = ": ".join(filter(None, (" ".join((hit.title or "").split()), snippet)))
    # Some engines do not know the share.
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    cells, left = [[row[name] for name in names] for row in rows], ("docid", "text")
    width = terminal_width() if has_documents else sys.maxsize
    return text_table(cells, names, "".join("l" if name in left else "r" for name in names), width)


SUBCOMMANDS = {
    "fuse": Subcommand(FuseOptions, fuse, "no run was written"),
    "rerank": Subcommand(RerankOptions, rerank, "no run was written"),
}
main = partial(dispatch, "milco search", SUBCOMMANDS, Subcommand(SearchOptions, command, "no run was written"))
