"""The Seismic engine: settings, recall, tuning, limits."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from synthetic_stores import renew_checksums, synthetic_batch, write_plain, write_store

from milco_pyserini.cli.index import main
from milco_pyserini.cli.search import main as search
from milco_pyserini.engines import seismic
from milco_pyserini.engines.seismic import Seismic
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, build_index, find_engine, open_index, recall
from milco_pyserini.index.recall import GroundTruth
from milco_pyserini.io.manifest import write_checked
from milco_pyserini.request import BuildRequest
from milco_pyserini.sparse import open_store
from milco_pyserini.sparse.pruning import PrunedStore, PruningRule

pytest.importorskip("seismic", reason="pyseismic-lsr is not installed")

DOCUMENTS = 400
# Every term of a query, and every block that could hold a hit.
THOROUGH = {"query_cut": 1000, "heap_factor": 0.01}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A Seismic index and an exact one of 400 synthetic documents with difficult terms and ids."""
    root = tmp_path_factory.mktemp("seismic")
    ids, batch = synthetic_batch(DOCUMENTS)
    store = open_store(write_store(root / "vectors", ids, batch, parquet=True))
    topics = open_store(write_store(root / "topics", *synthetic_batch(60, seed=5)))
    index = build_index(store, find_engine("seismic"), root / "index", BuildRequest(threads=2))
    exact = build_index(store, find_engine("exact"), root / "exact").searcher()
    return SimpleNamespace(root=root, batch=batch, store=store, topics=topics, index=index, exact=exact)


@pytest.fixture
def copied(built: SimpleNamespace, tmp_path: Path) -> Path:
    """A copy of the index that a test may change, with few queries to measure recall on."""
    path = shutil.copytree(built.index.path, tmp_path / "copied.seismic")
    truth = json.loads((path / "recall.json").read_text())
    write_checked(path / "recall.json", truth | {name: truth[name][:15] for name in ("queries", "best")})
    return path


def changed(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    renew_checksums(path.parent)


def test_recall_is_measured_on_documents_that_have_terms(tmp_path: Path) -> None:
    """If pruning leaves few, queries are sampled from those."""
    ids, batch = synthetic_batch(DOCUMENTS)
    few = batch.where(np.isin(batch.row_numbers(), (3, 200, DOCUMENTS - 1)))
    store = open_store(write_store(tmp_path / "vectors", ids, few, parquet=True))
    index = build_index(store, find_engine("seismic"), tmp_path / "index")
    assert index.manifest.documents == len(recall.read_ground_truth(index.path).queries) == 3


@pytest.mark.parametrize(
    ("engine", "settings", "message"),
    [
        ("exact", {"query_cut": 5}, "query_cut=5: exact has no settings"),
        ("seismic", {"query_cuts": 5}, "did you mean 'query_cut'"),
        ("seismic", {"query_cut": 0}, "query_cut=0: must be from 1 to 1,000,000"),
        ("seismic", {"query_cut": 1.5}, "query_cut=1.5: must be an integer"),
        ("seismic", {"heap_factor": float("nan")}, "heap_factor=nan: must be from 0.01 to 1"),
    ],
)
def test_invalid_settings_are_refused_before_anything_is_written(
    built: SimpleNamespace, tmp_path: Path, engine: str, settings: dict, message: str
) -> None:
    """Unknown names, settings of other engines and values out of range."""
    with pytest.raises(MilcoError, match=message):
        Index.build(built.store, tmp_path / "index", find_engine(engine).with_settings(settings))
    assert list(tmp_path.iterdir()) == []


def test_the_search_command_takes_settings_for_one_run(built: SimpleNamespace, tmp_path: Path) -> None:
    """--set query_cut=1 and the like change the run; other engines refuse them before the search."""
    topics = ["--topics", str(built.topics.path), "--k", "10"]
    on_seismic = ["--index", str(built.index.path), *topics]
    assert search([*on_seismic, "--output", str(tmp_path / "few"), "--set", "query_cut=1"]) == 0
    thorough = ["--set", "query_cut=1000", "heap_factor=0.01"]
    assert search([*on_seismic, "--output", str(tmp_path / "many"), *thorough]) == 0
    assert (tmp_path / "few").read_text() != (tmp_path / "many").read_text()
    on_exact = ["--index", str(built.root / "exact"), *topics, "--output", str(tmp_path / "none")]
    assert search([*on_exact, "--set", "query_cut=5"]) == 2
    assert not (tmp_path / "none").exists()


def test_recall_is_measured_against_the_exact_ranking(built: SimpleNamespace) -> None:
    """The ground truth is what the exact engine finds; a thorough search finds all of it."""
    truth = recall.read_ground_truth(built.index.path)
    for expected, best in zip(built.exact.search(truth.queries, recall.DEPTH), truth.best, strict=True):
        assert best.scores == pytest.approx(expected.scores, rel=1e-5)
    thorough = built.index.searcher(THOROUGH)
    # 16 bits of a weight decide some near ties another way.
    assert recall.measure_recall(thorough, truth, 10).recall == pytest.approx(1, abs=0.02)
    assert 0 < built.index.manifest.recall["recall@10"] <= 1
    assert recall.measure_recall(built.index.searcher({"query_cut": 1}), truth, 10).recall < 0.9


def test_ties_at_the_last_position_count_as_found(tmp_path: Path) -> None:
    """Two documents are equally good for position 1: finding either is enough."""
    best = recall.Hits(["a", "b", "c"], np.asarray([2.0, 2.0, 1.0]))
    searcher = SimpleNamespace(rank=lambda queries, request: [recall.Hits(["b"], np.asarray([2.0]))])
    truth = GroundTruth([{"x": 1.0}], [best], "")
    assert recall.measure_recall(searcher, truth, 1).recall == 1  # type: ignore[arg-type]
    assert recall.measure_recall(searcher, truth, 3).recall == pytest.approx(1 / 3)  # type: ignore[arg-type]


def test_a_build_reports_its_size_and_its_recall(
    built: SimpleNamespace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """On stderr: the lists before and the recall after, on the topics that have terms, and how to improve it. Settings
    of searches are defaults of the index.
    """
    engine = Seismic(n_postings=50, query_cut=1, summary_energy=0.2)
    topics = built.topics.path
    index = Index.build(built.store, tmp_path / "index", engine, topics=topics)
    out, err = capfd.readouterr()
    assert out == ""
    before, after = err.split("recall@10", 1)
    assert "lists of" in before and "no progress" in before
    assert "milco index tune --index" in after
    full = sum(1 for _, vector in built.topics.vectors() if vector)
    assert len(recall.read_ground_truth(index.path).queries) == full
    assert index.manifest.recall["queries"].endswith(f"topics of {topics}")
    assert open_index(tmp_path / "index").engine == engine


def test_recall_of_plain_and_pruned_vectors(built: SimpleNamespace, tmp_path: Path) -> None:
    """Vectors whose terms are known only after reading; vectors that a rule empties."""
    path = write_plain(tmp_path / "v.jsonl", {f"d{i}": {f"t{i % 7}": 3, f"u{i % 5}": i + 1} for i in range(50)})
    plain = build_index(open_store(path, plain=True), find_engine("seismic"), tmp_path / "plain")
    assert plain.searcher(THOROUGH).search([{"u0": 1.0}], 2)[0].docids == ["d45", "d40"]
    assert plain.manifest.recall["recall@10"] > 0.5
    pruned = PrunedStore(built.store, [PruningRule.parse("threshold:2")])
    index = build_index(pruned, find_engine("seismic"), tmp_path / "pruned")
    assert index.manifest.empty_documents == pruned.emptied + int((built.batch.lengths() == 0).sum())
    assert index.manifest.vectors.pruning == "threshold:2"


def test_smaller_summaries_make_a_smaller_index(
    built: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same documents and lists, with less of each summary; the command reports what Lucene would take."""
    options = ["--engine", "seismic", "--vectors", str(built.store.path), "--output", str(tmp_path / "index")]
    assert main([*options, "--set", "summary_energy=0.1"]) == 0
    assert "--engine lucene is exact" in capsys.readouterr().err
    small, size = ((path / "index.seismic").stat().st_size for path in (tmp_path / "index", built.index.path))
    assert small < 0.9 * size
    assert open_index(tmp_path / "index").manifest.build_settings == {"n_postings": 200, "summary_energy": 0.1}


def test_more_columns_than_16_bits_make_a_wide_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The wide index gives the same hits."""
    monkeypatch.setattr(seismic, "_NARROW", 2)
    path = write_plain(tmp_path / "v.jsonl", {"d": {"a": 1, "b": 2}, "e": {"c": 5}})
    index = build_index(open_store(path, plain=True), find_engine("seismic"), tmp_path / "index")
    assert json.loads((index.path / "seismic.json").read_text())["kind"] == "SeismicIndexRawLV"
    assert index.searcher().search([{"c": 2.0}], 10)[0].docids == ["e"]


def test_other_versions_and_damaged_files_are_refused(copied: Path) -> None:
    """Another pyseismic-lsr, a truncated file, a missing file."""
    about = copied / "seismic.json"
    version = json.loads(about.read_text())["version"]
    changed(about, version="0.0.1")
    with pytest.raises(MilcoError, match=rf"0\.0\.1, {version}"):
        open_index(copied).searcher()
    changed(about, version=version)
    whole = (copied / "index.seismic").read_bytes()
    (copied / "index.seismic").write_bytes(whole[:-7])
    with pytest.raises(MilcoError, match=r"index.seismic: [0-9,]+ bytes"):
        open_index(copied).searcher()
    (copied / "index.seismic").unlink()
    with pytest.raises(MilcoError, match=r"index.seismic: it is missing"):
        open_index(copied).searcher()


def test_limits_of_seismic_are_checked_before_the_build(tmp_path: Path) -> None:
    """A weight beyond 16-bit floats, and more terms than 16 bits can count; the error names the document."""
    path = write_plain(tmp_path / "v.jsonl", {"d": {"a": 1}, "heavy": {"a": 70_000}})
    with pytest.raises(MilcoError, match=r"document 'heavy': .*70,000"):
        build_index(open_store(path, plain=True), find_engine("seismic"), tmp_path / "index")
    path = write_plain(tmp_path / "v.jsonl", {"d": {"a": 1}, "long": {f"t{number}": 1 for number in range(2**16)}})
    with pytest.raises(MilcoError, match=r"document 'long' .*65,536"):
        build_index(open_store(path, plain=True), find_engine("seismic"), tmp_path / "index")
    assert not (tmp_path / "index").exists()


SLOW_SEISMIC = """
import os, sys, time

class SeismicIndexRaw:
    def build(*_, **__):
        print(os.getpid(), file=open(os.environ["SEISMIC_BUILDER"], "w"), flush=True)
        time.sleep(300)
"""


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_builder_ends_with_its_parent(built: SimpleNamespace, tmp_path: Path) -> None:
    """Also if the parent is killed."""
    (tmp_path / "seismic.py").write_text(SLOW_SEISMIC)
    builder = tmp_path / "builder"
    os.mkfifo(builder)
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "milco_pyserini", "index", "--vectors", str(built.store.path)]
    with subprocess.Popen(
        [*command, "--engine", "seismic", "--output", str(tmp_path / "index")],
        env=os.environ | {"PYTHONPATH": paths, "SEISMIC_BUILDER": str(builder)},
        stderr=subprocess.DEVNULL,
    ) as parent:
        process = int(builder.read_text())
        parent.kill()
    for _ in range(500):
        if not Path(f"/proc/{process}").exists():
            return
        time.sleep(0.02)
    os.kill(process, signal.SIGKILL)
    pytest.fail("the builder continues without its parent")


def test_a_failing_builder_leaves_nothing(
    built: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the last line of its stderr; a killed process has none."""
    for program, message in (
        ("raise RuntimeError('no room')", "RuntimeError: no room"),
        ("import os; os.kill(os.getpid(), 9)", "lack of memory"),
    ):
        monkeypatch.setattr(seismic, "_BUILD", program)
        with pytest.raises(MilcoError, match=f"Seismic cannot build the index: .*{message}"):
            build_index(built.store, find_engine("seismic"), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_tune_saves_the_fastest_settings_that_reach_the_recall(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """stdout has the table; later searches use the settings."""
    assert main(["tune", "--index", str(copied), "--recall", "0.9"]) == 0
    out, err = capsys.readouterr()
    header, *lines = out.splitlines()
    assert header == "query_cut\theap_factor\trecall@10\tmilliseconds"
    index = open_index(copied)
    chosen = index.manifest.search_settings
    rows = {(int(cut), float(heap)): float(found) for cut, heap, found, _ in (line.split("\t") for line in lines)}
    assert rows[chosen["query_cut"], chosen["heap_factor"]] >= 0.9
    assert index.manifest.recall["recall@10"] >= 0.9
    assert "now searches with" in err


def test_tune_measures_on_topics_that_are_given(
    built: SimpleNamespace, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They replace the queries of the index; vectors of another index are refused."""
    topics = ["--topics", str(built.topics.path)]
    command = ["tune", "--index", str(copied), "--recall", "0.8", *topics]
    assert main([*command, "--vectors", str(built.store.path)]) == 0
    assert "topics of" in open_index(copied).manifest.recall["queries"]
    capsys.readouterr()
    assert main([*command, "--vectors", str(built.topics.path)]) == 2
    assert "was not built from" in capsys.readouterr().err
    assert main(command) == 2
    assert "--topics and --vectors require each other" in capsys.readouterr().err


def test_topics_of_another_encoder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """When recall is measured on them, of a new index and of one that exists."""
    ids, batch = synthetic_batch(DOCUMENTS)
    store = write_store(tmp_path / "vectors", ids, batch, parquet=True, lowercase=False)
    topics = write_store(tmp_path / "topics", ids[:5], batch[:5], lowercase=True)
    path, given = tmp_path / "index", ["--topics", str(topics), "--vectors", str(store)]
    assert main([*given, "--engine", "seismic", "--output", str(path)]) == 2
    assert not path.exists()
    Index.build(store, path, "seismic")
    assert main(["tune", "--index", str(path), *given]) == 2
    messages = capsys.readouterr().err.split("milco index")
    assert sum("its lowercase is True, the documents' is False" in message for message in messages) == 2


def test_settings_of_an_index_that_has_changed_are_not_saved(copied: Path) -> None:
    """Two commands may tune it at the same time."""
    before, settings = open_index(copied), {"query_cut": 3, "heap_factor": 0.5}
    before.save_settings(settings, {"recall@10": 0.5})
    with pytest.raises(MilcoError, match="was changed by another command meanwhile"):
        before.save_settings({"query_cut": 4, "heap_factor": 0.5}, {"recall@10": 0.6})
    assert open_index(copied).manifest.search_settings == settings


def test_tune_refuses_invalid_input(built: SimpleNamespace, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recall that no settings reach, numbers out of range, an exact index; the index does not change."""
    before = (copied / "manifest.json").read_bytes()
    truth = json.loads((copied / "recall.json").read_text())
    truth["best"] = [[[f"not {name}" for name in names], scores] for names, scores in truth["best"]]
    write_checked(copied / "recall.json", truth)
    for arguments, message in (
        (["--index", copied], "--recall 0.95: the highest that"),
        (["--index", copied, "--recall", "1.5"], "above 0 and at most 1"),
        (["--index", copied, "--k", "101"], "from 1 to 100"),
        (["--index", built.root / "exact"], "exact cannot trade recall for speed"),
    ):
        assert main(["tune", *map(str, arguments)]) == 2
        assert message in capsys.readouterr().err
    assert (copied / "manifest.json").read_bytes() == before
