"""One table as HTML: measured beside published, the difference shaded; each cell opens to what made it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote

from milco_pyserini.console import counted, duration
from milco_pyserini.reproduce.reasons import Reason, reasons
from milco_pyserini.reproduce.records import (
    DIFFERS,
    FAILED,
    NEAR,
    NEAR_WITHIN,
    OPEN,
    QUOTED,
    REPRODUCED,
    REPRODUCED_WITHIN,
    UNPUBLISHED,
    UNREACHABLE,
    CellResult,
    TableResult,
)
from milco_pyserini.reproduce.series import numbered

_MEANINGS = {
    REPRODUCED: f"at most {REPRODUCED_WITHIN:g} points from the published figure",
    NEAR: f"at most {NEAR_WITHIN:g} points from it",
    DIFFERS: "further away",
    UNPUBLISHED: "nothing is published to compare it with",
    UNREACHABLE: "what it needs could not be had; the reason is given",
    FAILED: "a command ended in an error, which is given",
    OPEN: "not tried yet",
    QUOTED: "published, and not measured here",
}
_COMPARED = (REPRODUCED, NEAR, DIFFERS)
# Column and measure, of which the largest figure decides.
Digits = dict[tuple[str, str], int]
# What stands in the place of a figure.
_SIGNS = {UNREACHABLE: "∅", FAILED: "×", OPEN: "·"}
# So many rows are named with a reason; the table shows the others.
_NAMED = 20
# The difference that is shaded as strongly as any.
_STRONGEST = 5.0


def verdicts(tables: Iterable[TableResult]) -> dict[str, int]:
    """How many cells of some tables have each verdict, in the order of the page's key."""
    found = Counter(cell.verdict for table in tables for cell in table.cells.values())
    by_design = [verdict for verdict in found if verdict not in _MEANINGS]
    order = (*_COMPARED, *by_design, *_MEANINGS)
    return {verdict: found[verdict] for verdict in dict.fromkeys(order) if found[verdict]}


def meaning(verdict: str) -> str:
    """What a verdict says, as the page's key has it."""
    return _MEANINGS.get(verdict, "not what the published figure was measured with or on: they need not agree")


def css_class(verdict: str) -> str:
    """The verdict as the style sheet calls it; whatever differs by design is "aside"."""
    return verdict if verdict in _MEANINGS else "aside"


def table_html(table: TableResult) -> str:
    """The figures of one table, and below them why some are missing, and the commands that made the others."""
    digits = _digits(table)
    corner = escape(table.x_label) if numbered(table) else ""
    heads = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    body = "\n".join(_row(table, row, digits) for row in table.rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(table.title)}"><table>\n'
        f"<thead><tr><td>{corner}</td>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
        f"{_missing(table)}{_commands(table)}"
    )


def _row(table: TableResult, row: str, digits: Digits) -> str:
    cells = [table.cells.get((row, column)) for column in table.columns]
    quoted = all(cell is None or cell.verdict == QUOTED for cell in cells)
    inner = "".join(_cell(cell, digits[cell.column, cell.measure]) if cell else "<td></td>" for cell in cells)
    return f'<tr{_class("quoted" if quoted else "")}><th scope="row">{escape(row)}</th>{inner}</tr>'


def _cell(cell: CellResult, digits: int) -> str:
    if cell.verdict == QUOTED:
        return f'<td class="quoted" title="{escape(_title(cell))}">{_number(cell.published, digits)}</td>'
    kind, strength = _shade(cell)
    measured = f"<b>{_number(cell.measured, digits)}</b>" if cell.measured is not None else _sign(cell.verdict)
    beside = ""
    if cell.published is not None:
        apart = f" <i>{_signed(cell.difference, digits)}</i>" if cell.difference is not None else ""
        beside = f" <small>{_number(cell.published, digits)}{apart}</small>"
    return (
        f'<td class="{kind}"{strength} title="{escape(_title(cell))}">'
        f'<details name="cell"><summary>{measured}{beside}</summary>{_sheet(cell)}</details></td>'
    )


def _shade(cell: CellResult) -> tuple[str, str]:
    """Class and style of a cell: on which side of the published figure it lies, and how far, from 0 to 1."""
    kind = css_class(cell.verdict)
    if kind not in _COMPARED or not cell.difference:
        return kind, ""
    side = "above" if cell.difference > 0 else "below"
    return f"{kind} {side}", f' style="--s:{min(1.0, abs(cell.difference) / _STRONGEST):.2f}"'


def _title(cell: CellResult) -> str:
    said = [f"{cell.row}, {cell.column}: {cell.verdict}"]
    if cell.reason:
        said.append(cell.reason)
    return "; ".join(said)


def _sign(verdict: str) -> str:
    return f'<b aria-hidden="true">{_SIGNS.get(verdict, "–")}</b><span class="hidden">{verdict}</span>'


def _sheet(cell: CellResult) -> str:
    facts = [f"<strong>{escape(cell.row)}</strong> · {escape(cell.column)} · {escape(cell.measure)}"]
    if cell.measured is not None:
        facts.append(f"measured {cell.measured:.6g}")
    if cell.published is not None:
        facts.append(f"published {cell.published:.6g}")
    if cell.difference is not None:
        facts.append(f"difference {cell.difference:+.3g}")
    facts.append(f'<span class="verdict {css_class(cell.verdict)}">{escape(cell.verdict)}</span>')
    if cell.seconds is not None:
        facts.append(f"took {duration(cell.seconds)}")
    if cell.run is not None:
        facts.append(f'<a href="./{quote(cell.run)}">{escape(cell.run)}</a>')
    reason = f'<p class="reason">{escape(cell.reason)}</p>' if cell.reason else ""
    return f'<div class="sheet"><p>{" · ".join(facts)}</p>{reason}{_script(cell.commands)}</div>'


def _missing(table: TableResult) -> str:
    """Why cells are missing: each reason once, with the cells that it holds for."""
    items = "".join(
        f'<li><span class="verdict {css_class(reason.verdict)}">{reason.verdict}</span>: {escape(reason.text)} '
        f"<small>({escape(_where(table, reason))})</small></li>\n"
        for reason in reasons(table.cells.values())
    )
    return f'<ul class="missing">\n{items}</ul>\n' if items else ""


def _where(table: TableResult, reason: Reason) -> str:
    """Cells in few words: whole rows by their names, rows that lack the same columns together."""
    columns: dict[str, list[str]] = {}
    for cell in reason.cells:
        columns.setdefault(cell.row, []).append(cell.column)
    rows: dict[tuple[str, ...], list[str]] = {}
    for row, found in columns.items():
        whole = len(found) == sum(row == other for other, _ in table.cells)
        rows.setdefault(() if whole else tuple(found), []).append(row)
    return "; ".join(_some(names) + (f": {', '.join(found)}" if found else "") for found, names in rows.items())


def _some(names: Sequence[str]) -> str:
    few = names if len(names) <= _NAMED else names[: _NAMED - 1]
    return ", ".join(few) + (f" and {len(names) - len(few)} more rows" if len(few) < len(names) else "")


def _commands(table: TableResult) -> str:
    lines = list(dict.fromkeys(line for cell in table.cells.values() for line in cell.commands))
    if not lines:
        return ""
    label = f"{counted(len(lines), 'command')} of this table, each once, in their order"
    return f'<details class="all"><summary>{label}</summary>{_script(lines)}</details>\n'


def _script(lines: Sequence[str]) -> str:
    code = "\n".join(f"<code>{escape(line)}</code>" for line in lines)
    return f"<pre>{code}</pre>" if lines else ""


def _digits(table: TableResult) -> Digits:
    """Decimals of figures: points of 100 have one, what is small two or three, what is large none."""
    largest: dict[tuple[str, str], float] = {}
    for cell in table.cells.values():
        found = [abs(figure) for figure in (cell.published, cell.measured) if figure is not None]
        key = cell.column, cell.measure
        largest[key] = max([largest.get(key, 0.0), *found])
    return {key: sum(figure < limit for limit in (1, 10, 1000)) for key, figure in largest.items()}


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _signed(value: float | None, digits: int) -> str:
    # Without "-0.0": a difference that rounds to nothing has no side.
    return "" if value is None else f"{value:+,.{digits}f}" if round(value, digits) else f"{0:.{digits}f}"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
