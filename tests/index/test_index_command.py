"""The command milco index."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_stores import synthetic_batch, write_plain, write_store

from milco_pyserini.cli.index import main
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import open_index
from milco_pyserini.io.manifest import write_checked
from milco_pyserini.sparse import open_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A finished store of 150 documents."""
    return write_store(tmp_path / "vectors" / "tiny", *synthetic_batch(150))


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run the command with invalid input (exit code 2, nothing on stdout), and return its line on stderr."""
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("milco index: error: ")
    assert err.count("\n") == 1
    return err


def test_the_default_output_is_named_after_store_and_engine(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """indexes/NAME.ENGINE; the manifest contains the store's; skipped documents are reported."""
    monkeypatch.chdir(tmp_path)
    assert main(["--engine", "exact", "--vectors", "vectors/tiny/"]) == 0
    index = open_index(Path("indexes/tiny.exact"))
    assert index.manifest.exactness == "exact float"
    assert index.vectors == open_store(store).manifest
    assert index.manifest.query_scale == 100.0
    out, err = capsys.readouterr()
    assert out == ""
    assert "150/150 documents" in err
    assert "Skipped 3 documents without terms" in err


def test_invalid_input_is_one_line_and_writes_nothing(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing, unfinished and external vectors, unknown engines and numbers out of range."""
    output = tmp_path / "out" / "index"
    unfinished = write_store(tmp_path / "unfinished", *synthetic_batch(20))
    (unfinished / "manifest.json").unlink()
    old = write_store(tmp_path / "old", *synthetic_batch(20), format_version=0)
    short = write_store(tmp_path / "short", *synthetic_batch(20))
    (short / "part-00000.jsonl").write_bytes(b"")
    twice = tmp_path / "twice.jsonl"
    twice.write_text("".join(f'{{"id": "{docid}", "vector": {{"a": 1}}}}\n' for docid in "ded"))
    topics = write_store(tmp_path / "topics", *synthetic_batch(20), kind="topics")
    empty = write_plain(tmp_path / "empty.jsonl", {"d": {}})
    for arguments, message in (
        (["--vectors", unfinished], "not finished"),
        (["--vectors", topics], f"{topics} holds topics, and an index is built from documents"),
        (["--vectors", old], "version 0"),
        (["--vectors", short], "part-00000.jsonl: 0 bytes, not"),
        (["--vectors", twice, "--plain"], "two documents have the id 'd'"),
        (["--vectors", empty, "--plain"], "no document with a term (1 without)"),
        (["--vectors", store, "--scale", "10"], "--scale requires --plain"),
        (["--vectors", store, "--prune", "threshold:999"], "after pruning by threshold:999"),
        (["--vectors", store, "--prune", "mass:.9"], "a percentage of what to drop"),
        (["--vectors", store, "--n-postings", "5"], "--n-postings'. Give it as --set n_postings=..."),
        ([], "--vectors"),
    ):
        assert message in refused(capsys, *arguments, "--output", output, "--engine", "exact")
    assert not output.exists()
    assert not output.parent.exists() or not list(output.parent.iterdir())


def test_pruning_drops_terms_without_encoding_again(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--prune and --views report what they drop; the store does not change."""
    to = ["--engine", "exact", "--vectors", str(store), "--output"]
    assert main([*to, str(tmp_path / "all")]) == 0
    assert main([*to, str(tmp_path / "some"), "--prune", "pivot:top-k:5", "threshold:2", "--views", "pivot"]) == 0
    whole, some = open_index(tmp_path / "all"), open_index(tmp_path / "some")
    assert 0 < some.manifest.postings <= 5 * some.manifest.documents
    assert some.manifest.postings < whole.manifest.postings
    assert some.vectors.pruning == "pivot:top-k:5 threshold:2"
    assert some.vectors.views == ["pivot"]
    emptied = whole.manifest.documents - some.manifest.documents
    stderr = capsys.readouterr().err
    assert f"Pruning kept {some.manifest.postings / whole.manifest.postings:.1%} of the terms\n" in stderr
    assert f"Pruning left {emptied} documents without terms" in stderr


def test_directories_that_are_no_index_are_refused(store: Path, tmp_path: Path) -> None:
    """No directory, no manifest, a vector store, another version, an unknown engine."""
    with pytest.raises(MilcoError, match=rf"{tmp_path}/a.exact: .* --output {tmp_path}"):
        open_index(tmp_path / "a.exact")
    with pytest.raises(MilcoError, match=r"has no manifest\.json"):
        open_index(tmp_path)
    (tmp_path / "segments_1").touch()
    with pytest.raises(MilcoError, match="milco pyserini"):
        open_index(tmp_path)
    with pytest.raises(MilcoError, match="is not an index: build one"):
        open_index(store)
    assert main(["--engine", "exact", "--vectors", str(store), "--output", str(tmp_path / "index")]) == 0
    path = tmp_path / "index" / "manifest.json"
    manifest = json.loads(path.read_text())
    for change, message in (({"format_version": 99}, "version 99"), ({"engine": "lucerne"}, "did you mean 'lucene'")):
        write_checked(path, manifest | change)
        with pytest.raises(MilcoError, match=message):
            open_index(path.parent)


SLOW = """
import sys, time
from milco_pyserini.cli.main import start
from milco_pyserini.index import documents

read = documents.CheckedDocuments.vectors

def slowly(self):
    for document in read(self):
        yield document
        print("reading", flush=True)
        time.sleep(0.2)

documents.CheckedDocuments.vectors = slowly
sys.exit(start("index"))
"""


@pytest.mark.integration
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_no_index(store: Path, tmp_path: Path, how: signal.Signals) -> None:
    """Ctrl-C cleans up and exits with 130; after kill -9 the next run cleans up."""
    output = tmp_path / "out" / "index"
    command = [sys.executable, "-c", SLOW, "--vectors", str(store), "--output", str(output)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        process.send_signal(how)
        error = process.communicate(timeout=60)[1]
    left = list(output.parent.glob(".*"))
    assert not output.exists()
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted" in error
        assert left == []
    else:
        assert left != []
        assert main(["--engine", "exact", "--vectors", str(store), "--output", str(output)]) == 0
        assert list(output.parent.glob(".*")) == []


def test_help_lists_the_settings_of_every_engine(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its default and its range."""
    assert main(["--set", "help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("seismic: n_postings=200 (build, 1 to 1,000,000,000): ") for line in lines)
    assert {line.split(":")[0] for line in lines} == {"lucene", "seismic", "remote"}
