"""Tables of labels and numbers, rendered as text, Markdown, HTML, LaTeX or CSV."""

import csv
import html
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

from milco_pyserini.console import printable
from milco_pyserini.errors import validate_name

FORMATS = ("text", "markdown", "html", "csv", "latex")
# A number whose p-value is below it is marked with an asterisk.
ALPHA = 0.05
DIGITS = 4


@dataclass(frozen=True)
class ReportTable:
    """Rows of labels and numbers.

    Args:
        labels: headers of the label columns.
        columns: headers of the number columns.
        rows: the labels of each row, then its numbers; None or NaN is shown as "-".
        digits: decimals of each number column (default: 4, as trec_eval prints). CSV has all digits.
        notes: sentences below the table.
        p_values: p-values by row and number column. A mark in text, columns of their own in CSV.

    Example:
        >>> table = ReportTable(["run"], ["nDCG@10"], [["bm25", 0.25], ["milco", 0.655]], p_values={(1, 0): 0.01})
        >>> print(render(table), end="")
        run    nDCG@10
        bm25    0.2500
        milco   0.6550*
    """

    labels: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    digits: Sequence[int] = ()
    notes: Sequence[str] = ()
    p_values: Mapping[tuple[int, int], float] = field(default_factory=dict)


def render(table: ReportTable, form: str = "text") -> str:
    """Return a table as "text", "markdown", "html", "csv" or "latex" (naming its package), with a final line end.

    Raises:
        MilcoError: the format is none of these.
    """
    validate_name("format", form, FORMATS)
    if form == "csv":
        return _csv(table)
    from tabulate import LATEX_ESCAPE_RULES, tabulate

    escape = _escape_markdown if form == "markdown" else _one_line
    names = len(table.labels)
    rows = [list(map(escape, (*table.labels, *table.columns)))]
    for row in table.rows:
        cells = [escape(str(label)) for label in row[:names]]
        for value, digits in zip(row[names:], table.digits or [DIGITS] * len(table.columns), strict=True):
            cells.append("-" if _is_missing(value) else f"{value:,.{digits}f}")
        rows.append(cells)
    marked = {place for place, p in table.p_values.items() if p < ALPHA}
    for column in {column for _, column in marked}:
        for number, cells in enumerate(rows):
            # A blank where there is no mark keeps the digits of a column below each other.
            cells[names + column] += escape("*") if (number - 1, column) in marked else " " if form == "text" else ""
    # One by one, as tabulate widens columns by two if it knows the headers.
    heads, rows = ((), rows) if form == "text" else (rows[0], rows[1:])
    text = tabulate(
        rows,
        heads,
        {"text": "plain", "markdown": "pipe", "html": "html", "latex": "latex_booktabs"}[form],
        disable_numparse=True,
        colalign=["left"] * names + ["right"] * len(table.columns),
        preserve_whitespace=True,
    )
    if form == "latex":
        # LaTeX reads [ or * after a line end as an argument of \\.
        text = re.sub(r"^( *)(?=[\[*])", r"\1{}", text, flags=re.MULTILINE)
        for note in table.notes:
            escaped = "".join(LATEX_ESCAPE_RULES.get(character, character) for character in _one_line(note))
            line = rf"\multicolumn{{{names + len(table.columns)}}}{{l}}{{\footnotesize {escaped}}} \\"
            text = text.replace(r"\end{tabular}", f"{line}\n\\end{{tabular}}")
        return "% needs \\usepackage{booktabs}\n" + text + "\n"
    if form == "html":
        return f"{text}\n" + "".join(f"<p>{html.escape(note)}</p>\n" for note in table.notes)
    lines = [line.rstrip() for line in text.split("\n")]
    notes = ["", *map(escape, table.notes)] if table.notes else []
    return "\n".join([*lines, *notes]) + "\n"


def _csv(table: ReportTable) -> str:
    """Every digit; with p-values, a column of them after each number column."""
    names = len(table.labels)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    tested = {column for _, column in table.p_values}
    heads = [
        head for number, name in enumerate(table.columns) for head in (name, f"p({name})")[: 1 + (number in tested)]
    ]
    writer.writerow([*table.labels, *heads])
    for number, row in enumerate(table.rows):
        cells = list(row[:names])
        for column, value in enumerate(row[names:]):
            cells.append("" if _is_missing(value) else repr(value if isinstance(value, int) else float(value)))
            if column in tested:
                cells.append(repr(table.p_values[number, column]) if (number, column) in table.p_values else "")
        writer.writerow(cells)
    return file.getvalue()


def _is_missing(value: float | None) -> bool:
    return value is None or isnan(value)


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", _one_line(text))
