"""The latency table: timing, the table, and dense vectors in Faiss's HNSW."""

import csv
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_set import GOLDEN
from synthetic_stores import synthetic_batch, synthetic_queries, write_plain, write_store

from experiments import timing
from experiments.dense import DOCUMENTS, QUERIES, load_vectors
from experiments.latency import main
from experiments.timing import Timed, one_core, time_searches
from milco_pyserini.index import Hits

pytestmark = pytest.mark.slow

TEXTS = ["music", "", "the river Nile is the longest of Africa", "music", "two words"]
needs_faiss = pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="faiss-cpu is not installed")


def answer(number: int) -> Hits:
    return Hits([f"d{number}"], np.ones(1, np.float32))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm-up of one pass."""
    monkeypatch.setattr(timing, "WARM_UP_SECONDS", 0.0)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None) -> Path:
    """Write vectors of 120 documents, 20 topics, qrels and dense vectors into the working directory."""
    monkeypatch.chdir(tmp_path)
    ids = [f"d{number}" for number in range(120)]
    write_store(tmp_path / "vectors", ids, synthetic_batch(120)[1])
    write_plain(tmp_path / "topics.jsonl", {f"q{number}": query for number, query in enumerate(synthetic_queries(20))})
    (tmp_path / "qrels").write_text("".join(f"q{number} 0 d{number} 1\n" for number in range(20)))
    random = np.random.default_rng(0)
    matrix = random.normal(size=(120, 8)).astype(np.float32)
    for kind, names, rows in ((DOCUMENTS, ids, matrix), (QUERIES, [f"q{n}" for n in range(20)], 3 * matrix[:20])):
        (tmp_path / "brought").mkdir(exist_ok=True)
        np.save(tmp_path / "brought" / f"{kind}.npy", rows)
        (tmp_path / "brought" / f"{kind}.txt").write_text("\n".join(names) + "\n")
    return tmp_path


@pytest.fixture
def latency(files: Path, capsys: pytest.CaptureFixture) -> Callable[..., tuple[int, str, str]]:
    """Run the command with one engine and two rounds: exit code, stdout, stderr."""

    def run(*more: str) -> tuple[int, str, str]:
        task = ["--vectors", "vectors", "--topics", "topics.jsonl", "--qrels", "qrels", "--rounds", "2"]
        code = main([*task, "--engines", "exact", *more])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_searches_take_turns_and_another_begins_each_round(quick: None) -> None:
    """After a warm-up; each takes all queries before the next one does."""
    asked: list[str] = []

    def system(name: str) -> timing.SearchQuery:
        return lambda number: asked.append(f"{name}{number}") or answer(number)  # type: ignore[func-returns-value]

    timed = time_searches({"a": system("a"), "b": system("b")}, queries=2, rounds=2)
    assert asked == [*("a0", "a1", "b0", "b1"), *("a0", "a1", "b0", "b1"), *("b0", "b1", "a0", "a1")]
    assert timed["a"].seconds.shape == (2, 2)
    assert [hits.docids for hits in timed["b"].hits] == [["d0"], ["d1"]]


def test_a_slow_round_does_not_change_the_median() -> None:
    """Medians over the rounds, then mean, 95th percentile and queries per second over the queries."""
    seconds = np.tile(np.arange(1, 102) / 1000, (5, 1))
    seconds[2] += 9
    timed = Timed([], seconds)
    assert timed.mean_ms == pytest.approx(51)
    assert timed.p95_ms == pytest.approx(96)
    assert timed.queries_per_second == pytest.approx(1000 / 51)
    assert timed.rounds_ms == pytest.approx([51, 51, 9051, 51, 51])


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no way to choose cores here")
def test_all_threads_run_on_one_core_and_are_released() -> None:
    """With those that existed before: Java's and OpenMP's."""
    torch.zeros(2000, 50).sum(dim=1)
    threads = [int(thread.name) for thread in Path("/proc/self/task").iterdir()]
    before = {thread: os.sched_getaffinity(thread) for thread in threads}
    with one_core():
        assert len({frozenset(os.sched_getaffinity(thread)) for thread in threads}) == 1
        assert len(os.sched_getaffinity(0)) == 1
    assert {thread: os.sched_getaffinity(thread) for thread in threads} == before


def test_the_table_has_the_papers_columns(latency: Callable[..., tuple[int, str, str]]) -> None:
    """Times, effectiveness and size, a row for each rule and engine; CSV, JSON and runs are written."""
    code, out, _ = latency("--prune", "none", "top-k:3", "-m", "nDCG@10", "R@20")
    assert code == 0
    head, *rows = out.splitlines()
    assert head.split() == [*("vectors", "index", "ms", "ms", "p95", "queries/s", "nDCG@10", "R@20", "MB", "terms")]
    assert [row.split()[:2] for row in rows] == [["none", "exact"], ["top-k:3", "exact"]]
    written = json.loads(Path("results/vectors/latency.json").read_text())
    assert (written["hits"], written["queries"], written["documents"]) == (20, 20, 120)
    assert [len(point["rounds_ms"]) for point in written["points"]] == [2, 2]
    assert all(Path("results/vectors", point["run"]).is_file() for point in written["points"])
    with Path("results/vectors/latency.csv").open() as lines:
        assert [float(row["ms"]) for row in csv.DictReader(lines)] == [point["mean_ms"] for point in written["points"]]


@needs_faiss
def test_dense_vectors_are_measured_with_the_engines(latency: Callable[..., tuple[int, str, str]]) -> None:
    """A query that is its document's vector, three times as long, finds it first; the index is not built again."""
    code, out, _ = latency("--dense", "brought", "-m", "RR@10")
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith("brought")).split()
    assert row[1:4] == ["hnsw", "M=32", "ef=64"]
    assert row[7] == "1.0000"
    assert row[-1] == "-"
    assert "building" in latency("--dense", "brought", "--prune", "top-k:2")[2]
    assert "building" not in latency("--dense", "brought", "--prune", "none", "top-k:2")[2]


def test_dense_vectors_are_normalized(tmp_path: Path) -> None:
    """Ids may have unusual line ends."""
    np.save(tmp_path / "documents.npy", np.float32([[2, 0], [3, 4]]))
    (tmp_path / "documents.txt").write_text("a\nb\u2028c\n", encoding="utf-8")
    vectors = load_vectors(tmp_path, DOCUMENTS)
    assert vectors.ids == ["a", "b\u2028c"]
    assert vectors.matrix == pytest.approx(np.float32([[1, 0], [0.6, 0.8]]))


@needs_faiss
def test_texts_of_documents_are_encoded_once(files: Path, capsys: pytest.CaptureFixture) -> None:
    """The manifests of the stores name the texts; other texts are an error."""
    (files / "docs.jsonl").write_text("".join(f'{{"id": "d{n}", "contents": "music {n}"}}\n' for n in range(120)))
    (files / "topics.tsv").write_text("".join(f"q{number}\tmusic {number}\n" for number in range(20)))
    for name, corpus, letter, count in (("documents", "docs.jsonl", "d", 120), ("topics", "topics.tsv", "q", 20)):
        batch = synthetic_batch(count)[1]
        write_store(files / name, [f"{letter}{n}" for n in range(count)], batch, corpus=corpus, corpus_hash="x")
    task = ["--vectors", "documents", "--topics", "topics", "--qrels", "qrels", "--rounds", "1", "--engines", "exact"]
    encoder = ["--dense", str(GOLDEN / "m_encoder")]
    assert main([*task, *encoder, "-m", "R@10"]) == 0
    shown = capsys.readouterr()
    assert "Encoded 120 documents into results/documents/dense/" in shown.err and "building" in shown.err
    assert main([*task, *encoder, "-m", "R@10"]) == 0
    shown = capsys.readouterr()
    assert "120 documents into" not in shown.err and "building" not in shown.err
    assert main([*task, *encoder, "--dense-pooling", "cls"]) == 0
    assert "Encoded 120 documents into" in capsys.readouterr().err
    (files / "docs.jsonl").write_text('{"id": "d0", "contents": "music"}\n')
    assert main([*task, *encoder, "--dense-pooling", "mean"]) == 2
    assert "has vectors of 1 documents, documents of 120: they do not belong together" in capsys.readouterr().err
