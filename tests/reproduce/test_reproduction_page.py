"""Promises of a reproduction's page: measured beside published, no network, pictures of the same figures."""

import csv
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from milco_pyserini.reproduce import page as page_module
from milco_pyserini.reproduce.markup import table_html, verdicts
from milco_pyserini.reproduce.page import page_html, table_tsv, write_page
from milco_pyserini.reproduce.pictures import draw, inline_svg, svg
from milco_pyserini.reproduce.point_names import covered
from milco_pyserini.reproduce.records import (
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
    Reproduction,
    TableResult,
    table_of,
)
from milco_pyserini.reproduce.series import Point, asked_for, bar_columns, bar_rows, costs, curves, scatter

EVIL = '<script>alert("x")</script> & <b>نهر النيل</b> \'"'


def cell(row: str, column: str, published: float | None, measured: float | None, **more: Any) -> CellResult:
    """A cell that is done, unless more says otherwise."""
    commands = (f"milco encode --corpus c-{column}", f"milco search --index i-{column} --output runs/{column}.txt")
    values = {"status": DONE, "commands": commands, "run": f"runs/{column}.txt", "seconds": 75.0} | more
    return CellResult("t", row, column, "nDCG@10", published, measured, **values)


def languages() -> TableResult:
    """Two systems and three languages, one of which cannot be had, and a row that is quoted."""
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
    return table_of(cells, "miracl", "MIRACL", "Dev topics.", BARS, y_label="nDCG@10")


def pruning() -> TableResult:
    """Rows that are numbers, their mean among the columns, and the terms that they leave."""
    figures = {"10": (44.5, 12.0), "50": (63.8, 48.0), "1000": (72.7, 500.0), "all": (72.6, 600.0)}
    cells = [
        one
        for row, (score, terms) in figures.items()
        for one in (
            cell(row, "avg", score, score - 1, unlike=ANOTHER_MODEL),
            cell(row, "ar", score + 5, None),
            cell(row, "terms", terms, terms + 2),
        )
    ]
    return table_of(cells, "pruning-top-k", "Top-k", "Of k.", CURVE, x_label="k", y_label="nDCG@10", y=("avg", "ar"))


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
    labels = {"x_label": "ms", "y_label": "nDCG@10", "x": "ms", "y": ("nDCG@10",), "size": "GB"}
    return table_of(cells, "latency", EVIL, "One core.", SCATTER, **labels)


def reproduction(*tables: TableResult) -> Reproduction:
    """A reproduction of some tables, or of all three."""
    shown = tables or (languages(), pruning(), latency())
    return Reproduction("The tables again", "hltcoe/milco", f"2 cores {EVIL}", "1.0", "2026-11-21", shown)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of all three tables; what it links to is beside it."""
    return write_page(reproduction(), tmp_path_factory.mktemp("reproduction"))


class Tags(HTMLParser):
    """The tags of a page, what stands open at its end, their attributes, and its text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.seen.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it; nothing stands open."""
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        """What was opened last is closed first."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect what a reader sees."""
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    def values(self, name: str) -> list[str]:
        """Of all attributes of that name."""
        return [value or "" for key, value in self.attributes if key == name]


def summaries(html: str) -> list[str]:
    """What the cells show before they are opened, and the line that opens the commands."""
    return [Tags(summary).text for summary in re.findall(r"<summary>.*?</summary>", html)]


def test_no_text_becomes_markup(written: Path) -> None:
    """A title full of tags is on the page as text, in its picture too, and every tag of ours is closed."""
    tags = Tags(written.read_text(encoding="utf-8"))
    assert tags.open == []
    assert tags.seen.count("script") == 1
    assert tags.text.count(EVIL) >= 4
    drawn = draw(replace(latency(), x_label=EVIL))
    assert drawn is not None
    assert EVIL in Tags(inline_svg(svg(drawn, "latency"), "latency", EVIL)).text


def test_a_page_needs_no_network(written: Path) -> None:
    """No address, no import; every link leads to a place on the page, a file that was written, or a run beside it."""
    page = written.read_text(encoding="utf-8")
    assert not re.search(r"https?:|url\((?!#)|@import", page)
    tags = Tags(page)
    assert not {"link", "img", "iframe", "image"} & set(tags.seen)
    assert "src" not in {name for name, _ in tags.attributes}
    ids = tags.values("id")
    assert len(ids) == len(set(ids))
    for link in [*tags.values("href"), *tags.values("xlink:href"), *re.findall(r"url\((#[^)]*)\)", page)]:
        assert (
            link[1:] in ids if link.startswith("#") else link.startswith("./runs/") or (written.parent / link).is_file()
        )


def test_a_run_with_an_odd_name_stays_below_the_page() -> None:
    """A name that looks like an address of another site is a file's name."""
    for run in ("//evil.example/x", "javascript:alert(1)"):
        table = table_of([cell("MILCO", "ar", 1.0, 1.0, run=run)], "t", "T", "")
        (link,) = Tags(table_html(table)).values("href")
        assert link.startswith("./")
        assert not link.startswith("./javascript:")


def test_every_cell_tells_how_it_was_made() -> None:
    """Its figures, the difference, the verdict, its commands in order, how long they took, and its run."""
    html = table_html(table_of([cell("MILCO", "ar", 80.4, 80.6)], "t", "T", ""))
    assert summaries(html)[0] == "80.6 80.4 +0.2"
    sheet = Tags(html[html.index('<div class="sheet">') : html.index("</details>")]).text
    assert "MILCO · ar · nDCG@10 · measured 80.6 · published 80.4 · difference +0.2 · reproduced · took 1:15" in sheet
    assert sheet.index("milco encode --corpus c-ar\n") < sheet.index("milco search --index i-ar")
    assert 'href="./runs/ar.txt"' in html


def test_differences_are_shaded_by_side_and_size() -> None:
    """Above and below the published figure, to full strength at 5 points; not what differs by design, nor equals."""
    cells = [
        cell("MILCO", "a", 50.0, 51.0),
        cell("MILCO", "b", 50.0, 40.0),
        cell("MILCO", "c", 50.0, 40.0, unlike=ANOTHER_MODEL),
        cell("MILCO", "d", 50.0, 50.0),
    ]
    classes = re.findall(r'<td class="([^"]*)"(?: style="--s:([\d.]*)")?', table_html(table_of(cells, "t", "T", "")))
    assert classes == [("near above", "0.20"), ("differs below", "1.00"), ("aside", ""), ("reproduced", "")]


def test_missing_cells_say_why() -> None:
    """A sign instead of a figure, the published one still beside it; each reason once below, with its cells."""
    html = table_html(languages())
    text = Tags(html).text
    assert "∅unreachable 84.2" in text
    missing = Tags(html[html.index('<ul class="missing">') :])
    assert f"unreachable: {EVIL} is not there (MILCO: th)" in missing.text
    assert "failed: no memory (MILCO + BM25: en)" in missing.text
    assert "·open" in text


def test_a_reason_names_no_more_rows_than_can_be_read() -> None:
    """LIMIT has 42 rows that nobody measures here."""
    table = table_of([cell(f"r{n}", "ar", 1.0, None, reason="not asked for") for n in range(42)], "t", "T", "")
    assert "quoted: not asked for (r0, r1," in Tags(table_html(table)).text
    assert "r18 and 23 more rows)" in Tags(table_html(table)).text


def test_quoted_figures_are_no_results() -> None:
    """They stand there softly, with nothing to open, and are left out of the bar of verdicts."""
    html = table_html(languages())
    assert '<tr class="quoted"><th scope="row">Qwen3-Embed 8B</th><td class="quoted"' in html
    assert 'title="Qwen3-Embed 8B, ar: quoted; not asked for">78.2</td>' in html
    assert "quoted: not asked for (Qwen3-Embed 8B)" in Tags(html).text
    page = page_html(reproduction(languages()), {})
    bar = page[page.index('<span class="bar"') :].split("\n")[0]
    assert 'title="reproduced: 1"' in bar
    assert "quoted" not in bar


def test_the_commands_of_a_table_are_listed_once() -> None:
    """A person can copy them from one place, whatever the number of cells that share them."""
    html = table_html(languages())
    listed = html[html.index('<details class="all">') :]
    assert "6 commands of this table" in listed
    assert listed.count("milco encode --corpus c-ar") == 1


def test_verdicts_are_counted_in_a_fixed_order() -> None:
    """The good ones first, then what differs by design, whatever that is."""
    table = languages()
    odd = cell("x", "ar", 1.0, 1.0, unlike="another moon")
    assert list(verdicts([table_of([odd], "t", "T", ""), table]).items()) == [
        ("reproduced", 1),
        ("near", 1),
        ("differs", 1),
        ("another moon", 1),
        ("measured", 1),
        ("unreachable", 1),
        ("failed", 1),
        ("open", 1),
        ("quoted", 1),
    ]


def test_tables_are_written_with_every_digit(written: Path) -> None:
    """A line for each cell; tabs and line ends within a reason do not break it."""
    exact = cell("MILCO", "ar", 80.4, 80.123456789, reason="a\tb\nc")
    lines = list(csv.DictReader(table_tsv(table_of([exact], "t", "T", "")).splitlines(), delimiter="\t"))
    assert [line["measured"] for line in lines] == ["80.123456789"]
    assert lines[0]["reason"] == "a b c"
    assert lines[0]["made by"].startswith("milco encode --corpus c-ar && milco search")
    assert len((written.parent / "tables" / "miracl.tsv").read_text().splitlines()) == 1 + len(languages().cells)


def test_figures_have_as_many_decimals_as_they_need() -> None:
    """Points one, milliseconds three, large counts none but a comma; nothing is minus zero."""
    cells = [
        cell("MILCO", "points", 80.44, 80.41),
        cell("MILCO", "ms", 0.44, 0.4),
        cell("MILCO", "queries", 1545.0, 2500.0),
    ]
    shown = summaries(table_html(table_of(cells, "t", "T", "")))
    assert shown[:3] == ["80.4 80.4 0.0", "0.400 0.440 -0.040", "2,500 1,545 +955"]


def test_curves_are_of_numbers_or_of_a_column() -> None:
    """Rows that are numbers, without those that are none; columns that are; or the column x of each row."""
    table = pruning()
    mean, arabic = curves(table)
    assert (mean.label, mean.is_mean, arabic.is_mean) == ("avg", True, False)
    assert [(point.x, point.y) for point in mean.published] == [(10, 44.5), (50, 63.8), (1000, 72.7)]
    assert [point.y for point in mean.measured] == [43.5, 62.8, 71.7]
    assert arabic.measured == ()
    by_terms = curves(replace(table, x="terms"))[0]
    assert by_terms.measured[0] == Point(14.0, 43.5, "10")
    assert by_terms.published[-1] == Point(600.0, 72.6, "all")
    turned = table_of([cell("avg", k, 1.0, None) for k in ("k=20", "k=10")], "t", "T", "", CURVE)
    assert [point.x for point in curves(turned)[0].published] == [10, 20]
    assert curves(languages()) == []


def test_scattered_points_carry_their_size() -> None:
    """A size that was only published stands for the measured point too; a point without an x is left out."""
    (series,) = scatter(latency())
    assert [point.label for point in series.published] == ["p=60", "HNSW", "p=0"]
    assert [point.label for point in series.measured] == ["p=60", "p=0"]
    assert series.measured[0].size == 12.0


def test_pruning_is_drawn_against_what_is_left_too() -> None:
    """A second panel against the terms; what was published without their number has no curve there."""
    table = pruning()
    assert costs(table) == ["terms"]
    drawn = draw(table)
    assert drawn is not None
    assert [panel.get_xlabel() for panel in drawn.axes] == ["k", "terms"]
    untold = {key: replace(one, published=None) if key[1] == "terms" else one for key, one in table.cells.items()}
    mean, *others = curves(replace(table, x="terms", cells=untold))
    assert (mean.label, mean.published, len(mean.measured), others) == ("avg", (), 4, [])
    failed = {
        key: replace(one, measured=None, status=FAILED) if key[1] == "avg" else one for key, one in untold.items()
    }
    drawn = draw(replace(table, cells=failed))
    assert drawn is not None
    assert [panel.get_xlabel() for panel in drawn.axes] == ["k"]


def test_names_lie_where_they_cover_the_least() -> None:
    """Nothing is better than a point, and a point is better than the outside of the picture."""
    window, points = np.array([[0.0, 0, 100, 100]]), np.array([[10.0, 10, 20, 20]])
    free, on_a_point, outside = (np.array([[x, x, x + 10.0, x + 10]]) for x in (50, 15, -5))
    assert covered(free, points, window) == 0
    assert covered(on_a_point, points, window) == 25
    assert covered(outside, points, window) == 750


def names_of(places: dict[str, float]) -> list[str]:
    """The names in a picture of rows at these places on its axis."""
    cells = [one for row, x in places.items() for one in (cell(row, "x", None, x), cell(row, "y", None, 2.0))]
    drawn = draw(table_of(cells, "t", "T", "", SCATTER, x="x", y=("y",)))
    assert drawn is not None
    return [text.get_text() for text in drawn.axes[0].texts]


def test_names_are_never_written_over_each_other() -> None:
    """Of points that stand closely some go without."""
    assert 0 < len(names_of({f"row {n}": n / 20 for n in range(39)} | {"far away": 40})) < 15


def test_points_at_one_place_have_one_name() -> None:
    """The first and the last of many; pruning that leaves all the same prunes nothing any more."""
    assert names_of({"10": 1, "300": 9, "500": 9, "700": 9.01, "1000": 9.02}) == ["10", "300 … 1000"]
    assert names_of({"10": 1, "20": 1, "50": 9}) == ["10, 20", "50"]


def test_bars_of_many_rows_are_of_means() -> None:
    """Groups of more bars than there are colours would not be read."""
    table = languages()
    assert bar_rows(table) == ["MILCO", "MILCO + BM25", "Qwen3-Embed 8B"]
    assert bar_columns(table, 3, 6) == list(table.columns)
    assert bar_columns(table, 7, 6) == ["avg"]
    many = table_of([cell(f"s{n}", "ar", 1.0, 1.0 if n > 29 else None) for n in range(32)], "t", "T", "", BARS)
    assert bar_rows(many) == ["s30", "s31"]


@pytest.mark.parametrize("kind", PICTURES)
def test_a_table_without_figures_has_no_picture(tmp_path: Path, kind: str) -> None:
    """Nothing was tried yet: the page stands without it."""
    empty = table_of([cell("10", "ar", None, None, status=OPEN)], "empty", "Empty", "", kind, x="ar")
    assert draw(empty) is None
    page = write_page(reproduction(empty), tmp_path).read_text()
    assert "<svg" not in page
    assert not (tmp_path / "figures").exists()
    assert "There is no table yet" in page_html(replace(reproduction(), tables=()), {})


def test_pictures_show_published_dashed_and_measured_solid(written: Path) -> None:
    """In every kind; each is a PNG and a well-formed SVG with text that can be searched."""
    for table in (languages(), pruning(), latency()):
        picture = (written.parent / "figures" / f"{table.name}.svg").read_text()
        ElementTree.fromstring(picture)
        assert "stroke-dasharray" in picture
        assert ">published</text>" in picture
        assert ">measured</text>" in picture
        assert (written.parent / "figures" / f"{table.name}.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_leave_out_what_is_only_quoted() -> None:
    """Rows and columns of the paper's table that nobody asked for, in bars and curves; points of a cloud stay."""
    table = asked_for(languages())
    assert table.rows == ("MILCO", "MILCO + BM25") and table.columns == languages().columns
    drawn = draw(languages())
    assert drawn is not None
    assert "Qwen3-Embed 8B" not in svg(drawn, "t")
    assert asked_for(pruning()).columns == ("avg", "terms")
    drawn = draw(latency())
    assert drawn is not None
    assert "HNSW" in svg(drawn, "t")
    quoted = table_of([cell("x", "ar", 1.0, None)], "t", "T", "", BARS)
    assert asked_for(quoted) == quoted


def test_a_legend_has_a_word_only_for_what_has_to_be_told_apart() -> None:
    """Where all is measured it says nothing of that; what a point's area is stands beside a ring."""
    measured = table_of([cell("MILCO", "ar", None, 1.0), cell("BM25", "ar", None, 2.0)], "t", "T", "", BARS)
    points = [cell("p=0", column, None, 1.0) for column in ("ms", "nDCG@10", "GB")]
    cloud = table_of(points, "t", "T", "", SCATTER, x="ms", y=("nDCG@10",))
    for table in (measured, cloud):
        drawn = draw(table)
        assert drawn is not None
        assert drawn.legends == []
    drawn = draw(replace(cloud, size="GB"))
    assert drawn is not None
    (legend,) = drawn.legends
    (ring,) = legend.legend_handles
    assert [text.get_text() for text in legend.get_texts()] == ["area: GB"]
    assert ring is not None and ring.get_marker() == "o"  # type: ignore[attr-defined]


def test_a_section_counts_what_was_asked_for_and_says_what_is_quoted() -> None:
    """The figures of the paper beside it are no cells of ours."""
    text = Tags(page_html(reproduction(languages()), {})).text
    assert "7 cells: 1 reproduced" in text and "1 figure of the paper quoted" in text


def test_pictures_take_the_pages_colours() -> None:
    """Ink, ground and series of a picture on a page are the page's; the file beside it has its own."""
    drawn = draw(pruning())
    assert drawn is not None
    document = svg(drawn, "k")
    assert "var(" not in document
    element = inline_svg(document, "k", "label")
    assert "#1b1b1b" not in element
    assert {"var(--ink)", "var(--ground)", "var(--series-0)"} <= set(re.findall(r"var\(--[\w-]+\)", element))
    css = page_html(reproduction(), {})
    for name in set(re.findall(r"var\((--[\w-]+)\)", element)):
        assert f"{name}: #" in css


def test_the_same_figures_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    """A page that is made again changes where a figure changed."""
    write_page(reproduction(), tmp_path)
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")]
    assert len(files) == 10
    for path in files:
        assert (tmp_path / path).read_bytes() == (written.parent / path).read_bytes()


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails while the page is made leaves the one before it as it was."""
    path = write_page(reproduction(table_of([], "t", "T", "")), tmp_path)
    before = path.read_text(encoding="utf-8")

    def fail(*arguments: object) -> str:
        raise RuntimeError

    monkeypatch.setattr(page_module, "table_html", fail)
    with pytest.raises(RuntimeError):
        write_page(reproduction(pruning()), tmp_path)
    assert path.read_text(encoding="utf-8") == before
    assert [one.name for one in tmp_path.rglob("*.*")] == ["index.html", "t.tsv"]


@pytest.mark.integration
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page(browser: Any, written: Path, scheme: str) -> None:
    """No error and no request; pictures have the page's ground; a cell opens and closes by keyboard, one at a time."""
    page = browser.new_context(color_scheme=scheme).new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(written.as_uri())
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    drawn = "element => getComputedStyle(element).fill"
    assert page.locator("svg path").first.evaluate(drawn) == ground
    assert page.locator("svg text").first.evaluate(drawn) != ground
    cells = page.locator("td summary")
    cells.nth(0).focus()
    page.keyboard.press("Enter")
    assert page.locator(".sheet:visible").count() == 1
    cells.nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator(".sheet:visible").count() == 1
    assert "c-en" in page.locator(".sheet:visible").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".sheet:visible").count() == 0
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert (problems, len(requests)) == ([], 1)
    page.context.close()


@pytest.mark.integration
def test_a_browser_reads_the_page_without_its_script(browser: Any, written: Path) -> None:
    """Cells open without it, on a telephone too, whose screen the page does not outgrow."""
    size = {"width": 360, "height": 640}
    page = browser.new_context(java_script_enabled=False, viewport=size).new_page()
    page.goto(written.as_uri())
    page.locator("td summary").first.click()
    sheet = page.locator(".sheet:visible").bounding_box()
    assert sheet["y"] + sheet["height"] <= 641
    page.context.close()
    page = browser.new_context(viewport=size).new_page()
    page.goto(written.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.context.close()
