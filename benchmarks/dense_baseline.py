"""Measure a dense encoder on the sets of milco-mini's model card: the baseline of benchmarks/mini.py.

python benchmarks/dense_baseline.py --data DATA --encoder intfloat/multilingual-e5-small

Each set is measured with the encoder's own cosines, and with cosines that are centered per language: without the mean
vector of a language's queries, or documents, a text is not most similar to texts in its own language. Sentences of
FLORES and Tatoeba are queries on both sides.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import crosslingual
import held_out
import numpy as np
import repository  # noqa: F401
from mini import COLLECTIONS, MEASURE, sample_figures
from numpy.typing import NDArray
from same_language import FORMATS, HITS, find_collection

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
from milco_pyserini.eval import evaluate
from milco_pyserini.eval.fairness import OWN_LANGUAGE
from milco_pyserini.eval.report import ReportTable, render
from milco_pyserini.io.runs import Run
from milco_pyserini.options import option
from recipes.dense.encoder import DenseEncoder

if TYPE_CHECKING:
    from recipes.configurations.data import TestCollection

HEADERS = ("plain", "centered")
Vectors = NDArray[np.float32]
# Row -> a value per column.
Rows = dict[str, list[float]]


@dataclass(frozen=True)
class BaselineOptions:
    """Measure a dense encoder on the sets of milco-mini's model card, plain and centered per language."""

    data: Path = option(metavar="DIR", help="directory with eval/ and retrieval/, as for recipes.milco_mini")
    encoder: str = option("intfloat/multilingual-e5-small", help="dense encoder: name on the Hub, or directory")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32 or bfloat16")
    format: str = option("text", choices=FORMATS[:-1], help="format of the table")


@dataclass(frozen=True)
class Side:
    """Ids, vectors, float32 [N, D], and languages of queries or documents."""

    ids: list[str]
    vectors: Vectors
    languages: NDArray[np.str_]

    def centered(self) -> "Side":
        """Return the side without the mean vector of each language, normalized."""
        vectors = self.vectors.copy()
        for language in np.unique(self.languages):
            rows = self.languages == language
            vectors[rows] -= vectors[rows].mean(axis=0)
        return Side(self.ids, vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9), self.languages)


def command(options: BaselineOptions) -> None:
    """Print a row per set and measure. Raises MilcoError if the data or the encoder cannot be read."""
    files = {name: find_collection(options.data / "eval" / name) for name in COLLECTIONS}
    collections = held_out.held_out(held_out.HeldOutOptions(options.data))
    encoder = DenseEncoder(options.encoder, device=options.device, dtype=options.dtype)
    log("sample")
    sample_qrels = open_qrels("sample")
    found = [sample_figures(run, sample_qrels) for run in collection_runs(encoder, "sample", "sample", sample_language)]
    rows: Rows = {name: [one[name] for one in found] for name in found[0]}
    for name, files_of in files.items():
        log(name)
        qrels = open_qrels(files_of.qrels)
        runs = collection_runs(encoder, files_of.corpus, files_of.topics, lambda _: "")
        rows[f"{name}, {MEASURE}"] = [evaluate(run, qrels, [MEASURE]).mean[MEASURE] for run in runs]
    log("held-out queries")
    rows[f"held-out queries, {MEASURE}"] = held_out_values(encoder, collections)
    for name, directory in {"FLORES": "flores", "Tatoeba": "tatoeba"}.items():
        log(name)
        rows |= sentence_values(encoder, name, options.data / "eval" / directory)
    table = [[name, *values] for name, values in rows.items()]
    note = f"encoder {options.encoder}"
    sys.stdout.write(
        render(ReportTable(["set and measure"], list(HEADERS), table, [3] * len(HEADERS), [note]), options.format)
    )


def sample_language(name: str) -> str:
    """Return what ids such as ar-07 begin with."""
    return name.partition("-")[0]


def collection_runs(encoder: DenseEncoder, corpus: str, topics: str, language: Callable[[str], str]) -> tuple[Run, Run]:
    """Return the plain and the centered run. language: of an id."""
    documents, queries = list(open_corpus(corpus)), list(open_topics(topics))
    of_documents, of_queries = (
        Side([one.id for one in side], vectors, np.array([language(one.id) for one in side]))
        for side, vectors in (
            (documents, encoder.encode_document([document.contents for document in documents])),
            (queries, encoder.encode_query([query.text for query in queries])),
        )
    )
    return as_run(of_queries, of_documents), as_run(of_queries.centered(), of_documents.centered())


def as_run(queries: Side, documents: Side) -> Run:
    """Return the highest scores of every query."""
    run: Run = {}
    for name, scores in zip(queries.ids, queries.vectors @ documents.vectors.T, strict=True):
        best = np.argsort(-scores, kind="stable")[:HITS]
        run[name] = {documents.ids[place]: float(scores[place]) for place in best}
    return run


def held_out_values(encoder: DenseEncoder, collections: "Sequence[TestCollection]") -> list[float]:
    """Return the means over the sets within a language; their centers are those of the set."""
    from recipes.configurations.data import CROSS_LANGUAGE

    means: tuple[list[float], list[float]] = ([], [])
    for collection in (one for one in collections if one.name != CROSS_LANGUAGE):
        passages = Side(
            [str(n) for n in range(len(collection.passages))],
            encoder.encode_document(collection.passages),
            np.array([""] * len(collection.passages)),
        )
        for found in collection.queries.values():
            ids = [str(number) for number in range(len(found))]
            vectors = encoder.encode_query([query.text for query in found])
            queries = Side(ids, vectors, np.array([""] * len(found)))
            qrels = {name: {str(query.passage): 1} for name, query in zip(ids, found, strict=True)}
            for column, (q, p) in enumerate(((queries, passages), (queries.centered(), passages.centered()))):
                means[column].append(evaluate(as_run(q, p), qrels, [MEASURE]).mean[MEASURE])
    return [fmean(column) for column in means]


def sentence_values(encoder: DenseEncoder, name: str, directory: Path) -> Rows:
    """Return R@1 of the English translation, and for FLORES the pooled measures, as crosslingual.py has them."""
    pairs = {language: crosslingual.read_pairs(path) for language, path in crosslingual.find_files(directory).items()}
    values: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    english: dict[tuple[str, ...], Side] = {}
    sides: dict[str, Side] = {}
    for language, one in pairs.items():
        if one.english not in english:
            vectors = encoder.encode_query(one.english)
            english[one.english] = Side(list(one.english), vectors, np.array(["en"] * len(vectors)))
        sides[language] = Side(one.ids, encoder.encode_query(one.sentences), np.array([language] * len(one.ids)))
        target = english[one.english]
        for column, (q, d) in enumerate(((sides[language], target), (sides[language].centered(), target.centered()))):
            best = (q.vectors @ d.vectors.T).argmax(axis=1)
            values[f"{name}, R@1"][column].append(float((best == one.targets).mean()))
    if name == "FLORES":
        for column, found in enumerate((sides, {language: side.centered() for language, side in sides.items()})):
            ids = np.concatenate([side.ids for side in found.values()])
            languages = np.concatenate([side.languages for side in found.values()])
            everything = np.concatenate([side.vectors for side in found.values()])
            for language, side in found.items():
                scores = side.vectors @ everything.T
                scores[np.arange(len(scores)), np.flatnonzero(languages == language)] = -np.inf
                gain, own = crosslingual.pooled_measures(scores, ids, languages, np.array(side.ids), language)
                values[f"{name}, {crosslingual.POOLED}"][column].append(float(gain.mean()))
                values[f"{name}, {OWN_LANGUAGE}"][column].append(float(own.mean()))
    return {row: [fmean(column) for column in columns] for row, columns in values.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/dense_baseline.py", BaselineOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
