"""Names beside the points of a picture, each where it covers the least."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.reproduce.series import Point, Series

# Rectangles in pixels: float64 [N, 4], each left, bottom, right, top.
Boxes = NDArray[np.float64]

_AREA = (30.0, 700.0)
_PLAIN = 34.0
# From a point: right, left, above, below, and aslant.
_PLACES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
# Pixels that a line is taken apart into, to see what a name would cover.
_STROKE = 3.0
# So near to each other, in points of 1/72 inch, two dots are one to the eye.
_ONE = 4.0
# The share of a name that may lie on other names.
_ILLEGIBLE = 0.1


def area(point: Point, most: float) -> float:
    """Square points of 1/72 inch. most: as for name_points; a size that is not known is drawn as the smallest."""
    if not most:
        return _PLAIN
    least, span = _AREA
    return least + (span - least) * (point.size or 0.0) / most


def name_points(figure: Any, panel: Any, found: Sequence[Series], most: float, colour: str) -> None:
    """Write each row's name beside its point, measured if it is, at the place where it covers the least.

    Points at one place have one name. A name that would be written over others is left out: the table has it.
    most: the largest size of a point, 0 if points have none. The axes must be as they will stay.
    """
    points = [point for series in found for point in (*series.measured, *series.published)]
    figure.draw_without_rendering()
    window = _corners(panel.get_window_extent())
    taken = np.vstack([*(_around(panel, point, most) for point in points), *_strokes(panel)])
    names = np.zeros((0, 4))
    for label, point in _places(panel, list({point.label: point for point in reversed(points)}.values())[::-1]):
        away = (area(point, most) ** 0.5) / 2 + 3
        text = panel.annotate(
            label, (point.x, point.y), (0, 0), textcoords="offset points", color=colour, fontsize=8, zorder=3
        )
        tried = []
        for across, up in _PLACES:
            _put(text, across, up, away)
            box = _corners(text.get_window_extent())
            tried.append((covered(box, np.vstack([taken, names]), window), across, up, box))
        _, across, up, box = min(tried, key=lambda item: item[0])
        if _common(box, names).sum() > _ILLEGIBLE * _common(box, box).sum():
            text.remove()
            continue
        _put(text, across, up, away)
        names = np.vstack([names, box])
        # Its place must not move the axes.
        text.set_in_layout(False)


def covered(box: Boxes, taken: Boxes, window: Boxes) -> float:
    """Square pixels of what is taken under a box [1, 4]; what leaves the window [1, 4] counts ten times."""
    width, height = (box[:, 2:] - box[:, :2])[0]
    return float(_common(box, taken).sum() + 10 * (width * height - _common(box, window).sum()))


def _places(panel: Any, points: Sequence[Point]) -> list[tuple[str, Point]]:
    """Points that lie apart, each with the labels of all that lie there."""
    reach = _ONE * panel.figure.dpi / 72
    found: list[tuple[Point, list[str]]] = []
    for point in points:
        for other, labels in found:
            x, y = panel.transData.transform((point.x, point.y)) - panel.transData.transform((other.x, other.y))
            if x * x + y * y <= reach * reach:
                labels.append(point.label)
                break
        else:
            found.append((point, [point.label]))
    return [(", ".join(names) if len(names) < 3 else f"{names[0]} … {names[-1]}", point) for point, names in found]


def _common(box: Boxes, others: Boxes) -> NDArray[np.float64]:
    sides = np.minimum(box[:, 2:], others[:, 2:]) - np.maximum(box[:, :2], others[:, :2])
    return np.clip(sides, 0, None).prod(axis=1)


def _put(text: Any, across: int, up: int, away: float) -> None:
    slant = 0.75 if across and up else 1.0
    text.set(
        position=(across * away * slant, up * away * slant),
        ha=("right", "center", "left")[across + 1],
        va=("top", "center", "bottom")[up + 1],
    )


def _around(panel: Any, point: Point, most: float) -> Boxes:
    x, y = panel.transData.transform((point.x, point.y))
    half = area(point, most) ** 0.5 / 2 * panel.figure.dpi / 72
    return np.asarray([[x - half, y - half, x + half, y + half]])


def _corners(box: Any) -> Boxes:
    return np.asarray([box.extents])


def _strokes(panel: Any) -> list[Boxes]:
    """Small boxes along every line that was drawn."""
    boxes = []
    for line in panel.lines:
        places = panel.transData.transform(np.asarray(line.get_xydata(), np.float64).reshape(-1, 2))
        for first, last in itertools.pairwise(places):
            steps = max(1, round(float(np.abs(last - first).max()) / _STROKE))
            centres = first + (last - first) * np.linspace(0, 1, steps, endpoint=False)[:, None]
            boxes.append(np.hstack([centres - _STROKE / 2, centres + _STROKE / 2]))
    return boxes
