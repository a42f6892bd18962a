"""The contract of the files of every target."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported_files import READERS, content_of, lines_of
from golden_set import GOLDEN
from synthetic_stores import synthetic_batch, write_plain, write_store

from milco_pyserini.cli.main import main
from milco_pyserini.corpora import Document
from milco_pyserini.encode.contract import MilcoQueryEncoder
from milco_pyserini.encode.documents import DocumentSchema, SchemaReader
from milco_pyserini.errors import MilcoError
from milco_pyserini.export import find_target, search_request
from milco_pyserini.export.elasticsearch_documents import stored_json
from milco_pyserini.export.opensearch import OpenSearchTarget
from milco_pyserini.export.protocol import ImpactDocument, Steps
from milco_pyserini.export.qdrant import point, point_id
from milco_pyserini.export.registry import TARGETS
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.io.files import PARTIAL, write_json
from milco_pyserini.sparse import SparseBatch, VectorStore, Vocabulary

INCREMENTAL = [name for name, target in TARGETS.items() if Capability.UPDATE in target.capabilities]


def vectors(path: Path) -> dict[str, dict[str, int]]:
    """Return the documents of a store that have terms."""
    return {docid: vector for docid, vector in VectorStore.open(path).vectors() if vector}


def export(target: str, path: Path, output: Path, *more: str) -> int:
    """Run milco export; return its exit code."""
    return main(["export", "--to", target, "--vectors", str(path), "--output", str(output), *more])


@pytest.mark.parametrize("target", TARGETS)
def test_the_files_hold_every_document_with_terms(target: str, store: Path, tmp_path: Path) -> None:
    """Every docid, term and impact, whatever their characters; documents without terms are left out."""
    assert export(target, store, tmp_path / "out") == 0
    documents, deleted = READERS[target](tmp_path / "out")
    assert documents == vectors(store)
    assert not deleted


@pytest.mark.parametrize("target", TARGETS)
def test_an_export_explains_and_checks_itself(target: str, store: Path, tmp_path: Path) -> None:
    """README.md, the vocabulary of the store, the fingerprint of the encoder, and checksums."""
    output = tmp_path / "out"
    assert export(target, store, output, "--topics", str(store), "--collection", "mine") == 0
    assert (output / "vocabulary.json").read_bytes() == (store / "vocabulary.json").read_bytes()
    readme = (output / "README.md").read_text("utf-8")
    assert "```sh\n" in readme and "--encoder mini" in readme and find_target(target).title in readme
    manifest = json.loads((output / "manifest.json").read_text())
    assert (manifest["target"], manifest["collection"]) == (target, "mine")
    assert (manifest["vectors"]["encoder"], manifest["vectors"]["scale"]) == ("mini", 100.0)
    assert manifest["documents"] + manifest["empty_documents"] == len(VectorStore.open(store))
    assert main(["verify", str(output)]) == 0


@pytest.mark.parametrize("target", INCREMENTAL)
def test_changes_lead_from_one_store_to_the_other(target: str, store: Path, changed: Path, tmp_path: Path) -> None:
    """--since: documents that are new or differ, and the ids of those that are gone."""
    assert export(target, changed, tmp_path / "out", "--since", str(store)) == 0
    documents, deleted = READERS[target](tmp_path / "out")
    before, after = vectors(store), vectors(changed)
    assert documents == {docid: vector for docid, vector in after.items() if before.get(docid) != vector}
    gone = before.keys() - after.keys()
    assert deleted == (set(map(point_id, gone)) if target == "qdrant" else gone)
    assert documents and gone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "elastic"], "unknown target 'elastic': did you mean 'elasticsearch'?"),
        (["--vectors", "2024-news"], "--vectors 2024-news cannot be that of a collection: give --collection"),
        (["--vectors", "external"], "has no vocabulary.json: an export needs a finished vector store"),
        (["--topics", "other"], "its weight_hash is 'theirs'"),
        (["--since", "same", "--to", "ciff"], "--since"),
        (["--since", "same"], "nothing that differs from same"),
        (["--collection", "Mine!"], "--collection 'Mine!'"),
        (["--shard-num", "9"], "--shard-num 9: same has 1 part"),
        (["--output", "taken"], "taken was not written by this command"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Exit code 2, before any work."""
    monkeypatch.chdir(tmp_path)
    ids, batch = synthetic_batch(20)
    write_store(Path("same"), ids, batch, weight_hash="ours")
    write_store(Path("other"), ids, batch, weight_hash="theirs")
    write_plain(Path("external/vectors.jsonl"), {"d": {"t": 1}})
    Path("taken").mkdir()
    Path("taken", "thesis.txt").touch()
    given = {"--to": "parquet", "--vectors": "same", "--output": "out"} | dict(
        zip(arguments[::2], arguments[1::2], strict=True)
    )
    assert main(["export", *(word for pair in given.items() for word in pair)]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("error:") == 1
    assert not Path("out").exists()


def test_an_export_that_is_complete_is_not_written_again(
    store: Path, changed: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """The same command is done and sweeps what a killed one left; another is refused, damage is reported."""
    output, options = tmp_path / "out", ["--topics", str(store), "--since", str(changed)]
    assert export("qdrant", store, output, *options) == 0
    times = {path: path.stat().st_mtime_ns for path in output.iterdir()}
    left = tmp_path / f".out{PARTIAL}1"
    left.mkdir()
    os.utime(left, (0, 0))
    capsys.readouterr()
    assert export("qdrant", store, output, *options) == 0
    assert not left.exists()
    assert capsys.readouterr().err == f"{output} is up to date\n"
    assert {path: path.stat().st_mtime_ns for path in output.iterdir()} == times
    for other in ([*options, "--prune", "top-k:3"], [*options, "--collection", "mine"], options[:2], options[2:]):
        assert export("qdrant", store, output, *other) == 2
        assert "--overwrite" in capsys.readouterr().err
    (output / "README.md").unlink()
    assert export("qdrant", store, output, *options) == 2
    assert "is damaged (README.md: it is missing)" in capsys.readouterr().err


@pytest.mark.parametrize("target", TARGETS)
def test_shards_hold_the_documents_of_the_store(target: str, store: Path, tmp_path: Path) -> None:
    """Each in a directory of its own; each document is in one of them."""
    documents: dict[str, dict[str, int]] = {}
    for number in range(2):
        assert export(target, store, tmp_path / "out", "--shard-id", str(number), "--shard-num", "2") == 0
        shard, _ = READERS[target](tmp_path / "out" / f"shard-0000{number}-of-00002")
        assert shard and not documents.keys() & shard.keys()
        documents |= shard
    assert documents == vectors(store)
    assert main(["verify", str(tmp_path / "out")]) == 0


STORED: dict[str, Callable[[Path], list[dict]]] = {
    "elasticsearch": lambda out: [
        json.loads(stored_json(action["index"]["_id"], source))
        for action, source in pairs_of(lines_of(out, "documents-*.ndjson.gz"))
        if source.pop("vector")
    ],
    "qdrant": lambda out: [
        {"id": payload.pop("docid"), **payload}
        for point in json.loads(content_of(out / "documents-00000.json.gz"))["points"]
        for payload in [point["payload"]]
    ],
    "milvus": lambda out: [row["document"] for row in json.loads(content_of(out / "documents-00000.json.gz"))["data"]],
    "pgvector": lambda out: [
        json.loads(line.split("\t")[2].replace("\\\\", "\\"))
        for line in (out / "documents.copy").read_text("utf-8").splitlines()
    ],
}


def pairs_of(lines: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield every two lines."""
    return zip(lines[::2], lines[1::2], strict=True)


@pytest.mark.parametrize("target", STORED)
def test_files_hold_the_documents_that_an_index_would_store(target: str, tmp_path: Path) -> None:
    """Title, text and fields of each, next to its vector."""
    _, batch = synthetic_batch(9)
    documents = [
        Document(f"d{number}", "Nile", 'a "b" \\u0041', {"lang": "en", "meta.year": number}) for number in range(9)
    ]
    path = write_store(tmp_path / "v", [document.id for document in documents], batch, documents=documents)
    assert export(target, path, tmp_path / "out", "--store") == 0
    expected = [
        {"id": docid, "title": "Nile", "contents": 'Nile a "b" \\u0041', "lang": "en", "meta.year": int(docid[1:])}
        for docid, _ in VectorStore.open(path).vectors()
    ]
    assert STORED[target](tmp_path / "out") == expected
    assert "contents" in (tmp_path / "out" / "README.md").read_text()


def test_texts_are_analyzed_in_their_language_and_vectors_are_not_in_the_source() -> None:
    """A keyword, number or date for each field; the standard analyzer for other languages and where one is missing."""
    fields = [
        {"lang": "de-AT", "year": 2024, "price": 1, "date": "2024-01-02", "kind": "2024-01-02"},
        {"lang": "sw", "year": 2023, "price": 0.5, "date": "2024-01-02T10:00:00Z", "kind": "none", "tags": ["a"]},
        {"lang": "fr", "open": True},
    ]
    reader = SchemaReader("documents")
    for place, each in enumerate(fields):
        reader.add(Document(str(place), "", "", each))
    about = reader.manifest_fields()
    schema = DocumentSchema(about["kinds"], about["languages"])
    mapping = OpenSearchTarget().mapping("any", schema, ["french"])["mappings"]
    assert mapping["_source"] == {"excludes": ["vector"]}
    properties = mapping["properties"]
    assert {name: value.get("analyzer") for name, value in properties.items() if name.startswith("contents.")} == {
        "contents.de": "german",
        "contents.default": None,
        "contents.fr": None,
    }
    types = {name: value["type"] for name, value in properties.items() if "." not in name}
    assert types == {
        **{"vector": "rank_features", "lang": "keyword", "kind": "keyword", "tags": "keyword"},
        **{"year": "long", "price": "double", "open": "boolean", "date": "keyword"},
    }
    assert properties["date"]["fields"]["date"]["type"] == "date"
    assert schema.fields == {"date": "string", "kind": "string", "lang": "string"} | {
        **{"open": "boolean", "price": "number", "tags": "strings", "year": "number"}
    }


@pytest.mark.parametrize(
    ("target", "record", "message"),
    [
        ("ciff", {}, "--store: CIFF cannot store documents, elasticsearch, milvus, "),
        ("qdrant", {"docid": "x"}, "--store: docid is Qdrant's docid. Rename that field"),
        ("milvus", {"text": "x" * 66_000}, "bytes of JSON, Milvus takes 65,536. Omit --store"),
    ],
)
def test_documents_that_a_target_cannot_store_are_refused(
    target: str, record: dict, message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """One line names the way out."""
    _, batch = synthetic_batch(1)
    text = record.pop("text", "a")
    path = write_store(tmp_path / "v", ["d"], batch, documents=[Document("d", "", text, record)])
    assert export(target, path, tmp_path / "out", "--store") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_pruned_documents_are_exported(store: Path, tmp_path: Path) -> None:
    """--prune keeps the strongest terms of every document, and the manifest names the rule."""
    assert export("parquet", store, tmp_path / "out", "--prune", "top-k:3") == 0
    assert max(map(len, READERS["parquet"](tmp_path / "out")[0].values())) == 3
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["vectors"]["pruning"] == "top-k:3"


def test_elasticsearch_rounds_impacts_and_does_not_prune_queries(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Above 512 its 9 significant bits do not suffice; its default drops terms of queries, so all state otherwise."""
    assert export("elasticsearch", store, tmp_path / "out", "--topics", str(store)) == 0
    assert "exact for impacts up to 512, the largest here is 4,000" in capsys.readouterr().err
    mapping = json.loads((tmp_path / "out" / "mapping.json").read_text())["mappings"]
    assert mapping["properties"]["vector"] == {"type": "sparse_vector", "index_options": {"prune": False}}
    bodies = lines_of(tmp_path / "out", "queries.ndjson")[1::2]
    assert all(body["query"]["sparse_vector"]["prune"] is False for body in bodies)


@pytest.mark.parametrize("target", ["elasticsearch", "opensearch"])
def test_vectors_can_be_added_to_the_documents_of_an_index(
    target: str, store: Path, changed: Path, tmp_path: Path
) -> None:
    """The command of README.md makes updates of the bulk requests, and deletes nothing."""
    assert export(target, changed, tmp_path / "out", "--since", str(store)) == 0
    readme = (tmp_path / "out" / "README.md").read_text("utf-8")
    command = readme[readme.index("      gzip -dc FILE") :].replace("FILE", "documents-*.ndjson.gz")
    command = command[: command.index("\n\n")]
    done = subprocess.run(command, shell=True, cwd=tmp_path / "out", capture_output=True, check=True, encoding="utf-8")
    actions = iter([json.loads(line) for line in done.stdout.split("\n")[:-1]])
    written = {one["update"]["_id"]: next(actions)["script"]["params"]["v"] for one in actions}
    assert written == READERS[target](tmp_path / "out")[0]


def test_a_request_needs_terms_and_an_engine_that_is_searched_over_http() -> None:
    """One line names what is missing; the path has the name of the collection."""
    encoder = MilcoQueryEncoder(str(GOLDEN / "ckpt_distillation"), device="cpu", dtype="float32")
    path, body = search_request("opensearch", "mine", encoder, "Nile", k=3)
    assert (path, body["size"]) == ("/mine/_search", 3)
    with pytest.raises(MilcoError, match="query '' has no terms"):
        search_request("opensearch", "mine", encoder, "")
    path, body = search_request("elasticsearch", "mine", encoder, "Nile", k=3, hybrid=True)
    sparse, words = (part["standard"]["query"] for part in body["retriever"]["rrf"]["retrievers"])
    assert "sparse_vector" in sparse and words["multi_match"]["query"] == "Nile"
    with pytest.raises(MilcoError, match="hybrid=True: Milvus cannot search stored texts by BM25, "):
        search_request("milvus", "mine", encoder, "Nile", hybrid=True)
    for target in ("pgvector", "ciff", "parquet"):
        with pytest.raises(MilcoError, match="cannot be searched over HTTP, elasticsearch, milvus, "):
            search_request(target, "mine", encoder, "Nile")


@pytest.mark.parametrize(("largest", "unit"), [(100, 128.0), (20_000, 512.0)])
def test_a_request_in_two_steps_asks_for_strong_terms_and_rescores_with_the_others(largest: int, unit: float) -> None:
    """Both parts have the unit of the complete query; the window holds all hits."""
    query = ImpactDocument("", ["a", "b", "c"], [1, 2, 3], [largest, 30, largest // 2])
    body = find_target("opensearch").search_request(query, "mine", 10, Steps(0.5, 7)).body  # type: ignore[call-arg]
    second = body["rescore"]["query"]
    assert tokens(body["query"]) == {"a": largest / unit, "c": largest / 2 / unit}
    assert {
        term: weight * second["rescore_query_weight"] for term, weight in tokens(second["rescore_query"]).items()
    } == {"b": 30 / unit}
    assert body["rescore"]["window_size"] == body["size"] == 10
    exact = find_target("opensearch").search_request(query, "mine", 10).body
    assert find_target("opensearch").search_request(query, "mine", 10, Steps(0, 7)).body == exact  # type: ignore[call-arg]


def tokens(query: dict) -> dict[str, float]:
    """Return the weights of a query of OpenSearch."""
    return query["neural_sparse"]["vector"]["query_tokens"]


def test_qdrant_fuses_both_rankings() -> None:
    """Its hybrid request, as the client's local mode answers it."""
    qdrant = pytest.importorskip("qdrant_client", reason="needs qdrant_client (pip install '.[qdrant]')")
    models, client = qdrant.models, qdrant.QdrantClient(":memory:")
    client.create_collection("mine", {}, sparse_vectors_config={"terms": models.SparseVectorParams()})
    # Local mode knows only its default tokenizer.
    client.create_payload_index("mine", "contents", models.TextIndexParams(type="text", scoring=True))
    vectors = [
        ImpactDocument(text, ["a"], [7], [place + 1]) for place, text in enumerate(("house", "river river", "nile"))
    ]
    points = [point(vector._replace(document={"id": vector.id, "contents": vector.id})) for vector in vectors]
    client.upsert("mine", [models.PointStruct(**value) for value in points])
    body = find_target("qdrant").hybrid_request(ImpactDocument("", ["a"], [7], [1]), "river", "mine", 3).body
    (found,) = client.query_batch_points("mine", [models.QueryRequest(**body)])
    assert [hit.payload["docid"] for hit in found.points] == ["river river", "nile", "house"]


def test_query_weights_for_opensearch_are_at_most_64() -> None:
    """Impacts are divided by a power of two, all of the query by the same, so that scores are exact."""
    for impacts, sent in (([25_700, 1], [25_700 / 512, 1 / 512]), ([64 * 128, 1], [64.0, 1 / 128])):
        query = OpenSearchTarget().query(ImpactDocument("q", ["a", "b"], [0, 1], impacts))
        assert query["neural_sparse"]["vector"]["query_tokens"] == dict(zip("ab", sent, strict=True))


def test_a_document_with_too_many_terms_for_pgvector_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """16,000 terms fit a sparsevec; the error names the option that helps, and nothing is written."""
    vocabulary = Vocabulary([f"w{number}" for number in range(16_001)], [])
    columns = np.arange(16_001, dtype=np.int32)
    batch = SparseBatch(np.array([0, 16_001]), columns, np.ones(16_001, np.float32), len(vocabulary), vocabulary)
    path = write_store(tmp_path / "v", ["d"], batch, parquet=True)
    write_json(path / "vocabulary.json", vocabulary.to_json())
    assert export("pgvector", path, tmp_path / "out") == 2
    assert "--prune top-k:16000" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert export("pgvector", path, tmp_path / "out", "--prune", "top-k:16000") == 0
