"""The contract of every engine that can update an index: the result is that of an index built anew."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built import INDEXES, Built
from synthetic_stores import synthetic_batch, synthetic_queries, vocabulary, write_plain, write_store

from milco_pyserini.cli.index import main
from milco_pyserini.cli.verify import main as verify
from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, find_engine, open_index
from milco_pyserini.io.files import PARTIAL, read_json
from milco_pyserini.sparse import SparseBatch, open_store
from milco_pyserini.sparse.quantization import quantize_vector

ENGINES = [kind for kind in INDEXES if kind.values[0] in ("exact", "lucene", "qdrant")]
DOCUMENTS = 120
QUERIES = synthetic_queries(6)
DEPTHS = (1, 10, 2 * DOCUMENTS)

Documents = Mapping[str, dict[str, int]]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """Vectors with ties, difficult terms and difficult ids; some are empty."""
    path = write_store(tmp_path_factory.mktemp("pool") / "store", *synthetic_batch(DOCUMENTS))
    return dict(open_store(path).vectors())


def store(path: Path, vectors: Documents, **more: Any) -> Path:
    """Write a vector store of these impacts."""
    weights = [{term: impact / 100 for term, impact in vector.items()} for vector in vectors.values()]
    return write_store(path, list(vectors), SparseBatch.from_dicts(weights, vocabulary()), part=20, **more)


def answers(path: Path) -> list[Any]:
    """Return the hits of an index, to several depths."""
    searcher = open_index(path).searcher()
    found = [hits for k in DEPTHS for hits in searcher.search(QUERIES, k)]
    return [(hits.docids, hits.scores.tolist()) for hits in found]


def defined(documents: Documents) -> list[Any]:
    """Return the hits by their definition."""
    rankings = []
    for query in QUERIES:
        impacts = quantize_vector(query, 100.0)
        scores = {
            docid: sum(impact * vector.get(term, 0) for term, impact in impacts.items())
            for docid, vector in documents.items()
        }
        rankings.append(sorted((-score, docid) for docid, score in scores.items() if score))
    best = [ranking[:k] for k in DEPTHS for ranking in rankings]
    return [([docid for _, docid in hits], [float(-score) for score, _ in hits]) for hits in best]


def expected(documents: Documents, kind: str, path: Path) -> list[Any]:
    """Return the hits by their definition; for scores that are floats, those of an index that is built at path."""
    if kind != "exact":
        return defined(documents)
    return answers(Index.build(store(path / "vectors", documents), path / "index", kind).path)


def changed(documents: Documents, pool: Documents, chance: random.Random, count: int) -> dict[str, dict[str, int]]:
    """Return vectors for new and for existing ids."""
    ids = [*documents, *pool, *(f"new{chance.random()}" for _ in range(3))]
    return {docid: chance.choice(list(pool.values())) for docid in chance.sample(ids, count)}


@pytest.mark.parametrize("kind", ENGINES)
def test_random_updates_equal_the_definition(kind: str, pool: Documents, tmp_path: Path) -> None:
    """Docids, scores, ties and counts, after additions, replacements, deletions and documents that lose all terms."""
    chance = random.Random(0)
    documents = dict(list(pool.items())[:60])
    index = Index.build(store(tmp_path / "0", documents), tmp_path / "index", kind)
    for step in range(1, 6):
        written = changed(documents, pool, chance, chance.choice([1, 5, 40]))
        gone = chance.sample(sorted(documents.keys() - written.keys()), 4)
        documents = {docid: vector for docid, vector in (documents | written).items() if docid not in gone}
        everything = store(tmp_path / str(step), documents)
        if step in (1, 2):
            # Only the first two times the store before is what the index was built from, or last updated with.
            index = index.update(everything, since=tmp_path / str(step - 1))
            assert index.manifest.vectors == open_store(everything).manifest
            assert index.manifest.empty_documents == sum(not vector for vector in documents.values())
        else:
            index = index.update(store(tmp_path / f"{step}.new", written), delete=[*gone, "?"], threads=step % 2 + 1)
        assert index.manifest.documents == sum(map(bool, documents.values()))
        assert answers(index.path) == expected(documents, kind, tmp_path / f"expected{step}")
    assert len(index.manifest.updates) == 5
    assert verify([str(index.path)]) == 0


@pytest.mark.parametrize("kind", ENGINES)
def test_the_generation_changes_with_the_index(kind: str, tmp_path: Path) -> None:
    """An update changes it; a copy, or opening the index again, does not."""
    index = Index.build(store(tmp_path / "old", {"x": {"w1": 3}, "y": {"w1": 2}}), tmp_path / "index", kind)
    shutil.copytree(index.path, tmp_path / "copy")
    assert open_index(index.path).generation == open_index(tmp_path / "copy").generation == index.generation
    updated = index.update(delete=["x"])
    assert open_index(index.path).generation == updated.generation != index.generation


def test_parts_that_both_stores_have_are_not_read(pool: Documents, tmp_path: Path) -> None:
    """One changed document of many takes the time of its part; the numbers of documents are right."""
    documents = dict(pool)
    before = store(tmp_path / "before", documents)
    index = Index.build(before, tmp_path / "index")
    first, *_, last = documents
    documents[first] = documents[last]
    after = store(tmp_path / "after", documents)
    for path in (before, after):
        for part in read_json(path / "manifest.json")["parts"][1:]:
            (path / part["file"]).unlink()
    index = index.update(after, since=before)
    assert answers(index.path) == defined(documents)
    assert index.manifest.documents + index.manifest.empty_documents == len(documents)
    assert index.manifest.updates[-1].documents == 1


@pytest.mark.parametrize("kind", ENGINES)
def test_the_command_updates_and_deletes(
    kind: str, pool: Documents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--vectors with --since, and --delete alone; the summary has the numbers."""
    documents = {docid: vector for docid, vector in pool.items() if vector}
    first, *_, last = documents
    after = {**documents, first: documents[last], "more": documents[last]}
    del after[last]
    before, index = store(tmp_path / "before", documents), str(tmp_path / "index")
    Index.build(before, index, kind)
    capsys.readouterr()
    updated = ["--vectors", str(store(tmp_path / "after", after)), "--since", str(before)]
    assert main(["update", "--index", index, *updated]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"Updated {index}: 2 documents, ") and lines[1] == "Deleted 1 docid"
    assert lines[2].startswith(f"{index} holds {len(after):,} documents and takes ")
    (tmp_path / "gone").write_text("more\n\nunknown\n")
    assert main(["update", "--index", index, "--delete", str(tmp_path / "gone")]) == 0
    assert "Deleted 1 of 2 docids: the index does not have all of them\n" in capsys.readouterr().err
    assert open_index(index).manifest.documents == len(after) - 1


@pytest.mark.parametrize("kind", [ENGINES[0]])
@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        ({"weight_hash": "b"}, (), "its weight_hash is 'b', the index has 'a': encode them as"),
        ({"english_prefix": "e_"}, (), "its english_prefix is 'e_', the index has ''"),
        ({"views": ["pivot"]}, (), r"its views is \['pivot'\], the index has \['pivot', 'source'\]"),
        ({}, ("--prune", "top-k:9"), "its pruning is 'top-k:9', the index has None: give the same --prune"),
        ({}, ("--since", "{other}"), "was not built from it. Give the vectors that it was"),
        ({}, ("--delete", "{ids}"), "document 'x' is in .*new and in --delete: remove it from one"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(
    kind: str,
    more: dict[str, Any],
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In one line that names the field, and the index is unchanged."""
    encoded = {"weight_hash": "a", "english_prefix": "", "max_length": 512, "views": ["pivot", "source"]}
    index = Index.build(store(tmp_path / "old", {"x": {"w1": 3}, "y": {"w1": 2}}, **encoded), tmp_path / "index", kind)
    new = store(tmp_path / "new", {"x": {"w1": 5}}, **encoded | more)
    other = store(tmp_path / "other", {"z": {"w1": 5}}, **encoded)
    (tmp_path / "ids").write_text("x\n")
    given = [one.format(other=other, old=tmp_path / "old", ids=tmp_path / "ids") for one in options]
    before = answers(index.path)
    assert main(["update", "--index", str(index.path), "--vectors", str(new), *given]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(message, error), error
    assert open_index(index.path) == index and answers(index.path) == before


@pytest.mark.parametrize("kind", ENGINES)
def test_since_needs_an_index_that_only_it_has_changed(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Documents that another update deleted or replaced would stay so, unless they differ in the stores."""
    old = store(tmp_path / "old", {"x": {"w1": 3}, "y": {"w1": 2}, "z": {"w1": 1}})
    same = store(tmp_path / "same", {"x": {"w1": 3}, "y": {"w1": 2}, "z": {"w1": 7}})
    (tmp_path / "ids").write_text("x\n")
    for number, options in enumerate((["--delete", str(tmp_path / "ids")], ["--vectors", str(same)])):
        index = Index.build(old, tmp_path / f"index{number}", kind)
        assert main(["update", "--index", str(index.path), *options]) == 0
        before = answers(index.path)
        assert main(["update", "--index", str(index.path), "--vectors", str(same), "--since", str(old)]) == 2
        assert "because other documents were added" in capsys.readouterr().err
        assert answers(index.path) == before
    # A document that is the same in both stores is refused, too.
    index = Index.build(old, tmp_path / "index2", kind)
    given = ["--vectors", str(same), "--since", str(old), "--delete", str(tmp_path / "ids")]
    assert main(["update", "--index", str(index.path), *given]) == 2
    assert "document 'x' is in" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["exact"])
def test_documents_are_replaced_with_all_of_their_passages(kind: str, tmp_path: Path) -> None:
    """By engines that find these; with since, passages are what differs."""
    encoded = {"split_passages": True}
    old = {"x#0": {"w1": 3}, "x#1": {"w1": 2}, "x#2": {"w2": 1}, "xy#0": {"w1": 1}, "x": {"w1": 9}, "x#1#0": {"w1": 5}}
    before = store(tmp_path / "old", old, **encoded)
    index = Index.build(before, tmp_path / "index", kind)
    index.update(store(tmp_path / "new", {"x#0": {"w1": 4}}, **encoded))
    assert answers(index.path) == answers(
        Index.build(
            store(tmp_path / "left", {"x#0": {"w1": 4}, "xy#0": {"w1": 1}, "x#1#0": {"w1": 5}}, **encoded),
            tmp_path / "other",
            kind,
        ).path
    )
    index = Index.build(before, tmp_path / "again", kind)
    index.update(store(tmp_path / "newer", old | {"x#1": {"w1": 7}}, **encoded), since=before)
    assert open_index(index.path).manifest.documents == len(old)


def test_passages_in_memory_do_not_replace_those_of_an_index(tmp_path: Path) -> None:
    """A batch does not state whether it holds passages; the index does."""
    index = Index.build(
        store(tmp_path / "old", {"x#0": {"w1": 3}, "x#1": {"w1": 2}}, split_passages=True), tmp_path / "i"
    )
    batch = SparseBatch.from_dicts([{"w1": 1.0}], vocabulary())
    with pytest.raises(MilcoError, match="holds passages"):
        index.update(batch, ids=["x#0"])
    with pytest.raises(MilcoError, match="prune='top-k:5': must be a list"):
        index.update(batch, ids=["x#0"], prune="top-k:5")
    with pytest.raises(TypeError, match=r"delete=\[1\]"):
        index.update(delete=[1])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "update --index {seismic} --vectors {store}",
            "seismic cannot be updated, exact, lucene and qdrant can",
        ),
        (
            "update --index {lucene}",
            "an update needs documents to add (--vectors or --corpus) or ids to delete (--delete)",
        ),
        ("update --vectors {store}", "--index is required"),
        ("update --index {lucene}none --vectors {store}", "no index at "),
        ("update --index {lucene} --delete {lucene}/none", "no such file"),
        ("update --index {lucene} --vectors {store} --corpus sample", "--corpus and --vectors exclude each other"),
        ("update --index {lucene} --vectors {plain} --plain", "its plain is True, the index has None"),
    ],
)
def test_bad_options_are_one_line(
    built: Built, arguments: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any work."""
    plain = write_plain(tmp_path / "plain.jsonl", {"d": {"a": 1.0}})
    paths = {
        "seismic": built.path("seismic"),
        "lucene": built.path("lucene"),
        "store": built.path("jsonl"),
        "plain": plain,
    }
    assert main(arguments.format(**paths).split()) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize("kind", ENGINES)
def test_an_update_that_would_delete_everything_is_refused(kind: str, tmp_path: Path) -> None:
    """An index has documents, except one of engine exact, to which documents are added later."""
    if kind == "exact":
        index = Index.build(store(tmp_path / "one", {"x": {"w1": 3}}), tmp_path / "index", kind).delete(["x"])
        assert index.manifest.documents == 0 and not len(index.searcher().search([{"w1": 1.0}], 5)[0])
        index = index.update(store(tmp_path / "two", {"z": {"w1": 3}}))
        assert index.searcher().search([{"w1": 1.0}], 5)[0].docids == ["z"] and verify([str(index.path)]) == 0
        return
    index = Index.build(store(tmp_path / "old", {"x": {"w1": 3}, "y": {}}), tmp_path / "index", kind)
    with pytest.raises(MilcoError, match="no document after the update"):
        index.update(delete=["x"])
    assert len(open_index(index.path).searcher().search([{"w1": 1.0}], 5)[0]) == 1


@pytest.mark.parametrize("kind", ENGINES)
def test_updates_at_the_same_time_are_all_kept(kind: str, pool: Documents, tmp_path: Path) -> None:
    """Each waits for the one before, and changes what that wrote, whatever state its Index had."""
    index = Index.build(store(tmp_path / "old", pool), tmp_path / "index", kind)
    stores = [store(tmp_path / f"new{number}", {f"a{number}": {"w1": 3}}) for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(index.update, stores))
    index = open_index(index.path)
    assert index.manifest.documents == sum(map(bool, pool.values())) + 4
    assert index.searcher().weights("a3", ["w1"]) and sorted(path.name for path in tmp_path.glob(".*")) == []


@pytest.mark.parametrize("kind", ENGINES)
def test_searchers_see_the_old_or_the_new_state(kind: str, tmp_path: Path) -> None:
    """While the index is updated: those that are open, and those that open it."""
    document = lambda state: {f"d{number}": {"w1": 100 + state} for number in range(30)}  # noqa: E731
    index = Index.build(store(tmp_path / "0", document(0)), tmp_path / "index", kind)
    first, running, states, errors = index.searcher(), threading.Event(), set(), []
    # The exact engine adds up weights, and the others impacts.
    unit = 10_000 if kind == "exact" else 1

    def watch() -> None:
        while not running.is_set():
            try:
                (hits,) = open_index(index.path).searcher().search([{"w1": 0.01}], 50)
            except Exception as error:
                errors.append(error)
                return
            states.add((len(hits), *set(np.rint(unit * hits.scores).tolist())))
            time.sleep(0.02)

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for state in range(1, 5):
        index = index.update(store(tmp_path / str(state), document(state)))
    running.set()
    for watcher in watchers:
        watcher.join()
    assert not errors
    assert states <= {(30, 100.0 + state) for state in range(5)}
    (hits,) = first.search([{"w1": 0.01}], 50)
    assert set(np.rint(unit * hits.scores).tolist()) == {100.0}
    (hits,) = index.searcher().search([{"w1": 0.01}], 50)
    assert set(np.rint(unit * hits.scores).tolist()) == {104.0}


@pytest.mark.parametrize("kind", ENGINES)
def test_an_index_that_is_updated_while_it_is_opened_is_opened_anew(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifest and files are of one state: k is not cut to the former number of documents."""
    index = Index.build(store(tmp_path / "old", {"x": {"w1": 3}, "y": {"w1": 2}}), tmp_path / "index", kind)
    more, engine, updated = store(tmp_path / "more", {"z": {"w1": 1}}), type(find_engine(kind)), []
    opens = engine.open

    def update_first(self: Any, *given: Any) -> Any:
        if not updated:
            updated.append(index.update(more))
        return opens(self, *given)

    monkeypatch.setattr(engine, "open", update_first)
    opened, searcher = index.open_searcher()
    assert searcher.search([{"w1": 1.0}], 9)[0].docids == ["x", "y", "z"]
    assert opened == updated[0]


@pytest.mark.skipif(find_spec("qdrant_edge") is None, reason="qdrant_edge is missing")
def test_an_update_does_not_hide_damage(pool: Documents, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flipped bit in a file that is too large to be read at opening would get a new checksum in the copy."""
    index = Index.build(store(tmp_path / "old", pool), tmp_path / "index", "qdrant")
    file, *_ = index.path.glob("shard/segments/*/vector_storage-terms/store/page_0.dat")
    with file.open("r+b") as handle:
        first = handle.read(1)[0]
        handle.seek(0)
        handle.write(bytes([first ^ 8]))
    assert main(["update", "--index", str(index.path), "--vectors", str(tmp_path / "old")]) == 2
    assert f"{index.path} is damaged ({file.relative_to(index.path)}: " in capsys.readouterr().err
    assert verify([str(index.path)]) == 2


@pytest.mark.parametrize("kind", ENGINES)
def test_files_of_the_user_are_not_lost(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An update names those that its copy would lack."""
    index = Index.build(store(tmp_path / "old", {"x": {"w1": 3}, "y": {"w1": 2}}), tmp_path / "index", kind)
    (index.path / "notes").mkdir()
    (index.path / "notes" / "mine.csv").write_text("1")
    (tmp_path / "ids").write_text("x\n")
    update = ["update", "--index", str(index.path), "--delete", str(tmp_path / "ids")]
    assert main(update) == 2
    assert "holds notes/mine.csv, which its manifest does not list" in capsys.readouterr().err
    shutil.rmtree(index.path / "notes")
    assert main(update) == 0


@pytest.mark.parametrize("kind", ENGINES)
def test_an_index_copied_over_an_older_one_does_not_answer_from_it(
    kind: str, pool: Documents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that the copy leaves behind are refused, and verify names all that are to be removed."""
    later = dict(list(pool.items())[40:])
    old = Index.build(store(tmp_path / "old", pool), tmp_path / "index", kind)
    # Lucene writes the segment again, under another name: no file of it is replaced by the copy.
    old.update(delete=list(pool)[:60])
    new = Index.build(store(tmp_path / "new", later), tmp_path / "later", kind)
    shutil.copytree(new.path, old.path, dirs_exist_ok=True)
    with pytest.raises(MilcoError, match="files of another index"):
        open_index(old.path).searcher()
    capsys.readouterr()
    assert verify([str(old.path)]) == 2
    lines, error = capsys.readouterr()
    assert "Remove the files that are not in the manifest" in error and "Copy the damaged" not in error
    for line in lines.splitlines():
        file, reason = line.split(": ")
        assert reason == "not in the manifest, remove it"
        Path(file).unlink()
    assert answers(old.path) == expected(later, kind, tmp_path / "expected")
    assert verify([str(old.path)]) == 0


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("options", [("--since", "{old}"), (), ("--since", "{old}", "--delete", "{ids}")])
def test_an_update_that_succeeded_can_be_run_again(
    kind: str, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that was killed after the last step is repeated: nothing is written, and what the kill left is removed."""
    old = store(tmp_path / "old", {"x": {"w1": 3}, "y": {"w1": 2}})
    new = store(tmp_path / "new", {"x": {"w1": 5}, "y": {"w1": 2}, "z": {"w1": 1}})
    (tmp_path / "ids").write_text("unknown\n")
    given = [option.format(old=old, ids=tmp_path / "ids") for option in options]
    index = Index.build(old, tmp_path / "index", kind)
    command = ["update", "--index", str(index.path), "--vectors", str(new), *given]
    assert main(command) == 0
    updated = open_index(index.path)
    (tmp_path / f".index{PARTIAL}1").mkdir()
    os.utime(tmp_path / f".index{PARTIAL}1", (0, 0))
    capsys.readouterr()
    assert main(command) == 0
    assert capsys.readouterr().err == f"{index.path} is up to date\n"
    assert open_index(index.path) == updated and not list(tmp_path.glob(".*"))
    if options:
        other = store(tmp_path / "other", {"x": {"w1": 6}})
        assert main(["update", "--index", str(index.path), "--vectors", str(other), *given]) == 2
        assert "was not built from" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ENGINES)
def test_a_day_without_deletions_is_a_success(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty --delete file deletes nothing; a second run of the same deletions is up to date."""
    index = Index.build(store(tmp_path / "old", {"x": {"w1": 3}, "y": {"w1": 2}}), tmp_path / "index", kind)
    gone = tmp_path / "gone"
    for ids, line in (("", "is unchanged: there are no docids to delete"), ("x", "Deleted 1"), ("x", "is up to date")):
        (tmp_path / f".index{PARTIAL}1").mkdir()
        os.utime(tmp_path / f".index{PARTIAL}1", (0, 0))
        gone.write_text(ids)
        assert main(["update", "--index", str(index.path), "--delete", str(gone)]) == 0
        assert line in capsys.readouterr().err and not list(tmp_path.glob(".*"))
    assert open_index(index.path).manifest.documents == 1


@pytest.mark.parametrize("kind", ENGINES)
def test_new_fields_of_unchanged_texts_are_another_update(kind: str, tmp_path: Path) -> None:
    """The vectors are the same, what the index stores is not."""
    corpora = [[Document("x", "", "text", {"year": year})] for year in (2024, 2025, 2024)]
    stores = [
        store(tmp_path / f"v{number}", {"x": {"w1": 3}}, documents=documents)
        for number, documents in enumerate(corpora)
    ]
    index = Index.build(stores[0], tmp_path / "index", kind)
    for before, after in ((0, 1), (0, 1), (1, 2)):
        index = index.update(stores[after], since=stores[before])
        assert index.searcher().documents(["x"])["x"] == corpora[after][0]
    assert [update.documents for update in index.manifest.updates] == [1, 1]


KILLED = """
import sys
from milco_pyserini.index import open_index
index = open_index(sys.argv[1])
index.searcher()
print("begins", flush=True)
index.update(sys.argv[2], since=sys.argv[3])
"""


@pytest.mark.integration
@pytest.mark.parametrize("kind", ENGINES)
def test_a_killed_update_leaves_the_old_or_the_new_state(kind: str, pool: Documents, tmp_path: Path) -> None:
    """SIGKILL at any moment; the same update then completes, and removes what was left behind."""
    after = {docid: pool[docid] for docid in list(pool)[20:]} | {"d1": {"w1": 1}}
    before, later = store(tmp_path / "before", pool), store(tmp_path / "after", after)
    index = Index.build(before, tmp_path / "index", kind)
    old, new = expected(pool, kind, tmp_path / "of old"), expected(after, kind, tmp_path / "of new")
    for seconds in (0.05, 0.4):
        command = [sys.executable, "-c", KILLED, str(index.path), str(later), str(before)]
        started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert started.stdout is not None and started.stdout.readline() == "begins\n"
        time.sleep(seconds)
        started.send_signal(signal.SIGKILL)
        started.wait()
        found = answers(index.path)
        assert found in (old, new)
        if found == new:
            break
    else:
        open_index(index.path).update(later, since=before)
    assert answers(index.path) == new
    open_index(index.path).update(later)
    assert not [path for path in tmp_path.iterdir() if PARTIAL in path.name]


@pytest.mark.parametrize("kind", ENGINES)
def test_stored_documents_are_updated(kind: str, pool: Documents, tmp_path: Path) -> None:
    """Texts and fields too, of documents whose vectors are unchanged; new fields are filtered by."""
    vectors = {docid: vector for docid, vector in pool.items() if vector}
    first, second, third, *rest = vectors
    old = [Document(docid, "", f"text of {docid}", {"lang": "de"}) for docid in vectors]
    new = [Document(docid, "", f"text of {docid}", {"lang": "de"}) for docid in rest]
    new += [Document(first, "", f"text of {first}", {"lang": "fr", "year": 2024}), Document("more", "", "more", {})]
    new += [Document(second, "", "another text", {"lang": "de"})]
    before = store(tmp_path / "before", vectors, documents=old)
    kept = {docid: vectors[docid] for docid in (*rest, first, second)}
    after = store(tmp_path / "after", {**kept, "more": {"w1": 2}}, documents=new)
    index = Index.build(before, tmp_path / "index", kind)
    anew = Index.build(after, tmp_path / "anew", kind)
    index = index.update(after, since=before)
    assert index.manifest.updates[-1].documents == 3
    assert index.manifest.fields == anew.manifest.fields
    searchers, docids = (index.searcher(), anew.searcher()), [*vectors, "more"]
    assert searchers[0].documents(docids) == searchers[1].documents(docids)
    for filters in ({"lang": "fr"}, {"year": 2024}, {"lang": ["de", "fr"]}):
        ours, theirs = (searcher.search(QUERIES, 50, filters=filters) for searcher in searchers)
        assert [(hits.docids, hits.total) for hits in ours] == [(hits.docids, hits.total) for hits in theirs]
    assert third not in searchers[0].documents([third])
    one = Document(first, "", "one", {"lang": "sw"})
    index = index.update(store(tmp_path / "one", {first: {"w1": 7}}, documents=[one]))
    assert index.searcher().documents([first])[first] == one
