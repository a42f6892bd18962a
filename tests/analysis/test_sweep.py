"""Pruning sweeps: every rule with every engine, measured once."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic_stores import synthetic_batch, synthetic_queries, write_plain, write_store

from milco_pyserini.analysis import pictures, sweep, timing
from milco_pyserini.analysis.experiment import IndexSpec, parse_variants
from milco_pyserini.analysis.timing import time_searches
from milco_pyserini.cli.analyze import main
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.evaluation import evaluate
from milco_pyserini.index import build_index, find_engine
from milco_pyserini.io.runs import read_run
from milco_pyserini.sparse import open_store
from milco_pyserini.sparse.pruning import PrunedStore, PruningRule

Sweep = Callable[..., tuple[int, str, str]]
OUTPUT = Path("results/vectors")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write vectors of 150 documents, 20 topics and qrels into the working directory; warm up with one pass."""
    monkeypatch.setattr(timing, "WARM_UP_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    write_store(tmp_path / "vectors", [f"d{number}" for number in range(150)], synthetic_batch(150)[1])
    write_plain(tmp_path / "topics.jsonl", {f"q{number}": query for number, query in enumerate(synthetic_queries(20))})
    judged = [(query, document) for query in range(20) for document in range(query, 150, 9)]
    (tmp_path / "qrels").write_text("".join(f"q{query} 0 d{document} 1\n" for query, document in judged))
    return tmp_path


@pytest.fixture
def command(files: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """Run the command with the exact engine and one round: exit code, stdout, stderr. Drawing takes a second."""

    def run(*more: str, draws: bool = False) -> tuple[int, str, str]:
        defaults = {"vectors": "vectors", "topics": "topics.jsonl", "qrels": "qrels", "rounds": "1", "engines": "exact"}
        task = [part for name, value in defaults.items() if f"--{name}" not in more for part in (f"--{name}", value)]
        with monkeypatch.context() as patch:
            if not draws:
                patch.setattr(pictures, "draw_sweep", lambda *_: None)
            code = main(["sweep", *task, *more])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def points() -> list[dict]:
    """What the last sweep wrote."""
    return json.loads((OUTPUT / "sweep.json").read_text())["points"]


def test_a_sweep_writes_a_table_and_a_picture(command: Sweep) -> None:
    """A row for each rule on stdout, the same in CSV and JSON, and a PNG."""
    code, out, _ = command("--prune", "none", "top-k:10", "top-k:3", "-m", "nDCG@10", "R@50", draws=True)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["vectors", "none", "top-k:10", "top-k:3"]
    found = points()
    assert found[0]["terms"] > found[1]["terms"] > found[2]["terms"] > 2
    assert found[0]["size"] > found[1]["size"] > found[2]["size"]
    with (OUTPUT / "sweep.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [float(row["R@50"]) for row in rows] == [point["figures"]["R@50"] for point in found]
    assert (OUTPUT / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_a_measurement_agrees_with_index_search_and_eval(command: Sweep) -> None:
    """Effectiveness and terms per document of pruned vectors; runs/ has the run that was evaluated."""
    command("--prune", "pivot:top-k:8,source:top-k:2", "-m", "nDCG@10")
    rules = [PruningRule.parse("pivot:top-k:8"), PruningRule.parse("source:top-k:2")]
    index = build_index(PrunedStore(open_store(Path("vectors")), rules), find_engine("exact"), Path("by-hand"))
    searcher = index.searcher()
    queries = dict(zip((f"q{number}" for number in range(20)), synthetic_queries(20), strict=True))
    run = {}
    for name, query in queries.items():
        hits = searcher.search([query], 10)[0]
        run[name] = {docid: -rank for rank, docid in enumerate(hits.docids)}
    assert points()[0]["figures"]["nDCG@10"] == pytest.approx(evaluate(run, _qrels(), ["nDCG@10"]).mean["nDCG@10"])
    assert points()[0]["terms"] == pytest.approx(index.manifest["postings"] / 150)
    written = read_run(OUTPUT / points()[0]["run"])
    assert evaluate(written, _qrels(), ["nDCG@10"]).mean == points()[0]["figures"]


def test_measurements_are_not_repeated(command: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor built, even if the indexes are gone; other measures of the same runs cost nothing."""
    command("--prune", "none", "top-k:3", "-m", "P@10")
    before = points()
    shutil.rmtree(OUTPUT / "indexes")
    monkeypatch.setattr(sweep, "time_searches", lambda *_: pytest.fail("timed again"))
    assert command("--prune", "none", "top-k:3", "-m", "nDCG@10")[0] == 0
    assert not (OUTPUT / "indexes").exists()
    assert [point["mean_ms"] for point in points()] == [point["mean_ms"] for point in before]


def test_only_a_new_rule_is_measured(command: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is how an interrupted sweep resumes."""
    command("--prune", "none")
    asked: list[list[str]] = []
    monkeypatch.setattr(
        sweep, "time_searches", lambda searches, *rest: asked.append([*searches]) or time_searches(searches, *rest)
    )
    assert command("--prune", "none", "mass:40")[0] == 0
    assert asked == [["exact.mass-40"]]
    assert [point["vectors"] for point in points()] == ["none", "mass:40"]


def test_changed_vectors_and_topics_are_measured_again(command: Sweep, files: Path) -> None:
    """Existing indexes and runs of the old ones are replaced."""
    command("--prune", "none")
    old = points()[0]
    queries = synthetic_queries(20, seed=2)
    write_plain(files / "topics.jsonl", {f"q{number}": query for number, query in enumerate(queries)})
    assert "building" not in command("--prune", "none")[2]
    assert points()[0]["figures"] != old["figures"]
    shutil.rmtree(files / "vectors")
    write_store(files / "vectors", [f"d{number}" for number in range(150)], synthetic_batch(150, seed=5)[1])
    assert "building" in command("--prune", "none")[2]
    assert points()[0]["terms"] != old["terms"]


def test_a_run_that_something_else_wrote_is_searched_again(command: Sweep) -> None:
    """As of a latency table of the same directory, which may have other topics and fewer hits."""
    command("--prune", "none")
    before, (run,) = points(), (OUTPUT / "runs").iterdir()
    run.write_text(run.read_text().splitlines(keepends=True)[0])
    command("--prune", "none")
    assert points()[0]["figures"] == before[0]["figures"]


def test_a_single_view_has_its_own_index(command: Sweep) -> None:
    """The index of both views is kept."""
    command("--prune", "none")
    both = points()[0]["terms"]
    assert "building" in command("--prune", "none", "--views", "pivot")[2]
    assert points()[0]["terms"] < both
    assert "building" not in command("--prune", "none")[2]


def test_the_default_rules_are_those_of_the_paper_that_prune_something(
    command: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents of at most 40 terms need no index of their strongest 1,000."""
    monkeypatch.setattr(sweep, "PAPER_RULES", ("none", "top-k:20", "top-k:1000", "percentile:97"))
    _, _, err = command()
    assert "Skipped rules that prune nothing: top-k:1000\n" in err
    assert [point["vectors"] for point in points()] == ["none", "top-k:20", "percentile:97"]


def test_indexes_are_timed_together_as_far_as_they_fit_into_memory(
    command: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in turn, or one by one."""
    assert "3 indexes in turn" in command("--prune", "none", "top-k:10", "top-k:3")[2]
    monkeypatch.setattr(sweep, "MAX_OPEN_BYTES", 1)
    separately = command("--prune", "none", "top-k:10", "top-k:3", "--k", "20")[2]
    assert separately.count("1 index in turn") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prune", "top-k:0"], "top-k takes an integer of at least 1"),
        (["--prune", "mass:10", "mass:10.0"], "--prune mass:10 "),
        (["--engines", "exact", "exact"], "--engines exact "),
        (["--engines", "exact:query_cut=3"], "exact has no settings"),
        (["--engines", "exact:3"], "'3' is not a setting"),
        (["--engines", "bm25"], "--engines bm25: its queries are texts"),
        (["--engines", "flat"], "--engines flat: its queries are dense vectors"),
        (["--k", "5"], "--k 5: nDCG@10"),
        (["--qrels", "others"], "no topic of topics.jsonl is judged in others: the first topic is 'q0'"),
        (["--encoder", "mini"], "topics.jsonl has vectors, nothing is encoded"),
        (["--output", "vectors"], "vectors was not written by this command"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_written(
    command: Sweep, files: Path, arguments: list[str], message: str
) -> None:
    """Exit code 2, and no output directory."""
    (files / "others").write_text("x 0 d1 1\n")
    code, out, err = command(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not Path("results").exists()


def test_a_view_that_the_vectors_lack_is_an_error(command: Sweep, files: Path) -> None:
    """Before the directory is made, whichever option names it."""
    manifest = json.loads((files / "vectors" / "manifest.json").read_text())
    (files / "vectors" / "manifest.json").write_text(json.dumps(manifest | {"views": ["pivot"]}))
    for arguments in (["--views", "source"], ["--prune", "none", "source:top-k:3"]):
        code, _, err = command(*arguments)
        assert (code, err.count("\n")) == (2, 1)
        assert "vectors has only the pivot view" in err
    assert not Path("results").exists()


def test_documents_that_a_rule_empties_are_counted(command: Sweep) -> None:
    """On stderr and in JSON; terms per document are over all documents."""
    _, _, err = command("--prune", "threshold:2")
    assert "exact, threshold:2: " in err
    assert "without terms, which no query can find" in err
    assert points()[0]["empty"] > 2


def test_passages_cannot_be_evaluated(command: Sweep, files: Path) -> None:
    """Qrels are of documents."""
    manifest = json.loads((files / "vectors" / "manifest.json").read_text())
    (files / "vectors" / "manifest.json").write_text(json.dumps(manifest | {"split_passages": True}))
    code, _, err = command("--prune", "none")
    assert code == 2
    assert "vectors has passages of documents" in err


def test_settings_of_an_engine_are_part_of_its_name() -> None:
    """Variants that differ in search settings share an index; dashes are as good as underscores."""
    spec = IndexSpec.parse("seismic:query-cut=20,n_postings=100")
    assert str(spec) == "seismic n_postings=100 query_cut=20"
    assert spec.settings() == {"n_postings": 100, "summary_energy": 0.4, "query_cut": 20, "heap_factor": 0.9}
    engines = ["exact", "seismic", "seismic:query_cut=20", "seismic:n_postings=9"]
    first, second, third = parse_variants(["none"], engines)[1:]
    assert first.index_name == second.index_name != third.index_name
    assert len({first.name, second.name, third.name}) == 3
    with pytest.raises(MilcoError, match="did you mean 'query_cut'"):
        IndexSpec.parse("seismic:query_cat=20")


def _qrels() -> dict[str, dict[str, int]]:
    return {f"q{query}": {f"d{document}": 1 for document in range(query, 150, 9)} for query in range(20)}
