"""Documents that a program has: strings, pairs, dicts, Documents and data frames are a corpus like any other."""

import errno
import tempfile
import tracemalloc
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from milco_pyserini.corpora import Document, open_corpus
from milco_pyserini.errors import MilcoError

NILE = Document("d1", "Nile", "It flows north.", {"lang": "en", "year": 2024})


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (["a", "b"], [Document("0", "", "a"), Document("1", "", "b")]),
        ([("x", "a"), (7, "b")], [Document("x", "", "a"), Document("7", "", "b")]),
        ({"x": "a"}.items(), [Document("x", "", "a")]),
        ([NILE, "b"], [NILE, Document("1", "", "b")]),
        ([{"_id": np.int64(5), "title": None, "text": "a"}], [Document("5", "", "a")]),
        ([{"contents": "a", "lang": "de"}], [Document("0", "", "a", {"lang": "de"})]),
        (pd.Series(["a"]), [Document("0", "", "a")]),
        (
            pd.DataFrame(
                {"id": ["d1", "d2"], "title": ["Nile", None], "text": ["It flows north.", "b"], "year": [2024, 7]}
            ),
            [Document("d1", "Nile", "It flows north.", {"year": 2024}), Document("d2", "", "b", {"year": 7})],
        ),
    ],
)
@pytest.mark.parametrize("is_generator", [False, True])
def test_documents_of_every_form_are_a_corpus(documents: Any, expected: list[Document], is_generator: bool) -> None:
    """Read any number of times, and a generator, too; without an id, the id is the number."""
    if is_generator and not isinstance(documents, pd.DataFrame):
        documents = iter(documents)
    corpus = open_corpus(documents)
    assert corpus.check().records == len(expected)
    assert list(corpus) == list(corpus) == expected
    assert open_corpus(corpus) is corpus


@pytest.mark.parametrize(
    ("documents", "error", "message"),
    [
        ([], MilcoError, "the given corpus is empty: no records"),
        (["a", ("x", "b"), ("x", "c")], MilcoError, "duplicate id 'x': document 1 and document 2"),
        (["a", 7], TypeError, "document 1 is int, expected a str, an (id, text) pair, "),
        ([("x", None)], TypeError, "document 0: 'text' is NoneType, expected a str"),
        (["a", (True, "b")], TypeError, "document 1: 'id' is bool, expected a str or an int"),
        (["a", ("\ud800", "b")], MilcoError, r"document 1: the id '\ud800' has a lone surrogate"),
        (["a", Document("\ud800", "", "b")], MilcoError, r"document 1: the id '\ud800' has a lone surrogate"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), TypeError, "DataFrame has 2 columns 'text'"),
        ([{"id": "x", "body": "a"}], MilcoError, "document 0: no field 'contents' or 'text' among 'id', 'body'"),
        ([Document("x", "", b"a")], TypeError, "document 0: 'text' is bytes, expected a str"),  # type: ignore[arg-type]
        ([("x y", "a")], MilcoError, "document 0: the id 'x y' holds white space"),
        (pd.DataFrame({"text": ["a", float("nan")]}), TypeError, "document 1: 'text' is NoneType, expected a str"),
        ({"x": "a"}, TypeError, "expected several documents, not one dict: pass [...], or .items() of {id: text}"),
        (7, TypeError, "expected a name, a path, or an iterable of documents"),
    ],
)
def test_what_is_no_document_is_one_error(documents: Any, error: type[Exception], message: str) -> None:
    """It names the position as Python counts, and what is expected."""
    with pytest.raises(error) as raised:
        open_corpus(documents).check()
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.datetime64("2026-11-26"), "2026-11-26"),
        (pd.Timestamp("2026-11-26"), "2026-11-26T00:00:00"),
        (date(2026, 11, 26), "2026-11-26"),
        (2**64 - 1, 2**64 - 1),
        ({"b": np.int8(1)}, 1),
        (None, None),
    ],
)
def test_values_with_one_meaning_are_fields(value: Any, expected: Any) -> None:
    """In dicts and in Documents, as plain Python values."""
    for document in ({"text": "a", "f": value}, Document("0", "", "a", {"f": value})):
        fields = list(next(iter(open_corpus([document]))).fields.values())
        assert fields == ([] if expected is None else [expected])
        assert all(type(field) is type(expected) for field in fields)


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), np.float16("inf"), Decimal("1.5"), b"x", {"a"}, [["a"]], [1], timedelta(1), 10**30),
        *(np.timedelta64(5, "ns"), np.datetime64("NaT"), pd.NaT, pd.NA, {"b": b"x"}),
    ],
    ids=repr,
)
def test_values_without_one_meaning_are_refused(value: Any) -> None:
    """With document, field and type; they were left out silently."""
    given = value["b"] if isinstance(value, dict) else value
    for document in ({"text": "a", "f": value}, Document("1", "", "a", {"f": value})):
        with pytest.raises(TypeError, match=f"document 1: field 'f(.b)?' is {type(given).__name__} "):
            open_corpus(["a", document]).check()


def test_a_full_disk_of_temporary_files_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names TMPDIR; nothing is left."""

    def fill(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("milco_pyserini.corpora.iterable.pickle.dump", fill)
    with pytest.raises(MilcoError, match=f"{tmp_path} is full: .* TMPDIR"):
        open_corpus(iter(["a"])).check()
    assert not list(tmp_path.iterdir())


def test_a_generator_takes_constant_memory() -> None:
    """Its texts are in a temporary file, and are read from it."""

    def texts() -> Iterator[str]:
        for number in range(4000):
            yield f"{number} " * 500

    tracemalloc.start()
    assert open_corpus(texts()).check().records == 4000
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
