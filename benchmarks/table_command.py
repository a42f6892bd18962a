"""Everything that costs time, beside the peers that PyPI has, in one table.

python benchmarks --plot benchmarks.png

Parts, for --only: encode (this project's packed pass, padded batches, Pyserini's SPLADE encoder and
sentence-transformers; then one query), write (vectors as JSONL and Parquet), index (Lucene, beside Anserini's
IndexCollection), search (opening and searching it, beside Pyserini's LuceneImpactSearcher), engines (exact, lucene and
seismic, this one with its own settings and tuned to recall .96, beside LuceneImpactSearcher, scipy and numpy) and curve
(encode, index and search of ever more documents). What each of them does stands in its file: table_encoding,
table_engines, table_curve.

Whether Seismic is quicker than exact on a pivot view of 100,000 documents, and what it finds:
python benchmarks --only engines --documents 100000

Every part runs in processes of its own, systems in turn; figures are medians of the rounds. times: how many times as
long as the first row of the step it takes, median of the rounds' ratios. limit %: the share of what plain matrix
products reach, in the same round, counting the work for real tokens alone. MB: of encode, resident memory above that
before the pass; otherwise the peak of the whole process, Java in it, or of the process in which Seismic builds, if that
is higher. recall@10: the share of the ten best that are exact's.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import table_curve
import table_encoding
import table_engines
import table_figure
from lucene_indexing import in_fresh_process
from table_rows import JSON, Row, processor, written

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import validate_output_file
from milco_pyserini.options import option

PARTS = ("encode", "write", "index", "search", "engines", "curve")
FORMATS = ("text", "markdown", "latex", "csv", JSON)


@dataclass(frozen=True)
class Options:
    """Measure encode, write, index and search beside their peers: one table, at its default sizes in ten minutes."""

    only: tuple[str, ...] = option((), choices=PARTS, help="parts of the table (default: all)")
    documents: int = option(10_000, help="documents to index and to search, made up")
    queries: int = option(100, help="queries, made up")
    texts: int = option(24, help="texts to encode, log-normal lengths around 110 tokens")
    layers: int = option(24, help="layers of the networks that encode them; 24 is the published size")
    curve: tuple[int, ...] = option((1_000, 10_000), help="numbers of documents of the curve")
    encoder: str = option(MINI, help="checkpoint of the curve: hub name, directory, or mini (embedded)")
    repeats: int = option(3, help="rounds; medians are printed")
    threads: tuple[int, ...] = option((1, 2), help="threads of the indexing; the most of them encode and build")
    dtype: str = option("auto", choices=("auto", "float32", "bfloat16"), help="of the matrix products")
    format: str = option("text", choices=FORMATS, help="of the table")
    plot: Path | None = option(None, help="draw the table into this PNG file too")


def command(options: Options) -> None:
    """Measure the parts, draw, print. Raises MilcoError before anything is measured if a number is no good."""
    _check(options)
    rows: list[Row] = []
    for name, measure in _parts(options).items():
        if name in (options.only or PARTS):
            log(f"{name} ...")
            rows += measure()
    if options.plot is not None:
        table_figure.draw(options.plot, rows)
        log(f"drawn into {options.plot}")
    sys.stdout.write(written(rows, options.format, about(options)))


def _parts(options: Options) -> dict[str, Callable[[], list[Row]]]:
    threads = max(options.threads)
    texts = table_encoding.Sizes(options.layers, options.texts, options.repeats, threads, options.dtype)
    sizes = table_engines.Sizes(options.documents, options.queries, options.threads, options.repeats)
    return {
        "encode": lambda: in_fresh_process(table_encoding.encoding_rows, texts),
        "write": lambda: table_engines.store_rows(sizes),
        "index": lambda: table_engines.index_rows(sizes),
        "search": lambda: table_engines.search_rows(sizes),
        "engines": lambda: table_engines.engine_rows(sizes),
        "curve": lambda: table_curve.curve_rows(options.curve, options.encoder),
    }


def about(options: Options) -> dict[str, Any]:
    """What the figures depend on."""
    given = asdict(options)
    names = ("documents", "queries", "texts", "layers", "repeats", "threads", "dtype")
    sizes = {name: " ".join(map(str, given[name])) if name == "threads" else given[name] for name in names}
    return {"processor": processor()} | sizes


def _check(options: Options) -> None:
    for name in ("documents", "queries", "texts", "layers", "repeats"):
        if getattr(options, name) < 1:
            raise MilcoError(f"--{name} {getattr(options, name)}: must be at least 1")
    for name in ("threads", "curve"):
        if min(getattr(options, name)) < 1:
            raise MilcoError(f"--{name} {min(getattr(options, name))}: must be at least 1")
    if options.plot is not None:
        validate_output_file(options.plot, True, "--plot")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("benchmarks", Options, command, argv)
