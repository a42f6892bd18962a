"""Balanced languages on the command line, and what explanations state of them."""

import json
from pathlib import Path

import pytest
from served_set import index, searcher

from milco_pyserini import Index, Searcher
from milco_pyserini.cli.explain import main as explain
from milco_pyserini.cli.search import main
from milco_pyserini.errors import MilcoError
from milco_pyserini.explain.explanation import compare, report_page
from milco_pyserini.io.runs import read_run
from milco_pyserini.request import Balance, SearchRequest

QUERY = "the river Nile"
OPTIONS = ("--device", "cpu", "--dtype", "float32")
ENGINES = ["exact", pytest.param("lucene", marks=pytest.mark.integration)]


@pytest.mark.parametrize("engine", ENGINES)
def test_contributions_and_the_mean_of_the_language_sum_to_the_balanced_score(engine: str, tmp_path: Path) -> None:
    """Exactly; the mean is that of all documents of the language, also for a document that is not a hit."""
    path = index().path
    if engine == "lucene":
        path = Index.build(path.parent / "vectors", tmp_path / "docs.lucene", engine, store_documents=True).path
    with Searcher.open(path, device="cpu", dtype="float32") as opened:
        plain = {hit.docid: hit.score for hit in opened.search(QUERY, 100)}
        for balance, strength in (("lang", 1.0), ("lang=0.5", 0.5)):
            hits = opened.search(QUERY, 8, balance=balance)
            explanations = opened.explainer().explain(QUERY, hits.docids, SearchRequest(balance=balance))
            for rank, (hit, one) in enumerate(zip(hits, explanations, strict=True), 1):
                assert (one.score, one.rank, one.difference) == (hit.score, rank, 0)
                assert one.balance is not None
                assert one.total + one.balance.score == one.balanced_total == hit.score
                assert (one.balance.field, one.balance.strength) == ("lang", strength)
                group = opened.search(QUERY, 100, filters={"lang": one.balance.value})
                size = (opened.values("lang") or {})[one.balance.value]
                assert one.balance.mean == pytest.approx(sum(group.scores.tolist()) / size)
                assert one.total == plain[hit.docid]
        assert len({one.balance.value for one in explanations if one.balance}) > 1
        missed = opened.explain("zzz qqq", "ar", balance="lang")
        assert missed.balance is not None and missed.shown_score == missed.total + missed.balance.score
        assert opened.explain(QUERY, "ar").balance is None


def test_explanations_show_the_mean_that_is_subtracted() -> None:
    """As a line of the table and the page, in JSON, and as a row of a comparison, whose rows sum to the difference."""
    explanations = searcher().explainer().explain(QUERY, ["ar", "a/b#c?"], SearchRequest(balance=Balance("lang", 0.5)))
    found = compare(*explanations)
    page = report_page(explanations, found)
    for one in explanations:
        assert one.balance is not None
        line = f"0.5 x the mean score of lang={one.balance.value}"
        assert f"balance {one.balance.score:,.4f} ({line})" in " ".join(one.to_text(width=200).split())
        assert f"balance {one.balance.score:,.4f}: {line} is subtracted" in page
        about = one.to_json()
        assert about["sum"] + about["balance"]["score"] == about["score"]
    rows = [*found.differences, *found.rows_beyond_terms]
    assert [row.term.text for row in found.rows_beyond_terms] == ["balance"]
    assert sum(row.difference for row in rows) == pytest.approx(found.total)
    assert "  balance\n" in found.to_text(1, 200)


def test_the_commands_balance_languages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For one query and for topics, as the searcher does; milco explain explains the same scores."""
    topics, run = tmp_path / "topics.tsv", tmp_path / "run.txt"
    topics.write_text(f"1\t{QUERY}\n")
    common = ["--index", str(index().path), *OPTIONS, "--balance", "lang", "--k", "5"]
    expected = {hit.docid: hit.score for hit in searcher().search(QUERY, 5, balance="lang")}
    assert list(expected) != searcher().search(QUERY, 5).docids
    assert main([*common, "--query", QUERY, "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    assert {hit["docid"]: hit["score"] for hit in hits} == pytest.approx(expected)
    assert main([*common, "--topics", str(topics), "--output", str(run)]) == 0
    assert read_run(run)["1"] == pytest.approx(expected, abs=1e-4)
    capsys.readouterr()
    assert explain([*common, "--query", QUERY, "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)["explanations"]
    assert {one["document"]: one["score"] for one in explained} == pytest.approx(expected)
    assert all(one["difference"] == 0 for one in explained)
    assert explain(["--query", QUERY, "--text", "x", "--balance", "lang"]) == 2
    assert "--text and --balance exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--balance", "lng"), "'lng': did you mean 'lang'?"),
        (("--filter", "lng=de"), "'lng': did you mean 'lang'?"),
        (("--balance", "lang=x"), "--balance lang=x: expected FIELD or FIELD=STRENGTH"),
    ],
)
@pytest.mark.parametrize("kind", ["--query", "--topics"])
def test_an_unknown_field_is_reported_before_the_encoder_is_loaded(
    kind: str, arguments: tuple[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here, loading it would fail. Nothing is written."""
    topics, run = tmp_path / "topics.tsv", tmp_path / "run.txt"
    topics.write_text(f"1\t{QUERY}\n")
    what = ["--query", QUERY] if kind == "--query" else ["--topics", str(topics), "--output", str(run)]
    assert main(["--index", str(index().path), "--encoder", str(tmp_path), *what, *arguments]) == 2
    assert message in capsys.readouterr().err and not run.exists()


def test_a_searcher_reports_an_unknown_field_before_it_encodes(tmp_path: Path) -> None:
    """For texts, batches and topics, which would need the encoder."""
    with Searcher.open(index().path, tmp_path) as opened:
        for options in ({"balance": "lng"}, {"filters": {"lng": "de"}}):
            with pytest.raises(MilcoError, match="did you mean 'lang'"):
                opened.search(QUERY, **options)  # type: ignore[arg-type]
        with pytest.raises(MilcoError, match="did you mean 'lang'"):
            opened.explain(QUERY, "ar", balance="lng")
        with pytest.raises(MilcoError, match="k=0"):
            opened.search(QUERY, 0)
