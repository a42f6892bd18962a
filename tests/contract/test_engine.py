"""Every engine's promises: exact or approximate."""

import gc
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built import DOCUMENTS, INDEXES, SHARDED_INDEXES, STORED_INDEXES, Built, answers, queries_for, stored_documents
from synthetic_stores import synthetic_batch, write_store

from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, build_index, find_engine, open_index
from milco_pyserini.io.files import PARTIAL
from milco_pyserini.io.manifest import MANIFEST, read_checked, write_checked
from milco_pyserini.request import BuildRequest, SearchRequest

EXACT = [kind for kind in INDEXES if kind.values[0] in ("exact", "lucene", "qdrant")]


@pytest.mark.parametrize("kind", [*INDEXES, *SHARDED_INDEXES])
def test_hits_are_ordered_by_score_and_then_docid(built: Built, kind: str) -> None:
    """Best first; equal scores in ascending order of docid; no document twice."""
    for hits in open_index(built.path(kind)).searcher().search(queries_for(kind), DOCUMENTS):
        scores = hits.scores.tolist()
        assert list(zip([-score for score in scores], hits.docids, strict=True)) == sorted(
            zip([-score for score in scores], hits.docids, strict=True)
        )
        assert len(set(hits.docids)) == len(hits)


@pytest.mark.parametrize("kind", EXACT)
def test_the_best_k_are_the_first_k_of_all(built: Built, kind: str) -> None:
    """A smaller k truncates the ranking and changes nothing else; no engine allocates room for more hits than exist."""
    searcher = open_index(built.path(kind)).searcher()
    complete = searcher.search(queries_for(kind), 2**31 - 1)
    for k in (1, 7, DOCUMENTS):
        for hits, all_hits in zip(searcher.search(queries_for(kind), k), complete, strict=True):
            assert len(hits) == min(k, len(all_hits))
            # Documents that tie at the last rank are interchangeable for an engine, but not for the order of the hits.
            assert hits.docids == all_hits.docids[: len(hits)]
            np.testing.assert_array_equal(hits.scores, all_hits.scores[: len(hits)])


@pytest.mark.parametrize("kind", [*INDEXES, *SHARDED_INDEXES])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_query_has_the_same_hits_alone_and_in_a_batch(built: Built, kind: str, threads: int) -> None:
    """Neither the other queries nor the number of threads change a hit; without a known term there are none."""
    searcher = open_index(built.path(kind)).searcher()
    assert searcher.search([], 10, threads=threads) == []
    queries = [*queries_for(kind), {}, {"no such term": 1.0}]
    together = searcher.search(queries, 10, threads=threads)
    assert [len(hits) for hits in together[-2:]] == [0, 0]
    for query, hits in zip(queries, together, strict=True):
        (alone,) = searcher.search([query], 10)
        assert alone.docids == hits.docids
        np.testing.assert_array_equal(alone.scores, hits.scores)


@pytest.mark.parametrize("kind", INDEXES)
def test_every_document_is_counted(built: Built, kind: str) -> None:
    """Documents with terms are in the index, documents without terms are counted."""
    manifest = open_index(built.path(kind)).manifest
    empty = int((synthetic_batch(DOCUMENTS)[1].lengths() == 0).sum())
    assert (manifest.documents, manifest.empty_documents) == (DOCUMENTS - empty, empty)
    assert manifest.engine == kind and empty > 0


@pytest.mark.parametrize("kind", EXACT)
def test_a_rebuilt_index_gives_the_same_hits(built: Built, kind: str, tmp_path: Path) -> None:
    """Building and opening again, with two threads."""
    build_index(built.documents(kind), find_engine(kind), tmp_path / kind, BuildRequest(threads=2))
    assert answers(kind, tmp_path / kind) == answers(kind, built.path(kind))


@pytest.mark.parametrize("kind", INDEXES)
def test_an_index_is_only_replaced_on_request_and_can_be_moved(built: Built, kind: str, tmp_path: Path) -> None:
    """A copy gives the same hits, and a build of other terms refuses its directory before any work."""
    copy = shutil.copytree(built.path(kind), tmp_path / "moved")
    assert answers(kind, copy) == answers(kind, built.path(kind))
    with pytest.raises(MilcoError, match=rf"{copy} was begun without prune, not with prune top-k"):
        build_index(built.documents(kind), find_engine(kind), copy, BuildRequest(prune=("top-k:3",)))


@pytest.mark.parametrize("kind", [*INDEXES, *SHARDED_INDEXES])
def test_a_closed_index_holds_no_file(built: Built, kind: str, tmp_path: Path) -> None:
    """Neither mapped nor open; a second close has no effect, and a search is one error."""
    path = shutil.copytree(built.path(kind), tmp_path / kind)
    with open_index(path).searcher() as searcher:
        assert len(searcher.search(queries_for(kind), 10)) == 5
    searcher.close()
    assert str(path) not in Path("/proc/self/maps").read_text()
    assert not [name for name in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if name.startswith(str(path))]
    for call in (lambda: searcher.search(queries_for(kind), 10), lambda: searcher.documents(["d1"])):
        with pytest.raises(MilcoError, match=f"{path} is closed: open it again"):
            call()


@pytest.mark.parametrize("kind", [*INDEXES, *SHARDED_INDEXES])
def test_eight_threads_share_an_open_index(built: Built, kind: str) -> None:
    """Each has the hits that it would have alone."""
    queries, expected = queries_for(kind), answers(kind, built.path(kind))
    with open_index(built.path(kind)).searcher() as searcher, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: searcher.search(queries, 10), range(32)))
    for hits in found:
        assert [(one.docids, one.scores.tolist()) for one in hits] == expected


@pytest.mark.parametrize("kind", [*INDEXES, *SHARDED_INDEXES])
def test_searching_changes_no_file(built: Built, kind: str, tmp_path: Path) -> None:
    """Qdrant writes files again when it opens and closes an index: their content is the same."""
    path = shutil.copytree(built.path(kind), tmp_path / kind)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    answers(kind, path)
    gc.collect()
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("kind", INDEXES)
def test_an_interrupted_build_leaves_nothing(
    built: Built, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the last step, when its manifest gets its name: neither the index nor a partial directory remains."""
    replace = Path.replace

    def interrupted(file: Path, target: Path) -> Path:
        if Path(target).name == "manifest.json":
            raise KeyboardInterrupt
        return replace(file, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_index(built.documents(kind), find_engine(kind), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_an_option_that_engines_do_not_have_is_refused(built: Built) -> None:
    """Searcher has them; an engine that ignored one would return other hits than were asked for."""
    searcher = open_index(built.path("exact")).searcher()
    for option in SearchRequest.__dataclass_fields__.keys() - {"k", "threads", "filters", "balance"}:
        with pytest.raises(TypeError, match=option):
            searcher.search([{"x": 1.0}], 5, **{option: 1})


@pytest.mark.parametrize("kind", INDEXES)
def test_a_build_that_succeeded_can_be_run_again(
    built: Built, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that was killed after the last step is repeated: nothing is written. Another request is refused."""
    vectors, path = built.documents(kind).path, tmp_path / "index"
    first = Index.build(vectors, path, kind)
    written = (path / "manifest.json").stat().st_mtime_ns
    (tmp_path / f".index{PARTIAL}1").mkdir()
    os.utime(tmp_path / f".index{PARTIAL}1", (0, 0))
    capsys.readouterr()
    assert Index.build(vectors, path, kind, threads=2) == first
    assert f"{path} is up to date\n" in capsys.readouterr().err
    assert (path / "manifest.json").stat().st_mtime_ns == written and not list(tmp_path.glob(".*"))
    other = {"topics": vectors} if first.manifest.exactness == "approximate" else {"prune": ["top-k:3"]}
    with pytest.raises(MilcoError, match=r"index was begun with.*overwrite=True"):
        Index.build(vectors, path, kind, **other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "instead"), [("bm25", "milco encode --encoder bm25"), ("flat", "Faiss"), ("hnsw", "")]
)
def test_engines_of_version_0_3_are_one_error(built: Built, tmp_path: Path, name: str, instead: str) -> None:
    """To build an index, and to open one; it names the version that can."""
    path = shutil.copytree(built.path("exact"), tmp_path / "index")
    write_checked(path / MANIFEST, read_checked(path / MANIFEST) | {"engine": name})
    for call in (lambda: open_index(path), lambda: Index.build(built.path("parquet"), tmp_path / "other", name)):
        with pytest.raises(MilcoError, match=f"only version 0.3 builds and reads indexes of engine {name}.*{instead}"):
            call()


@pytest.mark.parametrize("kind", STORED_INDEXES)
def test_changed_fields_are_another_request(built: Built, kind: str, tmp_path: Path) -> None:
    """The vectors are the same, what the index stores is not."""
    documents, engine, (ids, batch) = stored_documents(), kind.removesuffix("-stored"), synthetic_batch(DOCUMENTS)

    def build(name: str, **options: Any) -> Index:
        return Index.build(tmp_path / name, tmp_path / "index", engine, **options)

    write_store(tmp_path / "vectors", ids, batch, documents=documents)
    assert build("vectors") == build("vectors")
    documents[0].fields["lang"] = "changed"
    write_store(tmp_path / "changed", ids, batch, documents=documents)
    for name, options in (("changed", {}), ("vectors", {"store_documents": False})):
        with pytest.raises(MilcoError, match="index was begun with"):
            build(name, **options)
