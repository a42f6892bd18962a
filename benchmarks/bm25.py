"""Measure BM25 as an encoder against Anserini's own BM25, on the same passages with the same analyzers.

python benchmarks/bm25.py --data DATA

The passages of each language of the sample are encoded by --encoder bm25, indexed by the engines exact (float weights)
and lucene (integer impacts), and searched with the queries of the language; so is cmrc2018 (Chinese) if DATA has
eval/cmrc2018, as for mini.py. Anserini indexes the passages themselves and searches them with k1 = 0.9 and b = 0.4.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import repository  # noqa: F401
from same_language import FORMATS, CollectionFiles, as_run, find_collection

from milco_pyserini import Index, Searcher
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
from milco_pyserini.corpora.catalog import BENCHMARKS
from milco_pyserini.eval import ReportTable, evaluate, render
from milco_pyserini.io.runs import Run
from milco_pyserini.options import option

LANGUAGES = BENCHMARKS["sample"].languages
MEASURE = "nDCG@10"
ENGINES = ("exact", "lucene")
HITS = 100


@dataclass(frozen=True)
class Bm25Options:
    """Measure nDCG@10 of --encoder bm25 and of Anserini's BM25 within each language of the sample, and on cmrc2018."""

    data: Path | None = option(
        None, metavar="DIR", help="directory with eval/cmrc2018, as for recipes.milco_mini (default: only the sample)"
    )
    languages: tuple[str, ...] = option((), choices=LANGUAGES, metavar="CODE", help="languages (default: all)")
    format: str = option("text", choices=FORMATS[:-1], help="format of the table")


def command(options: Bm25Options) -> None:
    """Print a row per collection. Raises MilcoError if the data cannot be read."""
    languages = options.languages or LANGUAGES
    names = [f"sample-{language}" for language in languages]
    rows = [
        measure(CollectionFiles(name, language, name, name, name))
        for name, language in zip(names, languages, strict=True)
    ]
    rows.append(["sample, mean", *map(fmean, zip(*(row[1:] for row in rows), strict=True))])
    place = options.data and options.data / "eval" / "cmrc2018"
    if place and place.is_dir():
        rows.append(measure(find_collection(place)))
    else:
        log(f"Skipped cmrc2018: {f'no directory {place}' if place else 'no --data'}")
    columns = ["Anserini", *(name for engine in ENGINES for name in (f"bm25, {engine}", "difference"))]
    table = ReportTable([f"collection, {MEASURE}"], columns, rows)
    sys.stdout.write(render(table, options.format))


def measure(collection: CollectionFiles) -> list[str | float]:
    """Return a row: the name of a collection, Anserini's figure, and each engine's with its difference."""
    qrels = open_qrels(collection.qrels)
    theirs, *ours = (
        evaluate(run, qrels, [MEASURE]).mean[MEASURE] for run in (anserini_run(collection), *encoder_runs(collection))
    )
    row: list[str | float] = [collection.name, theirs]
    for figure in ours:
        row += [figure, figure - theirs]
    return row


def anserini_run(collection: CollectionFiles) -> Run:
    """Return the run of Anserini's searcher, over its own index of the passages."""
    from experiments.bm25 import Words, bm25_hits

    topics = list(open_topics(collection.topics))
    words = Words(collection.language)
    hits = bm25_hits(open_corpus(collection.corpus), [topic.text for topic in topics], words, HITS)
    return as_run(zip((topic.id for topic in topics), hits, strict=True))


def encoder_runs(collection: CollectionFiles) -> Iterator[Run]:
    """Yield the run of each engine, over one store of the passages."""
    from milco_pyserini.encode.corpus import encode_corpus
    from milco_pyserini.encode.plan import EncodePlan

    topics = list(open_topics(collection.topics))
    with tempfile.TemporaryDirectory() as directory:
        vectors = Path(directory) / "vectors"
        encode_corpus(collection.corpus, vectors, EncodePlan(f"bm25:{collection.language}"))
        for engine in ENGINES:
            index = Index.build(vectors, Path(directory) / engine, engine)
            with Searcher.open(index.path) as searcher:
                hits = searcher.search_batch([topic.text for topic in topics], HITS)
                yield as_run(zip((topic.id for topic in topics), hits, strict=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/bm25.py", Bm25Options, command, argv)


if __name__ == "__main__":
    sys.exit(main())
