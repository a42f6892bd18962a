"""Vector stores are read as they were written, by us and by Anserini; incomplete ones are refused."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import checksum, write_json
from milco_pyserini.io.manifest import write_checked
from milco_pyserini.sparse import PlainStore, SparseBatch, VectorStore, Vocabulary, open_store
from milco_pyserini.sparse.json_vectors import json_keys, json_vectors, json_vectors_by_definition
from milco_pyserini.sparse.quantization import quantize_vector
from milco_pyserini.sparse.store import FORMAT_VERSION, write_jsonl, write_parquet

VOCABULARY = Vocabulary(["music", "##ing", "a b", "\u2028"], ["<s>", "▁陌", "🚂", "'\"\\"])
TERMS = VOCABULARY.terms.tolist()
VECTORS = st.lists(st.dictionaries(st.sampled_from(TERMS), st.floats(2**-9, 60, width=32), max_size=8), max_size=9)
SCALE = 100.0


def write_store(path: Path, parts: list[list[dict[str, float]]], kind: str) -> VectorStore:
    """Write a finished store of float vectors with ids d0, d1, ..., and open it."""
    path.mkdir(exist_ok=True)
    entries, count = [], 0
    for number, vectors in enumerate(parts):
        file = path / f"part-{number:05d}.{kind}"
        ids = [f"d{count + place}" for place in range(len(vectors))]
        batch = SparseBatch.from_dicts(vectors, VOCABULARY)
        with file.open("wb") as handle:
            if kind == "jsonl":
                write_jsonl(handle, ids, batch, VOCABULARY, SCALE)
            else:
                write_parquet(handle, ids, batch)
        count += len(vectors)
        entries.append(
            {"file": file.name, "bytes": file.stat().st_size, "checksum": checksum(file), "documents": len(vectors)}
        )
    write_json(path / "vocabulary.json", VOCABULARY.to_json())
    manifest = {"format_version": FORMAT_VERSION, "scale": SCALE, "documents": count, "parts": entries}
    write_checked(path / "manifest.json", manifest)
    store = open_store(path)
    assert isinstance(store, VectorStore)
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list, str], VectorStore]:
    """Return a function that writes stores, each format to a directory of its own."""
    root = tmp_path_factory.mktemp("stores")
    return lambda parts, kind: write_store(root / kind, parts, kind)


@given(VECTORS)
def test_each_line_holds_id_contents_and_impacts(vectors: list) -> None:
    """In this order, as the JSON of {term: impact}, without impacts of 0."""
    ids, texts = [f'd"{number}' for number in range(len(vectors))], ["a\n", "語"] * len(vectors)
    handle = io.BytesIO()
    batch = SparseBatch.from_dicts(vectors, VOCABULARY)
    records = [orjson.dumps({"id": name, "contents": text}) for name, text in zip(ids, texts, strict=False)]
    write_jsonl(handle, ids, batch, VOCABULARY, SCALE, records)
    wanted = (
        {"id": name, "contents": text, "vector": quantize_vector(vector, SCALE)}
        for name, text, vector in zip(ids, texts, batch.to_dicts(VOCABULARY), strict=False)
    )
    assert handle.getvalue() == b"".join(orjson.dumps(line) + b"\n" for line in wanted)


@pytest.mark.parametrize("largest", [99, 10**6])
def test_vectors_as_json_are_those_of_their_definition(largest: int) -> None:
    """More vectors than are written at a time, some of them empty, and impacts of any length."""
    random = np.random.default_rng(largest)
    terms = np.asarray([f"{'語' * (number % 9)}\\{number}" for number in range(300)], object)
    lengths = random.integers(0, 60, 700) * (random.random(700) < 0.9)
    columns = np.concatenate([random.choice(300, length, replace=False) for length in lengths]).astype(np.int32)
    rows = np.concatenate([[0], np.cumsum(lengths)]), columns, random.integers(1, largest, len(columns))
    wanted = b"\n".join(json_vectors_by_definition(*rows, terms))
    assert b"\n".join(json_vectors(*rows, terms, json_keys(terms))) == wanted


@settings(max_examples=15)
@given(VECTORS, VECTORS)
def test_a_store_is_read_as_it_was_written(stores: Callable, first: list, second: list) -> None:
    """JSONL and Parquet give the same ids and impacts; Parquet the float weights, JSONL impact / scale."""
    vectors = [*first, *second]
    wanted = [(f"d{number}", quantize_vector(vector, SCALE)) for number, vector in enumerate(vectors)]
    for kind in ("jsonl", "parquet"):
        store = stores([first, second], kind)
        assert list(store.vectors()) == wanted
        assert len(store) == len(vectors)
        assert store.terms == TERMS
        read = [
            (name, vector)
            for ids, batch in store.batches()
            for name, vector in zip(ids, batch.to_dicts(store.vocabulary), strict=True)
        ]
        if kind == "parquet":
            assert read == [(f"d{number}", vector) for number, vector in enumerate(vectors)]
        else:
            assert [name for name, _ in read] == [name for name, _ in wanted]
            for (_, weights), (_, impacts) in zip(read, wanted, strict=True):
                assert weights == pytest.approx({term: impact / SCALE for term, impact in impacts.items()}, rel=1e-6)


def test_jsonl_is_what_anserini_reads(tmp_path: Path) -> None:
    """One object a line: id and contents strings, vector a flat object of integers; plain UTF-8."""
    write_store(tmp_path, [[{"music": 1.824, "m_▁陌": 0.91, TERMS[3]: 0.001}, {}]], "jsonl")
    lines = (tmp_path / "part-00000.jsonl").read_bytes()
    assert (
        lines
        == (
            '{"id":"d0","contents":"","vector":{"music":182,"m_▁陌":91}}\n{"id":"d1","contents":"","vector":{}}\n'
        ).encode()
    )
    for line in lines.splitlines():
        assert list(json.loads(line)) == ["id", "contents", "vector"]


def test_large_parts_are_read_in_groups(tmp_path: Path) -> None:
    """A Parquet part longer than one group of rows gives every document once, in order."""
    vectors = [{TERMS[number % 8]: float(number % 50 + 1)} for number in range(70_000)]
    store = write_store(tmp_path, [vectors], "parquet")
    groups = list(store.batches())
    assert len(groups) > 1
    assert [name for ids, _ in groups for name in ids] == [f"d{number}" for number in range(70_000)]
    joined = SparseBatch.concatenate([batch for _, batch in groups], VOCABULARY.english_size)
    assert joined.weights.tolist() == [float(number % 50 + 1) for number in range(70_000)]
    assert joined.columns.tolist() == [number % 8 for number in range(70_000)]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_store_is_loaded_into_memory(tmp_path: Path, kind: str) -> None:
    """All ids and vectors with their vocabulary; paths may be strings."""
    vectors = [[{"music": 1.0}, {}], [{"music": 2.0, "m_▁陌": 0.5}]]
    write_store(tmp_path, vectors, kind)
    store = VectorStore.open(str(tmp_path))
    ids, batch = store.load()
    assert (ids, batch.to_dicts()) == (["d0", "d1", "d2"], [vector for part in vectors for vector in part])
    assert repr(store) == f"VectorStore({str(tmp_path)!r}, 3 documents, encoder={store.manifest.encoder!r})"
    assert open_store(str(tmp_path)).manifest == store.manifest


def test_an_unknown_term_of_a_part_is_named(tmp_path: Path) -> None:
    """With a right checksum; lines without vectors: contract/test_damage.py."""
    store = write_store(tmp_path, [[{"music": 1.0}]], "jsonl")
    part = tmp_path / "part-00000.jsonl"
    part.write_bytes(part.read_bytes().replace(b"music", b"musik"))
    parts = [structs.replace(store.manifest.parts[0], checksum=checksum(part))]
    store = VectorStore(store.path, structs.replace(store.manifest, parts=parts))
    with pytest.raises(MilcoError, match=r"part-00000\.jsonl: term 'musik'"):
        list(store.batches())


def test_what_is_not_such_a_store_is_refused(tmp_path: Path) -> None:
    """A vector store as external vectors, whose parts can be read; an empty directory; an index."""
    write_store(tmp_path / "store", [[{"music": 1.0}]], "jsonl")
    with pytest.raises(MilcoError, match="plain"):
        open_store(tmp_path / "store", plain=True)
    part = tmp_path / "store" / "part-00000.jsonl"
    assert dict(open_store(part, plain=True).vectors()) == {"d0": {"music": 100}}
    (tmp_path / "empty").mkdir()
    with pytest.raises(MilcoError, match=r"\.jsonl, \.json, "):
        list(open_store(tmp_path / "empty", plain=True).vectors())
    write_checked(tmp_path / "empty" / "manifest.json", {"format_version": 1, "engine": "lucene"})
    with pytest.raises(MilcoError, match="is not a vector store"):
        open_store(tmp_path / "empty")


def plain(path: Path, *lines: object, name: str = "vectors.jsonl") -> Path:
    """Write a file of external vectors: objects as JSON, bytes as they are."""
    content = b"".join(line if isinstance(line, bytes) else orjson.dumps(line) + b"\n" for line in lines)
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def vector(name: object, **weights: object) -> dict:
    """Return one line of such a file."""
    return {"id": name, "contents": "ignored", "vector": weights}


def test_external_vectors_may_be_a_file_or_a_directory(tmp_path: Path) -> None:
    """A directory and its folders in sorted order, gzip or not, or one file; other files are ignored."""
    plain(tmp_path / "b", vector("3", x=3), name="part.json.gz")
    plain(tmp_path / "a", vector(1, x=1), vector("2", y=2), name="z.jsonl")
    plain(tmp_path, b"not vectors", name="readme.txt")
    wanted = [("1", {"x": 1}), ("2", {"y": 2}), ("3", {"x": 3})]
    store = open_store(tmp_path, plain=True)
    assert isinstance(store, PlainStore)
    assert list(store.vectors()) == wanted
    assert list(open_store(tmp_path / "b" / "part.json.gz", plain=True).vectors()) == wanted[2:]


@pytest.mark.parametrize(
    ("weights", "scale", "expected"),
    [
        ({"a": 0, "b": -0.0, "c": 2}, None, {"c": 2}),
        ({}, None, {}),
        ({"a": 0.004, "c": 0.015, "d": 1}, 100.0, {"c": 2, "d": 100}),
        ({"a": 0.575, "b": 0.5}, 100.0, quantize_vector({"a": 0.575, "b": 0.5}, 100.0)),
        ({"a": 2**24 + 1}, None, {"a": 2**24 + 1}),
        ({"a": 3.0}, 10, {"a": 30}),
    ],
)
def test_external_weights_are_rounded_as_our_own(
    tmp_path: Path, weights: dict, scale: float | None, expected: dict
) -> None:
    """In float32, which decides on halves; zeros are dropped as in Anserini; large integers are kept."""
    store = PlainStore(plain(tmp_path, vector("1", **weights)), *([] if scale is None else [scale]))
    assert list(store.vectors()) == [("1", expected)]


def test_float_weights_need_a_scale(tmp_path: Path) -> None:
    """A weight that is not an integer is named with file, line and fix; 3.0 is one."""
    with pytest.raises(MilcoError, match=r"vectors\.jsonl:2: .*0\.5 .*'b' .*scale"):
        list(PlainStore(plain(tmp_path, vector("1", a=3.0), vector("2", b=0.5))).vectors())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{\n", "not JSON"),
        ([1], 'expected {"id"'),
        ({"id": "1"}, 'expected {"id"'),
        (vector("1", a="3"), "weight '3' of term 'a' is not a number"),
        (vector("1", a=True), "weight True of term 'a' is not a number"),
        (vector("1", a=-3), "weight -3 of term 'a' is below 0"),
        (vector("1", a=2**31), "weight 2147483648 of term 'a' x scale 1 is above 2,147,483,647"),
        (b'{"id": "1", "vector": {"a": 1e300}}', "weight 1e+300 of term 'a' x scale 1 is above 2,147,483,647"),
        (b'{"id": "1", "vector": {"a": NaN}}', "not JSON"),
        (vector("1", **{"t" * 99: "3"}), "weight '3' of term 'ttttttttttttttt"),
        (vector("1", a="3" * 99), "…' of term 'a' is not a number"),
        (vector(None, a=1), "the id is None, where a string or an integer is needed"),
        (vector(True, a=1), "the id is True, where"),
        (vector([1] * 99, a=1), "the id is [1, 1, 1"),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, line: object, reason: str) -> None:
    """File and line number of what cannot be read."""
    path = plain(tmp_path, vector("0", a=1), line)
    with pytest.raises(MilcoError) as caught:
        list(PlainStore(path).vectors())
    message = str(caught.value).removeprefix(str(path))
    assert message.startswith("/vectors.jsonl:2: ") and reason in message
    assert len(message) < 200


@pytest.mark.parametrize("lines", [[{"a b": 1, "a\ue001000020b": 2}], [{"a\ue001000020b": 1}, {"a b": 2}]])
def test_external_terms_may_be_escaped(tmp_path: Path, lines: list[dict]) -> None:
    """A term next to its own escape is refused: they would be one term, in one vector or in two."""
    path = plain(tmp_path, *(vector(number, **weights) for number, weights in enumerate(lines)))
    with pytest.raises(MilcoError, match=rf"vectors\.jsonl:{len(lines)}: "):
        list(PlainStore(path).vectors())
    apart = plain(tmp_path, vector("1", **{"a b": 1, "c\ue001": 2}), vector("2", **{"a b": 3}))
    assert list(PlainStore(apart).vectors()) == [
        ("1", {"a\ue001000020b": 1, "c\ue001": 2}),
        ("2", {"a\ue001000020b": 3}),
    ]


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_weights_on_disk_are_finite(tmp_path: Path, weight: float) -> None:
    """A Parquet part with NaN or infinity is refused, with its document."""
    store = write_store(tmp_path, [[{"music": 1.0}, {"music": 1.0, "m_🚂": weight}]], "parquet")
    for read in (store.vectors, store.batches):
        with pytest.raises(MilcoError, match=rf"'d1' .*{weight}"):
            list(read())


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 0, -1, 1e300])
def test_the_scale_of_external_vectors_is_validated(tmp_path: Path, scale: float) -> None:
    """NaN, infinity, zero and what leaves no room for a weight of 1 are refused before a line is read."""
    with pytest.raises(MilcoError, match="must be above 0"):
        open_store(plain(tmp_path, b"{"), plain=True, scale=scale)
    path = plain(tmp_path, vector("1", a=3_000_000))
    with pytest.raises(MilcoError, match=r":1: .*3000000 .*'a'"):
        list(PlainStore(path, 1000).vectors())


@settings(max_examples=25)
@given(
    st.lists(st.dictionaries(st.text("abcdefgh", min_size=1, max_size=2), st.integers(1, 99), max_size=6), max_size=8)
)
def test_external_batches_equal_their_vectors(tmp_path_factory: pytest.TempPathFactory, vectors: list[dict]) -> None:
    """The batches of floats equal the dictionaries of impacts, in every pass."""
    path = plain(tmp_path_factory.mktemp("plain"), *(vector(str(n), **weights) for n, weights in enumerate(vectors)))
    store = PlainStore(path, 4.0)
    for _ in range(2):
        read = []
        for ids, batch in store.batches():
            terms = np.array(store.terms, dtype=object)
            for name, (columns, weights) in zip(ids, batch.rows(), strict=True):
                assert (np.diff(columns) > 0).all()
                read.append((name, dict(zip(terms[columns].tolist(), (weights * 4).tolist(), strict=True))))
        assert read == list(store.vectors())
    assert store.manifest.encoder is None
    assert len(store.terms) == len({term for weights in vectors for term in weights})
