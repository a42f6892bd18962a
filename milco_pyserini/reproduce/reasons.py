"""Why cells of a table were not measured: reasons that differ in a word or two are told once."""

from collections.abc import Iterable
from dataclasses import dataclass

from milco_pyserini.reproduce.records import QUOTED, CellResult

# So many are named of those that a reason holds for likewise.
_NAMED = 6
# Of a reason's words one in so many, and so many at most, may be others in a reason of the same kind.
_ALIKE = 4
_OTHERS = 3


@dataclass(frozen=True)
class Reason:
    """texts: reasons of one kind. cells: those that they hold for, all of one verdict."""

    verdict: str
    texts: tuple[str, ...]
    cells: tuple[CellResult, ...]

    @property
    def text(self) -> str:
        """The first in full, and the word in which the others differ from it."""
        first, *others = self.texts
        if not others:
            return first
        names = [_apart(first, other)[0][1].rstrip(".,:;") for other in others]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"{first}; likewise {', '.join(names[:_NAMED])}{more}"


def reasons(cells: Iterable[CellResult]) -> list[Reason]:
    """The reasons of cells without a measured figure, those alike together, the quoted ones' last."""
    found: list[tuple[str, list[str], list[CellResult]]] = []
    for cell in cells:
        if cell.measured is not None or not cell.reason:
            continue
        kinds = (one for one in found if one[0] == cell.verdict)
        alike = next((one for one in kinds if cell.reason in one[1] or _alike(one[1][0], cell.reason)), None)
        if alike is None:
            alike = (cell.verdict, [], [])
            found.append(alike)
        _, texts, mine = alike
        mine.append(cell)
        if cell.reason not in texts:
            texts.append(cell.reason)
    found.sort(key=lambda reason: reason[0] == QUOTED)
    return [Reason(verdict, tuple(texts), tuple(mine)) for verdict, texts, mine in found]


def _alike(one: str, other: str) -> bool:
    return 0 < len(_apart(one, other)) <= min(_OTHERS, len(one.split()) // _ALIKE)


def _apart(one: str, other: str) -> list[tuple[str, str]]:
    """The words in which two reasons differ; all of them if they are not equally many."""
    words, others = one.split(), other.split()
    if len(words) != len(others):
        return list(zip(words, [other] * len(words), strict=True))
    return [(word, another) for word, another in zip(words, others, strict=True) if word != another]
