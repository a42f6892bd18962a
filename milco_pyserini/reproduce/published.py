"""The paper's figures, as resources/paper holds them: (row, column) to a number in the table's units."""

import functools
from collections.abc import Mapping
from pathlib import Path

import milco_pyserini.resources
from milco_pyserini.errors import MilcoError

ROOT = Path(milco_pyserini.resources.__path__[0]) / "paper"

# (row, column) -> figure.
Figures = Mapping[tuple[str, str], float]


@functools.cache
def published(name: str, labels: int = 1, factor: float = 1.0) -> Figures:
    """The figures of a file of resources/paper: (row, column) -> number x factor.

    labels: so many first columns name a row, with a space between them. What is no number has no figure, and G behind
    a number (of bytes) is left away. Raises MilcoError if there is no such table.
    """
    path = ROOT / f"{name}.tsv"
    if not path.is_file():
        raise MilcoError(f"{path} is not there: is the package whole?")
    head, *lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    found = {}
    for line in lines:
        # Without LaTeX's mark of where a word may be broken.
        row = " ".join(line[:labels]).replace("\\-", "")
        for column, text in zip(head[labels:], line[labels:], strict=True):
            try:
                found[row, column] = round(float(text.removesuffix("G")) * factor, 6)
            except ValueError:
                continue
    return found


def turned(figures: Figures) -> Figures:
    """The same with rows for columns: a table that has its systems side by side."""
    return {(row, column): value for (column, row), value in figures.items()}


def renamed(figures: Figures, columns: Mapping[str, str]) -> Figures:
    """The same under other columns, those that are not named under their own."""
    return {(row, columns.get(column, column)): value for (row, column), value in figures.items()}
