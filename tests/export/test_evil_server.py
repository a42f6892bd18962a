"""A search takes a server's answer for what anybody may have written: right hits, or one line that names the server."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from search_servers import fill
from synthetic_stores import synthetic_queries

from milco_pyserini.cli.main import main

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
# Names in benchmarks/evil_server.py, which has further ones.
REFUSED = (
    *("closed in the middle", "truncated JSON", "nested 100,000 deep", "a page with 200", "a page with 502"),
    *("401 as JSON", "413", "500 as JSON", "302 to another host", "302 to a file", "null", "a response is null"),
    *("no _shards", "hits.hits is null", "a hit is a string", "a score of NaN", "a score of 5,000 digits"),
    *("a score of -5", "a string as score", "no docid", "two docids", "null as docid"),
    *("a docid with a line of a run", "a docid twice", "a docid with a lone surrogate", "a docid of 2 MB"),
    *("fewer answers than queries", "timed_out", "a shard failed", "a shard failed, and is counted"),
    *("missing shards", "a closed index", "an error without reason", "an error as string"),
    *("an error with lines and ESC",),
)
RIGHT = ("hits in reverse order", "closed once", "503 once")


@pytest.fixture(scope="module")
def programs() -> Iterator[tuple[Any, Any]]:
    """The modules of the server, and of what judges a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("evil_server"), importlib.import_module("server_faults")


@pytest.fixture(scope="module")
def server(programs: tuple[Any, Any]) -> Iterator[Any]:
    """The server."""
    with programs[0].evil_server() as server:
        yield server


@pytest.fixture
def stage(server: Any) -> Iterator[Any]:
    """The server, which is honest again after the test."""
    yield server
    server.play()


@pytest.fixture(scope="module")
def index(server: Any, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that the server holds."""
    pytest.importorskip("opensearchpy", reason="needs opensearchpy (pip install '.[opensearch]')")
    path = tmp_path_factory.mktemp("evil") / "index"
    assert fill(("opensearch", server.urls[0]), store, "docs", "--output", str(path)) == 0
    return path


def search(index: Path, *more: str) -> int:
    """Write the run "out" of two queries; return the exit code."""
    lines = [json.dumps({"id": f"q{number}", "vector": query}) for number, query in enumerate(synthetic_queries(2))]
    Path("topics.jsonl").write_text("\n".join(lines))
    return main(["search", "--index", str(index), "--topics", "topics.jsonl", "--k", "5", "--output", "out", *more])


def only_line(printed: str) -> str:
    """Return what a search printed after it opened its index."""
    (line,) = [line for line in printed.split("\n") if line and not line.startswith("Loaded ")]
    return line


@pytest.mark.parametrize("name", REFUSED)
def test_an_answer_that_cannot_be_right_is_one_line(
    name: str, index: Path, stage: Any, programs: tuple[Any, Any], capsys: pytest.CaptureFixture
) -> None:
    """No run is written, and neither Python nor HTML nor a control character is printed."""
    stage.play(name, "search")
    assert search(index) == 2
    line = only_line(capsys.readouterr().err)
    assert urlsplit(stage.urls[0]).netloc in line
    assert programs[1].ARTIFACTS.search(line) is None and len(line) < 1000
    assert not Path("out").exists()


@pytest.mark.parametrize("name", RIGHT)
def test_an_answer_that_is_right_is_taken(name: str, index: Path, stage: Any) -> None:
    """In any order, and at the second attempt."""
    assert search(index) == 0
    expected = Path("out").read_bytes()
    stage.play(name, "search")
    assert search(index, "--overwrite") == 0
    assert Path("out").read_bytes() == expected


@pytest.mark.parametrize("name", ["hung in the middle", "one byte a second", "interim answers without end"])
def test_a_search_ends_in_time(name: str, index: Path, stage: Any, capsys: pytest.CaptureFixture) -> None:
    """However slowly its answer comes."""
    stage.play(name, "search")
    assert search(index, "--set", "timeout=.5") == 2
    only_line(capsys.readouterr().err)


def test_a_password_is_sent_nowhere_else(index: Path, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect is an error."""
    monkeypatch.setenv("MILCO_URL", stage.urls[0].replace("//", "//me:secret@"))
    for name in ("302 to another host", "307 to another host"):
        stage.play(name, "search")
        assert search(index) == 2
        assert "Authorization" in str(stage.requests)
        assert urlsplit(stage.urls[2]).port not in {request["port"] for request in stage.requests}
