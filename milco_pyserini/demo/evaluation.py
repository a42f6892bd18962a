"""Run the pipeline on the embedded sample, and evaluate it within and across languages."""

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from milco_pyserini.console import Progress, log
from milco_pyserini.corpora import Document, Query, open_corpus, open_qrels, open_topics
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import evaluate
from milco_pyserini.io.files import atomic_file, is_json_with, remove_directory, size_on_disk, write_json
from milco_pyserini.io.qrels import Qrels
from milco_pyserini.io.runs import Run, read_run, write_hits

SAMPLE = "sample"
MEASURE = "nDCG@10"
BM25 = "BM25, hits of its indexes by score"
# Systems: how the views of queries are weighed (search --alpha); None: as they are encoded.
ALPHAS = {"MILCO, both views": None, "MILCO, pivot view (--alpha 1)": 1.0}
# The system whose languages are shown one by one.
SHOWN = "MILCO, both views"
# A query that translates, one in a script without spaces, and one about a name.
EXAMPLES = ("ar-q21", "ja-q33", "sw-q43")
EXAMPLE_TERMS = 7
# The file by which a demo knows its own directory, also one that was interrupted.
_MARK = "demo.json"

# A text, and its strongest pivot and source terms with their weights.
Example = tuple[str, Sequence[tuple[str, float]], Sequence[tuple[str, float]]]
# Language of the queries -> language of the passages -> nDCG@10 from 0 to 1.
LanguageMatrix = dict[str, dict[str, float]]


@dataclass(frozen=True)
class DemoCost:
    """Cost of a system: seconds to encode and to index, milliseconds per query, bytes on disk."""

    name: str
    encode: float
    index: float
    query: float
    size: int


@dataclass(frozen=True)
class DemoResult:
    """The figures of the demo."""

    passages: int
    matrices: Mapping[str, LanguageMatrix]
    summaries: Mapping[str, Mapping[str, float]]
    costs: Sequence[DemoCost]
    examples: Sequence[Example]


def run_demo(output: Path, encoder: str) -> DemoResult:
    """Encode, index, search and evaluate the sample; write figures.json. Results of an earlier demo are replaced.

    Raises MilcoError if output has directories of these names that no demo wrote.
    """
    from milco_pyserini.encode.corpus import encode_corpus
    from milco_pyserini.encode.plan import EncodePlan
    from milco_pyserini.index import Index, find_engine

    directories = vectors, index, bm25 = [output / name for name in ("vectors", "index", "bm25")]
    runs = {name: output / ("run.txt" if a is None else f"run-alpha-{a:g}.txt") for name, a in ALPHAS.items()}
    for directory in filter(Path.exists, directories):
        if not is_json_with(output / _MARK, "encoder"):
            raise MilcoError(
                f"{directory} was not written by milco demo, so it is never replaced: choose another `output`"
            )
        remove_directory(directory)
    write_json(output / _MARK, {"encoder": encoder})
    for file in (*runs.values(), output / "figures.json"):
        file.unlink(missing_ok=True)
    documents, queries, qrels = list(open_corpus(SAMPLE)), list(open_topics(SAMPLE)), open_qrels(SAMPLE)
    languages = sorted({language_of(document.id) for document in documents})
    log(f"{len(documents)} passages and {len(queries)} queries in {len(languages)} languages\n")

    command = shlex.join(["encode", "--corpus", SAMPLE, "--encoder", encoder, "--output", str(vectors)])
    plan = EncodePlan(encoder=encoder)
    encoding = _timed(command, lambda: encode_corpus(open_corpus(SAMPLE), vectors, plan))
    command = shlex.join(["index", "--vectors", str(vectors), "--output", str(index)])
    indexing = _timed(command, lambda: Index.build(vectors, index))
    seconds, results = {}, {}
    for name, alpha in ALPHAS.items():
        seconds[name] = _search(index, alpha, len(documents), runs[name])
        results[name] = read_run(runs[name])
    per_query = 1000 * seconds[SHOWN] / len(queries)
    costs = [DemoCost("MILCO, Lucene impacts", encoding, indexing, per_query, size_on_disk(index))]

    log("BM25: Pyserini's, one index per language with Lucene's analyzer for it")
    # Java's start is not indexing.
    find_engine("bm25").available()
    merged: dict[str, dict[str, float]] = {}
    indexing = searching = 0.0
    for language in languages:
        own = [document for document in documents if language_of(document.id) == language]
        started = time.monotonic()
        build_bm25(own, language, bm25 / language)
        built = time.monotonic()
        # On the sample, merging by score ranks better than one index of all languages, whichever analyzer it has.
        for query, hits in search_bm25(queries, language, bm25 / language, len(own)).items():
            merged.setdefault(query, {}).update(hits)
        indexing, searching = indexing + built - started, searching + time.monotonic() - built
    per_query = 1000 * searching / (len(queries) * len(languages))
    costs.append(DemoCost(f"BM25, {len(languages)} indexes", 0.0, indexing, per_query, size_on_disk(bm25)))

    results = {BM25: merged, **results}
    matrices = {name: language_matrix(run, qrels) for name, run in results.items()}
    summaries = {name: summarize(run, qrels, matrices[name]) for name, run in results.items()}
    write_json(output / "figures.json", {"matrices": matrices, "summaries": summaries})
    texts = {query.id: query.text for query in queries}
    return DemoResult(len(documents), matrices, summaries, costs, _examples(encoder, [texts[id] for id in EXAMPLES]))


def build_bm25(documents: Iterable[Document], language: str, directory: Path) -> None:
    """Index documents with Anserini's analyzer for a language (white space if it has none, as for Swahili)."""
    from milco_pyserini.index import find_engine
    from milco_pyserini.index.baselines import TextDocuments

    directory.mkdir(parents=True, exist_ok=True)
    engine = find_engine("bm25")
    engine.available()
    engine.build(TextDocuments(directory, _texts(language), documents), directory, threads=1)


def search_bm25(queries: Iterable[Query], language: str, directory: Path, k: int) -> Run:
    """Return the best documents of every query."""
    from milco_pyserini.index import find_engine

    queries = list(queries)
    searcher = find_engine("bm25").open(directory, {"texts": _texts(language)})
    found = searcher.search([query.text for query in queries], k)
    return {
        query.id: dict(zip(best.docids, best.scores.tolist(), strict=True))
        for query, best in zip(queries, found, strict=True)
    }


def language_of(name: str) -> str:
    """Return the language of an id of the sample: "ar" of "ar-07" and of "ar-q07"."""
    return name.partition("-")[0]


def language_matrix(run: Run, qrels: Qrels) -> LanguageMatrix:
    """Return nDCG@10 of each language's queries, ranking the passages of one language at a time."""
    codes = sorted({language_of(docid) for grades in qrels.values() for docid in grades})

    def split(rankings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return a ranking for each query and language of passages: "ar-q21 de"."""
        parts: dict[str, dict[str, Any]] = {}
        for query in qrels:
            for docid, value in rankings.get(query, {}).items():
                parts.setdefault(f"{query} {language_of(docid)}", {})[docid] = value
        return parts

    values = evaluate(split(run), split(qrels), [MEASURE]).per_query[MEASURE]
    return {
        asked: {
            code: fmean([values[f"{query} {code}"] for query in qrels if language_of(query) == asked]) for code in codes
        }
        for asked in codes
    }


def summarize(run: Run, qrels: Qrels, matrix: LanguageMatrix) -> dict[str, float]:
    """Return nDCG@10 and R@100 of all passages at once, and the matrix's means within and across languages."""
    return {
        **evaluate(run, qrels, (MEASURE, "R@100")).mean,
        "within": fmean([matrix[asked][asked] for asked in matrix]),
        "across": fmean([across(matrix, asked) for asked in matrix]),
    }


def across(matrix: LanguageMatrix, asked: str) -> float:
    """Return the mean of a language's queries on the passages of every other language."""
    return fmean([value for code, value in matrix[asked].items() if code != asked])


def _timed(command: str, call: Callable[[], object]) -> float:
    """Show a command and do the same by a call; return its seconds."""
    log(f"$ milco {command}")
    started = time.monotonic()
    call()
    log("")
    return time.monotonic() - started


def _search(index: Path, alpha: float | None, k: int, output: Path) -> float:
    from milco_pyserini.search.searcher import Searcher
    from milco_pyserini.search.topics import read_topics

    def search() -> None:
        searcher = Searcher.open(index, alpha=alpha)
        topics = read_topics(SAMPLE, searcher.index)
        progress = Progress("queries", len(topics.ids))
        with atomic_file(output, "w") as run:
            for topic, _, best in searcher.search_topics(topics, k):
                write_hits(run, topic, best, "trec", f"milco-{searcher.index.engine.name}")
                progress.add(1, hits=len(best))
        progress.close(f"Searched {index} for {SAMPLE}")

    words = ["search", "--index", str(index), "--topics", SAMPLE, "--k", str(k)]
    words += [] if alpha is None else ["--alpha", f"{alpha:g}"]
    return _timed(shlex.join([*words, "--output", str(output)]), search)


def _texts(language: str) -> dict[str, str | None]:
    return {"language": language, "tokenizer": None}


def _examples(name: str, texts: Sequence[str]) -> list[Example]:
    from milco_pyserini.encode.encoder import MilcoEncoder
    from milco_pyserini.sparse import PIVOT, SOURCE
    from milco_pyserini.sparse.listing import readable

    encoder = MilcoEncoder.from_pretrained(name)
    prefix = encoder.vocabulary.source_prefix
    batch = encoder.encode_query(texts)
    pivot, source = (encoder.decode(batch.view(view), top_k=EXAMPLE_TERMS) for view in (PIVOT, SOURCE))
    return [
        (
            text,
            [(readable(term), weight) for term, weight in english],
            [(readable(term).removeprefix(prefix).replace("▁", ""), weight) for term, weight in own],
        )
        for text, english, own in zip(texts, pivot, source, strict=True)
    ]
