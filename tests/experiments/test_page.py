"""The page of a reproduction: measured next to published, no network, pictures of the same figures."""

import base64
import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from browsing import PHONE, is_light, opened
from matplotlib.text import Text
from pages import Tags

from experiments import page as page_module
from experiments.page import page_html, reproduction_text, table_tsv, write_page
from experiments.pictures import PlotPoint, draw, series_of, to_svg, without_quotes
from experiments.records import (
    ANOTHER_MODEL,
    BARS,
    CURVE,
    DONE,
    FAILED,
    OPEN,
    PICTURES,
    SCATTER,
    UNREACHABLE,
    CellResult,
    Picture,
    Reproduction,
    TableResult,
)

EVIL = '<script>alert("x")</script> & <b>نهر النيل</b> \'"'


def cell(row: str, column: str, published: float | None, measured: float | None, **more: Any) -> CellResult:
    """Return a cell; it is done unless more overrides the status."""
    commands = (f"milco encode --corpus c-{column}", f"milco search --index i-{column} --output runs/{column}.txt")
    values = {"status": DONE, "commands": commands, "run": f"runs/{column}.txt", "seconds": 75.0} | more
    return CellResult("t", row, column, "nDCG@10", published, measured, **values)


def table_of(*cells: CellResult, picture: Picture | None = None) -> TableResult:
    """A table of cells."""
    return TableResult.of(cells, "t", "T", "", picture)


def languages() -> TableResult:
    """Two systems and three languages, one of which is unreachable, and a row that is quoted."""
    gone = {"status": UNREACHABLE, "reason": f"{EVIL} is not there", "run": None, "seconds": None}
    cells = [
        cell("MILCO", "ar", 80.4, 80.6),
        cell("MILCO", "en", 60.4, 57.4),
        cell("MILCO", "th", 84.2, None, **gone),
        cell("MILCO", "avg", 75.0, 73.5, commands=(), run=None),
        cell("MILCO + BM25", "ar", None, 81.25),
        cell("MILCO + BM25", "en", None, None, status=FAILED, reason="no memory"),
        cell("MILCO + BM25", "th", None, None, status=OPEN),
        cell("Qwen3-Embed 8B", "ar", 78.2, None, commands=(), run=None, reason="not asked for"),
    ]
    return TableResult.of(cells, "miracl", "MIRACL", "Dev topics.", Picture(BARS, y_label="nDCG@10"))


def pruning() -> TableResult:
    """Rows that are numbers, their mean among the columns, and the terms that they leave."""
    figures = {"10": (44.5, 12.0), "50": (63.8, 48.0), "1000": (72.7, 500.0)}
    cells = [
        one
        for row, (score, terms) in figures.items()
        for one in (
            cell(row, "terms", terms, terms + 2),
            cell(row, "avg", score, score - 1, caveat=ANOTHER_MODEL),
            cell(row, "ar", score + 5, None),
        )
    ]
    picture = Picture(CURVE, x_label="k", y_label="nDCG@10", cost="terms")
    return TableResult.of(cells, "pruning-top-k", "Top-k", "Of k.", picture)


def latency() -> TableResult:
    """Rows that are points: milliseconds against effectiveness, an index's size as area."""
    figures = {"p=0": (1.85, 56.4, 61.0), "p=60": (0.44, 50.3, 12.0), "HNSW": (1.29, 50.4, 134.0)}
    cells = [
        one
        for row, (ms, score, size) in figures.items()
        for one in (
            cell(row, "ms", ms, ms * 2 if row != "HNSW" else None),
            cell(row, "nDCG@10", score, score + 0.1 if row != "HNSW" else None),
            cell(row, "GB", size, None),
        )
    ]
    picture = Picture(SCATTER, x_label="ms", y_label="nDCG@10", x="ms", y=("nDCG@10",), size="GB")
    return TableResult.of(cells, "latency", EVIL, "One core.", picture)


def reproduction(*tables: TableResult) -> Reproduction:
    """A reproduction of some tables, or of all three."""
    shown = tables or (languages(), pruning(), latency())
    return Reproduction("The tables again", "hltcoe/milco", f"2 cores {EVIL}", "1.0", "2026-11-21", shown)


def main_of(*cells: CellResult) -> str:
    """The tables of a page, of one table with these cells."""
    page = page_html(reproduction(table_of(*cells)), {})
    return page[page.index("<main>") : page.index("</main>")]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of all three tables, and the files next to it."""
    return write_page(reproduction(), tmp_path_factory.mktemp("reproduction"))


def words(html: str) -> str:
    """The text of a piece of a page."""
    return " ".join(Tags(html).text.split())


def summaries(html: str) -> list[str]:
    """What cells show before they are opened."""
    return [words(summary) for summary in re.findall(r"<summary>.*?</summary>", html, re.DOTALL)]


def test_no_text_becomes_markup(written: Path) -> None:
    """A title full of tags is text on the page, and in its picture; every tag is closed."""
    tags = Tags(written.read_text(encoding="utf-8"))
    assert tags.open == []
    assert tags.seen.count("script") == 1
    assert tags.text.count(EVIL) >= 4
    evil = replace(latency(), picture=replace(latency().picture, x_label=EVIL))  # type: ignore[type-var]
    drawn = draw(evil)
    assert drawn is not None
    assert EVIL in "".join(ElementTree.fromstring(to_svg(drawn)).itertext())


def test_a_page_needs_no_network(written: Path) -> None:
    """No address, no import; every link leads to a place on the page, a file next to it, or a run."""
    page = written.read_text(encoding="utf-8")
    assert not re.search(r"https?:|url\(|@import", page)
    tags = Tags(page)
    assert not {"link", "iframe", "image", "object"} & set(tags.seen)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in tags.values("src"))
    ids = tags.values("id")
    assert len(ids) == len(set(ids))
    for link in tags.values("href"):
        is_inside = link[1:] in ids if link.startswith("#") else (written.parent / link).is_file()
        assert is_inside or link.startswith("./runs/")


def test_the_pictures_of_the_page_are_those_next_to_it(written: Path) -> None:
    """Embedded as they are."""
    sources = Tags(written.read_text(encoding="utf-8")).values("src")
    embedded = [base64.b64decode(source.partition(",")[2]) for source in sources]
    names = ("miracl", "pruning-top-k", "latency")
    assert embedded == [(written.parent / "figures" / f"{name}.svg").read_bytes() for name in names]


@pytest.mark.parametrize("run", ["//evil.example/x", "javascript:alert(1)"])
def test_a_run_with_an_odd_name_is_a_file_below_the_page(run: str) -> None:
    """Not the address of another site."""
    links = [link for link in Tags(main_of(cell("MILCO", "ar", 1.0, 1.0, run=run))).values("href") if "TSV" not in link]
    assert links[1].startswith("./") and not links[1].startswith("./javascript:")


def test_every_cell_shows_how_it_was_measured() -> None:
    """Figures, difference, verdict, commands in order, time, and the run."""
    html = main_of(cell("MILCO", "ar", 80.4, 80.6))
    assert summaries(html)[0] == "80.6 80.4 +0.2"
    sheet = words(html[html.index('<div class="sheet">') : html.index("</details>")])
    assert "MILCO · ar · nDCG@10 · measured 80.6 · published 80.4 · difference +0.2 · reproduced · took 1:15" in sheet
    assert sheet.index("milco encode --corpus c-ar") < sheet.index("milco search --index i-ar")
    assert 'href="./runs/ar.txt"' in html


def test_differences_are_shaded_by_side_and_size() -> None:
    """Up to full strength at 5 points; neither what has a caveat nor what is equal."""
    html = main_of(
        cell("MILCO", "a", 50.0, 51.0),
        cell("MILCO", "b", 50.0, 40.0),
        cell("MILCO", "c", 50.0, 40.0, caveat=ANOTHER_MODEL),
        cell("MILCO", "d", 50.0, 50.0),
    )
    classes = re.findall(r'<td class="([^"]*)"(?: style="--s:([\d.]*)")?', html)
    assert classes == [("near above", "0.20"), ("differs below", "1.00"), ("aside", ""), ("reproduced", "")]


def test_missing_cells_state_why() -> None:
    """A sign in place of the figure, the published one next to it; each reason once below the table."""
    page = page_html(reproduction(languages()), {})
    assert "∅unreachable 84.2" in summaries(page) and "·open" in summaries(page)
    missing = words(page[page.index('<ul class="missing">') : page.index("</ul>") + 5])
    assert f"unreachable: {EVIL} is not there (1 cell)" in missing and "failed: no memory (1 cell)" in missing


def test_quoted_figures_are_no_results() -> None:
    """They have nothing to open, and no part in the bar of verdicts or the count of cells."""
    page = page_html(reproduction(languages()), {})
    assert 'title="Qwen3-Embed 8B, ar: quoted; not asked for">78.2</td>' in page
    assert '<tr class="quoted"><th scope="row">Qwen3-Embed 8B</th>' in page
    text = words(page[page.index("<main>") : page.index("</main>")])
    assert "7 cells: 1 reproduced" in text and "1 published figure quoted" in text
    bar = page[page.index('<span class="bar"') :].split("</dl>")[0].split("<dl")[0]
    assert 'title="reproduced: 1"' in bar and "quoted" not in bar


def test_the_commands_of_a_table_are_listed_once() -> None:
    """To be copied from one place, whatever the number of cells that share them."""
    page = page_html(reproduction(languages()), {})
    listed = page[page.index('<details class="all">') :]
    assert "6 commands of this table" in listed
    assert listed.count("milco encode --corpus c-ar") == 1


def test_verdicts_are_counted_in_a_fixed_order() -> None:
    """Comparisons first, then caveats, then the rest."""
    odd = table_of(cell("x", "ar", 1.0, 1.0, caveat="another moon"))
    order = ["reproduced", "near", "differs", "another moon", "measured", "unreachable", "failed", "open", "quoted"]
    counts = page_module.count_verdicts([odd, languages()])
    assert list(counts) == order and set(counts.values()) == {1}


def test_tsv_has_all_digits(written: Path) -> None:
    """A line for each cell; tabs and line ends in a reason do not break it."""
    exact = cell("MILCO", "ar", 80.4, 80.123456789, reason="a\tb\nc")
    (line,) = csv.DictReader(table_tsv(table_of(exact)).splitlines(), delimiter="\t")
    assert (line["measured"], line["reason"]) == ("80.123456789", "a b c")
    assert line["made by"].startswith("milco encode --corpus c-ar && milco search")
    assert len((written.parent / "tables" / "miracl.tsv").read_text().splitlines()) == 1 + len(languages().cells)


def test_figures_have_as_many_decimals_as_they_need() -> None:
    """Points one, milliseconds three, large counts none but a comma; zero has no sign."""
    cells = [
        cell("MILCO", "points", 80.44, 80.41),
        cell("MILCO", "ms", 0.44, 0.4),
        cell("MILCO", "queries", 1545.0, 2500.0),
    ]
    assert summaries(main_of(*cells))[:3] == ["80.4 80.4 0.0", "0.400 0.440 -0.040", "2,500 1,545 +955"]


def test_the_terminal_shows_the_reasons_of_missing_cells() -> None:
    """Each once; the first of many. Without published figures there is no column for them."""
    cells = [cell("MILCO", str(n), 1.0, None, status=UNREACHABLE, reason=f"{n % 7} is away") for n in range(14)]
    text = reproduction_text(reproduction(table_of(*cells)), ["t"])
    assert "  unreachable (2): 0 is away\n" in text and "and 2 more reasons, on the page" in text
    text = reproduction_text(reproduction(table_of(cell("MILCO", "ar", None, 1.0))), ["t"])
    assert "published" not in text and text.splitlines()[-1].split() == ["MILCO", "ar", "nDCG@10", "1.00", "measured"]


def test_curves_are_drawn_against_the_rows_and_their_cost() -> None:
    """A second panel against the terms, where they were measured."""
    table = pruning()
    mean, arabic = series_of(table)
    assert [(point.x, point.y) for point in mean.published] == [(10, 44.5), (50, 63.8), (1000, 72.7)]
    assert [point.y for point in mean.measured] == [43.5, 62.8, 71.7]
    assert arabic.measured == ()
    assert series_of(table, "terms")[0].measured[0] == PlotPoint(14.0, 43.5, "10")
    drawn = draw(table)
    assert drawn is not None and [panel.get_xlabel() for panel in drawn.axes] == ["k", "terms"]
    unmeasured = {key: replace(one, measured=None) if key[1] == "terms" else one for key, one in table.cells.items()}
    drawn = draw(replace(table, cells=unmeasured))
    assert drawn is not None and [panel.get_xlabel() for panel in drawn.axes] == ["k"]


def test_points_of_a_scatter_carry_their_size() -> None:
    """A published size serves for the measured point too; a point without an x is left out."""
    (series,) = series_of(latency(), "ms")
    assert [point.row for point in series.published] == ["p=60", "HNSW", "p=0"]
    assert [point.row for point in series.measured] == ["p=60", "p=0"]
    assert series.measured[0].size == 12.0


def test_bars_of_many_rows_are_of_means() -> None:
    """More groups than there are colors could not be read; of more than 24 rows the measured ones are drawn."""
    cells = [cell(f"s{row}", column, 1.0, 1.0) for row in range(7) for column in ("ar", "bn", "en", "th", "avg")]
    grouped, means = (draw(table_of(*some, picture=Picture(BARS))) for some in (cells[:30], cells))
    assert grouped is not None and means is not None
    assert [label.get_text() for label in grouped.axes[0].get_xticklabels()] == ["ar", "bn", "en", "th", "avg"]
    assert [panel.get_xlabel() for panel in means.axes] == ["avg"]
    many = [cell(f"s{row}", "ar", 1.0, None, status=OPEN) for row in range(30)]
    measured = draw(table_of(*many, cell("s30", "ar", 1.0, 1.0), cell("s31", "ar", 1.0, 1.0), picture=Picture(BARS)))
    assert measured is not None
    assert [label.get_text() for label in measured.axes[0].get_yticklabels()] == ["s30", "s31"]


@pytest.mark.parametrize("kind", PICTURES)
def test_a_table_without_figures_has_no_picture(tmp_path: Path, kind: str) -> None:
    """Nothing was tried yet: the page is complete without it."""
    empty = table_of(
        cell("10", "ar", None, None, status=OPEN), picture=Picture(kind, x="ar" if kind == SCATTER else None)
    )
    assert draw(empty) is None
    assert "<img" not in write_page(reproduction(empty), tmp_path).read_text()
    assert not (tmp_path / "figures").exists()
    assert "There is no table yet" in page_html(replace(reproduction(), tables=()), {})


def test_pictures_show_published_dashed_and_measured_solid(written: Path) -> None:
    """In every kind: a PNG, and a well-formed SVG with text that can be searched."""
    for table in (languages(), pruning(), latency()):
        picture = (written.parent / "figures" / f"{table.name}.svg").read_text()
        ElementTree.fromstring(picture)
        assert "stroke-dasharray" in picture and ">published</text>" in picture and ">measured</text>" in picture
        assert (written.parent / "figures" / f"{table.name}.png").read_bytes().startswith(b"\x89PNG")


def test_bars_and_curves_leave_out_what_is_only_quoted() -> None:
    """Rows and columns of the paper's table that nobody asked for; points of a scatter stay."""
    assert without_quotes(languages()).rows == ("MILCO", "MILCO + BM25")
    drawn, cloud = draw(languages()), draw(latency())
    assert drawn is not None and cloud is not None
    bars, names = ({text.get_text() for text in one.findobj(Text)} for one in (drawn, cloud))
    assert "Qwen3-Embed 8B" not in bars and {"MILCO", "MILCO + BM25"} <= bars and "HNSW" in names
    quoted = table_of(cell("x", "ar", 1.0, None))
    assert without_quotes(quoted) == quoted


def test_a_legend_names_only_what_must_be_distinguished() -> None:
    """Nothing where all is measured; what a point's area shows next to a ring."""
    picture = Picture(SCATTER, x="ms", y=("nDCG@10",))
    points = table_of(*(cell("p=0", column, None, 1.0) for column in ("ms", "nDCG@10", "GB")), picture=picture)
    drawn = draw(points)
    assert drawn is not None and drawn.legends == []
    drawn = draw(replace(points, picture=replace(picture, size="GB")))
    assert drawn is not None
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["area: GB"]


def test_the_same_figures_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    """A page that is made again changes where a figure changed."""
    write_page(reproduction(languages()), tmp_path)
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.*") if path.name != "index.html"]
    assert len(files) == 3
    for path in files:
        assert (tmp_path / path).read_bytes() == (written.parent / path).read_bytes()
    assert page_html(reproduction(), {}) == page_html(reproduction(), {})


def test_a_failure_leaves_the_page_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is written completely or not at all."""
    path = write_page(reproduction(table_of()), tmp_path)
    before = path.read_text(encoding="utf-8")

    def fail(*arguments: object) -> str:
        raise RuntimeError

    monkeypatch.setattr(page_module, "page_html", fail)
    with pytest.raises(RuntimeError):
        write_page(reproduction(replace(table_of(), name="other")), tmp_path)
    assert path.read_text(encoding="utf-8") == before
    assert [one.name for one in tmp_path.rglob("*.*")] == ["index.html", "t.tsv"]


@pytest.mark.integration
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page(browser: Any, written: Path, scheme: str) -> None:
    """No error and no request; a cell opens and closes by keyboard, one at a time."""
    with opened(browser, written.as_uri(), color_scheme=scheme) as page:
        assert is_light(page) == (scheme == "light")
        cells = page.locator("td summary")
        for number in (0, 1):
            cells.nth(number).focus()
            page.keyboard.press("Enter")
            assert page.locator(".sheet:visible").count() == 1
        assert "c-en" in page.locator(".sheet:visible").inner_text()
        page.keyboard.press("Escape")
        assert page.locator(".sheet:visible").count() == 0
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


@pytest.mark.integration
def test_a_browser_reads_the_page_without_its_script(browser: Any, written: Path) -> None:
    """Cells open without it; the page fits the screen of a phone."""
    with opened(browser, written.as_uri(), java_script_enabled=False, viewport=PHONE) as page:
        page.locator("td summary").first.click()
        sheet = page.locator(".sheet:visible").bounding_box()
        assert sheet["y"] + sheet["height"] <= PHONE["height"] + 1
    with opened(browser, written.as_uri(), viewport=PHONE) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
