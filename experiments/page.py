"""A reproduction as a page for a browser, as TSV files, and as text for a terminal."""

import base64
import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from tabulate import tabulate

from experiments import records
from experiments.pictures import draw, to_png, to_svg
from experiments.records import DIFFERS, NEAR, QUOTED, REPRODUCED, CellResult, Reproduction, TableResult
from milco_pyserini.console import counted, duration
from milco_pyserini.io.files import atomic_file

PAGE, FIGURES, TABLES = "index.html", "figures", "tables"
MEANINGS = {
    REPRODUCED: f"at most {records.REPRODUCED_WITHIN:g} points from the published figure",
    NEAR: f"at most {records.NEAR_WITHIN:g} points from it",
    DIFFERS: "further away",
    records.UNPUBLISHED: "nothing is published to compare it with",
    records.UNREACHABLE: "its data or model cannot be fetched; the reason is given",
    records.FAILED: "a command failed; the error is given",
    records.OPEN: "not tried yet",
    QUOTED: "published, and not measured here",
}
CAVEAT_MEANING = "measured with something else than the published figure: they need not agree"
# Shown in place of a figure.
SIGNS = {records.UNREACHABLE: "∅", records.FAILED: "×", records.OPEN: "·"}
# The difference that is shaded as strongly as any larger one.
STRONGEST = 5.0
# Reasons that the terminal shows for a table.
MOST_REASONS = 5
TSV_COLUMNS = ("row", "column", "measure", "measured", "published", "difference", "verdict", "reason", "seconds", "run")


def write_page(reproduction: Reproduction, directory: Path) -> Path:
    """Write index.html, figures/NAME.png and .svg, and tables/NAME.tsv; return the path of the page.

    The page is written last, each file completely or not at all. The same reproduction gives the same bytes.
    """
    contents: dict[Path, bytes] = {}
    pictures: dict[str, str] = {}
    for table in reproduction.tables:
        contents[directory / TABLES / f"{table.name}.tsv"] = table_tsv(table).encode()
        figure = draw(table)
        if figure is not None:
            pictures[table.name] = to_svg(figure)
            contents[directory / FIGURES / f"{table.name}.svg"] = pictures[table.name].encode()
            contents[directory / FIGURES / f"{table.name}.png"] = to_png(figure)
    contents[directory / PAGE] = page_html(reproduction, pictures).encode()
    for path, content in contents.items():
        with atomic_file(path) as file:
            file.write(content)
    return directory / PAGE


def page_html(reproduction: Reproduction, pictures: Mapping[str, str]) -> str:
    """Return the page. pictures: SVG documents by the names of their tables; they are embedded."""
    encoded = {name: base64.b64encode(picture.encode()).decode() for name, picture in pictures.items()}
    return _template().render(reproduction=reproduction, pictures=encoded)


def table_tsv(table: TableResult) -> str:
    """Return the cells with all digits, a line each; commands are joined by " && "."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter="\t", lineterminator="\n")
    writer.writerow([*TSV_COLUMNS, "made by"])
    for cell in table.cells.values():
        values = [getattr(cell, name) for name in TSV_COLUMNS]
        values = [
            "" if value is None else " ".join(value.split()) if value is cell.reason else value for value in values
        ]
        writer.writerow([*values, " && ".join(cell.commands)])
    return file.getvalue()


def reproduction_text(reproduction: Reproduction, names: Sequence[str]) -> str:
    """Return the tables of these names for a terminal: a line for each figure, then why others are missing."""
    blocks = []
    for table in reproduction.tables:
        cells = [cell for cell in table.cells.values() if cell.verdict != QUOTED]
        if table.name not in names:
            continue
        columns = {
            "row": ("", "left", [cell.row for cell in cells]),
            "column": ("", "left", [cell.column for cell in cells]),
            "measure": ("", "left", ["" if cell.measure == cell.column else cell.measure for cell in cells]),
            "published": ("published", "right", [_plain_number(cell.published) for cell in cells]),
            "measured": ("measured", "right", [_plain_number(cell.measured) for cell in cells]),
            "difference": ("", "right", ["" if (d := cell.difference) is None else f"{d:+.2f}" for cell in cells]),
            "verdict": ("", "left", [cell.verdict for cell in cells]),
        }
        if all(cell.published is None for cell in cells):
            del columns["published"], columns["difference"]
        heads, align, values = zip(*columns.values(), strict=True)
        text = tabulate(list(zip(*values, strict=True)), heads, tablefmt="plain", colalign=align, disable_numparse=True)
        reasons = [f"{verdict} ({count}): {reason}" for (verdict, reason), count in missing_reasons(cells).items()]
        if len(reasons) > MOST_REASONS:
            reasons[MOST_REASONS:] = [f"and {len(reasons) - MOST_REASONS} more reasons, on the page"]
        lines = [*text.splitlines(), *reasons]
        blocks.append("\n".join([f"{table.title} ({table.name})", *(f"  {line}".rstrip() for line in lines), ""]))
    return "\n".join(blocks)


def count_verdicts(tables: Iterable[TableResult]) -> dict[str, int]:
    """Return verdict -> number of cells, in the order of the page's key: caveats follow "differs"."""
    counts = Counter(cell.verdict for table in tables for cell in table.cells.values())
    order = (REPRODUCED, NEAR, DIFFERS, *(verdict for verdict in counts if verdict not in MEANINGS), *MEANINGS)
    return {verdict: counts[verdict] for verdict in dict.fromkeys(order) if counts[verdict]}


def missing_reasons(cells: Iterable[CellResult]) -> dict[tuple[str, str], int]:
    """Return (verdict, reason) -> number of cells without a measured figure, quoted ones last."""
    counts = Counter((cell.verdict, cell.reason) for cell in cells if cell.measured is None and cell.reason)
    return dict(sorted(counts.items(), key=lambda item: item[0][0] == QUOTED))


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("experiments", "assets"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals |= {"verdicts": count_verdicts, "meanings": MEANINGS, "other_meaning": CAVEAT_MEANING}
    environment.globals |= {"signs": SIGNS, "counted": counted}
    environment.filters |= {
        "commands": lambda table: list(dict.fromkeys(line for cell in table.cells.values() for line in cell.commands)),
        "css": lambda verdict: verdict if verdict in MEANINGS else "aside",
        "digits": _digits,
        "duration": duration,
        "is_quoted": lambda table, row: all(c.verdict == QUOTED for (r, _), c in table.cells.items() if r == row),
        "number": lambda value, digits: f"{value:,.{digits}f}",
        "quote": quote,
        "reasons": lambda table: missing_reasons(table.cells.values()),
        "shade": _shade,
        # A difference that rounds to zero has no sign.
        "signed": lambda value, digits: f"{value:+,.{digits}f}" if round(value, digits) else f"{0:.{digits}f}",
        "summary": lambda counts: (
            ", ".join(f"{n:,} {verdict}" for verdict, n in counts.items() if verdict != QUOTED) or QUOTED
        ),
    }
    return environment.get_template("page.html")


def _digits(table: TableResult) -> dict[tuple[str, str], int]:
    """Return (column, measure) -> decimals: one for points of 100, two or three for small figures, none for large."""
    largest: dict[tuple[str, str], float] = {}
    for cell in table.cells.values():
        key = cell.column, cell.measure
        figures = [abs(figure) for figure in (cell.published, cell.measured) if figure is not None]
        largest[key] = max([largest.get(key, 0.0), *figures])
    return {key: sum(figure < limit for limit in (1, 10, 1000)) for key, figure in largest.items()}


def _shade(cell: CellResult) -> tuple[str, str]:
    """Return the CSS class of a cell, and how strongly it is shaded, "" or from 0 to 1."""
    kind = cell.verdict if cell.verdict in MEANINGS else "aside"
    if kind not in (REPRODUCED, NEAR, DIFFERS) or not cell.difference:
        return kind, ""
    side = "above" if cell.difference > 0 else "below"
    return f"{kind} {side}", f"{min(1.0, abs(cell.difference) / STRONGEST):.2f}"


def _plain_number(value: Any) -> str:
    """Return a figure for the terminal: points with two decimals, large counts with none, small ones with four."""
    if value is None or not math.isfinite(value):
        return "-"
    digits = 2 if value == 0 else 4 if abs(value) < 1 else 2 if abs(value) < 1000 else 0
    return f"{value:,.{digits}f}"
