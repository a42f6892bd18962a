"""The words of the search pages: complete in every language, and all of them used."""

import re
from pathlib import Path

import pytest

from milco_pyserini.explain import render
from milco_pyserini.explain.render import Interface, accepted_language, interfaces
from milco_pyserini.export.web import SITE
from milco_pyserini.resources import __path__ as resources

TEMPLATES = Path(render.__file__).with_name("templates")


def placeholders(text: str) -> list[str]:
    return sorted(set(re.findall(r"\{(\w*)\}", text)))


@pytest.mark.parametrize("language", interfaces())
def test_every_language_has_every_string_with_the_same_placeholders(language: str) -> None:
    """None is empty, and none was left in English by mistake."""
    english, words = interfaces()["en"], interfaces()[language]
    assert list(words) == list(english)
    assert {name for name in words if placeholders(words[name]) != placeholders(english[name])} == set()
    assert all(text.strip() or name == "thousands" for name, text in words.items())
    assert not any(re.search(r"[{}]", re.sub(r"\{\w+\}", "", text)) for text in words.values())
    assert words["direction"] == ("rtl" if language == "ar" else "ltr")
    sentences = [name for name, text in english.items() if text.endswith(".") and len(text) > 20]
    assert language == "en" or [name for name in sentences if words[name] == english[name]] == []


def test_the_pages_have_the_languages_of_the_sample() -> None:
    """English first."""
    sample = {path.stem for path in (Path(next(iter(resources))) / "sample" / "corpus").iterdir()}
    assert set(interfaces()) == sample and next(iter(interfaces())) == "en"


def test_pages_use_every_string_and_no_other() -> None:
    """A string that no page has would be work for nothing."""
    sources = [
        path.read_text(encoding="utf-8") for path in (*TEMPLATES.glob("*.html"), SITE / "page.js", SITE / "index.html")
    ]
    code = "\n".join(sources)
    named = set(re.findall(r"(?:ui|say|parts|only)\(\"(\w+)\"", code)) | set(re.findall(r"data-ui=\"(\w+)\"", code))
    named |= set(re.findall(r"words\.(\w+)", code))
    assert named - set(interfaces()["en"]) == set()
    quoted = set(re.findall(r"[\"'](\w+)[\"']", code)) | named | {"thousands", "decimal", "percent"}
    assert set(interfaces()["en"]) - quoted == set()


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("ru-RU,ru;q=0.9,en;q=0.8", "ru"),
        ("zh-Hant-TW", "zh"),
        ("xx, de;q=0.2, FR;q=0.9", "fr"),
        ("de;q=0, fi;q=0.1", "fi"),
        ("*", "en"),
        ("de;q=1.2.3", "en"),
        (", ;q=,;;", "en"),
        ("a" * 100_000, "en"),
    ],
)
def test_the_best_accepted_language_is_chosen(header: str, language: str) -> None:
    """By weights, without regions; English if there is none."""
    assert accepted_language((), header) == language
    assert accepted_language(("", "sw", "xx"), header) == "sw"


def test_values_are_escaped_and_numbers_have_the_separators_of_the_language() -> None:
    """Strings of texts never become markup."""
    german = Interface("de", interfaces()["de"])
    assert german("found", first=1, last=10, total=1234) == "Dokumente 1–10 von 1.234"
    assert german("above", first="<b>", second="&") == "Warum &lt;b&gt; vor &amp; steht"
    assert (german.number("1,234.5"), german.percent(0.305, 1)) == ("1.234,5", "30,5\u00a0%")
