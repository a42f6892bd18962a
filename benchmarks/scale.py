"""Measure every engine on growing synthetic collections, next to LuceneImpactSearcher, and extrapolate.

python benchmarks/scale.py --documents 100000 1000000 2000000 --output scale.json --plot scale.png

The documents are those of topical_vectors.py, of both views or of a pivot view, with the rounded weights of a JSONL
store. Every build runs in its own process,
whose peak of memory is reported, and so does the opening of every index. Then all searchers of a collection answer the
same queries one by one in one process, in turn, round after round: p50 and p99 are percentiles of the queries' medians
over the rounds. recall@K is the share of exact's top K that an engine returns; the docids and scores of
LuceneImpactSearcher are compared with those of the lucene engine, and a difference is an error.

Figures are added to --output as they are measured, and those that it has are not measured again: a run resumes, and
several runs with other --documents, --engines or --views fill one file.
    s, MB, own MB, disk MB: of the build; own MB is its peak of memory without mapped files, which take what is free.
    open s, open MB: from started Java and imported modules, to the first query's answer.
    32M, 100M: extrapolated by the line through the two largest collections. recall is not extrapolated.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import repository  # noqa: F401
from lucene_indexing import in_fresh_process, index_milco
from lucene_search import Query, validate_equal
from table_engines import ENGINES, SEARCHER, is_installed, pyserini_search, recall
from table_rows import with_own_peak, with_peak
from topical_vectors import topical_queries, write_topical_store

from experiments.timing import processor
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, log
from milco_pyserini.eval import ReportTable, render
from milco_pyserini.io.files import read_json, size_on_disk, validate_output_file, write_json
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.index.hits import Hits

BOTH, PIVOT = "both", "pivot"
COLLECTION = ("views", "documents", "system")
BUILD = {"s": 0, "documents/s": 0, "MB": 0, "own MB": 0, "disk MB": 0, "open s": 2, "open MB": 0}
LARGER = (32_000_000, 100_000_000)
# Figures that grow with the collection; documents/s does not.
_GROWING = ("s", "MB", "own MB", "disk MB", "open s", "open MB")


@dataclass(frozen=True)
class ScaleOptions:
    """Measure builds and searches of every engine on growing collections."""

    documents: tuple[int, ...] = option(
        (100_000, 1_000_000), minimum=1, metavar="N", help="sizes of the collections, about 1 kB per document on disk"
    )
    views: str = option(BOTH, choices=(BOTH, PIVOT), help="both views, or pivot, for engines of small vocabularies")
    engines: tuple[str, ...] = option(
        ("exact", "lucene"), choices=ENGINES, metavar="ENGINE", help=f"of {', '.join(ENGINES)}; exact for recall"
    )
    queries: int = option(100, minimum=1, metavar="N", help="queries of about 40 terms")
    k: tuple[int, ...] = option((10, 1000), minimum=1, help="hits per query")
    rounds: int = option(3, minimum=1, metavar="N", help="timed rounds of every query")
    threads: int = option(2, minimum=1, metavar="N", help="threads of builds; lucene also searches with so many")
    output: Path = option(Path("scale.json"), metavar="FILE", help="JSON file of the figures; extended if it exists")
    plot: Path | None = option(None, metavar="FILE", help="PNG file of the curves")
    work: Path | None = option(None, metavar="DIR", help="directory for collections and indexes (default: temporary)")


def command(options: ScaleOptions) -> None:
    """Measure what the file does not have, print all that it has, and draw it."""
    if options.plot is not None:
        validate_output_file(options.plot, True, "plot")
    validate_output_file(options.output, True)
    rows = read_json(options.output)["rows"] if options.output.exists() else []

    def save(row: dict) -> None:
        rows.append({"views": options.views, **row})
        write_json(options.output, {"processor": processor(), "rows": rows})

    for count in sorted(set(options.documents)):
        measured = {row["system"] for row in rows if (row["views"], row["documents"]) == (options.views, count)}
        if not {engine for engine in options.engines if is_installed(engine)} <= measured:
            with tempfile.TemporaryDirectory(dir=options.work) as name:
                measure(Path(name), count, options, save)
    sys.stdout.write(report(rows))
    if options.plot is not None:
        draw(options.plot, rows)
        log(f"Wrote {options.plot}")


def measure(root: Path, count: int, options: ScaleOptions, save: Callable[[dict], None]) -> None:
    """Build, open and search a collection in every engine; save a row per system."""
    log(f"{count:,} documents, views {options.views}")
    both = options.views == BOTH
    in_fresh_process(write_topical_store, root / "store", count, both, True)
    engines = [engine for engine in options.engines if is_installed(engine)]
    built: dict[str, dict[str, float]] = {}
    for engine in engines:
        built_as = (root, root / engine, options.threads, engine)
        taken, peak, own_peak = in_fresh_process(with_own_peak, index_milco, *built_as)
        opened, opened_peak = in_fresh_process(with_peak, open_engine, root / engine, both)
        built[engine] = {
            "s": taken,
            "documents/s": count / taken,
            "MB": peak,
            "own MB": own_peak,
            "disk MB": size_on_disk(root / engine) / 1e6,
            "open s": opened,
            "open MB": opened_peak,
        }
        log("  " + ", ".join([engine, *(f"{name} {value:,.{BUILD[name]}f}" for name, value in built[engine].items())]))
    found = in_fresh_process(search_all, root, engines, options, both)
    for system, figures in found.items():
        save({"documents": count, "system": system, **built.get(system, {}), **figures})


def open_engine(path: Path, both_views: bool) -> float:
    """Return the seconds from imported modules to the answer of the first query."""
    from milco_pyserini.index import open_index

    (query,) = topical_queries(1, both_views)
    index = open_index(path)
    index.engine.available()
    started = time.perf_counter()
    index.searcher().search([query], 10)
    return time.perf_counter() - started


def search_all(root: Path, engines: Sequence[str], options: ScaleOptions, both_views: bool) -> dict[str, dict]:
    """Return p50, p99 and recall of each system at each k. Raises MilcoError if Pyserini's results differ."""
    from milco_pyserini.index import open_index

    queries = topical_queries(options.queries, both_views)
    searches: dict[str, Callable[[int, int], Hits]] = {}
    for engine in engines:
        searcher = open_index(root / engine).searcher()
        searches[engine] = partial(_search_milco, searcher, queries, 1)
        if engine == "lucene":
            searches[f"lucene, {counted(options.threads, 'thread')}"] = partial(
                _search_milco, searcher, queries, options.threads
            )
            searches[SEARCHER] = pyserini_search(root / engine, queries)
    figures: dict[str, dict] = {system: {} for system in searches}
    for k in options.k:
        # Untimed: to warm up, and to compare.
        hits = {system: [search(number, k) for number in range(options.queries)] for system, search in searches.items()}
        if SEARCHER in hits:
            for number, (ours, theirs) in enumerate(zip(hits["lucene"], hits[SEARCHER], strict=True)):
                validate_equal(number, (ours.docids, ours.scores), (theirs.docids, theirs.scores))
        for system, (p50, p99) in latencies(searches, options.queries, k, options.rounds).items():
            figures[system][f"p50, k={k}"] = p50
            figures[system][f"p99, k={k}"] = p99
            if "exact" in hits:
                figures[system][f"recall@{k}"] = recall(hits["exact"], hits[system])
    return figures


def latencies(
    searches: Mapping[str, Callable[[int, int], object]], queries: int, k: int, rounds: int
) -> dict[str, tuple[float, float]]:
    """Return p50 and p99, in ms, of the queries' medians over the rounds; all systems answer in turn in a round."""
    seconds: dict[str, list[list[float]]] = {system: [] for system in searches}
    for _ in range(rounds):
        for system, search in searches.items():
            seconds[system].append([_seconds(search, number, k) for number in range(queries)])
    medians = {system: 1000 * np.median(taken, axis=0) for system, taken in seconds.items()}
    return {name: (float(np.percentile(one, 50)), float(np.percentile(one, 99))) for name, one in medians.items()}


def _search_milco(searcher: Any, queries: Sequence[Query], threads: int, number: int, k: int) -> "Hits":
    return searcher.search([queries[number]], k, threads=threads)[0]


def _seconds(search: Callable[[int, int], object], number: int, k: int) -> float:
    started = time.perf_counter()
    search(number, k)
    return time.perf_counter() - started


def report(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the figures and, for each system with two sizes, those of larger collections by extrapolation."""
    ordered = sorted(rows, key=lambda row: (row["views"], row["documents"]))
    ordered += [row for size in LARGER for row in extrapolated(rows, size)]
    searches = {name: 3 if "recall" in name else 2 for row in ordered for name in row if name[-1].isdigit()}
    columns = BUILD | searches
    lines = [
        [row["views"], f"{row['documents']:,}", row["system"], *(row.get(name) for name in columns)] for row in ordered
    ]
    notes = (f"p50, p99: ms per query; {' and '.join(f'{size:,}' for size in LARGER)} documents: extrapolated",)
    table = ReportTable(COLLECTION, list(columns), lines, list(columns.values()), notes)
    return render(table, "markdown")


def extrapolated(rows: Sequence[Mapping[str, Any]], size: int) -> list[dict[str, Any]]:
    """Return a row for each system with two sizes: figures by the line through the two largest, which never falls."""
    found = []
    for key in dict.fromkeys((row["views"], row["system"]) for row in rows):
        known = sorted((row for row in rows if (row["views"], row["system"]) == key), key=lambda row: row["documents"])
        if len(known) < 2:
            continue
        smaller, larger = known[-2:]
        row = {"views": key[0], "documents": size, "system": key[1]}
        for name in (name for name in larger if name in _GROWING or name.startswith("p")):
            slope = (larger[name] - smaller[name]) / (larger["documents"] - smaller["documents"])
            row[name] = larger[name] + max(slope, 0) * (size - larger["documents"])
        found.append(row)
    return found


def draw(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw build, memory, disk and latency by the number of documents."""
    import table_figure
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from experiments.pictures import COLORS, DASHES, MARKERS, STYLE
    from milco_pyserini.io.files import atomic_file

    latencies = [name for row in rows for name in row if name.startswith("p50")]
    panels = {"s": "build, s", "MB": "build, peak MB", "disk MB": "index, MB"}
    panels |= {name: f"{name}, ms" for name in dict.fromkeys(latencies)}
    systems = list(dict.fromkeys(row["system"] for row in rows))
    views = list(dict.fromkeys(row["views"] for row in rows))
    with rc_context(STYLE):
        figure = Figure((3.1 * len(panels), 3.4), dpi=160, layout="constrained")
        lines = {}
        for panel, (name, label) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            for system in systems:
                for view in views:
                    known = [row for row in rows if (row["system"], row["views"]) == (system, view)]
                    points = sorted((row["documents"], row[name]) for row in known if row.get(name, nan) > 0)
                    if points:
                        number = systems.index(system)
                        (lines[f"{system}, {view}"],) = panel.plot(
                            *zip(*points, strict=True),
                            color=COLORS[number % len(COLORS)],
                            marker=MARKERS[number % len(MARKERS)],
                            linestyle=DASHES[views.index(view)],
                            markersize=4.5,
                        )
            panel.set(xscale="log", yscale="log", xlabel="million documents", title=label)
            for axis in "xy":
                table_figure.format_axis(panel, axis)
            panel.xaxis.set_major_formatter(lambda number, _: f"{number / 1e6:g}")
        figure.legend(lines.values(), lines, loc="outside lower center", ncols=4, fontsize="small")
        with atomic_file(path) as file:
            figure.savefig(file, format="png")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("scale.py", ScaleOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
