"""Explanations in the terminal, in notebooks and on a page: complete, readable, and safe from the texts they show."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from browsing import is_light, opened
from pages import EVIL, Tags, explanations
from wcwidth import width

from milco_pyserini.explain.explanation import compare, report_page
from milco_pyserini.explain.render import format_number, format_score, language_of


def test_no_text_becomes_markup() -> None:
    """Texts full of tags are shown in full, as text, and every tag of the page is closed."""
    ones = explanations()
    tags = Tags(report_page(ones, compare(*ones[:2])))
    assert tags.open == []
    assert tags.seen.count("script") == 1
    assert "b" not in tags.seen
    assert tags.text.count(EVIL) >= 3
    assert "mark" in tags.seen


def test_a_page_is_complete_in_itself() -> None:
    """It has no link and no import, and is the same without a network."""
    page = report_page(explanations())
    tags = Tags(page)
    assert not {"link", "img", "iframe"} & set(tags.seen)
    assert not {"src", "href"} & {name for name, _ in tags.attributes}
    assert not re.search(r"https?://|url\(|@import", page)


def test_a_notebook_shows_an_explanation_without_a_script() -> None:
    """As HTML whose style applies to nothing else in the notebook."""
    html = explanations()[0]._repr_html_()
    tags = Tags(html)
    assert tags.open == []
    assert {"mark", "table"} <= set(tags.seen)
    assert {"script", "button", "body"}.isdisjoint(tags.seen)
    style = html[html.index("<style>") : html.index("</style>")]
    selectors = re.findall(r"^([^\s@/}][^{]*) \{", style, re.M)
    assert all(".milco" in selector for selector in selectors)


def test_texts_and_terms_have_their_own_direction() -> None:
    """dir=auto on both texts, and each term isolated."""
    tags = Tags(report_page(explanations()))
    assert tags.attributes.count(("dir", "auto")) == 2 * 3
    assert tags.seen.count("bdi") > tags.seen.count("tr") - 10


def test_highlights_belong_to_terms_of_the_table() -> None:
    """Each highlight names terms of its article, and is at least faintly visible."""
    page = report_page(explanations())
    weakest = [float(opacity) for opacity in re.findall(r"--weakest: ([\d.]+)", page)]
    # In a dark page, the same tint is harder to see.
    assert 0.05 < weakest[0] < weakest[1]
    for article in re.findall(r"<article>.*?</article>", page, re.DOTALL):
        buttons = set(re.findall(r'data-part="(\d+)"', article))
        named = {number for group in re.findall(r'data-parts="([\d ]+)"', article) for number in group.split()}
        assert named
        assert named <= buttons
        assert all(0 <= float(strength) <= 1 for strength in re.findall(r"--s:([\d.]+)", article))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("ペニシリンを薬にした", "ja"),
        ("谁发现了青霉素？", "zh"),
        ("누가 발견했나", "ko"),
        ("the word 木 is tree", ""),
        ("", ""),
    ],
)
def test_texts_have_the_language_of_their_script(text: str, language: str) -> None:
    """So that a browser picks the right font; other scripts do not identify a language."""
    assert language_of(text) == language
    assert f'lang="{language}">{text}</bdi>' in report_page([], query=text)


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_terminal_output_fits_its_width(columns: int) -> None:
    """Also with wide characters; the bars and the products are for wide terminals."""
    one, two = explanations("ナイル川はどこですか the Nile " * 9, ["ナイル川 is the Nile river " * 30, "ナイル川"])
    text = one.to_text(width=columns) + compare(one, two).to_text(width=columns)
    assert all(width(line) <= columns for line in text.splitlines())
    assert ("█" in text) == (columns == 140)
    assert ("query x document" in text) == (columns > 60)


@pytest.mark.integration
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page(browser: Any, tmp_path: Path, scheme: str) -> None:
    """Without errors or requests; Arabic from right to left; the keyboard outlines a term's highlights."""
    path = tmp_path / "page.html"
    arabic = "أين نهر النيل"
    path.write_text(report_page(explanations(arabic, [arabic, "ナイル川"])), encoding="utf-8")
    with opened(browser, path.as_uri(), color_scheme=scheme) as page:
        text = page.locator("p.text").first
        assert text.evaluate("element => getComputedStyle(element).direction") == "rtl"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "term"
        assert page.locator("mark.on").count() == 0
        page.keyboard.press("Enter")
        assert page.locator("button[aria-pressed=true]").count() == 1
        assert page.locator("mark.on").count() >= 1
        page.keyboard.press("Escape")
        assert page.locator("mark.on").count() == 0
        assert is_light(page) == (scheme == "light")


@pytest.mark.parametrize(
    ("score", "shown"), [(24309.0, "24,309"), (14891.16, "14,891"), (3.62174, "3.6217"), (0.0328, "0.0328")]
)
def test_large_scores_have_no_decimals(score: float, shown: str) -> None:
    """Balanced sums of impacts; fused scores and BM25 have four. Values that are not numbers are shown, too."""
    assert format_score(score) == shown
    assert (format_score(math.nan), format_number(math.nan, 100), format_number(-math.inf, 100)) == (
        "nan",
        "nan",
        "-inf",
    )
