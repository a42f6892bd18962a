"""Snippets: the best extract of a text, cut where words and sentences end, with the query's terms highlighted."""

import pytest
from golden_set import encoder

from milco_pyserini.explain.snippets import Snippet, make_snippets

FILL = "Ships sail on the sea every day of the year. "


def snippet(query: str | dict[str, float], text: str, length: int = 120) -> Snippet:
    """Return the snippet of a text for a query, by the tiny checkpoint's tokenizer and vocabulary."""
    milco = encoder("distillation")
    weights = milco.encode_query(query).to_dicts()[0] if isinstance(query, str) else query
    return make_snippets(weights, [text], milco, length)[0]


def highlighted(found: Snippet) -> list[str]:
    """Return the highlighted spans; neighbors are joined."""
    text, joined, end = found.text, [], -1
    for one in found.highlights():
        part = text[one["start"] : one["stop"]]
        joined = [*joined[:-1], joined[-1] + part] if one["start"] == end else [*joined, part]
        end = one["stop"]
    return joined


def test_the_extract_has_the_strongest_terms() -> None:
    """It begins with their sentence, and … stands for what is left out."""
    text = f"{3 * FILL}Market day in the harbour. {3 * FILL}"
    found = snippet({"market": 2.0, "harbour": 1.0}, text)
    assert found.text.startswith("… Market day in the harbour. Ships")
    assert found.text.endswith(" …")
    assert highlighted(found)[:2] == ["Market", "harbour"]
    assert len(found.text) <= 124


def test_terms_of_both_views_are_highlighted() -> None:
    """English words by the pivot view, whatever the language of the query; its own pieces, without punctuation."""
    found = snippet({"book": 1.0, "m_▁histor": 0.5}, "A book of history.")
    views = {found.text[one["start"] : one["stop"]]: one["view"] for one in found.highlights()}
    assert views == {"book": "pivot", "histor": "source"}
    assert highlighted(snippet({"m_▁histor": 0.5, "m_?": 1.0, "m_,": 1.0}, "A history? of, history?")) == ["histor"] * 2


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ナイル川", "ナイル川はアフリカ大陸を流れる世界で最も長い川である。" * 20),
        ("نهر النيل", "نهر النيل أطول أنهار القارة الأفريقية. " * 20),
        ("नील नदी", "नील अफ़्रीका की सबसे लंबी नदी है। " * 20),
        ("nothing of it", FILL * 20),
        ("river", "x" * 5000),
        ("river", "a\ud800river " * 100),
    ],
)
def test_extracts_of_any_script_have_about_the_length(query: str, text: str) -> None:
    """They are a part of the text, and highlights cover no more than it."""
    found = snippet(query, text)
    assert 90 <= len(found.text) <= 130
    assert found.text.strip("… ") in text.replace("\ud800", "\ufffd")
    assert all(0 <= one["start"] < one["stop"] <= len(found.text) for one in found.highlights())


def test_short_texts_are_complete() -> None:
    """An empty one has an empty snippet; white space is one space."""
    assert snippet("river", "").text == ""
    assert snippet("river", "A \n river").text == "A river"
    assert snippet("", "A river").highlights() == []
