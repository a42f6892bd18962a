"""python -m milco_pyserini.demo: encode, index, search and evaluate the embedded sample, beside BM25."""

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini import program
from milco_pyserini.console import duration, say
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option, run_command

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document, Query
    from milco_pyserini.demo.report import Cost, Example

SAMPLE = "sample"
# Three of the sample's queries: one that translates, one in a script without spaces, one that turns on a name.
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
    from milco_pyserini.demo.figures import language, matrix, pool
    from milco_pyserini.demo.report import Cost, cost_table, examples_text, languages_table, matrix_table, pool_table
    from milco_pyserini.eval import read_run
    from milco_pyserini.files import write_json

    started = time.monotonic()
    documents, queries = list(open_corpus(SAMPLE)), list(open_topics(SAMPLE))
    languages = sorted({language(document.id) for document in documents})
    vectors, index, run = (options.output / name for name in ("vectors", "index", "run.txt"))
    _clear(options.output)
    say(f"{len(documents)} passages and {len(queries)} queries in {len(languages)} languages\n")
    encoding = _verb("encode", "--corpus", SAMPLE, "--encoder", options.encoder, "--output", str(vectors))
    indexing = _verb("index", "--vectors", str(vectors), "--output", str(index))
    hits = str(len(documents))
    searching = _verb("search", "--index", str(index), "--topics", SAMPLE, "--hits", hits, "--output", str(run))
    qrels = open_qrels(SAMPLE)
    milco_run = read_run(run)
    milco = matrix(milco_run, qrels, languages)
    say("BM25: Pyserini's, one index a language with Lucene's analyzer for it")
    bm25_run, bm25_cost = _bm25(documents, queries, languages, options.output / "bm25")
    bm25 = matrix(bm25_run, qrels, languages)
    cost = Cost("MILCO, Lucene impacts", encoding, indexing, 1000 * searching / len(queries), _size(index))
    pools = {"bm25": pool(bm25_run, qrels), "milco": pool(milco_run, qrels)}
    write_json(options.output / "figures.json", {"milco": milco, "bm25": bm25, "pool": pools})
    blocks = [
        languages_table(milco, bm25, len(documents) // len(languages)),
        pool_table(pools["milco"], pools["bm25"], len(documents)),
        matrix_table(milco),
        cost_table([cost, bm25_cost]),
        examples_text(_examples(options.encoder, {query.id: query.text for query in queries})),
        f"All of it took {duration(time.monotonic() - started)}. Vectors, indexes and runs are in {options.output}/.",
    ]
    sys.stdout.write("\n" + "\n\n".join(blocks) + "\n")


def _verb(name: str, *arguments: str) -> float:
    """Show and run one of our commands; returns its seconds."""
    from milco_pyserini.__main__ import main as milco

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
    for name in ("run.txt", "figures.json"):
        (directory / name).unlink(missing_ok=True)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return run_command("milco_pyserini.demo", Options, command, argv, interrupted="the same command starts again")


if __name__ == "__main__":
    sys.exit(program.start(main))
