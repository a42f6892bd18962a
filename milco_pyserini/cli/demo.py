"""milco demo: the pipeline on the embedded sample, next to BM25."""

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import duration, log
from milco_pyserini.defaults import MINI
from milco_pyserini.io.files import is_json_with, validate_output_directory, write_json
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document, Query
    from milco_pyserini.io.qrels import Qrels
    from milco_pyserini.io.runs import Run

SAMPLE = "sample"
MEASURE = "nDCG@10"
# The file by which a demo knows its own directory, also one that was interrupted.
_MARK = "demo.json"
_TITLE = """\
nDCG@10 and R@100, ranking all {passages} passages at once, with relevant ones in every language; and the mean nDCG@10
within a language and across languages, ranking the passages of one language at a time"""


@dataclass(frozen=True)
class DemoOptions:
    """Run the pipeline on the embedded sample: 50 topics in each of 13 languages, every language's queries against
    every language's passages, next to BM25. Each command is shown, and can be run by hand.
    """

    output: Path = option(Path("demo"), metavar="DIR", help="directory of vectors, index and runs")
    encoder: str = option(MINI, help="checkpoint: mini (embedded), a hub name or a directory")


def demo_command(options: DemoOptions) -> int:
    """Run the commands of the pipeline, and print a table of their runs and BM25's. Return a failed command's code."""
    from milco_pyserini.cli.main import main as milco
    from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
    from milco_pyserini.eval import ReportTable, render
    from milco_pyserini.io.runs import read_run

    started, output = time.monotonic(), options.output
    validate_output_directory(output, True, lambda path: is_json_with(path / _MARK, "encoder"))
    write_json(output / _MARK, {"encoder": options.encoder})
    documents, queries, qrels = list(open_corpus(SAMPLE)), list(open_topics(SAMPLE)), open_qrels(SAMPLE)
    vectors, index, run, pivot = (str(output / name) for name in ("vectors", "index", "run.txt", "run-alpha-1.txt"))
    search = ["search", "--index", index, "--topics", SAMPLE, "--k", str(len(documents))]
    for command in (
        ["encode", "--corpus", SAMPLE, "--encoder", options.encoder, "--output", vectors],
        ["index", "--vectors", vectors, "--output", index],
        [*search, "--output", run],
        [*search, "--alpha", "1", "--output", pivot],
    ):
        log(f"$ milco {shlex.join([*command, '--overwrite'])}")
        if code := milco([*command, "--overwrite"]):
            return code
        log("")
    log("BM25: Pyserini's scores, with Lucene's analyzer for each language")
    runs = {
        "BM25, hits of all languages by score": search_bm25(documents, queries),
        "MILCO, both views": read_run(run),
        "MILCO, pivot view (--alpha 1)": read_run(pivot),
    }
    rows = [[name, *summarize(results, qrels).values()] for name, results in runs.items()]
    table = render(ReportTable(("",), ("nDCG@10", "R@100", "within", "across"), rows, (3,) * 4))
    sys.stdout.write(f"""
{_TITLE.format(passages=len(documents))}

{table}
Took {duration(time.monotonic() - started)}. Vectors, index and runs are in {output}/. Next:

  milco search --index {index} --query "Who discovered penicillin?"    hits for a query of your own
  milco serve --index {index}    a search page with the reasons for each hit
  docs/README.md    your own collection, Pyserini, Seismic, training
""")
    return 0


def search_bm25(documents: "Sequence[Document]", queries: "Sequence[Query]") -> "Run":
    """Return Pyserini's BM25 scores, with statistics and Lucene's analyzer of each language, merged by score.

    On the sample, this ranks better than statistics of all languages, whichever analyzer they have.
    """
    from milco_pyserini.encode.bm25 import BM25Encoder

    texts, merged = [query.text for query in queries], {query.id: dict[str, float]() for query in queries}
    for language in sorted({language_of(document.id) for document in documents}):
        own = [document for document in documents if language_of(document.id) == language]
        encoder = BM25Encoder.fit(own, language)
        scores = encoder.similarity(texts, encoder.encode_document([document.contents for document in own])).tolist()
        for query, row in zip(queries, scores, strict=True):
            merged[query.id] |= {document.id: score for document, score in zip(own, row, strict=True) if score > 0}
    return merged


def summarize(run: "Run", qrels: "Qrels") -> dict[str, float]:
    """Return nDCG@10 and R@100 of all passages at once, and mean nDCG@10 ranking passages of one language at a time.

    The key "within" has the mean over passages in the language of the query, "across" over those in other languages.
    """
    from milco_pyserini.eval import evaluate

    def split(rankings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return a ranking for each query and language of passages: "ar-q21 de"."""
        parts: dict[str, dict[str, Any]] = {}
        for query in qrels:
            for docid, value in rankings.get(query, {}).items():
                parts.setdefault(f"{query} {language_of(docid)}", {})[docid] = value
        return parts

    pairs = evaluate(split(run), split(qrels), [MEASURE]).per_query[MEASURE]
    own = {name for name in pairs if language_of(name) == name.partition(" ")[2]}
    return {
        **evaluate(run, qrels, (MEASURE, "R@100")).mean,
        "within": fmean([pairs[name] for name in own]),
        "across": fmean([value for name, value in pairs.items() if name not in own]),
    }


def language_of(name: str) -> str:
    """Return the language of an id of the sample: "ar" of "ar-07" and of "ar-q07"."""
    return name.partition("-")[0]


main = partial(run_command, "milco demo", DemoOptions, demo_command, interrupted="the same command starts again")
