"""Promises of what every engine takes: Lucene's limits hold for all, and are met before an engine sees a document."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from synthetic_stores import synthetic_batch, write_plain, write_store

from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import build_index
from milco_pyserini.index.protocol import DENSE, TERMS, TEXT, Built, Store
from milco_pyserini.index.texts import Texts
from milco_pyserini.sparse import open_store


class EitherWay:
    """An engine that reads every document in one of the two ways, and counts them."""

    name = "either"
    exactness = "none"
    queries = TERMS

    def __init__(self, way: str) -> None:
        self.way = way

    def available(self) -> None:
        """It is."""

    def build(self, store: Store, directory: Path, threads: int) -> Built:
        if self.way == "vectors":
            return Built(sum(1 for _ in store.vectors()), 0)
        return Built(sum(len(names) for names, _ in store.batches()), 0)

    def open(self, directory: Path, manifest: dict) -> None:  # type: ignore[override]
        """Never."""


class OfDenseVectors(EitherWay):
    """The same with dense vectors."""

    queries = DENSE


class OfTexts(EitherWay):
    """The same with texts."""

    queries = TEXT

    def build(self, store: Any, directory: Path, threads: int) -> Built:
        return Built(sum(1 for _ in store.documents()), 0)


class Dense:
    """Dense vectors of length 2, two ids to a batch."""

    def __init__(self, ids: list[str]) -> None:
        self.ids, self.path, self.manifest = ids, Path("dense"), {"documents": len(ids), "dimensions": 2}

    def batches(self) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """They."""
        for start in range(0, len(self.ids), 2):
            names = self.ids[start : start + 2]
            yield names, np.ones((len(names), 2), np.float32)


def texts(ids: list[str]) -> Texts:
    """A document of each id."""
    return Texts(Path("texts"), {"language": "en"}, [Document(name, "", "words") for name in ids])


def build(path: Path, way: str) -> int:
    """Documents that such an engine gets of the plain vectors at path."""
    engine = EitherWay(way)
    index = build_index(open_store(path, plain=True), engine, path.with_suffix(f".{way}"))  # type: ignore[arg-type]
    return index.manifest["documents"]


@pytest.mark.parametrize("way", ["vectors", "batches"])
def test_ids_are_as_long_as_lucene_takes_them_and_no_longer(tmp_path: Path, way: str) -> None:
    """32,766 bytes of UTF-8; the message has the beginning of the id and leaves nothing behind."""
    longest = "é" * (32_766 // 2)
    assert build(write_plain(tmp_path / "good.jsonl", {longest: {"a": 1}}), way) == 1
    bad = write_plain(tmp_path / "bad.jsonl", {"d": {"a": 1}, longest + "é": {"a": 1}})
    with pytest.raises(MilcoError, match="its id is 32,768 bytes long, an index takes up to 32,766") as refused:
        build(bad, way)
    assert len(str(refused.value)) < 200
    assert not bad.with_suffix(f".{way}").exists()


@pytest.mark.parametrize("way", ["vectors", "batches"])
def test_impacts_add_up_to_what_lucene_counts_and_no_more(tmp_path: Path, way: str) -> None:
    """2**31 - 1 in one document, however many terms it has."""
    assert build(write_plain(tmp_path / "good.jsonl", {"d": {"a": 2**30, "b": 2**29}}), way) == 1
    bad = write_plain(tmp_path / "bad.jsonl", {"small": {"a": 1}, "huge": {"a": 2**30, "b": 2**30}})
    with pytest.raises(MilcoError, match=r"document 'huge': its impacts add up to 2,147,483,648, .*a smaller scale"):
        build(bad, way)


def test_float_weights_are_counted_at_the_stores_scale(tmp_path: Path) -> None:
    """Parquet holds weights; what counts is what an impact index would make of them."""
    ids, batch = synthetic_batch(20)
    store = open_store(write_store(tmp_path / "vectors", ids, batch, parquet=True, scale=1e9))
    with pytest.raises(MilcoError, match="add up to"):
        build_index(store, EitherWay("batches"), tmp_path / "index")  # type: ignore[arg-type]


def test_a_long_id_that_is_there_twice_is_cut_in_the_message(tmp_path: Path) -> None:
    """60 characters say which it is."""
    path = tmp_path / "twice.jsonl"
    path.write_text(f'{{"id": "{"x" * 500}", "vector": {{"a": 1}}}}\n' * 2)
    with pytest.raises(MilcoError, match="two documents with the id 'xxxx") as refused:
        build(path, "vectors")
    assert str(refused.value).count("x") < 70 + str(path).count("x")


@pytest.mark.parametrize(("engine", "store"), [(OfDenseVectors("batches"), Dense), (OfTexts(""), texts)])
def test_documents_without_terms_are_counted_and_checked_alike(engine: Any, store: Any, tmp_path: Path) -> None:
    """Dense vectors and texts: counted, an id that is too long or there twice is refused, one with a space noted."""
    index = build_index(store(["a", "b c", "d"]), engine, tmp_path / "index")
    assert index.manifest["documents"] == 3 and index.manifest["id_with_space"] == "b c"
    assert "query_scale" not in index.manifest and "postings" not in index.manifest
    with pytest.raises(MilcoError, match="two documents with the id 'a'"):
        build_index(store(["a", "b", "c", "a"]), engine, tmp_path / "twice")
    with pytest.raises(MilcoError, match="its id is 32,768 bytes long"):
        build_index(store(["a", "é" * 16_384]), engine, tmp_path / "long")
    with pytest.raises(MilcoError, match="holds no document: nothing to index"):
        build_index(store([]), engine, tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
