"""Pruning sweeps: every rule with every engine, measured once."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic_stores import synthetic_batch, synthetic_queries, write_plain, write_store

from milco_pyserini import Index
from milco_pyserini.analysis import sweep
from milco_pyserini.analysis.cli import main
from milco_pyserini.analysis.experiment import parse_variants
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.evaluation import evaluate
from milco_pyserini.index.protocol import BUILD, SEARCH
from milco_pyserini.io.manifest import read_checked, write_checked

Sweep = Callable[..., tuple[int, str, str]]
OUTPUT = Path("indexes/vectors.sweep")


def write_vectors(seed: int) -> None:
    """Write vectors of 150 documents."""
    write_store(Path("vectors"), [f"d{number}" for number in range(150)], synthetic_batch(150, seed=seed)[1])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write vectors of 150 documents, 20 topics and qrels into the working directory."""
    monkeypatch.chdir(tmp_path)
    write_vectors(seed=0)
    write_plain(tmp_path / "topics.jsonl", {f"q{number}": query for number, query in enumerate(synthetic_queries(20))})
    judged = [(query, document) for query in range(20) for document in range(query, 150, 9)]
    (tmp_path / "qrels").write_text("".join(f"q{query} 0 d{document} 1\n" for query, document in judged))
    return tmp_path


@pytest.fixture
def command(files: Path, capsys: pytest.CaptureFixture) -> Sweep:
    """Run the command with the exact engine: exit code, stdout, stderr."""

    def run(*more: str) -> tuple[int, str, str]:
        defaults = {"vectors": "vectors", "topics": "topics.jsonl", "qrels": "qrels", "engines": "exact"}
        task = [part for name, value in defaults.items() if f"--{name}" not in more for part in (f"--{name}", value)]
        code = main(["sweep", *task, *more])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def points(command: Sweep) -> Callable[..., list[dict]]:
    """Return the points of a sweep as JSON."""

    def run(*more: str) -> list[dict]:
        code, out, err = command("--format", "json", *more)
        assert code == 0, err
        return json.loads(out)

    return run


def test_a_sweep_is_a_table(command: Sweep, points: Callable[..., list[dict]]) -> None:
    """A row for each rule, as text, JSON and CSV."""
    asked = ["--prune", "none", "top-k:10", "top-k:3", "-m", "nDCG@10", "R@50"]
    code, out, _ = command(*asked)
    assert code == 0
    head, *rows = out.splitlines()
    assert head.split() == ["vectors", "index", "ms", "nDCG@10", "R@50", "MB", "terms"]
    assert [line.split()[0] for line in rows] == ["none", "top-k:10", "top-k:3"]
    found = points(*asked)
    assert found[0]["terms"] > found[1]["terms"] > found[2]["terms"] > 2
    assert found[0]["size"] > found[1]["size"] > found[2]["size"]
    assert all(point["ms"] > 0 for point in found)
    figures = csv.DictReader(command(*asked, "--format", "csv")[1].splitlines())
    assert [float(row["R@50"]) for row in figures] == [point["measures"]["R@50"] for point in found]


def test_a_measurement_agrees_with_index_search_and_eval(points: Callable[..., list[dict]]) -> None:
    """Effectiveness and terms per document of pruned vectors."""
    (point,) = points("--prune", "pivot:top-k:8,source:top-k:2", "-m", "nDCG@10")
    index = Index.build("vectors", "by-hand", "exact", prune=["pivot:top-k:8", "source:top-k:2"])
    with index.searcher() as searcher:
        rankings = searcher.search(synthetic_queries(20), 10)
    run = {f"q{n}": {docid: -rank for rank, docid in enumerate(hits.docids)} for n, hits in enumerate(rankings)}
    assert point["measures"] == pytest.approx(evaluate(run, "qrels", ["nDCG@10"]).mean)
    assert point["terms"] == pytest.approx(index.manifest.postings / 150)


def test_indexes_of_the_same_vectors_are_reused(command: Sweep) -> None:
    """Only a new rule is built; a single view has an index of its own; those of other vectors need --overwrite."""
    command("--prune", "none")
    built = command("--prune", "none", "mass:40")[2].count("Indexed into")
    assert built == 1
    assert command("--prune", "none", "--views", "pivot")[2].count("Indexed into") == 1
    assert {path.name for path in OUTPUT.iterdir()} == {"exact.none", "exact.mass-40", "exact.none.pivot"}
    shutil.rmtree("vectors")
    write_vectors(seed=5)
    code, _, err = command("--prune", "none")
    assert code == 2 and "--overwrite" in err
    assert command("--prune", "none", "--overwrite")[0] == 0


def test_the_default_rules_are_those_of_the_paper_that_prune_something(
    command: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents of at most 40 terms need no index of their strongest 1,000."""
    monkeypatch.setattr(sweep, "PAPER_RULES", ("none", "top-k:20", "top-k:1000", "percentile:97"))
    _, out, err = command()
    assert "Skipped rules that prune nothing: top-k:1000\n" in err
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["none", "top-k:20", "percentile:97"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prune", "top-k:0"], "top-k takes an integer of at least 1"),
        (["--prune", "mass:10", "mass:10.0"], "--prune mass:10 "),
        (["--engines", "exact", "exact"], "--engines exact "),
        (["--engines", "exact:query_cut=3"], "exact has no settings"),
        (["--engines", "exact:3"], "'3' is not a setting"),
        (["--k", "5"], "--k 5: nDCG@10"),
        (["--qrels", "others"], "no topic of topics.jsonl is judged in others: the first topic is 'q0'"),
        (["--encoder", "mini"], "topics.jsonl has vectors, nothing is encoded"),
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
    assert not Path("indexes").exists()


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"views": ["pivot"]}, ["--views", "source"], "vectors has only the pivot view"),
        ({"views": ["pivot"]}, ["--prune", "none", "source:top-k:3"], "vectors has only the pivot view"),
        # Qrels are of documents.
        ({"split_passages": True}, ["--prune", "none"], "vectors has passages of documents"),
    ],
)
def test_vectors_that_do_not_fit_are_an_error(
    command: Sweep, files: Path, change: dict, arguments: list[str], message: str
) -> None:
    """Before the directory is made."""
    manifest = read_checked(files / "vectors" / "manifest.json")
    write_checked(files / "vectors" / "manifest.json", manifest | change)
    code, _, err = command(*arguments)
    assert (code, err.count("\n"), message in err) == (2, 1, True)
    assert not Path("indexes").exists()


def test_documents_that_a_rule_empties_are_counted(command: Sweep) -> None:
    """On stderr."""
    assert "without terms, which no query can find" in command("--prune", "threshold:2")[2]


def test_settings_of_an_engine_are_part_of_its_name() -> None:
    """Variants that differ in search settings share an index; dashes are as good as underscores."""
    (variant,) = parse_variants(["none"], ["seismic:query-cut=20,n_postings=100"])
    assert variant.label(BUILD, SEARCH) == "seismic n_postings=100 query_cut=20"
    engines = ["exact", "seismic", "seismic:query_cut=20", "seismic:n_postings=9"]
    first, second, third = [variant.directory_name([]) for variant in parse_variants(["none"], engines)[1:]]
    assert first == second != third
    with pytest.raises(MilcoError, match="did you mean 'query_cut'"):
        parse_variants(["none"], ["seismic:query_cat=20"])
