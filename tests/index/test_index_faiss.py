"""Dense vectors in Faiss: flat equals its definition, hnsw approximates flat, texts become runs."""

import importlib.util
import io
import resource
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest
from golden_set import GOLDEN

from milco_pyserini.cli.encode import main as encode
from milco_pyserini.cli.index import main as index_command
from milco_pyserini.cli.search import main as search
from milco_pyserini.encode.dense import open_dense_query_encoder
from milco_pyserini.encode.dense_store import DenseStore, open_dense_store, write_dense
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, jvm
from milco_pyserini.index.baselines import HNSW, Flat
from milco_pyserini.index.directory import build_index, open_index
from milco_pyserini.io.files import checksum
from milco_pyserini.io.manifest import write_checked

pytestmark = pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="faiss-cpu is not installed")

DIMENSIONS = 12


def store(path: Path, vectors: np.ndarray, ids: Sequence[str] | None = None, part: int = 100) -> DenseStore:
    """A finished store of these vectors with unsorted ids."""
    names = list(ids or (f"d{number * 7919 % 1009}" for number in range(len(vectors))))
    parts = []
    for number, start in enumerate(range(0, len(names), part)):
        content = io.BytesIO()
        write_dense(content, names[start : start + part], vectors[start : start + part])
        file = path / f"part-{number}.parquet"
        path.mkdir(exist_ok=True)
        file.write_bytes(content.getvalue())
        parts.append({"file": file.name, "bytes": file.stat().st_size, "checksum": checksum(file)})
    about = {"format_version": 1, "kind": "documents", "dense": True, "dimensions": vectors.shape[1]}
    write_checked(path / "manifest.json", about | {"documents": len(names), "parts": parts})
    return open_dense_store(path)


def made_up(count: int, seed: int = 0) -> np.ndarray:
    """Vectors of few distinct numbers, so that scores are exact and often tie; some are zero, many are repeated."""
    vectors = np.random.default_rng(seed).choice(np.float32([-1, -0.5, 0, 0, 0.5, 1]), (count, DIMENSIONS))
    vectors[::5] = vectors[1::5][: len(vectors[::5])]
    vectors[::41] = 0
    return vectors


def by_definition(documents: DenseStore, query: np.ndarray, k: int) -> list[tuple[str, float]]:
    scored = [
        (name, float(row @ query))
        for names, rows in documents.batches()
        for name, row in zip(names, rows, strict=True)
        if row.any()
    ]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:k] if query.any() else []


@pytest.mark.parametrize("engine", [Flat(), HNSW()])
def test_a_full_disk_is_an_error(tmp_path: Path, engine: Flat | HNSW) -> None:
    """Also for the last bytes, which are written when the file is closed."""
    documents = store(tmp_path / "store", np.ones((40, DIMENSIONS), np.float32))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
        with pytest.raises(OSError, match="File too large") as raised:
            build_index(documents, engine, tmp_path / "index")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.filename == str(tmp_path / "index" / "index")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("k", [1, 3, 10, 150, 5000])
@pytest.mark.parametrize("threads", [1, 2])
def test_flat_is_exact_including_ties(tmp_path: Path, k: int, threads: int) -> None:
    """In order of score and docid, whichever documents tie at the last position."""
    documents = store(tmp_path / "store", made_up(400))
    index = build_index(documents, Flat(), tmp_path / "index", threads)
    queries = made_up(60, seed=1)
    # Nothing but ties: more of them than are fetched at first.
    queries[7] = np.eye(DIMENSIONS)[0]
    found = index.searcher().search(list(queries), k, threads=threads)
    assert [list(zip(hits.docids, hits.scores.tolist(), strict=True)) for hits in found] == [
        by_definition(documents, query, k) for query in queries
    ]
    assert index.manifest["documents"] + index.manifest["empty_documents"] == 400
    assert index.manifest["empty_documents"] == len(range(0, 400, 41))


def random_index(tmp_path: Path, engine: Any) -> Index:
    vectors = np.random.default_rng(0).normal(size=(600, DIMENSIONS)).astype(np.float32)
    documents = store(tmp_path / "store", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    return build_index(documents, engine, tmp_path / engine.name)


def test_hnsw_finds_what_flat_finds(tmp_path: Path) -> None:
    """Nearly all of it, with the same scores; the manifest has recall and settings."""
    queries = np.random.default_rng(1).normal(size=(50, DIMENSIONS)).astype(np.float32)
    flat, hnsw = (random_index(tmp_path, engine) for engine in (Flat(), HNSW()))
    exact, found = (index.searcher().search(list(queries), 10) for index in (flat, hnsw))
    shared = [len(set(one.docids) & set(other.docids)) for one, other in zip(exact, found, strict=True)]
    assert sum(shared) >= 0.98 * 500
    assert found[0].scores == pytest.approx(exact[0].scores, abs=1e-6)
    assert (hnsw.manifest["build_settings"], hnsw.manifest["search_settings"]) == ({"links": 32}, {"ef_search": 64})
    assert hnsw.manifest["recall"]["recall@10"] >= 0.98
    assert "recall" not in flat.manifest


def test_settings_of_a_search_replace_those_of_the_index(tmp_path: Path) -> None:
    """ef_search is a setting of searches, links of builds."""
    index = random_index(tmp_path, HNSW(links=2))
    queries = list(np.random.default_rng(1).normal(size=(50, DIMENSIONS)).astype(np.float32))
    exact = random_index(tmp_path, Flat()).searcher().search(queries, 5)

    def shared(ef_search: int) -> int:
        found = index.searcher({"ef_search": ef_search}).search(queries, 5)
        return sum(len(set(one.docids) & set(other.docids)) for one, other in zip(exact, found, strict=True))

    assert shared(5) < shared(200)
    with pytest.raises(MilcoError, match="it is fixed when the index is built"):
        index.searcher({"links": 9})


def test_recall_may_be_measured_on_topics(tmp_path: Path) -> None:
    """On a store of topics, without blank ones."""
    topics = store(tmp_path / "topics", made_up(9, seed=3))
    documents = store(tmp_path / "store", made_up(300))
    manifest = build_index(documents, HNSW(), tmp_path / "index", topics=topics).manifest
    assert manifest["recall"]["queries"] == f"8 topics of {tmp_path / 'topics'}"
    short = store(tmp_path / "short", np.ones((2, 3), np.float32))
    with pytest.raises(MilcoError, match="12 dimensions"):
        build_index(documents, HNSW(), tmp_path / "other", topics=short)
    assert not (tmp_path / "other").exists()


def test_invalid_queries_documents_and_files_are_refused(tmp_path: Path) -> None:
    """Queries of another dimension, a duplicate id, a store of blank texts, a truncated file."""
    index = build_index(store(tmp_path / "store", made_up(50)), Flat(), tmp_path / "index")
    with pytest.raises(MilcoError, match=r"3 dimensions, .* 12"):
        index.searcher().search([np.ones(3, np.float32)], 10)
    assert index.searcher().search([], 10) == []
    twice = store(tmp_path / "twice", made_up(3), ["a", "b", "a"])
    with pytest.raises(MilcoError, match="two documents have the id 'a'"):
        build_index(twice, Flat(), tmp_path / "other")
    blank = store(tmp_path / "blank", np.zeros((3, DIMENSIONS), np.float32))
    with pytest.raises(MilcoError, match="nothing to index"):
        build_index(blank, HNSW(), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    (tmp_path / "index" / "index").write_bytes(b"")
    with pytest.raises(MilcoError, match=r"is damaged \(index: 0 bytes, not "):
        index.searcher()


def test_missing_faiss_is_reported_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is read."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "faiss" else find(name))
    with pytest.raises(MilcoError, match=r"pip install '\.\[dense\]'$"):
        build_index(DenseStore(tmp_path, {}), Flat(), tmp_path / "index")


@pytest.mark.integration
@pytest.mark.parametrize("engine", [Flat(), HNSW()])
def test_pyserini_reads_the_index(tmp_path: Path, engine: Any) -> None:
    """Its FaissSearcher finds the same documents with the same scores."""
    jvm.start()
    faiss_search = pytest.importorskip("pyserini.search.faiss", reason="Pyserini's dense search cannot be imported")
    index = random_index(tmp_path, engine)
    theirs = faiss_search.FaissSearcher(str(index.path), None)
    if engine.name == "hnsw":
        theirs.set_hnsw_ef_search(64)
    query = np.random.default_rng(2).normal(size=DIMENSIONS).astype(np.float32)
    ours = index.searcher().search([query], 10)[0]
    found = theirs.search(query.reshape(1, -1), k=10)
    assert [hit.docid for hit in found] == ours.docids
    assert [hit.score for hit in found] == pytest.approx(ours.scores, abs=1e-6)


@pytest.mark.integration
def test_pyserini_searches_with_our_query_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FaissSearcher takes it for one text and for many."""
    jvm.start()
    faiss_search = pytest.importorskip("pyserini.search.faiss", reason="Pyserini's dense search cannot be imported")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.tsv").write_text("".join(f"{letter}\t{letter}\n" for letter in ascii_lowercase))
    assert encode(["--corpus", "c.tsv", "--encoder", str(GOLDEN / "m_encoder"), "--device", "cpu", "--dense"]) == 0
    index = build_index(open_dense_store(Path("vectors/c.dense")), Flat(), tmp_path / "index")
    theirs = faiss_search.FaissSearcher(str(index.path), open_dense_query_encoder(index.vectors, device="cpu"))
    assert theirs.search("m", k=1)[0].docid == "m"
    found = theirs.batch_search(["b", "g"], ["1", "2"], k=1)
    assert [found[name][0].docid for name in ("1", "2")] == ["b", "g"]


@pytest.mark.parametrize("engine", ["flat", "hnsw"])
def test_texts_become_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """encode --dense, index, search: the same run for topics as texts and as vectors."""
    monkeypatch.chdir(tmp_path)
    lines = [f"{letter}\t{letter} {'old harbour' * (place % 3)}\n" for place, letter in enumerate(ascii_lowercase)]
    (tmp_path / "c.tsv").write_text("".join([*lines, "blank\t \n"]))
    (tmp_path / "t.tsv").write_text("q1\tb old harbour\nq2\tg\n")
    common = ["--encoder", str(GOLDEN / "m_encoder"), "--device", "cpu", "--dtype", "float32", "--dense"]
    assert encode(["--corpus", "c.tsv", *common]) == 0
    assert encode(["--topics", "t.tsv", *common]) == 0
    assert index_command(["--vectors", "vectors/c.dense", "--engine", engine]) == 0
    assert open_index(Path(f"indexes/c.dense.{engine}")).manifest["empty_documents"] == 1
    for topics, run in (("t.tsv", "of-texts"), ("vectors/t.dense.topics", "of-vectors")):
        # One topic at a time, so that both are searched alike.
        assert search(["--topics", topics, "--output", run, "--k", "5", "--batch-size", "1"]) == 0
    rows = [line.split() for line in Path("of-texts").read_text().splitlines()]
    assert [row[:4] for row in rows] == [line.split()[:4] for line in Path("of-vectors").read_text().splitlines()]
    assert [row[2] for row in rows if row[3] == "1"] == ["b", "g"]


def test_engines_refuse_vectors_of_another_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The error names the engines that fit."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.tsv").write_text("d1\triver\n")
    assert encode(["--corpus", "c.tsv", "--encoder", str(GOLDEN / "ckpt_alignment"), "--dense"]) == 0
    assert encode(["--corpus", "c.tsv", "--encoder", str(GOLDEN / "ckpt_alignment")]) == 0
    capsys.readouterr()
    assert index_command(["--vectors", "vectors/c.dense", "--engine", "exact"]) == 2
    assert "vectors/c.dense holds dense vectors" in (stderr := capsys.readouterr().err)
    assert "--engine flat and hnsw" in stderr
    assert index_command(["--vectors", "vectors/c", "--engine", "flat"]) == 2
    assert "vectors/c holds sparse vectors" in (stderr := capsys.readouterr().err)
    assert "--engine lucene, exact, qdrant and seismic" in stderr
    assert not Path("indexes").exists()
