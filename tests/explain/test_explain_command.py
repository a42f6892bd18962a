"""milco explain on the command line: tables, JSON, pages, and errors of one line."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from explained_set import CHECKPOINT, index, queries, query_encoder, store
from golden_set import GOLDEN
from torch import nn

from milco_pyserini.cli.encode import main as encode
from milco_pyserini.cli.explain import main
from milco_pyserini.cli.search import main as search
from milco_pyserini.corpora import Document
from milco_pyserini.index import Index, build_index, find_engine
from milco_pyserini.model.checkpoint import HEAD
from milco_pyserini.sparse import open_store

QUERY = queries(50)[7]
WEIGHED = "alpha 0.3: the query is 0.3 x its pivot view + 0.7 x its source view"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the terminal 200 columns."""
    monkeypatch.setenv("COLUMNS", "200")


def run(capsys: Capture, *arguments: object) -> str:
    """Run the command for QUERY; return its stdout."""
    capsys.readouterr()
    assert main(["--query", QUERY, "--device", "cpu", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def error_of(capsys: Capture, *arguments: object) -> str:
    """Run the command, expect exit code 2 and one line on stderr; return the line."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("milco explain: error: ")
    assert err.count("\n") == 1
    return err


def test_explains_the_best_hits_by_default(capsys: Capture, tmp_path: Path) -> None:
    """Rank, score, the strongest terms with their origins, and the sum; weak terms are folded into a line."""
    page = tmp_path / "why.html"
    arguments = ("--index", index("exact").path, "--k", 2)
    out = run(capsys, *arguments, "--top-k", 3)
    assert "rank 1, exact (exact float)" in out and "rank 2, exact (exact float)" in out
    assert out.count("difference 0\n") == 2 and out.count("█") >= 6
    assert "query → document (term)" in out and re.search(r"  \S+ → \S+ \(\S+\)\n", out)
    assert len(re.findall(r"  and [\d,]+ more terms, together [\d.]+%\n", out)) == 2
    out = run(capsys, *arguments)
    shares = [float(share) for share in re.findall(r"^ +[\d.]+ +([\d.]+)%  ", out, re.M)]
    assert shares and (min(shares) >= 5 or len(shares) == 10)
    folded = re.findall(r"^  and ([\d,]+) terms? below 5%, together ([\d.]+%)$", out, re.M)
    run(capsys, *arguments, "--html", page)
    summaries = [f"<summary>{count} more below 5%, together {share}</summary>" for count, share in folded]
    assert [summary in page.read_text(encoding="utf-8") for summary in summaries] == [True] * 2


def test_json_has_all_facts(capsys: Capture) -> None:
    """Contributions sum to the score in their order; spans are characters of the texts. Text has the same order."""
    arguments = ("--index", index("exact").path, "--doc", "ja-02", "ja-01", "--compare")
    out = run(capsys, *arguments)
    assert out.index("ja-02: score") < out.index("ja-01: score") < out.index("ranks above")
    value = json.loads(run(capsys, *arguments, "--json"))
    assert [one["document"] for one in value["explanations"]] == ["ja-02", "ja-01"]
    for one in value["explanations"]:
        assert sum(part["score"] for part in one["contributions"]) == pytest.approx(one["score"])
        assert one["difference"] == 0
        part = one["contributions"][0]
        assert {"term", "piece", "view", "query", "document", "score"} <= part.keys()
        assert part["in_query"] and part["in_document"]
        origins = [origin for part in one["contributions"] for origin in part["document_origins"]]
        assert origins
        assert all(0 <= origin["start"] <= origin["stop"] <= len(one["text"]) for origin in origins)
    scores = [one["sum"] for one in value["explanations"]]
    assert value["comparison"]["difference"] == pytest.approx(max(scores) - min(scores))


def test_no_text_acts_on_the_terminal(capsys: Capture) -> None:
    """Control characters and changes of direction are escaped; the joiners of Persian are kept."""
    out = run(capsys, "--text", "red \x1b[31m\x1b]0;title\x07 \x9b \u202ex می\u200cخواهم", "--encoder", CHECKPOINT)
    assert r"red \x1b[31m\x1b]0;title\x07 \x9b \u202ex می" in out
    assert "می\u200cخواهم" in out
    assert all(sign.isprintable() or sign in "\n\u200c" for sign in out)


def test_documents_of_equal_score_are_not_ranked_above_each_other(capsys: Capture, tmp_path: Path) -> None:
    """Whatever their order in --doc, in the terminal and on the page."""
    corpus, vectors, page = tmp_path / "corpus.jsonl", tmp_path / "vectors", tmp_path / "why.html"
    corpus.write_text("".join(json.dumps({"id": name, "contents": QUERY}) + "\n" for name in "ab"))
    arguments = ["--corpus", str(corpus), "--encoder", str(CHECKPOINT), "--output", str(vectors), "--device", "cpu"]
    assert encode(arguments) == 0
    built = build_index(open_store(vectors), find_engine("exact"), tmp_path / "index").path
    for docids in (("a", "b"), ("b", "a")):
        compared = ("--index", built, "--doc", *docids, "--compare")
        out = run(capsys, *compared)
        run(capsys, *compared, "--html", page, "--overwrite")
        for shown in (out, page.read_text(encoding="utf-8")):
            assert "have the same score" in shown and "ranks above" not in shown
    assert "have the same score, 0.0000" in run(capsys, "--text", "", "", "--encoder", CHECKPOINT, "--compare")


def test_a_changed_text_is_noted_first(capsys: Capture, tmp_path: Path) -> None:
    """Before the text, and no term of it is listed as the document's, in the terminal and on the page."""
    page, (ids, batch) = tmp_path / "why.html", store().load()
    changed = [Document(docid, "", "something else") for docid in ids]
    built = Index.build(batch, tmp_path / "index", "exact", ids=changed, encoder=query_encoder().encoder)
    arguments = ("--index", built.path, "--k", 1)
    out = run(capsys, *arguments)
    assert out.splitlines()[1].startswith("  note: the text does not give the vector")
    run(capsys, *arguments, "--html", page)
    html = page.read_text(encoding="utf-8")
    assert html.index('class="note"') < html.index('class="texts"')
    for shown in (out, html):
        assert "before pruning and rounding" not in shown
        assert "only in the document" not in shown


def test_explains_texts_without_an_index(capsys: Capture, tmp_path: Path) -> None:
    """In the encoder's weights; with --html, stdout is empty."""
    page = tmp_path / "pages" / "why.html"
    arguments = ("--text", QUERY, "something else", "--encoder", CHECKPOINT)
    assert "text 1: score" in run(capsys, *arguments)
    assert main(["--query", QUERY, *map(str, arguments), "--html", str(page)]) == 0
    assert capsys.readouterr() == ("", f"Wrote {page} (2 documents)\n")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "exists" in error_of(capsys, "--query", "x", *arguments, "--html", page)
    assert "is a directory" in error_of(capsys, "--query", "x", *arguments, "--html", tmp_path)


@pytest.mark.parametrize("kind", ["splade", "m3"])
def test_explains_texts_with_every_kind_of_encoder(capsys: Capture, tmp_path: Path, kind: str) -> None:
    """Pivot terms of a masked language model, source terms of BGE-M3; --alpha needs both views."""
    directory, view, missing = GOLDEN / "en_lsr", "pivot", "source"
    if kind == "m3":
        directory, view, missing = shutil.copytree(GOLDEN / "m_encoder", tmp_path / "m3"), "source", "pivot"
        torch.manual_seed(5)
        layer = nn.Linear(json.loads((directory / "config.json").read_text())["hidden_size"], 1)
        torch.save(layer.state_dict(), directory / HEAD)
    arguments = ("--text", f"{QUERY} book", "--encoder", directory)
    (one,) = json.loads(run(capsys, *arguments, "--json"))["explanations"]
    assert one["contributions"]
    assert one["shares"] == {view: pytest.approx(1), missing: 0}
    words = [part for part in one["contributions"] if re.search(r"\w", part["piece"])]
    assert all(part["query_origins"] and part["document_origins"] for part in words)
    line = error_of(capsys, "--query", QUERY, *arguments, "--alpha", 0.3)
    assert f"weighs two views, but this encoder only has the {view} view" in line


def test_alpha_explains_the_hits_of_search_alpha(capsys: Capture, tmp_path: Path) -> None:
    """Documents and scores are those of the run; table, JSON and page state the weights."""
    path, topics, page = index("exact").path, tmp_path / "topics.tsv", tmp_path / "why.html"
    topics.write_text(f"1\t{QUERY}\n", encoding="utf-8")
    weighed = ("--index", path, "--alpha", 0.3, "--k", 5)
    assert (
        search(["--device", "cpu", *map(str, weighed), "--topics", str(topics), "--output", str(tmp_path / "run.txt")])
        == 0
    )
    hits = [line.split() for line in (tmp_path / "run.txt").read_text().splitlines()]
    explained = json.loads(run(capsys, *weighed, "--json"))["explanations"]
    assert [one["document"] for one in explained] == [columns[2] for columns in hits]
    assert [one["score"] for one in explained] == pytest.approx([float(columns[4]) for columns in hits], abs=1e-4)
    assert all((one["alpha"], one["difference"]) == (0.3, 0) for one in explained)
    assert run(capsys, *weighed).count(f"  {WEIGHED}\n") == 5
    run(capsys, *weighed, "--html", page)
    assert page.read_text(encoding="utf-8").count(WEIGHED) == 5
    (two,) = json.loads(run(capsys, "--text", QUERY, "--encoder", CHECKPOINT, "--alpha", 0, "--json"))["explanations"]
    assert (two["alpha"], two["shares"]) == (0, {"pivot": 0, "source": pytest.approx(1)})
    assert "alpha" not in run(capsys, "--index", path)


def test_an_index_without_texts_is_explained_by_its_vectors(capsys: Capture, tmp_path: Path) -> None:
    """--vectors names their place, which is checked."""
    path = Index.build(store(), tmp_path / "bare", "exact", store_documents=False).path
    assert "does not store the document's text" in run(capsys, "--index", path)
    assert "from the vector store" in run(capsys, "--index", path, "--vectors", store().path)
    assert "does not store the document's text" not in run(capsys, "--index", index("exact").path)
    assert "no vectors at" in error_of(capsys, "--query", "x", "--index", path, "--vectors", tmp_path / "nope")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--query", "  ", "--text", "x"), "--query is empty"),
        (("--query", "x", "--text", "y", "--doc", "1"), "--text and --doc exclude each other"),
        (("--query", "x", "--lowercase"), "--lowercase requires --text"),
        (("--query", "x", "--text", "y", "--compare"), "two documents, got 1"),
        (("--query", "x", "--doc", "1", "2", "3", "--compare"), "two documents, got 3"),
        (("--query", "x", "--doc", "1", "1", "--compare"), "document '1' is given twice"),
        (("--query", "x", "--doc", "1", "--k", "5"), "--k and --doc exclude each other"),
        (("--query", "x", "--json", "--top-k", "5"), "--top-k and --json exclude each other"),
        (("--query", "x", "--overwrite"), "--overwrite requires --html"),
        (("--query", "x", "--top-k", "-1"), "--top-k -1"),
        (("--query", "x", "--balance", "lang=x"), "--balance lang=x: expected FIELD or FIELD=STRENGTH"),
        (("--query", "x"), "there is none in indexes/"),
    ],
)
def test_bad_options_are_one_line(
    arguments: tuple[str, ...], message: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exit code 2, before anything is loaded."""
    monkeypatch.chdir(tmp_path)
    assert message in error_of(capsys, *arguments)
