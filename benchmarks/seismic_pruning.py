"""Measure Seismic on documents pruned to several numbers of terms: latency against recall, and size against terms.

python benchmarks/seismic_pruning.py --documents 1000000 --output seismic_pruning.json --plot seismic_pruning.png

The documents are the long ones of topical_vectors.py, of both views or of the pivot view. They are pruned with
top-k:TERMS and indexed with exact and with Seismic, each in its own process, whose peak of memory is reported. Then
one process searches all indexes and the exact index of the unpruned documents, query by query on one thread, in turn,
with every pair of query_cut and heap_factor of SETTINGS.

Figures are added to --output, and those that it has are not measured again. With --work, an interrupted run resumes
with the documents and indexes that it has made, and exact indexes are kept for runs with other settings.
    recall: the share of exact's ten best of the unpruned documents that are found: what pruning and Seismic lose.
    of pruned: the share of exact's ten best of the same pruned documents that are found: what Seismic loses.
    s: of the build, with the measurement of recall that it ends with.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import repository  # noqa: F401
from lucene_indexing import in_fresh_process
from scale import BOTH, PIVOT, latencies, open_engine
from table_engines import recall
from table_rows import with_peak
from topical_vectors import topical_queries, write_pruned_stores

from experiments.timing import processor
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.eval import ReportTable, render
from milco_pyserini.io.files import read_json, size_on_disk, validate_output_file, write_json
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.engines.seismic import SeismicSearcher
    from milco_pyserini.index.hits import Hits

HITS = 10
EXACT, SEISMIC = "exact", "seismic"
UNPRUNED = "all"
# query_cut and heap_factor, from fast to thorough; the third is the default.
SETTINGS = ((3, 1.0), (5, 1.0), (10, 0.9), (15, 0.8), (20, 0.8), (40, 0.7), (40, 0.5))
_ENGINE = ("n_postings", "summary_energy")
_SETUP = ("views", "documents", *_ENGINE)
_PAIR = ("query_cut", "heap_factor")
_BUILD = {"s": 0, "MB": 0, "disk MB": 0, "open s": 2, "open MB": 0}
_SEARCH = {"p50 ms": 2, "p99 ms": 2, "recall": 3, "of pruned": 3}


@dataclass(frozen=True)
class SeismicPruningOptions:
    """Measure Seismic on documents pruned to several numbers of terms, next to exact search."""

    documents: int = option(1_000_000, minimum=1, metavar="N", help="documents, about 7 kB each on disk in all stores")
    views: str = option(PIVOT, choices=(BOTH, PIVOT), help="pivot view, or both views, whose index is much larger")
    terms: tuple[int, ...] = option((30, 60, 100, 150, 250), minimum=1, metavar="N", help="terms kept per document")
    n_postings: int = option(1000, minimum=1, metavar="N", help="Seismic's postings per term, on average")
    summary_energy: float = option(0.4, minimum=0.05, maximum=1, metavar="X", help="share of weight in summaries")
    queries: int = option(100, minimum=1, metavar="N", help="queries of about 38 terms")
    rounds: int = option(3, minimum=1, metavar="N", help="timed rounds of every query")
    threads: int = option(2, minimum=1, metavar="N", help="threads of builds")
    output: Path = option(Path("seismic_pruning.json"), metavar="FILE", help="JSON file of the figures; extended")
    plot: Path | None = option(None, metavar="FILE", help="PNG file of the curves of this number of documents")
    work: Path | None = option(None, metavar="DIR", help="directory for collections and indexes (default: temporary)")


def command(options: SeismicPruningOptions) -> None:
    """Measure what the file does not have, print all that it has, and draw it."""
    if options.plot is not None:
        validate_output_file(options.plot, True, "plot")
    validate_output_file(options.output, True)
    rows = read_json(options.output)["rows"] if options.output.exists() else []
    setup = {name: getattr(options, name) for name in _SETUP}
    known = {row["top-k"] for row in rows if setup.items() <= row.items()}
    missing = [terms for terms in sorted(set(options.terms)) if terms not in known]
    with ExitStack() as stack:
        if missing:
            work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            root = work / f"{options.documents}-{options.views}"
            prepare(root, missing, options)
            rows += [{**setup, **row} for row in measure(root, missing, options)]
            write_json(options.output, {"processor": processor(), "rows": rows})
    sys.stdout.write(report(rows))
    if options.plot is not None:
        draw(options.plot, [row for row in rows if setup.items() <= row.items()])
        log(f"Wrote {options.plot}")


def prepare(root: Path, terms: Sequence[int], options: SeismicPruningOptions) -> None:
    """Write the stores and the exact index of unpruned documents, unless an earlier run has written them."""
    stores = {root / str(name) / "store": None if name == UNPRUNED else name for name in (UNPRUNED, *terms)}
    # The manifest is written last.
    missing = {path: top for path, top in stores.items() if not (path / "manifest.json").is_file()}
    if missing:
        log(f"{options.documents:,} documents")
        for path in missing:
            shutil.rmtree(path, ignore_errors=True)
        in_fresh_process(write_pruned_stores, missing, options.documents, options.views == BOTH)
    build(root / UNPRUNED, EXACT, options)


def build(root: Path, engine: str, options: SeismicPruningOptions) -> dict[str, float]:
    """Build and open an index of root/store, unless an earlier run has; return the figures."""
    name = index_name(engine, options)
    figures = root / f"{name}.json"
    if not figures.is_file():
        shutil.rmtree(root / name, ignore_errors=True)
        settings = {setting: getattr(options, setting) for setting in _ENGINE} if engine == SEISMIC else {}
        taken, peak = in_fresh_process(with_peak, build_index, root, name, engine, settings, options.threads)
        opened, opened_peak = in_fresh_process(with_peak, open_engine, root / name, options.views == BOTH)
        built = {"s": taken, "MB": peak, "disk MB": size_on_disk(root / name) / 1e6}
        write_json(figures, built | {"open s": opened, "open MB": opened_peak})
    return read_json(figures)


def index_name(engine: str, options: SeismicPruningOptions) -> str:
    """Return the name of an index's directory, with the settings of Seismic."""
    return f"{engine}-{options.n_postings}-{options.summary_energy:g}" if engine == SEISMIC else engine


def build_index(root: Path, name: str, engine: str, settings: Mapping[str, float], threads: int) -> float:
    """Return the seconds of a build."""
    from milco_pyserini.index import Index, find_engine

    started = time.perf_counter()
    Index.build(root / "store", root / name, find_engine(engine).with_settings(settings), threads=threads)
    return time.perf_counter() - started


def measure(root: Path, terms: Sequence[int], options: SeismicPruningOptions) -> list[dict[str, Any]]:
    """Build all indexes, search them in turn, and return a row per number of terms; Seismic's are deleted."""
    rows: list[dict[str, Any]] = []
    for kept in terms:
        directory = root / str(kept)
        exact = build(directory, EXACT, options)
        lists = np.diff(np.load(directory / EXACT / "indptr.npy"))
        built = build(directory, SEISMIC, options)
        rows.append({"top-k": kept, "terms": int(lists.sum()) / options.documents, EXACT: exact, SEISMIC: built})
    found = in_fresh_process(search_all, root, terms, options)
    for row, searches in zip(rows, found, strict=True):
        row["searches"] = searches
        for path in (root / str(row["top-k"])).glob(f"{SEISMIC}-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return rows


def search_all(root: Path, terms: Sequence[int], options: SeismicPruningOptions) -> list[list[dict[str, Any]]]:
    """Return latency and recall of exact search and of Seismic's settings, for each number of terms.

    Exact search of the unpruned documents is the first of each.
    """
    from milco_pyserini.index import open_index

    # An index of the pivot view ignores the source terms.
    queries = topical_queries(options.queries, True)
    searchers: dict[tuple, Any] = {(EXACT, UNPRUNED): open_index(root / UNPRUNED / EXACT).searcher()}
    for kept in terms:
        searchers[EXACT, kept] = open_index(root / str(kept) / EXACT).searcher()
        seismic = cast("SeismicSearcher", open_index(root / str(kept) / index_name(SEISMIC, options)).searcher())
        searchers |= {(SEISMIC, kept, *pair): seismic.with_settings(*pair) for pair in SETTINGS}

    def search(searcher: Any, number: int, k: int) -> "Hits":
        return searcher.search([queries[number]], k)[0]

    searches = {" ".join(map(str, key)): partial(search, searcher) for key, searcher in searchers.items()}
    # Untimed: to warm up, and for recall.
    hits = {
        key: [search(number, HITS) for number in range(options.queries)]
        for key, search in zip(searchers, searches.values(), strict=True)
    }
    timed = latencies(searches, options.queries, HITS, options.rounds)
    found = []
    for (system, kept, *pair), (p50, p99) in zip(searchers, timed.values(), strict=True):
        own = hits[system, kept, *pair]
        row = {"system": system, "top-k": kept, "p50 ms": p50, "p99 ms": p99}
        row["recall"] = recall(hits[EXACT, UNPRUNED], own)
        if kept != UNPRUNED:
            row["of pruned"] = recall(hits[EXACT, kept], own)
        found.append(row | dict(zip(_PAIR, pair, strict=False)))
    return [[row for row in found if row["top-k"] in (UNPRUNED, kept)] for kept in terms]


def report(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of builds and one of searches."""
    builds, searches = [], []
    for row in sorted(rows, key=lambda row: tuple(row[name] for name in (*_SETUP, "top-k"))):
        setup = [row["views"], *(f"{row[name]:,}" for name in _SETUP[1:])]
        for system in (EXACT, SEISMIC):
            figures = [row[system][name] for name in _BUILD]
            builds.append([*setup, f"top-k:{row['top-k']}", system, row["terms"], *figures])
        for one in row["searches"]:
            pruned = f"top-k:{one['top-k']}" if one["top-k"] != UNPRUNED else UNPRUNED
            pair = [f"{one[name]:g}" if name in one else "" for name in _PAIR]
            line = [*setup, pruned, one["system"], *pair, *(one.get(name) for name in _SEARCH)]
            # The unpruned documents are searched once, next to all numbers of terms.
            searches += [line] if line not in searches else []
    labels = [*_SETUP, "pruned", "system"]
    tables = (
        ReportTable(labels, ["terms", *_BUILD], builds, [0, *_BUILD.values()]),
        ReportTable([*labels, *_PAIR], list(_SEARCH), searches, list(_SEARCH.values()), (f"k={HITS}, one thread",)),
    )
    return "\n".join(render(table, "markdown") for table in tables)


def draw(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw latency against both recalls, a line per number of terms, and size on disk against terms."""
    import table_figure
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from experiments.pictures import COLORS, DASHES, GREY, INK, MARKERS, STYLE
    from milco_pyserini.io.files import atomic_file

    ordered = sorted(rows, key=lambda row: row["top-k"])
    titles = {"recall": "recall@10 of unpruned documents", "of pruned": "recall@10 of the same pruned documents"}
    with rc_context(STYLE):
        figure = Figure((12, 4.2), dpi=160, layout="constrained")
        *panels, disk = figure.subplots(1, 3)
        lines = {}
        for panel, (measure, title) in zip(panels, titles.items(), strict=True):
            for number, row in enumerate(ordered):
                # The unpruned documents are searched next to every number of terms, and drawn once.
                drawn = [one for one in row["searches"] if measure in one and (one["top-k"] != UNPRUNED or not number)]
                for system, kept in dict.fromkeys((one["system"], one["top-k"]) for one in drawn):
                    found = [one for one in drawn if (one["system"], one["top-k"]) == (system, kept)]
                    (lines[kept, system],) = panel.plot(
                        *zip(*sorted((one[measure], one["p50 ms"]) for one in found), strict=True),
                        color=INK if kept == UNPRUNED else COLORS[number % len(COLORS)],
                        marker="*" if kept == UNPRUNED else MARKERS[number % len(MARKERS)],
                        markersize=7 if kept == UNPRUNED else 5,
                        markerfacecolor="none" if system == EXACT else None,
                        linestyle="" if system == EXACT else "-",
                    )
            panel.set(yscale="log", xlabel=title, title="p50 of a query, k=10, ms")
            table_figure.format_axis(panel, "y")
            panel.grid(True, axis="x")
        for number, system in enumerate((SEISMIC, EXACT)):
            built = [(row["terms"], row[system]["disk MB"] / 1e3) for row in ordered]
            disk.plot(
                *zip(*built, strict=True), color=GREY, marker="os"[number], linestyle=DASHES[number], label=system
            )
        disk.set(xlabel="terms of a document", title="index, GB", xlim=(0, None), ylim=(0, None))
        disk.grid(True)
        disk.legend(fontsize="small")
        # The legend is filled column by column: one for each number of terms.
        keys = sorted(lines, key=lambda key: (inf if key[0] == UNPRUNED else key[0], key[1] == EXACT))
        names = [f"{system}, {kept} terms" for kept, system in keys]
        columns = -(-len(keys) // 2)
        handles = [lines[key] for key in keys]
        figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize="small")
        with atomic_file(path) as file:
            figure.savefig(file, format="png")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("seismic_pruning.py", SeismicPruningOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
