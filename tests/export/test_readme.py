"""The commands of the README.md of every export: they load and search it as they are written."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from exported_files import lines_of
from rest_services import milvus_answers, qdrant_answers, rest_service
from search_service import search_service
from synthetic_stores import synthetic_batch, write_store

from milco_pyserini.cli.main import main
from milco_pyserini.corpora import Document
from milco_pyserini.export.protocol import HITS
from milco_pyserini.export.registry import TARGETS
from milco_pyserini.index import Index
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.sparse import VectorStore

Best = dict[str, list[float]]
# A file that a command reads, with * for a part of its name; FIELD.SUFFIX in a query of DuckDB is in quotes.
DATA = re.compile(r"(?<![/\w])[\w*-]+\.(?:json|ndjson|jsonl|sql|parquet|ciff|copy)(?:\.gz)?\b")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Vectors whose scores are exact everywhere, a newer version of them, and topics."""
    root = tmp_path_factory.mktemp("stores")
    ids, batch = synthetic_batch(80)
    keep = [place for place, docid in enumerate(ids) if "\x00" not in docid]
    # Impacts that every server holds exactly.
    small = replace(batch, weights=np.minimum(batch.weights, np.float32(5)))
    names = [ids[place] for place in keep]
    # Two documents less, one more, and one that has the vector of another.
    new = [*keep[2:], keep[5]]
    new[4] = keep[9]
    topics = [place for place in keep if len(small.row(place)[0])][:12]
    fields = ({"lang": "de", "year": 2000 + place % 3} for place in keep)
    documents = [Document(name, "", f"text {name}", given) for name, given in zip(names, fields, strict=True)]
    return SimpleNamespace(
        old=write_store(root / "old", names, small.take(keep), documents=documents),
        new=write_store(root / "new", [*names[2:], "new"], small.take(new)),
        topics=write_store(root / "topics", [f"q{number}" for number in range(len(topics))], small.take(topics)),
    )


def export(target: str, stores: SimpleNamespace, store: Path, output: Path, *more: object) -> Path:
    """Export vectors with the topics; return the directory."""
    options = ["--vectors", store, "--topics", stores.topics, "--output", output, *more]
    assert main(["export", "--to", target, *map(str, options)]) == 0
    return output


def exports(target: str, stores: SimpleNamespace, directory: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each kind of export that a target has, in an order in which it can be loaded, and what is loaded then."""
    capabilities = TARGETS[target].capabilities
    if Capability.STORE in capabilities:
        options = ["--store", "--collection", "readme"]
        yield export(target, stores, stores.old, directory / "stored", *options), stores.old
    yield export(target, stores, stores.old, directory / "plain"), stores.old
    if Capability.UPDATE in capabilities:
        yield (
            export(target, stores, stores.new, directory / "since", "--since", stores.old, "--collection", "old"),
            stores.new,
        )


def commands_of(directory: Path) -> str:
    """Return the commands of README.md."""
    return (directory / "README.md").read_text("utf-8").partition("```sh\n")[2].partition("```")[0]


def best_of(stores: SimpleNamespace, store: Path, output: Path) -> Best:
    """Return the best scores of each topic by exact search, as integers of impacts."""
    ids, queries = VectorStore.open(stores.topics).load()
    with Index.build(store, output, "exact").searcher() as searcher:
        found = searcher.search(queries.to_dicts(), HITS)
    return {name: [round(score * 100 * 100) for score in hits.scores] for name, hits in zip(ids, found, strict=True)}


def last_value(text: str) -> Any:
    """Return the last of JSON values that follow each other."""
    decoder, place, value = json.JSONDecoder(), 0, None
    while place < len(text := text.rstrip()):
        value, place = decoder.raw_decode(text, place)
        place += len(text[place:]) - len(text[place:].lstrip())
    return value


def by_query(rows: list[list[str]]) -> Best:
    """Return the scores of rows of query, docid and score."""
    best: Best = {}
    for query, _, score, *_ in rows:
        best.setdefault(query, []).append(float(score))
    return best


def rows_of(text: str, columns: int) -> Best:
    """Return the scores in the lines with so many columns."""
    rows = [line.split("\t") for line in text.split("\n")]
    return by_query([row for row in rows if len(row) == columns])


def from_elasticsearch(text: str, directory: Path) -> Best:
    """Return the scores of an answer of _msearch."""
    answers = [[hit["_score"] for hit in answer["hits"]["hits"]] for answer in last_value(text)["responses"]]
    return dict(zip(lines_of(directory, "queries.ids"), answers, strict=True))


def from_opensearch(text: str, directory: Path) -> Best:
    """Return the scores of an answer of _msearch, decimal numbers of 32 bits that are divided by 128."""
    answers = from_elasticsearch(text, directory).items()
    return {query: [128 * float(np.float32(score)) for score in scores] for query, scores in answers}


def from_qdrant(text: str, directory: Path) -> Best:
    """Return the scores of an answer of points/query/batch."""
    answers = [[hit["score"] for hit in answer["points"]] for answer in last_value(text)["result"]]
    return dict(zip(lines_of(directory, "queries.ids"), answers, strict=True))


def from_milvus(text: str, directory: Path) -> Best:
    """Return the scores of an answer of entities/search."""
    answer = last_value(text)
    hits = iter(answer["data"])
    scores = [[next(hits)["distance"] for _ in range(size)] for size in answer["topks"]]
    return dict(zip(lines_of(directory, "queries.ids"), scores, strict=True))


PARSERS: dict[str, Callable[[str, Path], Best]] = {
    "elasticsearch": from_elasticsearch,
    "opensearch": from_opensearch,
    "qdrant": from_qdrant,
    "milvus": from_milvus,
    "pgvector": lambda text, _: rows_of(text, 3),
    "parquet": lambda text, _: rows_of(text, 4),
}
# A program that takes the place of the command duckdb.
DUCKDB = f"""#!{sys.executable}
import sys
import duckdb
connection, arguments = duckdb.connect(), iter(sys.argv[1:])
for option in arguments:
    text = next(arguments)
    text = {{"-c": str, "-cmd": str, "-f": lambda file: open(file).read()}}[option](text)
    for row in connection.execute(text).fetchall():
        print(*row, sep="\\t")
"""


@contextmanager
def real_thing(target: str, request: pytest.FixtureRequest, directory: Path) -> Iterator[str]:
    """Yield the URL of what a target is loaded into; programs of other names are in directory/bin."""
    bin_ = directory / "bin"
    bin_.mkdir()

    def program(name: str, text: str) -> None:
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)

    if target == "elasticsearch":
        with search_service() as url:
            yield url
    elif target == "opensearch":
        yield request.getfixturevalue("opensearch").urls[0]
    elif target == "qdrant":
        pytest.importorskip("qdrant_client", reason="needs qdrant-client")
        with rest_service(qdrant_answers()) as url:
            yield url
    elif target == "milvus":
        pytest.importorskip("pymilvus", reason="needs pymilvus and milvus-lite")
        pytest.importorskip("milvus_lite", reason="needs milvus-lite")
        with rest_service(milvus_answers(directory / "milvus.db")) as url:
            yield url
    elif target == "pgvector":
        url, psql = request.getfixturevalue("postgres")
        program("psql", f"#!/bin/sh\nexec {psql} -d '{url}' -qAtF '\t' \"$@\"\n")
        yield ""
    else:
        pytest.importorskip("duckdb", reason="needs duckdb")
        program("duckdb", DUCKDB)
        program("pip", "#!/bin/sh\n")
        yield ""


@pytest.mark.integration
@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=[pytest.mark.cluster] * (name == "opensearch")) for name in PARSERS]
)
def test_the_commands_load_and_search_an_export(
    target: str, stores: SimpleNamespace, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each kind of export, with the scores of exact search; a newer store is loaded over the older one."""
    with real_thing(target, request, tmp_path) as url:
        for directory, loaded in exports(target, stores, tmp_path):
            commands = commands_of(directory)
            if directory.name == "since" and target == "parquet":
                # Its rows are added by a program of the user.
                continue
            has_texts = directory.name == "stored" and target == "opensearch"
            if has_texts and not request.getfixturevalue("opensearch").has_analyzers:
                continue
            done = subprocess.run(
                ["bash", "-eu", "-o", "pipefail", "-c", re.sub(r"http://localhost:\d+", url, f"auth=\n{commands}")],
                cwd=directory,
                env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
                capture_output=True,
                encoding="utf-8",
                check=False,
            )
            assert done.returncode == 0, done.stderr + done.stdout
            found = PARSERS[target](done.stdout, directory)
            assert found == best_of(stores, loaded, tmp_path / f"{directory.name}.exact"), directory.name


@pytest.mark.parametrize("target", TARGETS)
def test_the_commands_are_shell_and_name_files_of_the_export(
    target: str, stores: SimpleNamespace, tmp_path: Path
) -> None:
    """Targets that no test can load are included."""
    for directory, _ in exports(target, stores, tmp_path):
        commands = commands_of(directory)
        subprocess.run(["bash", "-n", "-c", commands], check=True)
        named = DATA.findall(re.sub(r"^\s*#.*", "", commands, flags=re.MULTILINE))
        assert named
        assert not [name for name in named if not list(directory.glob(name))], directory.name
