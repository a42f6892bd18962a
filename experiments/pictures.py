"""python -m experiments.pictures statistics|sweep|languages: PNG pictures of what milco analyze and milco eval report.

They need matplotlib (pip install '.[plots]'). Colors are Okabe and Ito's, which readers with color blindness can tell
apart.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from matplotlib import rc_context
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from milco_pyserini.analysis.experiment import UNPRUNED
from milco_pyserini.analysis.statistics import TERMS, StoreStatistics, compute_statistics
from milco_pyserini.analysis.sweep import SweepPoint
from milco_pyserini.cli import program
from milco_pyserini.cli.parser import Subcommand, dispatch
from milco_pyserini.console import log
from milco_pyserini.corpora import open_qrels
from milco_pyserini.errors import MilcoError, validate_unique
from milco_pyserini.eval.evaluation import ranking
from milco_pyserini.eval.fairness import HITS, document_languages, query_languages
from milco_pyserini.io.files import atomic_file, validate_output_file
from milco_pyserini.io.runs import read_run
from milco_pyserini.options import option

PROG = "python -m experiments.pictures"

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "^", "s", "D", "v", "P")
DASHES = ("-", "--", ":", "-.")
INK, GREY, GROUND = "#1b1b1b", "#5c5c5c", "#ffffff"
# Any: matplotlib types the names of its settings.
STYLE: Any = {
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlesize": "medium",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "axes.facecolor": GROUND,
    "figure.facecolor": GROUND,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
}
# Enough points to show a distribution; more only darken the picture.
_MAX_POINTS = 4000
_MAX_LANGUAGES = 40
_MAX_BINS = 50


@dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """Options of all pictures."""

    output: Path = option(metavar="FILE.png", help="picture to write")
    overwrite: bool = option(False, help="replace an existing --output")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with the options together."""
        if self.output.suffix.lower() != ".png":
            yield f"--output {self.output}: pictures are PNG. Give a name that ends in .png"


@dataclass(frozen=True, kw_only=True)
class StatisticsPictureOptions(PictureOptions):
    """Draw the statistics of a vector store, as milco analyze statistics reports them."""

    vectors: Path = option(metavar="DIR", help="vector store of documents or topics")
    corpus: str | None = option(None, metavar="NAME|PATH", help="texts, for their lengths")


@dataclass(frozen=True, kw_only=True)
class SweepPictureOptions(PictureOptions):
    """Draw what milco analyze sweep --format json printed: a curve for each kind of rule."""

    sweep: Path = option(metavar="FILE", help="JSON of the sweep")


@dataclass(frozen=True, kw_only=True)
class LanguagesPictureOptions(PictureOptions):
    """Draw the languages of the ten best hits of runs, whose ids begin with the language, as ar-07."""

    run: tuple[Path, ...] = option(metavar="FILE", help="runs over documents of several languages")
    qrels: str = option(metavar="NAME|FILE", help="qrels of the topics")
    corpus: tuple[str, ...] = option((), metavar="NAME|PATH", help="corpora of the documents, as for milco eval")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 2 for bad input, 130 for Ctrl-C."""
    return dispatch(PROG, SUBCOMMANDS, "Draw what milco analyze and milco eval report.", argv)


def _statistics(options: StatisticsPictureOptions) -> None:
    validate_output_file(options.output, options.overwrite)
    draw_statistics(options.output, compute_statistics(options.vectors, options.corpus))
    log(f"Picture: {options.output}")


def _sweep(options: SweepPictureOptions) -> None:
    validate_output_file(options.output, options.overwrite)
    try:
        points = [SweepPoint(**point) for point in orjson.loads(options.sweep.read_bytes())]
    except (TypeError, orjson.JSONDecodeError):
        raise MilcoError(f"{options.sweep} is not what milco analyze sweep --format json printed") from None
    draw_sweep(options.output, points)
    log(f"Picture: {options.output}")


def _languages(options: LanguagesPictureOptions) -> None:
    validate_output_file(options.output, options.overwrite)
    validate_unique("--run", [path.stem for path in options.run])
    qrels, runs = open_qrels(options.qrels), {path.stem: read_run(path) for path in options.run}
    languages, spoken = document_languages(runs.values(), qrels, options.corpus), query_languages(qrels)
    hits: dict[str, dict[str, Counter[str]]] = {name: {} for name in runs}
    for name, run in runs.items():
        for query in qrels.keys() & run.keys():
            best = (languages[docid] for docid in ranking(run[query])[:HITS])
            hits[name].setdefault(spoken.get(query, ""), Counter()).update(best)
    draw_languages(options.output, hits)
    log(f"Picture: {options.output}")


@rc_context(STYLE)
def draw_sweep(path: Path, measurements: Sequence[SweepPoint]) -> None:
    """Draw effectiveness against terms per document, index size and latency: a curve per kind of rule and engine."""
    curves = sweep_curves(measurements)
    measures = list(measurements[0].measures)
    kinds = list(dict.fromkeys(kind for kind, _ in curves))
    engines = list(dict.fromkeys(engine for _, engine in curves))
    colors = {kind: COLORS[number % len(COLORS)] for number, kind in enumerate(kinds)}
    styles: dict[str, dict[str, Any]] = {
        engine: {"marker": MARKERS[number % len(MARKERS)], "linestyle": DASHES[number % len(DASHES)]}
        for number, engine in enumerate(engines)
    }
    axes = {
        "terms per document": [[point.terms for point in curve] for curve in curves.values()],
        "index size (MB)": [[point.size / 1e6 for point in curve] for curve in curves.values()],
        "search time (ms per query)": [[point.ms for point in curve] for curve in curves.values()],
    }
    figure = Figure((4 * len(axes), 3.4 * len(measures) + 0.9), dpi=160, layout="constrained")
    figure.suptitle("pruning: effectiveness against cost")
    panels = figure.subplots(len(measures), len(axes), squeeze=False, sharey="row")
    for measure, row in zip(measures, panels, strict=True):
        for panel, (label, positions) in zip(row, axes.items(), strict=True):
            for ((kind, engine), curve), xs in zip(curves.items(), positions, strict=True):
                ys = [point.measures[measure] for point in curve]
                panel.plot(xs, ys, color=colors[kind], markersize=4.5, linewidth=1.3, **styles[engine])
                # The curves of other engines have the same rules.
                for point, x, y in zip(curve, xs, ys, strict=True) if engine == engines[0] else ():
                    if point.vectors != UNPRUNED:
                        panel.annotate(
                            "+".join(rule.rpartition(":")[2] for rule in point.vectors.split(",")),
                            (x, y),
                            (3, -7),
                            textcoords="offset points",
                            fontsize=6,
                            color=colors[kind],
                        )
            scale_axis(panel, [x for xs in positions for x in xs])
            panel.grid()
            panel.set_xlabel(label)
        row[0].set_ylabel(measure)
    lines = [Line2D([], [], color=color, linewidth=3, label=kind) for kind, color in colors.items()]
    lines += [Line2D([], [], color=GREY, markersize=4.5, label=engine, **style) for engine, style in styles.items()]
    figure.legend(handles=lines, loc="outside lower center", ncols=6, fontsize="small")
    _save(path, figure)


def scale_axis(panel: Any, values: Sequence[float]) -> None:
    """Make the x axis logarithmic for values that span a decade: less could have a single labeled tick."""
    if min(values) > 0 and max(values) >= 10 * min(values):
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_formatter(lambda number, _: f"{number:,.10g}")


def sweep_curves(measurements: Sequence[SweepPoint]) -> dict[tuple[str, str], list[SweepPoint]]:
    """Group measurements by kind of rule ("top-k", "pivot:mass") and engine, the most terms first.

    The unpruned vectors are part of each curve of their engine.
    """
    groups: dict[tuple[str, str], list[SweepPoint]] = {}
    for point in measurements:
        kind = ",".join(rule.rpartition(":")[0] for rule in point.vectors.split(","))
        groups.setdefault((kind, point.index), []).append(point)
    # Without a value, "none" is of the kind "".
    unpruned = {engine: group for (kind, engine), group in groups.items() if not kind}
    curves = {key: unpruned.get(key[1], []) + group for key, group in groups.items() if key[0]}
    curves = curves or {(UNPRUNED, engine): group for engine, group in unpruned.items()}
    return {key: sorted(group, key=lambda point: -point.terms) for key, group in curves.items()}


@rc_context(STYLE)
def draw_statistics(path: Path, statistics: StoreStatistics) -> None:
    """Draw six panels: terms, lengths, languages, posting lists, columns and frequent terms; a color per view."""
    values, counts = statistics.values, statistics.counts
    unit = str(values["unit"])
    colors = dict(zip(counts.views, COLORS, strict=False))
    figure = Figure((13.5, 7.6), dpi=130, layout="constrained")
    figure.suptitle(f"{Path(values['vectors']).name}: {values['documents']:,} {unit}")
    panels = figure.subplots(2, 3).ravel()

    most = max(int(counts.terms[view].max()) for view in colors)
    edges = np.linspace(0, most + 1, min(most + 2, _MAX_BINS))
    for view, color in colors.items():
        terms = counts.terms[view]
        panels[0].hist(terms, edges, color=color, alpha=0.6, label=f"{view}, mean {terms.mean():,.1f}")
    panels[0].set(title=f"terms per {unit[:-1]}", xlabel="terms", ylabel=unit)
    panels[0].legend(fontsize="small")

    _draw_lengths(panels[1], statistics, colors, unit)
    _draw_languages(panels[2], values, colors, unit)

    for view, color in colors.items():
        postings = counts.all_postings[counts.groups[view]]
        active = np.sort(postings[postings > 0])[::-1]
        panels[3].plot(np.arange(1, len(active) + 1), active, color=color, label=f"{view}, {len(active):,} active")
    scale = "log" if counts.all_postings.any() else "linear"
    panels[3].set(title="posting lists by length", xlabel="rank of the list", ylabel=unit, xscale=scale, yscale=scale)
    panels[3].grid()
    panels[3].legend(fontsize="small")

    _draw_columns(panels[4], statistics, colors, unit)

    # Only of the first view: the source view's terms are of all scripts, which few fonts have.
    view, color = next(iter(colors.items()))
    frequent = values["frequent"][view][::-1]
    panels[5].set(title=f"most frequent terms{'' if view == TERMS else f', {view} view'}", xlabel=f"{unit} (%)")
    if frequent:
        panels[5].barh(range(len(frequent)), [100 * term["share"] for term in frequent], color=color)
        panels[5].set_yticks(range(len(frequent)), [_drawable(term["term"]) for term in frequent], fontsize="small")
    else:
        _note(panels[5], "no term is active")
    _save(path, figure)


@rc_context(STYLE)
def draw_languages(path: Path, hits: Mapping[str, Mapping[str, Mapping[str, int]]]) -> None:
    """Draw the languages of the best hits: a panel per run, a row per language of queries, a column per language found.

    Args:
        hits: run -> language of the query ("" if not known) -> language of the document -> number of hits.
    """
    columns = sorted({language for run in hits.values() for by_language in run.values() for language in by_language})
    rows = sorted({language for run in hits.values() for language in run})
    size = 0.34 * len(columns) + 1.3, 0.34 * len(rows) + 1.5
    figure = Figure((size[0] * len(hits) + 0.4, size[1]), dpi=160, layout="constrained")
    panels = figure.subplots(1, len(hits), squeeze=False, sharey=True)[0]
    for panel, (run, by_language) in zip(panels, hits.items(), strict=True):
        shares = np.zeros((len(rows), len(columns)))
        for row, language in enumerate(rows):
            counts = by_language.get(language, {})
            shares[row] = [counts.get(column, 0) / max(1, sum(counts.values())) for column in columns]
        panel.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100)
        for (row, column), share in np.ndenumerate(shares):
            color = GROUND if share > 0.5 else INK
            panel.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=6.5, color=color)
        panel.set_xticks(range(len(columns)), columns, fontsize="small")
        panel.set(title=run, xlabel="language of the document")
    panels[0].set_yticks(
        range(len(rows)), [language or ("other" if len(rows) > 1 else "all") for language in rows], fontsize="small"
    )
    panels[0].set_ylabel("language of the query")
    figure.suptitle(f"languages of the best hits (%); an even share is {100 / len(columns):.0f} %")
    _save(path, figure)


def _draw_lengths(panel: Any, statistics: StoreStatistics, colors: Mapping[str, str], unit: str) -> None:
    panel.set(title="length against sparsity", xlabel=f"tokens per {unit[:-1]}", ylabel="terms")
    lengths = statistics.lengths
    if lengths is None:
        _note(panel, "the texts are not available")
        return
    shown = slice(None, None, max(1, -(-len(lengths.tokens) // _MAX_POINTS)))
    for view, color in colors.items():
        rank = statistics.values["length"]["correlation"][view]["spearman"]
        label = view if rank is None else f"{view}, Spearman's {rank:.2f}"
        terms = statistics.counts.terms[view][shown]
        panel.scatter(lengths.tokens[shown], terms, s=5, color=color, alpha=0.4, lw=0, label=label)
    panel.set_ylim(bottom=0)
    panel.legend(fontsize="small", markerscale=3)


def _draw_languages(panel: Any, values: Mapping[str, Any], colors: Mapping[str, str], unit: str) -> None:
    panel.set(title=f"terms per {unit[:-1]} by language", xlabel="terms, mean")
    if not values["languages"]:
        _note(panel, "the languages are not known")
        return
    languages = values["languages"][:_MAX_LANGUAGES][::-1]
    left = np.zeros(len(languages))
    for view, color in colors.items():
        means = np.asarray([row["terms"][view] for row in languages])
        panel.barh([row["language"] for row in languages], means, left=left, color=color, label=view)
        left += means
    panel.tick_params("y", labelsize="small" if len(languages) <= 20 else 5)
    panel.set_xlim(0, max(left.max(), 1) * 1.3)
    panel.legend(fontsize="small", loc="lower right")


def _draw_columns(panel: Any, statistics: StoreStatistics, colors: Mapping[str, str], unit: str) -> None:
    """Draw how many columns have posting lists of 0, 1, 2 to 9, 10 to 99, ... documents."""
    postings = statistics.counts.all_postings
    decades = [10**power for power in range(len(str(int(postings.max(initial=0)))) + 1)]
    labels = ["0", "1", *(f"{max(low, 2):,}+" for low in decades[:-1])]
    edges = [0, 1, 2, *decades[1:]]
    places = np.arange(len(labels))
    width = 0.8 / len(colors)
    for number, (view, color) in enumerate(colors.items()):
        heights, _ = np.histogram(postings[statistics.counts.groups[view]], edges)
        xs = places + (number - (len(colors) - 1) / 2) * width
        lighter = tuple(1 - (1 - part) * 0.4 for part in to_rgb(color))
        panel.bar(xs, heights, width, color=[lighter, *[color] * (len(labels) - 1)], label=view)
        for x, height in zip(xs, heights.tolist(), strict=True):
            if height:
                panel.annotate(f"{height:,}", (x, height), ha="center", va="bottom", fontsize=5.5)
    panel.set_xticks(places, labels, fontsize="small")
    panel.set(title="columns by length of posting list", xlabel=unit, ylabel="columns", yscale="log")
    panel.set_ylim(bottom=0.6)
    if TERMS in statistics.counts.groups:
        # The inactive columns of external vectors are not known.
        panel.set_xlim(left=0.5)
    patches = [Patch(color=color, label=view) for view, color in colors.items()]
    panel.legend(handles=patches, fontsize="small")


def _drawable(term: str) -> str:
    """Return the term, or its escape if matplotlib's font lacks one of its characters."""
    font = get_font(findfont("DejaVu Sans"))
    return term if all(font.get_char_index(ord(character)) for character in term) else ascii(term)[1:-1]


def _note(panel: Any, text: str) -> None:
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", color=GREY)
    panel.set(xticks=[], yticks=[])


def _save(path: Path, figure: Figure) -> None:
    with atomic_file(path) as file:
        figure.savefig(file, format="png")


SUBCOMMANDS = {
    "statistics": Subcommand(StatisticsPictureOptions, _statistics, "nothing was written"),
    "sweep": Subcommand(SweepPictureOptions, _sweep, "nothing was written"),
    "languages": Subcommand(LanguagesPictureOptions, _languages, "nothing was written"),
}


if __name__ == "__main__":
    raise SystemExit(program.start(main, PROG))
