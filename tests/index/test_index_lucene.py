"""The Lucene engine equals Anserini's indexer and Pyserini's searcher. One Java runs all tests."""

import functools
import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from synthetic_stores import synthetic_batch, synthetic_queries, write_plain, write_store

from milco_pyserini import jvm
from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Index, Lucene, build_index, find_engine, lucene, open_index
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.index.lucene_java import written_by
from milco_pyserini.integrations.pyserini import start_java
from milco_pyserini.request import BuildRequest
from milco_pyserini.sparse import open_store
from milco_pyserini.sparse.quantization import quantize_vector

pytestmark = pytest.mark.integration

DOCUMENTS = 400


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The same vectors indexed by us, on one thread and on three, and by Anserini."""
    try:
        jvm.start()
    except MilcoError as error:
        pytest.skip(str(error))
    root = tmp_path_factory.mktemp("lucene")
    ids, batch = synthetic_batch(DOCUMENTS)
    store = open_store(write_store(root / "vectors", ids, batch))
    ours = build_index(store, find_engine("lucene"), root / "ours")
    threaded = build_index(store, find_engine("lucene"), root / "threaded", BuildRequest(threads=3))
    return SimpleNamespace(root=root, ids=ids, batch=batch, store=store, ours=ours, threaded=threaded)


@pytest.fixture(scope="session")
def anserini(built: SimpleNamespace) -> Path:
    """Anserini's index of the same parts."""
    from jnius import autoclass

    output = built.root / "anserini"
    parts = built.root / "parts"
    parts.mkdir()
    for part in built.store.path.glob("*.jsonl"):
        (parts / part.name).symlink_to(part)
    arguments = f"-collection JsonVectorCollection -generator DefaultLuceneDocumentGenerator -input {parts} "
    arguments += f"-index {output} -threads 1 -impact -pretokenized -storeRaw -quiet"
    autoclass("io.anserini.index.IndexCollection").main(arguments.split())
    return output


QUERIES = synthetic_queries(30)


@functools.cache
def pyserini_search(index: Path, k: int) -> list[tuple[list[str], list[float]]]:
    """Docids and scores of LuceneImpactSearcher for QUERIES."""
    start_java()
    from pyserini.search.lucene import LuceneImpactSearcher

    class Vectors:
        def encode(self, number: str) -> dict[str, int]:
            return quantize_vector(QUERIES[int(number)], 100.0)

    searcher = LuceneImpactSearcher(str(index), Vectors(), min_idf=-1)
    results = [searcher.search(str(number), k) for number in range(len(QUERIES))]
    return [([hit.docid for hit in hits], [hit.score for hit in hits]) for hits in results]


def adjusted(scores: np.ndarray) -> list[float]:
    """Scores as Anserini's ScoreTiesAdjuster leaves them: to four decimals, less a millionth for each tie above."""
    left: list[np.float32] = []
    ties = 0
    for score in np.float32(np.rint(scores.astype(np.float64) * 1e4) / 1e4):
        ties = ties + 1 if left and left[-1] - score <= np.float32(1e-4) else 0
        left.append(score - np.float32(1e-6) * np.float32(ties))
    return [float(score) for score in left]


@pytest.mark.parametrize("k", [1, 10, 1000])
def test_pyserini_cannot_tell_our_index_from_anserinis(built: SimpleNamespace, anserini: Path, k: int) -> None:
    """Docids and scores of LuceneImpactSearcher are the same on both, ties and nasty terms included."""
    expected = pyserini_search(anserini, k)
    assert pyserini_search(built.ours.path, k) == expected
    assert pyserini_search(built.threaded.path, k) == expected


@pytest.mark.parametrize("k", [1, 3, 10, 50, 1000])
@pytest.mark.parametrize("threads", [1, 3])
def test_our_searcher_finds_what_pyserini_finds(built: SimpleNamespace, anserini: Path, k: int, threads: int) -> None:
    """Same docids in the same order, also where k cuts through a tie; the same scores, to the last bit."""
    found = built.threaded.searcher().search(QUERIES, k, threads=threads)
    for hits, (docids, scores) in zip(found, pyserini_search(anserini, k), strict=True):
        assert hits.docids == docids
        assert adjusted(hits.scores) == scores
        # The adjustment never changes an integer, on which benchmarks/lucene_search.py relies.
        assert np.rint(np.float32(scores)).tolist() == hits.scores.tolist()


def test_relevance_feedback_finds_what_it_finds_with_anserinis_index(
    built: SimpleNamespace, anserini: Path, tmp_path: Path
) -> None:
    """Rocchio and RM3 of Pyserini, with the vectors in stored documents; doc() has raw, doc_by_field() finds fields."""
    from pyserini.search.lucene import LuceneImpactSearcher, LuceneSearcher

    class Vectors:
        def encode(self, number: str) -> dict[str, int]:
            return quantize_vector(QUERIES[int(number)], 100.0)

    def search(index: Path, feedback: str) -> list[list[tuple[str, float]]]:
        searcher = LuceneImpactSearcher(str(index), Vectors(), min_idf=-1)
        getattr(searcher, feedback)()
        return [[(hit.docid, hit.score) for hit in searcher.search(str(number), 20)] for number in range(10)]

    texts = [Document(docid, "T", f"text of {docid}", {"url": f"https://a/{docid}"}) for docid in built.ids]
    ids, batch = built.store.load()
    store = write_store(tmp_path / "vectors", ids, batch, documents=texts)
    index = Index.build(store, tmp_path / "index", Lucene(store_vectors=True), threads=2)
    for feedback in ("set_rocchio", "set_rm3"):
        assert search(index.path, feedback) == search(anserini, feedback)
    docid, vector = next((docid, vector) for docid, vector in built.store.vectors() if vector and docid.startswith("d"))
    searcher = LuceneSearcher(str(index.path))
    assert json.loads(searcher.doc(docid).raw()) == {
        "id": docid,
        "title": "T",
        "contents": f"T text of {docid}",
        "url": f"https://a/{docid}",
        "vector": vector,
    }
    assert searcher.doc_by_field("url", f"https://a/{docid}").docid() == docid


def test_threads_share_the_documents_of_one_query(tmp_path: Path) -> None:
    """The hits, scores, ties and totals are those of one thread, over segments, deleted documents and filters."""
    random = np.random.default_rng(5)
    columns, impacts = random.integers(0, 20, (30_000, 2)), random.integers(1, 4, (30_000, 2))
    vectors = {
        f"d{number}": {f"w{column}": impact for column, impact in zip(*pair, strict=True)}
        for number, pair in enumerate(zip(columns.tolist(), impacts.tolist(), strict=True))
    }
    texts = [Document(docid, "", "text", {"last": docid[-1]}) for docid in vectors]
    store = open_store(write_plain(tmp_path / "vectors.jsonl", vectors, texts), plain=True)
    request = BuildRequest(store_documents=True, threads=2)
    index = build_index(store, find_engine("lucene"), tmp_path / "index", request)
    searcher = index.update(delete=[f"d{number}" for number in range(0, 30_000, 7)]).searcher()
    query = {"w3": 1.0, "w5": 2.0, "w11": 0.5}
    for k in (1, 10, 1000, 50_000):
        for filters in ({}, {"last": ["3", "4"]}):
            (alone,), (shared,) = (searcher.search([query], k, threads=threads, filters=filters) for threads in (1, 3))
            assert (shared.docids, shared.total) == (alone.docids, alone.total)
            assert shared.scores.tolist() == alone.scores.tolist()


def test_sums_in_int_are_those_in_double(tmp_path: Path) -> None:
    """A score above 2**24 makes Java add as Lucene does; the other documents keep their scores, to the last bit."""
    random = np.random.default_rng(6)
    vectors = {
        f"d{number}": {f"w{column}": int(random.integers(1, 400)) for column in random.choice(30, 12, replace=False)}
        for number in range(3_000)
    }
    query = {f"w{column}": float(weight) for column, weight in enumerate(random.gamma(2, 0.4, 30))}
    found = []
    for name, large in (("int", {}), ("double", {"large": {"w3": 2**21}})):
        store = open_store(write_plain(tmp_path / f"{name}.jsonl", vectors | large), plain=True)
        searcher = build_index(store, find_engine("lucene"), tmp_path / name).searcher()
        (hits,) = searcher.search([query], 4_000)
        found.append(dict(zip(hits.docids, hits.scores.tolist(), strict=True)))
    assert found[1].pop("large") > 2**24
    assert found[1] == found[0] and len(found[0]) == 3_000


def test_any_number_of_ties_is_ordered_by_docid(tmp_path: Path) -> None:
    """300 equal scores are in UTF-8 order for every k; Lucene itself orders them by its internal ids."""
    random = np.random.default_rng(3)
    names = [f"{first}{number:03d}" for number in range(100) for first in ("d", "\U0001f600", "\uffff")]
    vectors = {name: {"a": 2, "b": 1 + number % 2} for number, name in enumerate(random.permutation(names).tolist())}
    store = open_store(write_plain(tmp_path / "vectors.jsonl", vectors | {"best": {"a": 2**20}}), plain=True)
    searcher = build_index(store, find_engine("lucene"), tmp_path / "index", BuildRequest(threads=3)).searcher()
    in_order = ["best", *sorted(names)]
    for k in (1, 2, 7, 100, 298, 301, 1000):
        (hits,) = searcher.search([{"a": 1.0}], k)
        assert hits.docids == in_order[:k]
        assert hits.scores.tolist() == [100.0 * 2**20, *[200.0] * 300][:k]


@pytest.mark.parametrize("threads", [1, 3])
def test_lucene_checks_our_index_as_valid(
    built: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """Lucene's CheckIndex reads all of every segment, also if a buffer is full after every chunk."""
    from jnius import autoclass

    monkeypatch.setattr(lucene, "BUFFER_MB", 0.001)
    monkeypatch.setattr(lucene, "CHUNK", 20)
    documents = [
        Document(docid, "", docid, {"lang": ["de", "en"][: number % 3]}) for number, docid in enumerate(built.ids)
    ]
    ids, batch = built.store.load()
    store = write_store(tmp_path / "vectors", ids, batch, documents=documents if threads == 3 else None)
    index = Index.build(store, tmp_path / "index", threads=threads)
    files = autoclass("org.apache.lucene.store.FSDirectory").open(autoclass("java.nio.file.Paths").get(str(index.path)))
    check = autoclass("org.apache.lucene.index.CheckIndex")(files)
    status = check.checkIndex()
    assert status.clean
    segments = status.segmentInfos.toArray()
    assert len(segments) > 1
    assert sum(segment.maxDoc for segment in segments) == index.manifest.documents
    check.close()
    queries = synthetic_queries(20)
    for one, other in zip(index.searcher().search(queries, 50), built.ours.searcher().search(queries, 50), strict=True):
        assert one.docids == other.docids
        assert one.scores.tolist() == other.scores.tolist()


def java_error(name: str, message: str | None) -> Exception:
    """The error that pyjnius raises for an exception of Java."""
    error = Exception(name)
    error.classname, error.innermessage = name, message  # type: ignore[attr-defined]
    return error


class PanicException(BaseException):
    """A panic of Rust in Python: it is not an Exception."""


@pytest.mark.parametrize(
    ("action", "error", "told"),
    [
        ("build", java_error("java.lang.OutOfMemoryError", "Java heap space"), 'MILCO_JAVA_OPTIONS="-Xmx8g" before'),
        ("build", java_error("java.lang.Error", None), "engine e cannot build x: java.lang.Error$"),
        ("search", java_error("E", "In a.b.C. Or not.\n\tat d.e"), r"engine e cannot search x: In a\.b\.C\.$"),
        ("search", PanicException("range end"), "engine e cannot search x: range end"),
        ("build", MemoryError("Unable to allocate 9 TiB"), "too little memory to build x: Unable to allocate 9 TiB"),
        ("open", ValueError("no header"), r"x is damaged \(files of e: no header\)"),
        ("open", FileNotFoundError(2, "No such file", "x/ids"), r"x is damaged \(ids: it is missing\)"),
        ("open", java_error("java.nio.file.NoSuchFileException", "x/_0.si"), r"x is damaged \(_0.si: it is missing\)"),
        ("open", PermissionError(13, "Permission denied", "x/ids"), "^x/ids cannot be read: permission denied"),
        ("open", java_error("java.nio.file.AccessDeniedException", "x/_0.si"), "^x/_0.si cannot be read"),
        ("open", java_error("java.nio.file.FileSystemException", "x: Too many open files"), "open x: x: Too"),
    ],
)
def test_errors_of_libraries_are_one_line(action: str, error: BaseException, told: str) -> None:
    """Errors of Java and Rust have the engine, the index, the reason without stacks, the fix."""
    with pytest.raises(MilcoError, match=told) as raised, engine_errors("e", action, Path("x")):
        raise error
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("build", KeyError("ours")),
        ("build", OSError(28, "No space left on device", "x/ids")),
        ("open", OSError(24, "Too many open files", "x/ids")),
        ("open", KeyboardInterrupt()),
    ],
)
def test_other_errors_are_raised_unchanged(action: str, error: BaseException) -> None:
    """Bugs keep their traceback; an OSError names its file; Ctrl-C is not an error."""
    with pytest.raises(type(error)) as raised, engine_errors("e", action, Path("x")):
        raise error
    assert raised.value is error


def test_an_index_of_a_newer_lucene_is_refused_with_both_versions(built: SimpleNamespace, tmp_path: Path) -> None:
    """It is not damaged: the message suggests the newer Pyserini first."""
    newer = shutil.copytree(built.ours.path, tmp_path / "newer")
    (commit,) = newer.glob("segments_*")
    content = bytearray(commit.read_bytes())
    # The versions of Lucene that wrote it last and that made it, and the checksum of everything before it.
    version = bytes(written_by(newer))
    start = content.index(version)
    assert content[start + 3] == version[0]
    content[start : start + 4] = bytes([99, 0, 0, 99])
    content[-8:] = zlib.crc32(content[:-8]).to_bytes(8)
    commit.write_bytes(content)
    here = ".".join(map(str, version))
    assert built.ours.manifest.lucene == here
    with pytest.raises(MilcoError, match=rf"Lucene 99\.0\.0, .* {here}"):
        find_engine("lucene").open(newer, built.ours.manifest)


def test_java_may_be_started_by_another_program(built: SimpleNamespace, tmp_path: Path) -> None:
    """Only with Anserini on the class path, as by Pyserini: index and hits are the same."""
    query = synthetic_queries(1)[0]
    (expected,) = built.ours.searcher().search([query], 20)
    code = f"""
import json, os
import jnius_config
from milco_pyserini import jvm
os.environ["JAVA_HOME"] = str(jvm.java_home())
jnius_config.add_classpath(str(jvm.anserini_jar()))
import jnius
from pathlib import Path
from milco_pyserini import Index
index = Index.build(Path({str(built.store.path)!r}), "index", threads=2)
(hits,) = index.searcher().search([{query!r}], 20)
print(json.dumps([hits.docids, hits.scores.tolist()]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [expected.docids, expected.scores.tolist()]


def compiler() -> Path:
    """The javac that made the classes: another version may order a class's constants in another way."""
    homes = [Path(os.environ.get("JAVA_HOME", "")), *Path("/usr/lib/jvm").glob("*")]
    for javac in (home / "bin" / "javac" for home in homes):
        if javac.is_file():
            stderr = subprocess.run([javac, "-version"], capture_output=True, text=True, check=False).stdout
            if stderr.startswith("javac 25."):
                return javac
    pytest.skip("needs the javac of Java 25 in JAVA_HOME or /usr/lib/jvm")


def test_impacts_are_those_of_documents_that_were_not_deleted(built: SimpleNamespace, tmp_path: Path) -> None:
    """Only the requested terms have weights; a docid that the index lacks, or no longer has, has none."""
    vectors = dict(built.store.vectors())
    kept, gone = (docid for docid, vector in list(vectors.items())[:2] if vector)
    shutil.copytree(built.ours.path, tmp_path / "index")
    searcher = open_index(tmp_path / "index").update(delete=[gone]).searcher()
    terms = [*vectors[kept], *vectors[gone], "nowhere"]
    found = built.ours.searcher().weights(gone, terms)
    assert found == vectors[gone]
    assert searcher.weights(kept, terms) == vectors[kept]
    assert searcher.weights(kept, []) == {}
    assert searcher.weights(gone, terms) is searcher.weights("nowhere", []) is None


def test_the_classes_are_compiled_from_their_source(tmp_path: Path) -> None:
    """javac reproduces the same bytes from java/*.java."""
    command = [compiler(), "--release", "21", "-g:none", "-nowarn", "-cp", jvm.anserini_jar(), "-d", tmp_path]
    subprocess.run([*command, *sorted(jvm.CLASSES.glob("*.java"))], check=True, capture_output=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in jvm.CLASSES.glob("*.class")}
