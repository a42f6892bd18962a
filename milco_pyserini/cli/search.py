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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milco_pyserini.cli.parser import Subcommand, dispatch
from milco_pyserini.cli.several import fusion_conflicts, index_option
from milco_pyserini.console import Progress, counted, duration, log
from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.defaults import DTYPES, RUNS, directory_name, only_index
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.options import changed_options, option, options_of
from milco_pyserini.request import SearchRequest

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document
    from milco_pyserini.index.protocol import Hit
    from milco_pyserini.search.searcher import Searcher
    from milco_pyserini.search.topics import SearchTopics

_ONE_QUERY_HITS = 10
_RUN_HITS = 1000
_RUN = "run"
_OF_RUNS = ("output", "overwrite", "format", "tag", "batch_size", "remove_query")
_OF_PASSAGES = ("max_passage_delimiter", "max_passage_hits")
_OF_ONE_INDEX = ("set", "corpus", "encoder", "query_encoder")
# Passages have options of their own, with Pyserini's names.
_NOT_HERE = ("k", "offset", "max_passage", "passages", "depth", "views")
_PASSAGES = "passages"
_ENCODER = "encoder"


@dataclass(frozen=True)
class SearchOptions:
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
        help="topics: a name (miracl-ar-dev), texts (TSV, JSONL, TREC), a vector store, or JSONL with id and vector",
    )
    query: str | None = option(None, metavar="TEXT", help="one query in place of --topics; hits are printed")
    index: tuple[Path, ...] = index_option()
    k: int | None = option(
        None,
        minimum=1,
        synonyms=("--hits", "--top-k"),
        help=f"documents per query (default: {_RUN_HITS}; with --query {_ONE_QUERY_HITS})",
    )
    request: SearchRequest = options_of(SearchRequest, without=_NOT_HERE)
    hybrid: bool = option(
        False,
        help="fuse the hits with those of BM25 by ranks, in the index of a server that milco export --store filled "
        "(elasticsearch, opensearch, qdrant)",
    )
    set: tuple[str, ...] = option(
        (),
        repeatable=True,
        metavar="NAME=VALUE",
        synonyms=("--query-cut", "--heap-factor", "--ef-search"),
        help="settings of the engine for these searches: query_cut=20 (seismic), ef_search=200 (hnsw); milco index "
        "--set help lists them",
    )
    json: bool = option(False, help="with --query: one JSON object")
    corpus: str | None = option(
        None, metavar="NAME|PATH", help="with --query: the index's documents, if they moved since they were encoded"
    )
    output: Path | None = option(
        None, group=_RUN, metavar="FILE", help="file of the run, - for stdout (default: runs/INDEX.TOPICS.txt)"
    )
    overwrite: bool = option(False, group=_RUN, help="replace a run at --output, once the new one is complete")
    format: str = option(
        "trec", group=_RUN, choices=("trec", "msmarco"), synonyms=("--output-format",), help="format of the run"
    )
    tag: str | None = option(None, group=_RUN, help="last column of the run (default: milco-ENGINE)")
    batch_size: int = option(64, group=_RUN, minimum=1, help="topics that are encoded and searched at a time")
    remove_query: bool = option(
        False, group=_RUN, help="leave out the document with the topic's id, as BEIR does for ArguAna and Quora"
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
        help=f"delimiter of document and passage (default: {PASSAGE_DELIMITER}); needed if the corpus was split "
        "before encoding",
    )
    max_passage_hits: int = option(
        100, group=_PASSAGES, minimum=1, metavar="K", help="documents per topic (with --query: --k)"
    )
    encoder: str | None = option(
        None,
        group=_ENCODER,
        metavar="NAME|DIR",
        help="encoder of external vectors, the index's encoder if it moved, or its query table",
    )
    query_encoder: str | None = option(
        None,
        group=_ENCODER,
        metavar="NAME|DIR",
        help="another encoder of queries over the same English pieces (SPLADE), or of the vectors at --topics: it "
        "searches the English terms",
    )
    device: str = option("auto", group=_ENCODER, metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", group=_ENCODER, metavar="DTYPE", help="auto, float32, bfloat16 or int8")

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

    def conflicts(self) -> Iterator[str]:
        """Yield messages about options that exclude each other."""
        is_prompt = sys.stdin.isatty() and sys.stdout.isatty() and self.topics is None
        if (self.topics is None) == (self.query is None) and not is_prompt:
            yield "give one of --topics (a run) and --query (hits on the terminal)"
        elif self.topics is None:
            for name in changed_options(self, *_OF_RUNS, "max_passage_hits"):
                yield f"{name} is for --topics; --query writes no run"
        elif given := changed_options(self, "json", "corpus") + changed_options(self.request, "min_share"):
            yield f"{given[0]} is for --query, --topics writes a run"
        if not self.max_passage:
            for name in changed_options(self, *_OF_PASSAGES):
                yield f"{name} is for --max-passage"
        if not self.hybrid:
            yield from fusion_conflicts(self, *_OF_ONE_INDEX)
        elif self.request.fuse is not None or len(self.index) > 1:
            yield "--hybrid is for one index, --fuse searches several"
        elif self.request.min_share is not None:
            yield "--min-share is for scores of MILCO, --hybrid fuses ranks: omit it"
        if self.query is not None and not self.query.strip():
            yield "--query is empty"
        if self.max_passage_delimiter == "":
            yield "--max-passage-delimiter is empty"


@dataclass(frozen=True)
class FuseOptions:
    """Fuse runs as Pyserini does, or by normalized scores.

    rrf sums 1 / (--rrf-k + rank); rsf takes the mean of min-max normalized
    scores; interpolation weighs the scores of two runs by --alpha and 1 - alpha; average takes
    the mean score. A document that a run does not have gets nothing from it.

      milco search fuse --runs runs/bm25.txt runs/milco.txt
    """

    runs: tuple[Path, ...] = option(metavar="FILE", help="TREC or MS MARCO runs; their scores order the documents")
    output: Path | None = option(None, metavar="FILE", help="the fused run (default: runs/A+B.METHOD.txt)")
    method: str = option("rrf", choices=("rrf", "rsf", "interpolation", "average"), help="fusion method")
    weights: tuple[float, ...] = option(
        (), above=0, metavar="X", help="rrf, rsf: a weight for each run (default: equal)"
    )
    rrf_k: int | None = option(None, minimum=1, help="rrf: the larger, the less the first ranks dominate (default: 60)")
    alpha: float | None = option(
        None, minimum=0, maximum=1, help="interpolation: weight of the first run (default: 0.5)"
    )
    normalize: bool = option(
        False, help="interpolation, average: min-max normalize the scores of each run and topic first"
    )
    depth: int = option(1000, minimum=1, metavar="K", help="documents of each run and topic that count")
    k: int = option(1000, minimum=1, synonyms=("--hits",), help="documents per topic in the fused run")
    tag: str | None = option(None, help="last column of the run (default: milco-METHOD)")
    overwrite: bool = option(False, help="replace a run at --output, once the new one is complete")

    def conflicts(self) -> Iterator[str]:
        """Yield messages about options that exclude each other."""
        if len(self.runs) < 2:
            yield f"--runs {self.runs[0]}: fusion takes two runs or more"
        elif self.method == "interpolation" and len(self.runs) != 2:
            yield f"--method interpolation takes two runs, got {len(self.runs)}: use rrf or average"
        if self.method != "rrf" and self.rrf_k is not None:
            yield f"--rrf-k is for --method rrf, not for {self.method}"
        if self.method != "interpolation" and self.alpha is not None:
            yield f"--alpha is for --method interpolation, not for {self.method}"
        if self.weights and self.method not in ("rrf", "rsf"):
            yield f"--weights is for --method rrf and rsf, not for {self.method}"
        elif self.weights and len(self.weights) != len(self.runs):
            yield f"--weights: {len(self.weights)} for {len(self.runs)} runs, give one for each"
        if self.method == "rsf" and self.normalize:
            yield "--method rsf normalizes scores: omit --normalize"
        if self.method == "rrf" and self.normalize:
            yield "--normalize is for scores, --method rrf uses only ranks: omit it"


@dataclass(frozen=True)
class RerankOptions:
    """Rerank a run by a cross-encoder, which reads a query and a document together.

    The first --k documents of each topic are scored, and are the new run. Texts are those of --corpus, or those that
    --index stores or was made of.

      milco search rerank --run runs/milco.txt --topics miracl-ar-dev --corpus miracl-ar \\
        --encoder BAAI/bge-reranker-v2-m3
    """

    run: Path = option(metavar="FILE", help="TREC or MS MARCO run")
    topics: str = option(metavar="NAME|FILE", help="topics of the run: a name, or texts (TSV, JSONL, TREC)")
    encoder: str = option(metavar="NAME|DIR", help="cross-encoder: a sequence classifier with one logit")
    index: Path | None = option(None, metavar="DIR", help="index of the run, for its documents")
    corpus: str | None = option(None, metavar="NAME|PATH", help="documents of the run")
    output: Path | None = option(None, metavar="FILE", help="the new run (default: runs/RUN.reranked.txt)")
    k: int = option(100, minimum=1, synonyms=("--hits",), help="documents per topic that are scored")
    tag: str = option("milco-rerank", help="last column of the run")
    overwrite: bool = option(False, help="replace a run at --output, once the new one is complete")
    max_length: int = option(512, minimum=8, help="tokens of query and document together")
    batch_size: int = option(64, minimum=1, help="pairs per forward pass")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", choices=DTYPES, help="dtype of the forward pass")

    def conflicts(self) -> Iterator[str]:
        """Yield messages about options that exclude each other."""
        if (self.index is None) == (self.corpus is None):
            yield "give one of --index and --corpus, for the texts of the documents"


def command(options: SearchOptions) -> None:
    """Search. Raises MilcoError before the search if something does not fit."""
    from milco_pyserini.index import open_index
    from milco_pyserini.index.protocol import QueryOptions, parse_settings
    from milco_pyserini.io.files import STDOUT, validate_output_file
    from milco_pyserini.io.runs import validate_tag
    from milco_pyserini.search.searched_index import SearchedIndex
    from milco_pyserini.search.searcher import Searcher
    from milco_pyserini.search.topics import read_topics

    alpha, fuse = options.request.alpha, options.request.fuse
    queries = QueryOptions(options.encoder, options.device, options.dtype, alpha, options.query_encoder)
    indexes = [open_index(path) for path in options.index or [only_index()]]
    settings = parse_settings(options.set)

    def open_searcher() -> Searcher:
        searched = [SearchedIndex(index, queries, settings, options.corpus) for index in indexes]
        if options.hybrid:
            return Searcher(searched).with_bm25(options.request.weights)
        return Searcher(searched, fuse, options.request.weights)

    if options.topics is None:
        (prompt if options.query is None else print_hits)(open_searcher(), options)
        return
    if options.tag is not None:
        validate_tag(options.tag)
    for index in indexes:
        docid = index.manifest.id_with_space
        if docid is not None:
            raise MilcoError(
                f"{index.path}: docid {shown(docid)} has white space, which separates the columns of a run"
            )
    names = "+".join(index.path.resolve().name for index in indexes) + (f".{options.fusion}" if options.fusion else "")
    output = options.output or RUNS / f"{names}.{directory_name(options.topics)}.txt"
    if output != STDOUT:
        validate_output_file(output, options.overwrite)
    topics = read_topics(options.topics, indexes[0], queries)
    if topics.vectors is not None:
        encoder = None if options.query_encoder else options.encoder
        for name, value in (("encoder", encoder), ("alpha", alpha), ("fuse", fuse)):
            if value is not None:
                raise MilcoError(f"--{name} {value}: {options.topics} holds vectors, nothing is encoded")
        if options.hybrid:
            raise MilcoError(f"--hybrid: {options.topics} holds vectors, and BM25 needs texts")
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
    from milco_pyserini.io.files import STDOUT, text_output
    from milco_pyserini.io.runs import default_tag, write_hits
    from milco_pyserini.model.configuration import warn_if_trained_on
    from milco_pyserini.search.topics import search_topics

    engine = searcher.index.engine
    results = search_topics(searcher, topics, options.search_request(), options.batch_size, options.remove_query)
    progress = Progress("queries", len(topics.ids))
    encoders = [getattr(index.query_encoder, "encoder", None) for index in searcher.indexes if topics.vectors is None]
    trained_on = next(filter(None, (warn_if_trained_on(encoder, options.topics or "") for encoder in encoders)), "")
    tag = options.tag or default_tag(options.fusion or engine.name, trained_on)
    empty = without_hits = 0
    with text_output(output) as run:
        for topic, query, best in results:
            write_hits(run, topic, best, options.format, tag)
            empty += not any(map(len, query))
            without_hits += not len(best)
            progress.add(1, hits=len(best))
    how = options.fusion or engine.exactness
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
    from milco_pyserini.corpora.catalog import is_known_corpus
    from milco_pyserini.explain.render import terminal_width
    from milco_pyserini.explain.snippets import LENGTH
    from milco_pyserini.index.lookup import corpus_name

    # Before the encoder is loaded.
    request = options.search_request()
    searcher.validate(request)
    encoded = searcher.encode([options.query or ""], request)
    ranking = searcher.rank(encoded, request)[0]
    if not searcher.has_documents:
        name = corpus_name(searcher.index)
        if not name:
            log("No texts: the index does not name its corpus; give --corpus")
        elif is_known_corpus(name):
            log(f"No texts: give --corpus {name} to read them; it is downloaded if it is not on this machine")
        else:
            log(f"No texts: the corpus {name} is not on this machine; give --corpus")
    hits = list(ranking)
    # A line also has the title; JSON is the same on every terminal.
    snippets = _snippets(searcher, encoded[0], hits, LENGTH if options.json else terminal_width() // 2)
    if options.json:
        import orjson

        rows = []
        for rank, (hit, snippet) in enumerate(zip(hits, snippets, strict=True), 1):
            known = {name: getattr(hit, name) for name in ("docid", "score", "share", "passage", "title")}
            text, fields = (hit.document.text, hit.document.fields) if hit.document else (None, None)
            rows.append({"rank": rank, **known, "snippet": snippet, "text": text, "fields": fields})
            if options.fusion:
                rows[-1]["by_index"] = {name: given._asdict() for name, given in hit.by_index.items()}
        about: dict[str, Any] = {"index": str(searcher.index.path), "engine": searcher.index.engine.name}
        if options.fusion:
            about = {"indexes": [index.name for index in searcher.indexes], "fuse": options.fusion}
        value = {"query": options.query, **about, "total": ranking.total, "hits": rows}
        sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif hits:
        sys.stdout.write(_table(hits, snippets, searcher.has_documents, list(ranking.by_index)))
        if ranking.total is not None:
            log(f"{len(hits):,} of {counted(ranking.total, 'matching document')}")
    elif request.min_share:
        log(f"No document among the best {request.k} matches {request.min_share:.0%} of the query's weight")
    elif request.filters:
        searcher.report_filtered(encoded, request)
    else:
        log("No document has a term of this query")


def _snippets(searcher: "Searcher", query: Any, hits: "Sequence[Hit]", length: int) -> list[str | None]:
    """Return the extract of each hit's text with the query's terms; its beginning if queries are not weighted terms."""
    from milco_pyserini.explain.snippets import make_snippets

    texts = [hit.document.text if hit.document else "" for hit in hits]
    if weighted := searcher.weighted_terms(query):
        terms, encoder = weighted
        extracts = [snippet.text for snippet in make_snippets(terms, texts, encoder, length)]
    else:
        extracts = [" ".join(text[: 10 * length].split())[:length] for text in texts]
    return [extract if hit.document else None for hit, extract in zip(hits, extracts, strict=True)]


def _table(hits: "Sequence[Hit]", snippets: Sequence[str | None], has_documents: bool, indexes: Sequence[str]) -> str:
    from milco_pyserini.explain.render import terminal_width, text_table

    # Scores are integers for some engines, and floats for others.
    score = "{:,.0f}" if all(float(hit.score).is_integer() for hit in hits) else "{:,.4f}"
    columns = [
        ("rank", "r", [f"{rank}" for rank, _ in enumerate(hits, 1)]),
        ("score", "r", [score.format(hit.score) for hit in hits]),
        ("match", "r", ["" if hit.share is None else f"{hit.share:.0%}" for hit in hits]),
        ("docid", "l", [hit.docid for hit in hits]),
    ]
    for name in indexes:
        given = [hit.by_index.get(name) for hit in hits]
        cells = [f"{found.rank} ({found.score:,.5g})" if found else "-" for found in given]
        columns.append((Path(name).name, "r", cells))
    if has_documents:
        titles = [" ".join(hit.document.title.split()) if hit.document else "" for hit in hits]
        texts = [": ".join(filter(None, both)) for both in zip(titles, snippets, strict=True)]
        columns.append(("text", "l", texts))
    # Some engines do not know the match.
    heads, alignments, values = zip(*[column for column in columns if any(column[2])], strict=True)
    rows = [list(row) for row in zip(*values, strict=True)]
    return text_table(rows, list(heads), "".join(alignments), terminal_width() if has_documents else sys.maxsize)


def fuse(options: FuseOptions) -> None:
    """Fuse and write the run. Raises MilcoError before anything is written if something does not fit."""
    from milco_pyserini.io.files import STDOUT, text_output, validate_output_file
    from milco_pyserini.io.lines import first_line
    from milco_pyserini.io.runs import MSMARCO_COLUMNS, read_run, validate_tag, write_hits
    from milco_pyserini.search.fusion import fuse as fuse_runs

    tag = options.tag or f"milco-{options.method}"
    validate_tag(tag)
    names = "+".join(directory_name(str(path)) for path in options.runs)
    output = options.output or RUNS / f"{names}.{options.method}.txt"
    if output != STDOUT:
        validate_output_file(output, overwrite=True)
    is_new = options.overwrite or not output.exists()
    runs = []
    for path in options.runs:
        run = read_run(path)
        if options.method != "rrf" and len(first_line(path).split()) == MSMARCO_COLUMNS:
            raise MilcoError(f"{path} has ranks and no scores (MS MARCO): fuse it with --method rrf")
        unsorted = sum(list(scores.values()) != sorted(scores.values(), reverse=True) for scores in run.values())
        if unsorted:
            log(f"{path}: {counted(unsorted, 'topic')} not sorted by score; scores are used")
        runs.append(run)
    if not set.intersection(*map(set, runs)):
        raise MilcoError(
            f"{' and '.join(map(str, options.runs))} have no topic in common: fuse runs of the same topics"
        )
    topics = set().union(*runs)
    for path, run in zip(options.runs, runs, strict=True):
        if missing := len(topics) - len(run):
            log(f"{path} lacks {missing:,} of {counted(len(topics), 'topic')}: they come only from the other runs")
    fused = fuse_runs(
        runs,
        options.method,
        rrf_k=options.rrf_k or 60,
        weights=options.weights or None,
        alpha=0.5 if options.alpha is None else options.alpha,
        normalize=options.normalize,
        depth=options.depth,
        k=options.k,
    )
    with text_output(output, options.overwrite) as handle:
        for topic, hits in fused:
            write_hits(handle, topic, hits, "trec", tag)
    if is_new:
        place = "stdout" if output == STDOUT else output
        log(f"Fused {len(runs)} runs ({options.method}) into {place}: {counted(len(topics), 'query', 'queries')}")


def rerank(options: RerankOptions) -> None:
    """Rerank and write the run. Raises MilcoError before anything is written if something does not fit."""
    from milco_pyserini.corpora import open_corpus, open_topics
    from milco_pyserini.index.documents import DiskDocuments
    from milco_pyserini.io.files import STDOUT, text_output, validate_output_file
    from milco_pyserini.io.runs import read_run, validate_tag, write_hits
    from milco_pyserini.search.reranking import CrossEncoder
    from milco_pyserini.search.reranking import rerank as rerank_run
    from milco_pyserini.search.searcher import Searcher

    validate_tag(options.tag)
    output = options.output or RUNS / f"{directory_name(str(options.run))}.reranked.txt"
    if output != STDOUT:
        validate_output_file(output, options.overwrite)
    run = read_run(options.run)
    queries = {topic.id: topic.text for topic in open_topics(options.topics)}
    # Before all documents are read.
    scorer = CrossEncoder(options.encoder, options.max_length, options.batch_size, options.device, options.dtype)
    with contextlib.ExitStack() as stack:
        if options.index is not None:
            searcher = stack.enter_context(Searcher.open(options.index))
            stack.enter_context(searcher.cached_documents())
            find = searcher.documents
        else:
            wanted = set().union(*run.values())
            corpus = (item for item in open_corpus(str(options.corpus)) if item.id in wanted)
            texts = stack.enter_context(contextlib.closing(DiskDocuments(corpus)))

            def find(docids: Sequence[str]) -> "dict[str, Document]":
                found = ((docid, texts.get(docid)) for docid in docids)
                return {docid: document for docid, document in found if document is not None}

        progress = Progress("queries", len(run))
        with text_output(output) as handle:
            for topic, hits in rerank_run(run, queries, find, scorer, options.k):
                write_hits(handle, topic, hits, "trec", options.tag)
                progress.add(1, pairs=len(hits))
    progress.close(f"Reranked {options.run} into {'stdout' if output == STDOUT else output}")


SUBCOMMANDS = {
    "fuse": Subcommand(FuseOptions, fuse, "no run was written"),
    "rerank": Subcommand(RerankOptions, rerank, "no run was written"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    return dispatch("milco search", SUBCOMMANDS, argv, Subcommand(SearchOptions, command, "no run was written"))
