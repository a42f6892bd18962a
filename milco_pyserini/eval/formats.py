"""A table as text for the terminal, Markdown, LaTeX or CSV.

The first three show measures to four digits, as trec_eval does; CSV is for programs and has every digit.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Callable
from math import isnan

from milco_pyserini.errors import unknown_name
from milco_pyserini.eval.tables import MARK, Figure, Table

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~])")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    # At the start of a row these two would be read as an argument of the line end before it.
    **{character: f"{{{character}}}" for character in "[*"},
}


def render(table: Table, form: str = "text") -> str:
    """Write a table as "text", "markdown", "csv" or "latex"; it ends with a line end.

    Raises MilcoError for another name.
    """
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    return FORMATS[form](table)


def text(table: Table) -> str:
    """Columns aligned for the terminal, labels to the left, figures to the right; notes after a free line."""
    rows = [
        [*table.labels, *table.measures],
        *([*map(_one_line, row.labels), *map(_digits, row.figures)] for row in table.rows),
    ]
    marks = [
        [""] * len(rows[0]),
        *([""] * len(table.labels) + [_mark(figure) for figure in row.figures] for row in table.rows),
    ]
    # A mark stands behind its figure, so that the digits of a column stay below each other.
    room = [max(map(len, column)) for column in zip(*marks, strict=True)]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row, signs in zip(rows, marks, strict=True):
        cells = []
        for place, cell in enumerate(row):
            blank = " " * (widths[place] - _width(cell))
            padded = cell + blank if place < len(table.labels) else blank + cell
            cells.append(padded + signs[place].ljust(room[place]))
        lines.append("  ".join(cells).rstrip())
    notes = ["", *map(_one_line, table.notes)] if table.notes else []
    return "\n".join([*lines, *notes]) + "\n"


def markdown(table: Table) -> str:
    """A pipe table as GitHub reads it; notes are a paragraph below."""

    def escaped(name: str) -> str:
        return _MARKDOWN.sub(r"\\\1", _one_line(name))

    rows = [
        [*map(escaped, table.labels), *map(escaped, table.measures)],
        [":--"] * len(table.labels) + ["--:"] * len(table.measures),
    ]
    rows += [[*map(escaped, row.labels), *(_digits(f) + escaped(_mark(f)) for f in row.figures)] for row in table.rows]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    notes = ["", *map(escaped, table.notes)] if table.notes else []
    return "\n".join([*lines, *notes]) + "\n"


def latex(table: Table) -> str:
    """A tabular with the rules of the package booktabs; notes are its last rows."""

    def escaped(name: str) -> str:
        return "".join(_LATEX.get(character, character) for character in _one_line(name))

    def row(cells: list[str]) -> str:
        return "  " + " & ".join(cells) + r" \\"

    columns = "l" * len(table.labels) + "r" * len(table.measures)
    body = [
        row([*map(escaped, line.labels), *(_digits(f) + ("$^{*}$" if _mark(f) else "") for f in line.figures)])
        for line in table.rows
    ]
    notes = [rf"  \multicolumn{{{len(columns)}}}{{l}}{{\footnotesize {escaped(note)}}} \\" for note in table.notes]
    return (
        "\n".join(
            [
                rf"\begin{{tabular}}{{{columns}}}",
                r"  \toprule",
                row([*map(escaped, table.labels), *map(escaped, table.measures)]),
                r"  \midrule",
                *body,
                r"  \bottomrule",
                *notes,
                r"\end{tabular}",
            ]
        )
        + "\n"
    )


def comma_separated(table: Table) -> str:
    """One line a row, every digit; behind each measure its corrected p-value, where anything was tested."""
    tested = any(figure.difference for row in table.rows for figure in row.figures)
    heads = [head for name in table.measures for head in ((name, f"p({name})") if tested else (name,))]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*table.labels, *heads])
    for row in table.rows:
        cells = []
        for figure in row.figures:
            cells.append("" if isnan(figure.value) else repr(figure.value))
            if tested:
                cells.append(repr(figure.difference.corrected) if figure.difference else "")
        writer.writerow([*row.labels, *cells])
    return file.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {
    "text": text,
    "markdown": markdown,
    "csv": comma_separated,
    "latex": latex,
}


def _digits(figure: Figure) -> str:
    return "-" if isnan(figure.value) else f"{figure.value:,.{figure.digits}f}"


def _mark(figure: Figure) -> str:
    return MARK if figure.difference is not None and figure.difference.significant else ""


def _one_line(name: str) -> str:
    return " ".join(name.split())


def _width(name: str) -> int:
    """Columns that a terminal gives a name: two for a wide character, none for one that sits on another."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in name)
    return len(name) + wide - sum(unicodedata.combining(character) > 0 for character in name)
