"""Measure retrieval with queries that milco-mini was not trained on, within a language and across languages.

python benchmarks/held_out.py --data DATA --bm25

--data is the DATA directory of recipes.milco_mini, with queries and their passages in retrieval/NAME.LANG.jsonl.gz. The
recipe does not train on the queries of a tenth of the articles; with --by-article all of these are searched here. The
embedded milco-mini was trained first without a tenth of the passages, then without a tenth of the articles: by default,
the queries are those that neither training had, a hundredth of all. A collection
is their passages and, up to --passages, other passages of the same NAME at even distances. Files of one NAME share a
collection: AfriQA's queries in several African languages search the same English passages, all other queries search
passages of their language.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import repository  # noqa: F401
from same_language import FORMATS, VIEWS, CollectionFiles, SameLanguageOptions, all_runs

from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import Evaluation, compare_evaluations, evaluate, render
from milco_pyserini.io.runs import Run
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.train.data.retrieval import RetrievalExample
    from recipes.configurations.data import TestCollection

MEASURES = ("nDCG@10", "R@10")


@dataclass(frozen=True)
class HeldOutOptions:
    """Measure nDCG@10 and R@10 of held-out queries per dataset and view, and of BM25."""

    data: Path = option(metavar="DIR", help="directory with retrieval/NAME.LANG.jsonl.gz, as for recipes.milco_mini")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    views: tuple[str, ...] = option(tuple(VIEWS), choices=tuple(VIEWS), help="rows of the table")
    alpha: float | None = option(
        None, minimum=0, maximum=1, help="both: alpha x pivot + (1 - alpha) x source (default: as encoded)"
    )
    bm25: bool = option(False, help="BM25, baseline of the significance test, and its fusion with both (RRF)")
    queries: int = option(500, minimum=1, metavar="N", help="highest number of held-out queries per dataset")
    passages: int = option(1000, minimum=1, metavar="N", help="passages per collection; more if its queries need them")
    by_article: bool = option(
        False, help="queries of held-out articles, for checkpoints of the recipe (default: also of held-out passages)"
    )
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32, bfloat16 or int8")
    format: str = option("text", choices=FORMATS, help="format of the table")


def command(options: HeldOutOptions) -> None:
    """Print a row per dataset and run. Raises MilcoError if the data or the encoder cannot be read."""
    collections = held_out(options)
    if options.bm25:
        validate_analyzers(collections)
    results: dict[str, dict[str, Evaluation]] = {}
    for collection in collections:
        for name, found in evaluate_collection(collection, options).items():
            results.setdefault(name, {}).update(found)
    comparison = compare_evaluations(results, test="t" if options.bm25 else "none")
    if options.format == "json":
        sys.stdout.write(comparison.to_json())
        return
    notes = list(comparison.to_table().notes)
    for collection in collections:
        counts = ", ".join(f"{code} {len(queries):,}" for code, queries in collection.queries.items())
        notes.append(f"{collection.name}: {len(collection.passages):,} passages, queries {counts}")
    notes.append(f"encoder {options.encoder}" + ("" if options.alpha is None else f", alpha {options.alpha} in both"))
    sys.stdout.write(render(replace(comparison.to_table(), notes=tuple(notes)), options.format))


def held_out(options: HeldOutOptions) -> "list[TestCollection]":
    """Return the passages and held-out queries of every NAME. Raises MilcoError if no query is held out."""
    from recipes.configurations.data import collections, read_sets
    from recipes.milco_mini.data import is_for_training

    sets = read_sets(options.data / "retrieval")

    def is_held_out(one: "RetrievalExample") -> bool:
        return not (is_for_training(one) or (not options.by_article and is_for_training(one._replace(title=""))))

    kept = {name: list(filter(is_held_out, examples)) for name, examples in sets.items()}
    found = [
        one._replace(queries={language: queries for language, queries in one.queries.items() if queries})
        for one in collections(sets, kept, options.queries, options.passages)
    ]
    if not any(one.queries for one in found):
        raise MilcoError(f"{options.data / 'retrieval'}: none of its queries is held out: it has too few passages")
    return [one for one in found if one.queries]


def validate_analyzers(collections: "Sequence[TestCollection]") -> None:
    """Raise MilcoError if BM25 has no analyzer for a collection's passages: Thai needs a full JDK."""
    from milco_pyserini.encode.analyzers import find_analyzer

    for collection in collections:
        find_analyzer(_language(collection))


def evaluate_collection(collection: "TestCollection", options: HeldOutOptions) -> dict[str, dict[str, Evaluation]]:
    """Return the results of each run by dataset, NAME.LANG."""
    results: dict[str, dict[str, Evaluation]] = {}
    for name, run in search(collection, options).items():
        results[name] = {}
        for language, queries in collection.queries.items():
            qrels = {f"{language}.{n}": {str(query.passage): 1} for n, query in enumerate(queries)}
            hits = {topic: run.get(topic, {}) for topic in qrels}
            results[name][f"{collection.name}.{language}"] = evaluate(hits, qrels, MEASURES)
    return results


def search(collection: "TestCollection", options: HeldOutOptions) -> dict[str, Run]:
    """Return the collection's runs by name; topics are LANGUAGE.NUMBER."""
    texts = {
        f"{language}.{number}": query.text
        for language, queries in collection.queries.items()
        for number, query in enumerate(queries)
    }
    with tempfile.TemporaryDirectory() as directory:
        corpus, topics = Path(directory) / "corpus.jsonl", Path(directory) / "queries.jsonl"
        corpus.write_bytes(_json_lines("contents", {str(n): text for n, text in enumerate(collection.passages)}))
        topics.write_bytes(_json_lines("text", texts))
        files = CollectionFiles(collection.name, _language(collection), str(corpus), str(topics), "")
        names = ("encoder", "views", "alpha", "bm25", "device", "dtype")
        return all_runs(files, SameLanguageOptions((), **{name: getattr(options, name) for name in names}))


def _language(collection: "TestCollection") -> str:
    """Return the language of the passages as Anserini abbreviates it."""
    from recipes.configurations.data import CROSS_LANGUAGE

    return "en" if collection.name == CROSS_LANGUAGE else min(collection.queries).partition("-")[0]


def _json_lines(name: str, texts: dict[str, str]) -> bytes:
    return b"".join(orjson.dumps({"id": key, name: text}) + b"\n" for key, text in texts.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/held_out.py", HeldOutOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
