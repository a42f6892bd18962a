"""Other engines, filled with the exported files, find what exact search finds: the sample's 650 queries, all scores."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from exported_files import READERS, content_of, lines_of
from feature_field import search_features
from golden_set import GOLDEN

from milco_pyserini.cli.main import main
from milco_pyserini.corpora import open_topics
from milco_pyserini.encode.contract import MilcoQueryEncoder
from milco_pyserini.export import search_request
from milco_pyserini.export.protocol import HITS
from milco_pyserini.index import Index
from milco_pyserini.sparse import VectorStore

pytestmark = pytest.mark.integration
CHECKPOINT = str(GOLDEN / "ckpt_distillation")
Best = dict[str, list[int]]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the stores vectors and topics of the sample, whose scores are exact in float32."""
    root = tmp_path_factory.mktemp("sample")
    options = ["sample", "--encoder", CHECKPOINT, "--views", "pivot", "--output"]
    assert main(["encode", "--corpus", *options, str(root / "vectors"), "--prune", "top-k:20"]) == 0
    assert main(["encode", "--topics", *options, str(root / "topics")]) == 0
    return root


@pytest.fixture(scope="module")
def best(sample: Path) -> Best:
    """Query id -> scores of its best documents by the engine exact, as integers of impacts."""
    searcher = Index.build(sample / "vectors", sample / "index", engine="exact").searcher()
    ids, queries = VectorStore.open(sample / "topics").load()
    found = searcher.search(queries.to_dicts(), HITS)
    return {name: [round(score * 100 * 100) for score in hits.scores] for name, hits in zip(ids, found, strict=True)}


@pytest.fixture(scope="module")
def exported(sample: Path) -> Callable[[str], Path]:
    """Return a function that exports the sample with its topics to a target and returns the directory."""

    def export(target: str) -> Path:
        stores = ["--vectors", str(sample / "vectors"), "--topics", str(sample / "topics")]
        assert main(["export", "--to", target, *stores, "--output", str(sample / target), "--overwrite"]) == 0
        return sample / target

    return export


def queries_of(directory: Path) -> dict[str, dict]:
    """Return each search of queries.json by the id of its query."""
    searches = json.loads((directory / "queries.json").read_bytes())["searches"]
    return dict(zip(lines_of(directory, "queries.ids"), searches, strict=True))


@pytest.mark.parametrize("target", ["elasticsearch", "opensearch"])
def test_lucenes_feature_field(target: str, exported: Callable[[str], Path], best: Best) -> None:
    """Both servers store weighted terms in it; scores of both are exact."""
    directory = exported(target)
    bodies = [body["query"] for body in lines_of(directory, "queries.ndjson")[1::2]]
    if target == "elasticsearch":
        queries, scale = [body["sparse_vector"]["query_vector"] for body in bodies], 1
    else:
        queries, scale = [body["neural_sparse"]["vector"]["query_tokens"] for body in bodies], 128
    documents, _ = READERS[target](directory)
    found = search_features(list(documents.values()), queries, HITS, boosted=target == "elasticsearch")
    scores = [[float(np.float32(score)) * scale for _, score in hits] for hits in found]
    assert lines_of(directory, "queries.ids") == list(best)
    assert scores == list(best.values())


def test_qdrants_engine(exported: Callable[[str], Path], best: Best, tmp_path: Path) -> None:
    """qdrant-edge-py is the server's own core."""
    edge = pytest.importorskip("qdrant_edge", reason="needs qdrant-edge-py")
    directory = exported("qdrant")
    about = json.loads((directory / "collection.json").read_text())
    config = edge.EdgeConfig(sparse_vectors={name: edge.EdgeSparseVectorParams() for name in about["sparse_vectors"]})
    shard = edge.EdgeShard.create(str(tmp_path), config)
    for path in directory.glob("documents-*"):
        points = [
            edge.Point(
                uuid.UUID(point["id"]),
                {name: edge.SparseVector(**vector) for name, vector in point["vector"].items()},
                point["payload"],
            )
            for point in json.loads(content_of(path))["points"]
        ]
        shard.update(edge.UpdateOperation.upsert_points(points))
    found = {}
    for name, search in queries_of(directory).items():
        nearest = edge.Query.Nearest(edge.SparseVector(**search["query"]), search["using"])
        hits = shard.query(edge.QueryRequest(limit=search["limit"], query=nearest, with_payload=True))
        found[name] = [hit.score for hit in hits]
    assert found == best


def duckdb(directory: Path) -> list[tuple]:
    """Return the rows of search.sql in DuckDB."""
    connection = pytest.importorskip("duckdb", reason="needs duckdb").connect()
    for name in ("documents", "queries"):
        connection.read_parquet(str(directory / f"{name}.parquet")).create_view(name)
    return connection.sql((directory / "search.sql").read_text()).fetchall()


def spark(directory: Path) -> list[tuple]:
    """Return the rows of search.sql in Spark, on this machine."""
    sql = pytest.importorskip("pyspark.sql", reason="needs pyspark: make spark")
    options = {"spark.master": "local[2]", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2}
    with sql.SparkSession.builder.config(map=options).getOrCreate() as session:
        for name in ("documents", "queries"):
            session.read.parquet(str(directory / f"{name}.parquet")).createOrReplaceTempView(name)
        return [tuple(row) for row in session.sql((directory / "search.sql").read_text()).collect()]


@pytest.mark.parametrize("rows_of", [duckdb, spark])
def test_sql_ranks_as_lucene(
    rows_of: Callable[[Path], list[tuple]], sample: Path, exported: Callable[[str], Path], tmp_path: Path
) -> None:
    """search.sql is the same everywhere: docids, integer scores and ranks, with ties in the order of docids."""
    rows = rows_of(exported("parquet"))
    ids, queries = VectorStore.open(sample / "topics").load()
    rankings = Index.build(sample / "vectors", tmp_path / "index").searcher().search(queries.to_dicts(), HITS)
    assert rows == [
        (query, hit.docid, hit.score, rank)
        for query, hits in sorted(zip(ids, rankings, strict=True), key=lambda pair: pair[0])
        for rank, hit in enumerate(hits, 1)
    ]


def test_milvus_lite(exported: Callable[[str], Path], best: Best, tmp_path: Path) -> None:
    """Milvus Lite behind the client of the server."""
    pymilvus = pytest.importorskip("pymilvus", reason="needs pymilvus and milvus-lite")
    pytest.importorskip("milvus_lite", reason="needs milvus-lite")
    directory, client = exported("milvus"), pymilvus.MilvusClient(str(tmp_path / "milvus.db"))
    about = json.loads((directory / "schema.json").read_text())
    schema = client.create_schema(auto_id=about["schema"]["autoId"])
    types = {"VarChar": pymilvus.DataType.VARCHAR, "SparseFloatVector": pymilvus.DataType.SPARSE_FLOAT_VECTOR}
    for field in about["schema"]["fields"]:
        options = {"is_primary": field.get("isPrimary", False), **field.get("elementTypeParams", {})}
        schema.add_field(field["fieldName"], types[field["dataType"]], **options)
    index = client.prepare_index_params()
    for one in about["indexParams"]:
        index.add_index(one["fieldName"], index_type=one["indexType"], metric_type=one["metricType"])
    client.create_collection(about["collectionName"], schema=schema, index_params=index)
    for path in directory.glob("documents-*"):
        client.upsert(about["collectionName"], json.loads(content_of(path))["data"])
    search = json.loads((directory / "queries.json").read_bytes())
    found = client.search(
        search["collectionName"],
        [{int(column): weight for column, weight in query.items()} for query in search["data"]],
        anns_field=search["annsField"],
        limit=search["limit"],
        output_fields=search["outputFields"],
    )
    client.close()
    names = lines_of(directory, "queries.ids")
    assert {name: [hit["distance"] for hit in hits] for name, hits in zip(names, found, strict=True)} == best


@pytest.mark.parametrize("target", ["elasticsearch", "opensearch", "qdrant", "milvus"])
def test_requests_of_an_application_are_the_exported_queries(target: str, exported: Callable[[str], Path]) -> None:
    """Texts encoded one by one, with the encoder of the documents."""
    directory, encoder = exported(target), MilcoQueryEncoder(CHECKPOINT).with_views(["pivot"])
    if target in ("elasticsearch", "opensearch"):
        bodies = lines_of(directory, "queries.ndjson")[1::2]
    elif target == "qdrant":
        bodies = list(queries_of(directory).values())
    else:
        search = json.loads((directory / "queries.json").read_bytes())
        bodies = [search | {"data": [query]} for query in search["data"]]
    for number, topic in enumerate(open_topics("sample")):
        if number % 65 == 0:
            assert search_request(target, "vectors", encoder, topic.text).body == bodies[number]


def test_pgvector(exported: Callable[[str], Path], best: Best, postgres: tuple[str, Path]) -> None:
    """The commands of README.md, with psql and a PostgreSQL server."""
    (url, psql), directory = postgres, exported("pgvector")
    commands = [line for line in (directory / "README.md").read_text().splitlines() if line.startswith("psql ")]
    outputs = [
        subprocess.run(
            [psql, "-d", url, "-qAtF", "\t", *command.split()[1:]],
            cwd=directory,
            capture_output=True,
            encoding="utf-8",
            check=True,
        ).stdout
        for command in commands
    ]
    found: Best = {}
    for line in outputs[-1].splitlines():
        query, _, score = line.split("\t")
        found.setdefault(query, []).append(int(score))
    assert (len(commands), found) == (3, best)


def test_ciff_toolkit(exported: Callable[[str], Path]) -> None:
    """It needs an older protobuf than the other packages, hence an environment of its own."""
    python = Path(os.environ.get("CIFF_PYTHON") or f"{sys.prefix}-ciff/bin/python")
    if not python.is_file():
        pytest.skip(f"needs ciff-toolkit in the environment of {python} (or CIFF_PYTHON)")
    directory = exported("ciff")
    read = subprocess.run([python, "-c", _READ_CIFF, directory / "index.ciff"], capture_output=True, check=True)
    documents, _ = READERS["elasticsearch"](exported("elasticsearch"))
    assert json.loads(read.stdout) == documents


_READ_CIFF = """
import json, sys
from ciff_toolkit.read import CiffReader
with CiffReader(sys.argv[1]) as reader:
    reader.read_header()
    lists = [(one.term, [(each.docid, each.tf) for each in one.postings]) for one in reader.read_postings_lists()]
    names = [record.collection_docid for record in reader.read_documents()]
documents = {name: {} for name in names}
for term, postings in lists:
    row = 0
    for gap, tf in postings:
        row += gap
        documents[names[row]][term] = tf
print(json.dumps(documents))
"""
