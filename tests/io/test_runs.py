"""Reading and writing of run files."""

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Hits
from milco_pyserini.io.runs import decreasing_scores, read_run, write_hits


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_trec_run_is_read_by_its_scores(tmp_path: Path) -> None:
    """Rank and byte order mark are ignored, white space may be tabs, the order of lines is kept; plain and gzip."""
    text = "\ufeff1 Q0 陌 1 2.5 tag\n1\tQ0\ta\t9\t-3e-1\ttag\r\n\n2 Q0 a x 7 tag"
    for path in (written(tmp_path / "run", text), written(tmp_path / "run.gz", gzip.compress(text.encode()))):
        assert read_run(path) == {"1": {"陌": 2.5, "a": -0.3}, "2": {"a": 7.0}}
        assert list(read_run(path)["1"]) == ["陌", "a"]
    with pytest.raises(MilcoError, match="holds no results"):
        read_run(written(tmp_path / "run", "\n"))


def test_an_ms_marco_run_is_read_by_its_ranks(tmp_path: Path) -> None:
    """Minus the rank replaces the score."""
    path = written(tmp_path / "run", "1\tb\t2\n1\ta\t1\n")
    assert read_run(path) == {"1": {"b": -2.0, "a": -1.0}}


IDS = st.text(st.characters(exclude_characters=" \t\n\v\f\r", exclude_categories=["Cs"]), min_size=1)


@settings(deadline=None)
@given(query=IDS, documents=st.lists(IDS, min_size=1, unique=True))
def test_ids_may_have_all_characters_but_ascii_white_space(
    tmp_path_factory: pytest.TempPathFactory, query: str, documents: list[str]
) -> None:
    """No-break spaces and line separators are parts of ids, as for trec_eval."""
    query = "q" + query
    lines = [f"{query} Q0 {document} {rank} {-rank} t\n" for rank, document in enumerate(documents, 1)]
    path = written(tmp_path_factory.mktemp("runs") / "run", "".join(lines))
    assert read_run(path) == {query: {document: -float(rank) for rank, document in enumerate(documents, 1)}}


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("1 Q0 a 1 2 t\n1 Q0 b 2 t\n", 2, "5 columns"),
        ("1 a 1 2\n", 1, "4 columns"),
        ("1 Q0 a 1 high t\n", 1, "the score 'high' is not a finite number"),
        ("1 Q0 a 1 nan t\n", 1, "the score 'nan'"),
        ("1 Q0 a 1 1e39 t\n", 1, "the score '1e39'"),
        ("1 Q0 a 1 1_000 t\n", 1, "the score '1_000' is not a finite number"),
        ("1 7 1\r1 8 2\r", 1, "a carriage return within the line"),
        ("1 a 0\n", 1, "the rank '0' is not an integer of at least 1"),
        (b"1 Q0 \xff 1 2 t\n", 1, "can't decode byte 0xff"),
        ("1 Q0 a 1 2 t\n1 Q0 b 1 2 t\n1 Q0 a 3 1 t\n", 3, "document 'a' is repeated for query '1'"),
    ],
)
def test_a_broken_line_is_an_error_with_file_and_line(
    tmp_path: Path, content: bytes | str, line: int, message: str
) -> None:
    """The message has the reason."""
    path = written(tmp_path / "run", content)
    with pytest.raises(MilcoError) as error:
        read_run(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    "scores",
    [
        [],
        [3.0],
        [3.0, 2.0, 1.0],
        [761570.0] * 1000,
        [16777216.0] * 50 + [16777215.0] * 50 + [1.0],
        [2.0] * 20 + [np.nextafter(np.float32(2), np.float32(0))] * 20 + [1.5],
        [1.0 + 1e-12, 1.0, 1.0 - 1e-12, 1e-30, 1e-30],
    ],
)
def test_printed_scores_strictly_decrease_and_stay_near(scores: list[float]) -> None:
    """As float32, no two are equal, and each is within as many steps of its score as there are hits."""
    given = np.asarray(scores, np.float64)
    printed = np.asarray([np.float32(text) for text in decreasing_scores(given)], np.float32)
    assert (printed[1:] < printed[:-1]).all()
    assert np.allclose(printed, given, rtol=len(scores) * 2**-23, atol=1e-40)


def test_distinct_scores_are_printed_as_they_are() -> None:
    """Only ties change a score; others are printed as their shortest float32 text."""
    assert decreasing_scores(np.asarray([761570.0, 0.1, 0.05])) == ["761570.0", "0.1", "0.05"]


def test_msmarco_lines_have_three_columns() -> None:
    """Topic, docid and rank, with tabs between them."""
    handle = io.StringIO()
    write_hits(handle, "7", Hits(["b", "a"], np.asarray([2.0, 1.0])), "msmarco", "unused")
    assert handle.getvalue() == "7\tb\t1\n7\ta\t2\n"
