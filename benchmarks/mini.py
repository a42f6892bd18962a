"""Measure milco-mini, or any other checkpoint, on every set of its model card, in one table.

python benchmarks/mini.py --data DATA --encoder mini

--data holds eval/flores and eval/tatoeba (as for crosslingual.py), eval/NAME (as for same_language.py), and retrieval/
(as for held_out.py). The sample is embedded. "As encoded" is both views; the last row counts the sets where that is at
least as good as either view alone, to three decimals.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import crosslingual
import held_out
from same_language import (
    FORMATS,
    VIEWS,
    CollectionFiles,
    SameLanguageOptions,
    evaluate_view,
    find_collection,
    view_runs,
)

from milco_pyserini.cli.demo import summarize
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.corpora import open_corpus, open_qrels
from milco_pyserini.defaults import MINI
from milco_pyserini.eval.fairness import OWN_LANGUAGE, document_languages, evaluate_fairness
from milco_pyserini.eval.report import ReportTable, render
from milco_pyserini.io.runs import Run
from milco_pyserini.options import option

COLLECTIONS = ("cmrc2018", "limit-small", "cacm", "vaswani")
MEASURE = "nDCG@10"
BOTH, *ALONE = ("both", "pivot", "source")
HEADERS = {"both": "as encoded", "pivot": "pivot view", "source": "source view"}
# Rows that are compared between views.
SETS = ("FLORES", "Tatoeba", "sample, all languages", *COLLECTIONS)

# Row -> view -> value.
Values = dict[str, dict[str, float]]


@dataclass(frozen=True)
class MiniOptions:
    """Measure a checkpoint on the sets of milco-mini's model card, per view."""

    data: Path = option(metavar="DIR", help="directory with eval/ and retrieval/, as for recipes.milco_mini")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32, bfloat16 or int8")
    format: str = option("text", choices=FORMATS[:-1], help="format of the table")


def command(options: MiniOptions) -> None:
    """Print a row per set and measure. Raises MilcoError if the data or the encoder cannot be read."""
    files = {name: find_collection(options.data / "eval" / name) for name in COLLECTIONS}
    views = SameLanguageOptions((), options.encoder, tuple(VIEWS), device=options.device, dtype=options.dtype)
    values = sample_values(views)
    for name, collection in files.items():
        runs, qrels = view_runs(collection, views), open_qrels(collection.qrels)
        values[f"{name}, {MEASURE}"] = {
            view: evaluate_view(run, qrels, [MEASURE]).mean[MEASURE] for view, run in runs.items()
        }
    values |= held_out_values(options)
    values |= sentence_values(options)
    best = sum(
        all(round(row[BOTH], 3) >= round(row[view], 3) for view in ALONE)
        for name, row in values.items()
        if name.rpartition(", ")[0] in SETS
    )
    rows = [[name, *(row[view] for view in HEADERS)] for name, row in values.items()]
    note = f"encoder {options.encoder}; as encoded is at least as good as either view in {best} of {len(SETS)} sets"
    table = ReportTable(["set and measure"], list(HEADERS.values()), rows, [3] * len(HEADERS), [note])
    sys.stdout.write(render(table, options.format))


def sample_values(options: SameLanguageOptions) -> Values:
    """Return the figures of the sample: 650 passages in 13 languages, at once and one other language at a time."""
    qrels = open_qrels("sample")
    documents = {document.id: document.id.partition("-")[0] for document in open_corpus("sample")}
    values: Values = {}
    for view, run in view_runs(CollectionFiles("sample", "", "sample", "sample", "sample"), options).items():
        figures = sample_figures(run, qrels)
        figures |= {
            f"{name}, balanced": value
            for name, value in sample_figures(balanced(run, documents), qrels).items()
            if "all languages" in name
        }
        for name, value in figures.items():
            values.setdefault(name, {})[view] = value
    return values


def balanced(run: Run, documents: dict[str, str]) -> Run:
    """Return a run with the mean score of a document's language, for the query, subtracted from its score.

    That is the product of the query and the mean vector of the language.

    Args:
        documents: docid -> language, of all documents.
    """
    sizes = Counter(documents.values())
    balanced_run: Run = {}
    for topic, scores in run.items():
        means = dict.fromkeys(sizes, 0.0)
        for docid, score in scores.items():
            means[documents[docid]] += score / sizes[documents[docid]]
        balanced_run[topic] = {docid: scores.get(docid, 0.0) - means[language] for docid, language in documents.items()}
    return balanced_run


def sample_figures(run: Run, qrels: dict[str, dict[str, int]]) -> dict[str, float]:
    """Return the figures of a run of the sample's topics, by set and measure."""
    mean = summarize(run, qrels)
    shares = evaluate_fairness(run, qrels, document_languages([run], qrels, ()))[OWN_LANGUAGE]
    return {
        f"sample, all languages, {MEASURE}": mean[MEASURE],
        f"sample, all languages, {OWN_LANGUAGE}": fmean(shares.values()),
        f"sample, one other language, {MEASURE}": mean["across"],
        f"sample, own language, {MEASURE}": mean["within"],
    }


def held_out_values(options: MiniOptions) -> Values:
    """Return the mean over the sets of queries that are not trained on, within a language."""
    settings = held_out.HeldOutOptions(
        options.data, options.encoder, tuple(VIEWS), device=options.device, dtype=options.dtype
    )
    found: dict[str, list[float]] = {}
    collections = held_out.held_out(settings)
    from recipes.configurations.data import CROSS_LANGUAGE

    for collection in collections:
        if collection.name != CROSS_LANGUAGE:
            for view, results in held_out.evaluate_collection(collection, settings).items():
                found.setdefault(view, []).extend(one.mean[MEASURE] for one in results.values())
    return {f"held-out queries, {MEASURE}": {view: fmean(values) for view, values in found.items()}}


def sentence_values(options: MiniOptions) -> Values:
    """Return the means over languages of FLORES and Tatoeba."""
    from milco_pyserini.encode.encoder import MilcoEncoder

    encoder = MilcoEncoder.from_pretrained(options.encoder, options.device, options.dtype)
    values: Values = {}
    for name, directory in {"FLORES": "flores", "Tatoeba": "tatoeba"}.items():
        files = crosslingual.find_files(options.data / "eval" / directory)
        pairs = {language: crosslingual.read_pairs(path) for language, path in files.items()}
        measures = ("R@1", crosslingual.POOLED, OWN_LANGUAGE) if name == "FLORES" else ("R@1",)
        log(f"{name}: {len(pairs)} languages")
        results = crosslingual.evaluate_all(encoder, pairs, tuple(VIEWS), with_pooled=name == "FLORES")
        for measure in measures:
            values[f"{name}, {measure}"] = {
                view: fmean(one.mean[f"{measure} {view}"] for one in results.values()) for view in VIEWS
            }
    return values


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/mini.py", MiniOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
