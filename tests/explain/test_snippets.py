"""Snippets: the best extract of a text, cut where words and sentences end, with the query's terms highlighted."""

from functools import cache

import pytest

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.explain.snippets import Snippet, make_snippets

FILL = "Ships sail on the sea every day of the year. "


@cache
def mini() -> MilcoEncoder:
    """Load the embedded encoder."""
    return MilcoEncoder.from_pretrained("mini", device="cpu", dtype="float32")


def snippet(query: str, text: str, length: int = 120) -> Snippet:
    """Return the snippet of a text for a query."""
    return make_snippets(mini().encode_query(query).to_dicts()[0], [text], mini(), length)[0]


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
    text = f"{3 * FILL}Coffee came from Yemen. {3 * FILL}"
    found = snippet("coffee from Yemen", text)
    assert found.text.startswith("… Coffee came from Yemen. Ships")
    assert found.text.endswith(" …")
    assert highlighted(found)[:2] == ["Coffee", "Yemen"]
    assert len(found.text) <= 124


def test_english_words_are_highlighted_for_a_query_in_another_language() -> None:
    """By the pivot view; a word of the query itself, by the source view."""
    found = snippet("Erfand Cai Lun das Papier?", "The court of Cai Lun made paper.")
    views = {found.text[one["start"] : one["stop"]]: one["view"] for one in found.highlights()}
    assert views["paper"] == "pivot"
    assert views["Lun"] == "source"


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
