"""A reproduction as a page for a browser: one HTML file that needs no network, its pictures and tables beside it."""

import csv
import io
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from milco_pyserini.console import counted
from milco_pyserini.io.files import atomic_file
from milco_pyserini.reproduce.markup import css_class, meaning, table_html, verdicts
from milco_pyserini.reproduce.pictures import draw, inline_svg, png, svg
from milco_pyserini.reproduce.records import QUOTED, Reproduction, TableResult

PAGE = "index.html"
FIGURES = "figures"
TABLES = "tables"
_TSV = (
    "row",
    "column",
    "measure",
    "measured",
    "published",
    "difference",
    "verdict",
    "reason",
    "seconds",
    "run",
    "made by",
)


def write_page(reproduction: Reproduction, directory: Path) -> Path:
    """Write directory/index.html, and beside it figures/NAME.png and .svg and tables/NAME.tsv. Returns the page's path.

    Each file appears whole or not at all, the page after what it links to. The same reproduction gives the same bytes.
    """
    contents: dict[Path, bytes] = {}
    pictures: dict[str, str] = {}
    for table in reproduction.tables:
        contents[directory / TABLES / f"{table.name}.tsv"] = table_tsv(table).encode()
        figure = draw(table)
        if figure is not None:
            pictures[table.name] = svg(figure, table.name)
            contents[directory / FIGURES / f"{table.name}.svg"] = pictures[table.name].encode()
            contents[directory / FIGURES / f"{table.name}.png"] = png(figure)
    contents[directory / PAGE] = page_html(reproduction, pictures).encode()
    for path, content in contents.items():
        with atomic_file(path) as file:
            file.write(content)
    return directory / PAGE


def page_html(reproduction: Reproduction, pictures: Mapping[str, str]) -> str:
    """The page. pictures: SVG documents by the names of their tables."""
    sections = "\n".join(_section(table, pictures.get(table.name)) for table in reproduction.tables)
    facts = (
        ("encoder", reproduction.encoder),
        ("processor", reproduction.processor),
        ("milco_pyserini", reproduction.version),
        ("made", reproduction.made),
    )
    said = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(reproduction.title)}</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
<header>
<h1>{escape(reproduction.title)}</h1>
<dl>{said}</dl>
{_summary(reproduction.tables)}
</header>
{_contents(reproduction.tables)}
<main>
{sections}
</main>
<script>{_asset("page.js")}</script>
</body>
</html>
"""


def table_tsv(table: TableResult) -> str:
    """The table's cells, a line each, with every digit; the commands of a cell are joined by " && "."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter="\t", lineterminator="\n")
    writer.writerow(_TSV)
    for cell in table.cells.values():
        figures = (cell.measured, cell.published, cell.difference)
        made_by = " && ".join(cell.commands)
        values = (*figures, cell.verdict, " ".join(cell.reason.split()), cell.seconds, cell.run, made_by)
        writer.writerow(["" if value is None else value for value in (cell.row, cell.column, cell.measure, *values)])
    return file.getvalue()


def _summary(tables: Sequence[TableResult]) -> str:
    counts = verdicts(tables)
    if not counts:
        return "<p>There is no table yet.</p>"
    meanings = "".join(
        f'<dt><span class="verdict {css_class(verdict)}">{escape(verdict)}</span> {number:,}</dt>'
        f"<dd>{meaning(verdict)}</dd>"
        for verdict, number in counts.items()
    )
    return f"""{_bar(counts)}
<dl class="key">{meanings}</dl>
<p class="note">In a cell: what was measured, beside it what the paper published and the difference, which is shaded
<span class="swatch above">above</span> and <span class="swatch below">below</span> it, the stronger the further.
A cell opens to the commands that made it and to its run.</p>"""


def _contents(tables: Sequence[TableResult]) -> str:
    items = "\n".join(
        f'<li><a href="#{escape(table.name)}">{escape(table.title)}</a> {_bar(verdicts([table]))} '
        f"<small>{_said(verdicts([table]))}</small></li>"
        for table in tables
    )
    return f'<nav aria-label="Contents">\n<h2>Contents</h2>\n<ol>\n{items}\n</ol>\n</nav>'


def _bar(counts: Mapping[str, int]) -> str:
    """Verdicts as a bar, its parts as long as there are cells; what is only quoted is no result and has no part."""
    spans = "".join(
        f'<span class="{css_class(verdict)}" style="flex-grow:{number}" title="{escape(verdict)}: {number:,}"></span>'
        for verdict, number in counts.items()
        if verdict != QUOTED
    )
    return f'<span class="bar" aria-hidden="true">{spans}</span>'


def _said(counts: Mapping[str, int]) -> str:
    return escape(
        ", ".join(f"{number:,} {verdict}" for verdict, number in counts.items() if verdict != QUOTED) or QUOTED
    )


def _section(table: TableResult, picture: str | None) -> str:
    name = escape(table.name)
    downloads = [f'<a href="{TABLES}/{name}.tsv" download>TSV</a>']
    figure = ""
    if picture is not None:
        downloads += [f'<a href="{FIGURES}/{name}.{kind}" download>{kind.upper()}</a>' for kind in ("png", "svg")]
        kinds = "measured" if all(cell.published is None for cell in table.cells.values()) else "measured and published"
        label = f"{table.title}: {table.y_label or 'figures'}, {kinds}; the table below has all of them"
        figure = f"<figure>\n{inline_svg(picture, table.name, label)}\n</figure>\n"
    counts = verdicts([table])
    quoted = counts.get(QUOTED, 0)
    cells = counted(len(table.cells) - quoted, "cell")
    beside = f"; {counted(quoted, 'figure')} of the paper quoted" if quoted else ""
    return (
        f'<section id="{name}">\n<h2>{escape(table.title)}</h2>\n'
        f"<p>{escape(table.caption)}</p>\n"
        f'<p class="score">{cells}: {_said(counts)}{beside} · {" · ".join(downloads)}</p>\n'
        f"{figure}{table_html(table)}</section>"
    )


@cache
def _asset(name: str) -> str:
    return (files("milco_pyserini.reproduce") / "assets" / name).read_text(encoding="utf-8")
