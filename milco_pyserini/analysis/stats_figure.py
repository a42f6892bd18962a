"""The picture of a store's sparsity: six panels, a colour for each view."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font

from milco_pyserini.analysis.stats_counts import BOTH, TERMS, Counts
from milco_pyserini.analysis.stats_lengths import UNKNOWN, Lengths
from milco_pyserini.analysis.sweep_figure import COLOURS
from milco_pyserini.io.files import atomic_file

_DPI = 130
_SIZE = (13.5, 7.6)
# So many points show where documents lie; more of them only darken the picture.
_POINTS = 4000
_LANGUAGES = 40
_HISTOGRAM_BINS = 50


def draw(path: Path, title: str, counts: Counts, lengths: Lengths | None, value: Mapping[str, Any]) -> None:
    """Write the picture as PNG. value: what report() gave of the same counts and lengths."""
    figure = Figure(_SIZE, dpi=_DPI, layout="constrained")
    figure.suptitle(title).set_parse_math(False)
    panels = figure.subplots(2, 3).ravel()
    views = [group for group in counts.groups if group != BOTH]
    colours = dict(zip(views, COLOURS, strict=False))
    unit = str(value["unit"])
    _terms(panels[0], counts, colours, unit)
    _lengths(panels[1], counts, lengths, colours, value)
    _languages(panels[2], value, colours, unit)
    _lists(panels[3], counts, colours, unit)
    _columns(panels[4], counts, colours, unit)
    _frequent(panels[5], value, colours, unit)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.title.set_fontsize("medium")
    canvas = FigureCanvasAgg(figure)
    with atomic_file(path) as file:
        canvas.print_png(file)


def _terms(panel: Any, counts: Counts, colours: Mapping[str, str], unit: str) -> None:
    most = max(int(counts.terms[view].max()) for view in colours)
    edges = np.linspace(0, most + 1, min(most + 2, _HISTOGRAM_BINS))
    for view, colour in colours.items():
        terms = counts.terms[view]
        panel.hist(terms, edges, color=colour, alpha=0.6, label=f"{view}, mean {terms.mean():,.1f}")
    panel.set(title=f"terms of {_article(unit)}", xlabel="terms", ylabel=unit)
    panel.legend(frameon=False, fontsize="small")


def _lengths(
    panel: Any, counts: Counts, lengths: Lengths | None, colours: Mapping[str, str], value: Mapping[str, Any]
) -> None:
    panel.set(title="length against sparsity", xlabel=f"tokens of {_article(value['unit'])}", ylabel="terms")
    if lengths is None:
        _note(panel, "the texts are not at hand")
        return
    known = np.flatnonzero(lengths.tokens != UNKNOWN)
    shown = known[:: max(1, -(-len(known) // _POINTS))]
    for view, colour in colours.items():
        rank = value["length"]["correlation"][view]["spearman"]
        label = view if rank is None else f"{view}, Spearman's {rank:.2f}"
        panel.scatter(lengths.tokens[shown], counts.terms[view][shown], s=5, color=colour, alpha=0.4, lw=0, label=label)
    panel.set_ylim(bottom=0)
    panel.legend(frameon=False, fontsize="small", markerscale=3)


def _languages(panel: Any, value: Mapping[str, Any], colours: Mapping[str, str], unit: str) -> None:
    panel.set(title=f"terms of {_article(unit)} by language", xlabel="terms, mean")
    if not value["languages"]:
        _note(panel, "the languages are not known")
        return
    languages = value["languages"][:_LANGUAGES][::-1]
    left = np.zeros(len(languages))
    for view, colour in colours.items():
        means = np.asarray([each["terms"][view] for each in languages])
        panel.barh([each["language"] for each in languages], means, left=left, color=colour, label=view)
        left += means
    panel.tick_params("y", labelsize="small" if len(languages) <= 20 else 5)
    panel.set_xlim(0, max(left.max(), 1) * 1.3)
    panel.legend(frameon=False, fontsize="small", loc="lower right")


def _lists(panel: Any, counts: Counts, colours: Mapping[str, str], unit: str) -> None:
    panel.set(title="posting lists, the longest first", xlabel="rank", ylabel=f"length ({unit})")
    if not counts.all_postings.any():
        _note(panel, "no term is active")
        return
    for view, colour in colours.items():
        postings = counts.all_postings[counts.groups[view]]
        active = np.sort(postings[postings > 0])[::-1]
        panel.plot(np.arange(1, len(active) + 1), active, color=colour, label=f"{view}, {len(active):,} active")
    panel.set(xscale="log", yscale="log")
    panel.grid(True, color="#dddddd", linewidth=0.6)
    panel.legend(frameon=False, fontsize="small")


def _columns(panel: Any, counts: Counts, colours: Mapping[str, str], unit: str) -> None:
    postings = counts.all_postings
    decades = [10**power for power in range(len(str(int(postings.max()))) + 1)]
    labels = ["never", "1", *(f"{max(low, 2):,}+" for low in decades[:-1])]
    edges = [0, 1, 2, *decades[1:]]
    places = np.arange(len(labels))
    width = 0.8 / len(colours)
    for number, (view, colour) in enumerate(colours.items()):
        heights, _ = np.histogram(postings[counts.groups[view]], edges)
        at = places + (number - (len(colours) - 1) / 2) * width
        panel.bar(at, heights, width, color=[_lighter(colour), *[colour] * (len(labels) - 1)], label=view)
        for x, height in zip(at, heights.tolist(), strict=True):
            if height:
                panel.annotate(f"{height:,}", (x, height), ha="center", va="bottom", fontsize=5.5)
    panel.set_xticks(places, labels, fontsize="small")
    panel.set(
        title="columns by the length of their lists",
        xlabel=f"{unit}, as far as the next bar",
        ylabel="columns",
        yscale="log",
    )
    panel.set_ylim(bottom=0.6)
    if TERMS in counts.groups:
        # Which terms there could have been is not known.
        panel.set_xlim(left=0.5)
    panel.legend(handles=[_patch(view, colour) for view, colour in colours.items()], frameon=False, fontsize="small")


def _frequent(panel: Any, value: Mapping[str, Any], colours: Mapping[str, str], unit: str) -> None:
    """Of the first view alone: the source view's terms are of every script, which few fonts can show."""
    view, colour = next(iter(colours.items()))
    terms = value["frequent"][view][::-1]
    panel.set(title=f"most frequent terms{'' if view == TERMS else f', {view} view'}", xlabel=f"{unit} (%)")
    if not terms:
        _note(panel, "no term is active")
        return
    panel.barh(range(len(terms)), [100 * term["share"] for term in terms], color=colour)
    panel.set_yticks(range(len(terms)), [_drawable(term["term"]) for term in terms], fontsize="small")
    for label in panel.get_yticklabels():
        label.set_parse_math(False)


def _drawable(term: str) -> str:
    """The term, or its escape where matplotlib's own font has not every character of it."""
    from matplotlib.font_manager import findfont, get_font

    font: FT2Font = get_font(findfont("DejaVu Sans"))
    return term if all(font.get_char_index(ord(character)) for character in term) else ascii(term)[1:-1]


def _note(panel: Any, text: str) -> None:
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", color="#555555")
    panel.set(xticks=[], yticks=[])


def _article(unit: str) -> str:
    return f"a {unit.removesuffix('s')}"


def _lighter(colour: str) -> tuple[float, ...]:
    from matplotlib.colors import to_rgb

    return tuple(1 - (1 - part) * 0.4 for part in to_rgb(colour))


def _patch(label: str, colour: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=colour, label=label)
