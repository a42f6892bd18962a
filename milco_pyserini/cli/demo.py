"""milco demo: encode, index, search and evaluate the embedded sample, beside BM25."""

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import duration, say
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document, Query
    from milco_pyserini.demo.report import Cost, Example

SAMPLE = "sample"
BM25 = "BM25, its indexes' hits by score"
# Three of the sample's queries: one that translates, one in a script without spaces, one that turns on a name.
# The systems of the summary: how a query's views are weighed, as search --alpha does; None: as they are encoded.
ALPHAS = {"MILCO, both views": None, "MILCO, --alpha 0.8": 0.8, "MILCO, pivot view (--alpha 1)": 1.0}
# The best of the three where a collection mixes languages, and nearly the best within one: the tables show it.
SHOWN = "MILCO, --alpha 0.8"
_WHY = """\
Both views in full favor passages that share words with the query, which are those of its own language. Where all
languages are searched at once, as here, --alpha above 0.5 weighs the English terms up; the pivot view alone gives up
exact words, which costs within a language. The 0.8 was chosen on this sample."""
EXAMPLES = ("ar-q21", "ja-q33", "sw-q43")
TERMS = 7


@dataclass(frozen=True)
class Options:
    """The whole road on an embedded collection of 50 topics in 13 languages: every language's queries against
    every language's passages, beside BM25. Each command that it runs is shown, and can be run by hand.
    """

    output: Path = option(Path("demo"), help="directory for vectors, indexes, runs and figures")
    encoder: str = option(MINI, help="checkpoint: mini (embedded), a hub name or a directory")


def command(options: Options) -> None:
    """Run the demo and print its tables on stdout."""
    from milco_pyserini.corpora import open_corpus, open_qrels, open_topics
    from milco_pyserini.demo.figures import language, matrix, summary
    from milco_pyserini.demo.report import Cost, cost_table, examples_text, languages_table, matrix_table, summary_table
    from milco_pyserini.eval import read_run
    from milco_pyserini.io.files import write_json

    started = time.monotonic()
    documents, queries = list(open_corpus(SAMPLE)), list(open_topics(SAMPLE))
    languages = sorted({language(document.id) for document in documents})
    vectors, index = (options.output / name for name in ("vectors", "index"))
    _clear(options.output)
    say(f"{len(documents)} passages and {len(queries)} queries in {len(languages)} languages\n")
    encoding = _verb("encode", "--corpus", SAMPLE, "--encoder", options.encoder, "--output", str(vectors))
    indexing = _verb("index", "--vectors", str(vectors), "--output", str(index))
    runs, seconds = {}, {}
    for name, alpha in ALPHAS.items():
        run, weighed = _run_file(options.output, alpha), [] if alpha is None else ["--alpha", f"{alpha:g}"]
        hits = ["--hits", str(len(documents)), "--output", str(run)]
        seconds[name] = _verb("search", "--index", str(index), "--topics", SAMPLE, *weighed, *hits)
        runs[name] = read_run(run)
    say("BM25: Pyserini's, one index a language with Lucene's analyzer for it")
    runs[BM25], bm25_cost = _bm25(documents, queries, languages, options.output / "bm25")
    qrels = open_qrels(SAMPLE)
    matrices = {name: matrix(run, qrels, languages) for name, run in runs.items()}
    summaries = {name: summary(runs[name], qrels, matrices[name]) for name in (BM25, *ALPHAS)}
    write_json(options.output / "figures.json", {"matrices": matrices, "summaries": summaries})
    searching = 1000 * seconds[SHOWN] / len(queries)
    cost = Cost("MILCO, Lucene impacts", encoding, indexing, searching, _size(index))
    blocks = [
        languages_table(SHOWN, matrices[SHOWN], matrices[BM25], len(documents) // len(languages)),
        matrix_table(SHOWN, matrices[SHOWN]),
        summary_table(summaries, len(documents)),
        _WHY,
        cost_table([cost, bm25_cost]),
        examples_text(_examples(options.encoder, {query.id: query.text for query in queries})),
        f"All of it took {duration(time.monotonic() - started)}. Vectors, indexes and runs are in {options.output}/.",
        f"next: milco explain serve --index {index}    (a page to search, with the reasons for each hit)\n"
        "      docs/README.md    (your own collection, Pyserini, Seismic, training)",
    ]
    sys.stdout.write("\n" + "\n\n".join(blocks) + "\n")


def _run_file(directory: Path, alpha: float | None) -> Path:
    return directory / ("run.txt" if alpha is None else f"run-alpha-{alpha:g}.txt")


def _verb(name: str, *arguments: str) -> float:
    """Show and run one of our commands; returns its seconds."""
    from milco_pyserini.cli.main import main as milco

    say(f"$ milco {name} {' '.join(arguments)}")
    started = time.monotonic()
    if milco([name, *arguments]) != 0:
        raise MilcoError(f"milco {name} failed, as said above")
    say("")
    return time.monotonic() - started


def _bm25(
    documents: list["Document"], queries: list["Query"], languages: list[str], directory: Path
) -> tuple[dict[str, dict[str, float]], "Cost"]:
    from milco_pyserini.demo import bm25
    from milco_pyserini.demo.figures import language
    from milco_pyserini.demo.report import Cost

    bm25.load()
    indexing = searching = 0.0
    runs = []
    for name in languages:
        own = [document for document in documents if language(document.id) == name]
        started = time.monotonic()
        bm25.build(own, name, directory / name)
        built = time.monotonic()
        runs.append(bm25.search(queries, name, directory / name, len(own)))
        indexing, searching = indexing + built - started, searching + time.monotonic() - built
    per_query = 1000 * searching / (len(queries) * len(languages))
    return bm25.merge(runs), Cost(f"BM25, {len(languages)} indexes", 0.0, indexing, per_query, _size(directory))


def _examples(encoder_name: str, texts: dict[str, str]) -> list["Example"]:
    from milco_pyserini.demo.report import Example
    from milco_pyserini.encode import MilcoEncoder
    from milco_pyserini.sparse import PIVOT, SOURCE
    from milco_pyserini.sparse.listing import readable

    encoder = MilcoEncoder.from_pretrained(encoder_name)
    examples = []
    for name in EXAMPLES:
        batch = encoder.encode_query(texts[name])
        views = [
            [(readable(term), weight) for term, weight in encoder.decode(batch.view(view), TERMS)[0]]
            for view in (PIVOT, SOURCE)
        ]
        prefix = encoder.vocabulary.source_prefix
        source = [(term.removeprefix(prefix).replace("▁", ""), weight) for term, weight in views[1]]
        examples.append(Example(texts[name], views[0], source))
    return examples


def _clear(directory: Path) -> None:
    """Remove what an earlier demo left: its own names alone."""
    for name in ("vectors", "index", "bm25"):
        shutil.rmtree(directory / name, ignore_errors=True)
    for file in (*(_run_file(directory, alpha) for alpha in ALPHAS.values()), directory / "figures.json"):
        file.unlink(missing_ok=True)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return run_command("milco demo", Options, command, argv, interrupted="the same command starts again")
