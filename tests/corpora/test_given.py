"""Documents that a program has: strings, pairs, dicts, Documents and data frames are a corpus like any other."""

import tracemalloc
from collections.abc import Iterator
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
        (
            ["a", 7],
            TypeError,
            "document 1 is int, expected a str, an (id, text) pair, a dict with a text, or a Document",
        ),
        ([("x", None)], TypeError, "document 0: 'text' is NoneType, expected a str"),
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


def test_a_generator_takes_constant_memory() -> None:
    """Its texts are in a temporary file, and are read from it."""

    def texts() -> Iterator[str]:
        for number in range(4000):
            yield f"{number} " * 500

    tracemalloc.start()
    assert open_corpus(texts()).check().records == 4000
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
