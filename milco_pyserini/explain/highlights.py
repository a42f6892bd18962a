"""A text as stretches of equal strength: how much of the score came from each stretch, and by which parts."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from milco_pyserini.explain.parts import Part, Side
from milco_pyserini.sparse import PIVOT, SOURCE


@dataclass(frozen=True)
class Stretch:
    """Characters start to stop of a text. amounts: {view: what came from here, in the engine's numbers}.

    parts: numbers of the parts, as they stand in the sequence that stretches() was given.
    """

    start: int
    stop: int
    amounts: dict[str, float]
    parts: tuple[int, ...]

    @property
    def amount(self) -> float:
        """Of all views."""
        return sum(self.amounts.values())

    @property
    def view(self) -> str:
        """The view that gave most."""
        return SOURCE if self.amounts.get(SOURCE, 0) > self.amounts.get(PIVOT, 0) else PIVOT


def stretches(side: Side, parts: Sequence[Part]) -> list[Stretch]:
    """The whole text of a side in its order; what gave nothing has no parts."""
    text = side.text or ""
    given: list[tuple[int, int, int, float]] = []
    for number, part in enumerate(parts):
        for origin in side.origins.get(part.term.term, ()):
            start, stop = _whole(text, origin.start), _whole(text, origin.stop)
            if start < stop:
                given.append((start, stop, number, part.contribution * origin.share))
    edges = sorted({0, len(text), *(place for start, stop, *_ in given for place in (start, stop))})
    found = []
    for start, stop in pairwise(edges):
        here = [one for one in given if one[0] <= start and stop <= one[1]]
        amounts: dict[str, float] = {}
        for _, _, number, amount in here:
            view = parts[number].term.view or PIVOT
            amounts[view] = amounts.get(view, 0.0) + amount
        found.append(Stretch(start, stop, amounts, tuple(sorted({one[2] for one in here}))))
    return found


def from_the_whole(side: Side, parts: Sequence[Part]) -> list[int]:
    """Numbers of the parts that came from <s> or </s>, which stand for the text as a whole."""
    return [
        number
        for number, part in enumerate(parts)
        if any(origin.start == origin.stop for origin in side.origins.get(part.term.term, ()))
    ]


def _whole(text: str, place: int) -> int:
    """The place, moved behind what combines with the character before it: a letter is never cut from its accents."""
    while 0 < place < len(text) and (
        unicodedata.category(text[place])[0] == "M" or "\u200d" in text[place - 1 : place + 1]
    ):
        place += 1
    return place
