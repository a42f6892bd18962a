"""Promises of milco explain towards the person who types it."""

import json
import re
import shutil
import signal
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import torch
from explained_set import CHECKPOINT, CORPUS, index, queries, store
from golden_set import GOLDEN
from torch import nn

from milco_pyserini.cli import explain as command
from milco_pyserini.cli.encode import main as encode
from milco_pyserini.cli.explain import main
from milco_pyserini.cli.search import main as search
from milco_pyserini.encode.m3 import HEAD
from milco_pyserini.explain.parts import Origin, Side
from milco_pyserini.explain.terminal import tokens
from milco_pyserini.index import build_index, find_engine
from milco_pyserini.sparse import open_store

QUERY = queries(50)[7]
WEIGHED = "alpha 0.3: in the query, 0.3 of the pivot view and 0.7 of the source view"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run the command on the exact index; returns its stdout."""
    capsys.readouterr()
    assert main(["--query", QUERY, "--device", "cpu", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def duplicates(directory: Path) -> Path:
    """An exact index of two documents with the same text."""
    corpus, vectors = directory / "corpus.jsonl", directory / "vectors"
    corpus.write_text("".join(json.dumps({"id": name, "contents": QUERY}) + "\n" for name in "ab"))
    made = ["--corpus", str(corpus), "--encoder", str(CHECKPOINT), "--output", str(vectors), "--device", "cpu"]
    assert encode(made) == 0
    return build_index(open_store(vectors), find_engine("exact"), directory / "index").path


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run the command, expect bad input: exit code 2, nothing on stdout, one line on stderr; returns the line."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("milco explain: error: ")
    assert err.count("\n") == 1
    return err


def test_the_best_hits_are_explained_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    """Rank, score, the strongest parts with the words that they came from, and that they add up."""
    said = run(capsys, "--index", index("exact").path, "--hits", 2, "--top-k", 3)
    assert "rank 1, exact (exact float)" in said
    assert "rank 2, exact (exact float)" in said
    assert said.count("difference 0\n") == 2
    assert said.count("█") >= 6
    assert "more terms" in said
    assert "→" in said
    assert "query's tokens → document's tokens" in said


def test_terms_of_one_side_are_told_view_by_view(capsys: pytest.CaptureFixture[str]) -> None:
    """An English term and the text's own word may be spelled alike."""
    said = run(capsys, "--text", "one", f"{QUERY} one", "--encoder", CHECKPOINT)
    for side in ("query", "document"):
        assert f"the {side}'s alone, pivot: " in said
        assert f"the {side}'s alone, source: " in said


def test_no_text_acts_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters and changes of direction are escapes; what Persian is spelled with stays."""
    said = run(capsys, "--text", "red \x1b[31m\x1b]0;title\x07 \x9b \u202ex می\u200cخواهم", "--encoder", CHECKPOINT)
    assert r"red \x1b[31m\x1b]0;title\x07 \x9b \u202ex می" in said
    assert "می\u200cخواهم" in said
    assert all(sign.isprintable() or sign in "\n\u200c" for sign in said)


def test_documents_of_one_score_are_not_said_to_stand_above(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Whatever the order in which they are named, in the terminal and on the page."""
    built, page = duplicates(tmp_path), tmp_path / "why.html"
    for docids in (("a", "b"), ("b", "a")):
        arguments = ("--index", built, "--doc", *docids, "--compare")
        said = run(capsys, *arguments)
        assert re.search(r"^a and b have the same score, [\d.]+\n  note: the engine lists them by id\n\Z", said, re.M)
        run(capsys, *arguments, "--html", page, "--overwrite")
        html = page.read_text(encoding="utf-8")
        assert "<bdi>a</bdi> and <bdi>b</bdi> have the same score" in html
        assert "stands above" not in said + html
    said = run(capsys, "--text", "", "", "--encoder", CHECKPOINT, "--compare")
    assert said.endswith("\ntext 1 and text 2 have the same score, 0.0000\n")


def test_a_text_that_has_changed_is_told_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Right under the score; nothing of the other text is said to be the document's, in the terminal or on the page."""
    changed, page = tmp_path / "ja.jsonl", tmp_path / "why.html"
    changed.write_text("".join(f'{{"id": "ja-{n:02}", "contents": "something else"}}\n' for n in range(1, 51)))
    arguments = ("--index", index("exact").path, "--hits", 1, "--corpus", changed)
    said = run(capsys, *arguments)
    assert said.splitlines()[1].startswith("  note: the text at hand does not give the vector")
    run(capsys, *arguments, "--html", page)
    html = page.read_text(encoding="utf-8")
    assert html.index('class="note"') < html.index('class="texts"')
    for shown in (said, html):
        assert "before pruning and rounding" not in shown
        assert "the document's alone" not in shown
        assert "the document alone" not in shown


def test_json_holds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """Parts that sum to the score in their order, with character spans that fit the texts."""
    value = json.loads(run(capsys, "--index", index("exact").path, "--json", "--compare"))
    one = value["explanations"][0]
    assert sum(part["contribution"] for part in one["parts"]) == pytest.approx(one["score"])
    assert one["difference"] == 0
    assert {"term", "piece", "view", "query", "document", "contribution"} <= one["parts"][0].keys()
    origins = [origin for part in one["parts"] for origin in part["document_origins"]]
    assert origins
    assert all(0 <= origin["start"] <= origin["stop"] <= len(one["text"]) for origin in origins)
    total = value["explanations"][0]["sum"] - value["explanations"][1]["sum"]
    assert value["comparison"]["difference"] == pytest.approx(total)


def test_named_documents_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """--compare with two ids: both explanations, then the terms that make the difference."""
    said = run(capsys, "--index", index("exact").path, "--doc", "ja-02", "ja-01", "--compare")
    assert "ja-02: score" in said
    assert said.index("ja-02: score") < said.index("ja-01: score") < said.index("stands above")


def test_two_texts_need_no_index(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--text: in the encoder's own weights; the page is a file told on stderr, and stdout stays empty for it."""
    page = tmp_path / "pages" / "why.html"
    arguments = ("--text", QUERY, "something else", "--encoder", CHECKPOINT)
    assert "text 1: score" in run(capsys, *arguments)
    assert main(["--query", QUERY, *map(str, arguments), "--html", str(page)]) == 0
    assert capsys.readouterr() == ("", f"page in {page}: 2 documents\n")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "exists" in refused(capsys, "--query", "x", *arguments, "--html", page)
    assert "is a directory: --html" in refused(capsys, "--query", "x", *arguments, "--html", tmp_path)


@pytest.mark.parametrize("kind", ["splade", "m3"])
def test_texts_are_explained_by_encoders_of_every_kind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    """A masked language model's pivot terms, BGE-M3's source terms; of one view, --alpha is refused."""
    directory, view, lacking = GOLDEN / "en_lsr", "pivot", "source"
    if kind == "m3":
        directory, view, lacking = shutil.copytree(GOLDEN / "m_encoder", tmp_path / "m3"), "source", "pivot"
        torch.manual_seed(5)
        layer = nn.Linear(json.loads((directory / "config.json").read_text())["hidden_size"], 1)
        torch.save(layer.state_dict(), directory / HEAD)
    arguments = ("--text", f"{QUERY} book", "--encoder", directory)
    (one,) = json.loads(run(capsys, *arguments, "--json"))["explanations"]
    assert one["parts"]
    assert one["shares"] == {view: pytest.approx(1), lacking: 0}
    assert all(part["query_origins"] and part["document_origins"] for part in one["parts"])
    said = refused(capsys, "--query", QUERY, *arguments, "--alpha", 0.3)
    assert f"alpha 0.3 weighs two views of a query, and here is the {view} view alone" in said


def test_alpha_explains_what_search_alpha_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The same documents and scores as in the run, with the weighing told in the terminal, as JSON and on the page."""
    path, topics, page = index("exact").path, tmp_path / "topics.tsv", tmp_path / "why.html"
    topics.write_text(f"1\t{QUERY}\n", encoding="utf-8")
    weighed = ("--index", path, "--alpha", 0.3, "--device", "cpu", "--hits", 5)
    assert search([*map(str, weighed), "--topics", str(topics), "--output", str(tmp_path / "run.txt")]) == 0
    ranked = [line.split() for line in (tmp_path / "run.txt").read_text().splitlines()]
    found = json.loads(run(capsys, *weighed, "--json"))["explanations"]
    assert [one["document"] for one in found] == [columns[2] for columns in ranked]
    assert [one["score"] for one in found] == pytest.approx([float(columns[4]) for columns in ranked], abs=1e-4)
    assert all((one["alpha"], one["difference"]) == (0.3, 0) for one in found)
    assert run(capsys, *weighed).count(f"  {WEIGHED}\n") == 5
    run(capsys, *weighed, "--html", page)
    assert page.read_text(encoding="utf-8").count(WEIGHED) == 5
    (two,) = json.loads(run(capsys, "--text", QUERY, "--encoder", CHECKPOINT, "--alpha", 0, "--json"))["explanations"]
    assert (two["alpha"], two["shares"]) == (0, {"pivot": 0, "source": pytest.approx(1)})
    assert "alpha" not in run(capsys, "--index", path)


def test_the_text_is_found_where_it_is_said_to_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--corpus for a corpus that moved, --vectors for documents without a text; both are checked."""
    path = index("exact").path
    empty = tmp_path / "corpus.jsonl"
    empty.write_text('{"id": "other", "contents": "x"}\n')
    assert "text is not at hand" in run(capsys, "--index", path, "--corpus", empty)
    assert "those of the vector store" in run(capsys, "--index", path, "--corpus", empty, "--vectors", store().path)
    assert "text is not at hand" not in run(capsys, "--index", path, "--corpus", CORPUS)
    assert "no vectors at" in refused(capsys, "--query", "x", "--index", path, "--vectors", tmp_path / "nope")
    assert "no such file" in refused(capsys, "--query", "x", "--index", path, "--corpus", "nope.jsonl")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--query", "  ", "--text", "x"), "--query is empty"),
        (("--query", "x", "--text", "y", "--doc", "1"), "leave --doc or --text out"),
        (("--query", "x", "--lowercase"), "--lowercase is for --text"),
        (("--query", "x", "--text", "y", "--compare"), "two documents, 1 given"),
        (("--query", "x", "--doc", "1", "2", "3", "--compare"), "two documents, 3 given"),
        (("--query", "x", "--doc", "1", "1", "--compare"), "document '1' is given twice"),
        (("--query", "x", "--hits", "0"), "--hits 0: must be at least 1"),
        (("--query", "x", "--top-k", "-1"), "--top-k -1: must be at least 1"),
        (("--query", "x", "--alpha", "1.5"), "--alpha 1.5: must be from 0 to 1"),
        (("--query", "x", "--alpha", "nan"), "--alpha nan: must be from 0 to 1"),
        (("serve", "--port", "70000"), "--port 70000: must be from 0 to 65,535"),
        (("serve", "--hits", "0"), "--hits 0: must be from 1 to 100"),
        (("serve", "--alpha", "-1"), "--alpha -1: must be from 0 to 1"),
        (("--query", "x", "--index", "nowhere"), "no index at nowhere"),
        (("--query", "x", "--dok", "1"), "did you mean '--doc'?"),
        (("serve", "--index", "nowhere"), "no index at nowhere"),
    ],
)
def test_what_does_not_fit_is_one_line(
    arguments: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exit code 2 before anything is loaded."""
    monkeypatch.chdir(tmp_path)
    if arguments[0] == "serve":
        assert main(list(arguments)) == 2
        assert said in capsys.readouterr().err
    else:
        assert said in refused(capsys, *arguments)


def test_the_only_index_is_the_default(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In indexes/; none and several are told apart."""
    monkeypatch.chdir(tmp_path)
    assert "there is none in indexes/" in refused(capsys, "--query", "x")
    (tmp_path / "indexes").mkdir()
    (tmp_path / "indexes" / "one").symlink_to(index("exact").path)
    assert command.only_index() == Path("indexes/one")
    (tmp_path / "indexes" / "two").symlink_to(index("exact").path)
    assert "indexes/one, indexes/two" in refused(capsys, "--query", "x")


def test_a_document_that_the_index_lacks_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and the id."""
    path = index("exact").path
    assert "has no document 'nope'" in refused(
        capsys, "--query", QUERY, "--device", "cpu", "--index", path, "--doc", "nope"
    )


def test_tokens_are_spelled_as_in_the_text() -> None:
    """Each once; a token that stands for no characters goes by its name."""
    origins = [Origin(0, 3, "x", 0.4), Origin(8, 11, "x", 0.4), Origin(0, 0, "<s>", 0.2)]
    side = Side("d", "one two\none", {}, origins={"a": origins})
    assert tokens(side, "a") == "one <s>"
    assert tokens(side, "b") == ""


@pytest.mark.integration
def test_the_page_is_served_until_ctrl_c() -> None:
    """It says where it is, answers with the index's texts, and ends at once with exit code 130."""
    program = [sys.executable, "-m", "milco_pyserini.explain", "serve", "--port", "0", "--alpha", "0.3"]
    process = subprocess.Popen(
        [*program, "--device", "cpu", "--index", str(index("exact").path)], stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        assert process.stderr is not None
        address = next(line.split()[0] for line in process.stderr if line.startswith("http://"))
        with urlopen(f"{address}?q={quote(QUERY)}", timeout=60) as response:
            page = response.read().decode()
        assert "<article>" in page
        explained = re.search(r'data-from="/([^"]+)"', page)
        assert explained is not None
        with urlopen(address + unescape(explained[1]), timeout=60) as response:
            assert WEIGHED in response.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert "interrupted; the page is gone" in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
