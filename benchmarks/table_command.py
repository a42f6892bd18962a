"""Compare encoding, writing, indexing and searching with peers from PyPI in one table.

python benchmarks --plot benchmarks.png

Parts for --only:
    encode: the packed pass, padded batches, Pyserini's SPLADE encoder and sentence-transformers; then one query.
    write: vectors as JSONL and Parquet.
    index: Lucene, compared with Anserini's IndexCollection.
    search: opening and searching a Lucene index, compared with Pyserini's LuceneImpactSearcher.
    engines: exact, lucene, qdrant and seismic (with its defaults and tuned to recall .96), compared with
        LuceneImpactSearcher, scipy and numpy.
    curve: encode, index and search of increasing numbers of documents.
The measurements are defined in table_encoding, table_engines and table_curve.

To compare Seismic with exact on a pivot view of 100,000 documents:
python benchmarks --only engines --documents 100000

Every part runs in its own processes, systems in turn; results are medians of the rounds.
    times: time relative to the first row of the step, median of the rounds' ratios.
    limit %: share of the rate of plain matrix products in the same round; only the work for real tokens is counted.
    MB: for encode, resident memory above that before the pass. Otherwise the peak of the process, including Java, or of
        the process in which Seismic builds if that is higher.
    recall@10: share of exact's top ten documents that are found.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import repository  # noqa: F401
import table_curve
import table_encoding
import table_engines
import table_figure
from lucene_indexing import in_fresh_process
from table_rows import JSON, Row, format_rows

from experiments.timing import processor
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.defaults import MINI
from milco_pyserini.io.files import validate_output_file
from milco_pyserini.options import option

PARTS = ("encode", "write", "index", "search", "engines", "curve")
FORMATS = ("text", "markdown", "latex", "csv", JSON)


@dataclass(frozen=True)
class TableOptions:
    """Compare encode, write, index and search with peers in one table, within ten minutes at the default sizes."""

    only: tuple[str, ...] = option(
        (), choices=PARTS, metavar="PART", help=f"parts of the table: {', '.join(PARTS)} (default: all)"
    )
    documents: int = option(10_000, minimum=1, metavar="N", help="synthetic documents to write, index and search")
    queries: int = option(100, minimum=1, metavar="N", help="synthetic queries")
    texts: int = option(24, minimum=1, metavar="N", help="texts to encode, of log-normal lengths around 110 tokens")
    layers: int = option(24, minimum=1, metavar="N", help="layers of the networks; 24 is the published size")
    curve: tuple[int, ...] = option((1_000, 10_000), minimum=1, metavar="N", help="numbers of documents of the curve")
    encoder: str = option(MINI, help="checkpoint of the curve: name on the Hub, directory, or mini (embedded)")
    repeats: int = option(3, minimum=1, metavar="N", help="rounds; medians are printed")
    threads: tuple[int, ...] = option(
        (1, 2), minimum=1, metavar="N", help="threads of indexing; the highest number also encodes and builds"
    )
    dtype: str = option("auto", choices=("auto", "float32", "bfloat16"), help="dtype of the matrix products")
    format: str = option("text", choices=FORMATS, help="format of the table")
    plot: Path | None = option(None, metavar="FILE", help="PNG file for a figure of the table")


def command(options: TableOptions) -> None:
    """Measure the parts, plot and print them."""
    if options.plot is not None:
        validate_output_file(options.plot, True, "plot")
    rows: list[Row] = []
    for name, measure in _measurements(options).items():
        if name in (options.only or PARTS):
            log(f"{name} ...")
            rows += measure()
    if options.plot is not None:
        table_figure.draw(options.plot, rows)
        log(f"Wrote {options.plot}")
    names = ("documents", "queries", "texts", "layers", "repeats", "threads", "dtype")
    sizes = {name: getattr(options, name) for name in names} | {"threads": " ".join(map(str, options.threads))}
    sys.stdout.write(format_rows(rows, options.format, {"processor": processor()} | sizes))


def _measurements(options: TableOptions) -> dict[str, Callable[[], list[Row]]]:
    threads = max(options.threads)
    texts = table_encoding.EncodingSizes(options.layers, options.texts, options.repeats, threads, options.dtype)
    sizes = table_engines.EngineSizes(options.documents, options.queries, options.threads, options.repeats)
    return {
        "encode": lambda: in_fresh_process(table_encoding.encoding_rows, texts),
        "write": lambda: table_engines.store_rows(sizes),
        "index": lambda: table_engines.index_rows(sizes),
        "search": lambda: table_engines.search_rows(sizes),
        "engines": lambda: table_engines.engine_rows(sizes),
        "curve": lambda: table_curve.curve_rows(options.curve, options.encoder),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks", TableOptions, command, argv)
