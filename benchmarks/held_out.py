"""Questions that milco-mini was not trained on: do they find their passages, within a language and across languages?

python benchmarks/held_out.py --data DATA --bm25

--data is what recipes.milco_mini takes: retrieval/NAME.LANG.jsonl.gz in it holds questions with their passages. The
recipe trains on no question of a tenth of the passages; these questions are asked here. A collection is the held-out
passages and, up to --passages, others of the same NAME at even distances. Files of one NAME share a collection: the
AfriQA questions in several African languages search the same English passages, all others those of their language.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from same_language import FORMATS, VIEWS, bm25_run, fused, view_runs
from same_language import Collection as Files
from same_language import Options as Search

from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import Evaluation, compare_evaluations, evaluate, render
from milco_pyserini.io.runs import Run
from milco_pyserini.options import option

if TYPE_CHECKING:
    from recipes.configurations.data import TestCollection

MEASURES = ("nDCG@10", "R@10")


@dataclass(frozen=True)
class Options:
    """Search with held-out questions: nDCG@10 and R@10 of every set and view, and of BM25."""

    data: Path = option(help="directory with retrieval/NAME.LANG.jsonl.gz, as recipes.milco_mini takes it")
    encoder: str = option(MINI, help="checkpoint: hub name, directory, or mini (embedded)")
    views: tuple[str, ...] = option(tuple(VIEWS), choices=tuple(VIEWS), help="rows of the table")
    alpha: float | None = option(None, help="both: alpha x pivot + (1 - alpha) x source (default: as encoded)")
    bm25: bool = option(
        False, help="Pyserini's BM25 too, as the baseline of the test of significance, and its fusion (RRF) with both"
    )
    questions: int = option(500, help="held-out questions of each set, at most")
    passages: int = option(1000, help="passages of each collection; never fewer than its questions need")
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16")
    format: str = option("text", choices=FORMATS, help="of the table")


def command(options: Options) -> None:
    """Encode, index, search, print. Raises MilcoError if the data or the encoder cannot be read."""
    for name in ("questions", "passages"):
        if getattr(options, name) < 1:
            raise MilcoError(f"--{name} {getattr(options, name)}: must be at least 1")
    collections = held_out(options)
    if options.bm25:
        check_analyzers(collections)
    results: dict[str, dict[str, Evaluation]] = {}
    for collection in collections:
        runs = search(collection, options)
        for language, questions in collection.queries.items():
            qrels = {f"{language}.{n}": {str(question.passage): 1} for n, question in enumerate(questions)}
            for name, run in runs.items():
                asked = {topic: run.get(topic, {}) for topic in qrels}
                results.setdefault(name, {})[f"{collection.name}.{language}"] = evaluate(asked, qrels, MEASURES)
    comparison = compare_evaluations(results, test="t" if options.bm25 else "none")
    if options.format == "json":
        sys.stdout.write(comparison.to_json())
    else:
        notes = (*comparison.to_table().notes, *map(_size, collections), _how(options))
        sys.stdout.write(render(replace(comparison.to_table(), notes=notes), options.format))


def held_out(options: Options) -> "list[TestCollection]":
    """The passages and held-out questions of every NAME. Raises MilcoError if there is no such question."""
    # The recipes stand beside this directory and are no part of the package.
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from recipes.configurations.data import collections, read_sets
    from recipes.milco_mini.training import is_for_training

    sets = read_sets(options.data / "retrieval")
    kept = {name: [one for one in examples if not is_for_training(one)] for name, examples in sets.items()}
    found = collections(sets, kept, options.questions, options.passages)
    asked = [one._replace(queries={code: some for code, some in one.queries.items() if some}) for one in found]
    if not any(one.queries for one in asked):
        raise MilcoError(f"{options.data / 'retrieval'}: none of its questions is held out; it has too few passages")
    return [one for one in asked if one.queries]


def check_analyzers(collections: "Sequence[TestCollection]") -> None:
    """Raises MilcoError if BM25 has no analyzer for the passages of one: Thai's needs a full Java."""
    from milco_pyserini.index import find_engine
    from milco_pyserini.index.bm25 import find_analyzer

    find_engine("bm25").available()
    for collection in collections:
        find_analyzer(_language(collection))


def search(collection: "TestCollection", options: Options) -> dict[str, Run]:
    """A run for each view that is asked for, BM25's and the fused one; topics are LANGUAGE.NUMBER."""
    how = Search((), options.encoder, options.views, options.alpha, device=options.device, dtype=options.dtype)
    with tempfile.TemporaryDirectory() as directory:
        corpus, topics = Path(directory) / "corpus.jsonl", Path(directory) / "queries.jsonl"
        corpus.write_bytes(_lines("contents", {str(n): text for n, text in enumerate(collection.passages)}))
        asked = {
            f"{code}.{number}": question.text
            for code, questions in collection.queries.items()
            for number, question in enumerate(questions)
        }
        topics.write_bytes(_lines("text", asked))
        files = Files(collection.name, _language(collection), str(corpus), str(topics), "")
        runs = ({"BM25": bm25_run(files)} if options.bm25 else {}) | view_runs(files, how)
    if {"BM25", "both"} <= runs.keys():
        runs["both + BM25"] = fused([runs["both"], runs["BM25"]])
    return runs


def _language(collection: "TestCollection") -> str:
    """Of the passages, as Anserini writes it."""
    from recipes.configurations.data import CROSS_LANGUAGE

    return "en" if collection.name == CROSS_LANGUAGE else min(collection.queries).partition("-")[0]


def _lines(name: str, texts: dict[str, str]) -> bytes:
    return b"".join(orjson.dumps({"id": key, name: text}) + b"\n" for key, text in texts.items())


def _size(collection: "TestCollection") -> str:
    asked = ", ".join(f"{code} {len(questions):,}" for code, questions in collection.queries.items())
    return f"{collection.name}: {len(collection.passages):,} passages, questions {asked}"


def _how(options: Options) -> str:
    return f"encoder {options.encoder}" + ("" if options.alpha is None else f", alpha {options.alpha} in both")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("benchmarks/held_out.py", Options, command, argv)


if __name__ == "__main__":
    sys.exit(main())
