"""Run our engines as approaches of lsr-benchmark (PyPI), on our vectors: it measures effectiveness and time.

pip install lsr-benchmark
python benchmarks/lsr_engines.py --vectors vectors/sample --topics vectors/sample.topics --qrels sample --output lsr

The output has a dataset in its layout, our vectors as its embeddings, and a directory for each engine, with the run and
the records of tirex-tracker. Its own approaches read the same directories:

python run-sqlite.py --dataset lsr/dataset --embedding lsr/embedding --output lsr/sqlite --k 100
lsr-benchmark evaluate lsr/lucene lsr/exact lsr/sqlite
"""

import gzip
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import numpy as np
import orjson

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora import open_qrels
from milco_pyserini.errors import MilcoError
from milco_pyserini.export.protocol import write_lines
from milco_pyserini.index import Index
from milco_pyserini.options import option
from milco_pyserini.request import SearchRequest
from milco_pyserini.search import Searcher
from milco_pyserini.sparse import open_store
from milco_pyserini.sparse.store import VectorStore


@dataclass(frozen=True)
class LsrEnginesOptions:
    """Run engines as approaches of lsr-benchmark, and print its evaluation."""

    vectors: Path = option(metavar="DIR", help="vector store of the documents")
    topics: Path = option(metavar="DIR", help="vector store of the topics")
    qrels: str = option(metavar="NAME|FILE", help="qrels of the topics")
    output: Path = option(metavar="DIR", help="new directory of dataset, embeddings and runs")
    engines: tuple[str, ...] = option(("lucene", "exact"), metavar="ENGINE", help="engines with their defaults")
    k: int = option(100, minimum=1, names=("--hits",), help="documents per topic")


def command(options: LsrEnginesOptions) -> None:
    """Write the dataset, run the engines, and let lsr-benchmark evaluate them."""
    if find_spec("lsr_benchmark") is None:
        raise MilcoError("this benchmark needs the package lsr_benchmark", "Run pip install lsr-benchmark")
    dataset, embedding = options.output / "dataset", options.output / "embedding"
    write_dataset(options, dataset)
    write_embeddings(options.vectors, embedding / "doc")
    write_embeddings(options.topics, embedding / "query")
    approaches = [str(run_engine(engine, dataset, embedding, options)) for engine in options.engines]
    sys.stdout.flush()
    subprocess.run([Path(sys.executable).with_name("lsr-benchmark"), "evaluate", *approaches], check=True)


def write_dataset(options: LsrEnginesOptions, dataset: Path) -> None:
    """Write documents and queries, of which engines only read the ids, and qrels."""
    dataset.mkdir(parents=True)
    ids = [docid for docid, _ in open_store(options.vectors).vectors()]
    documents = [orjson.dumps({"doc_id": docid, "default_text": "", "segments": []}) + b"\n" for docid in ids]
    (dataset / "corpus.jsonl.gz").write_bytes(gzip.compress(b"".join(documents)))
    topics = [topic for topic, _ in open_store(options.topics).vectors()]
    write_lines(dataset / "queries.jsonl", ({"qid": topic, "query": topic} for topic in topics))
    qrels = open_qrels(options.qrels).items()
    lines = [f"{topic} 0 {docid} {grade}\n" for topic, grades in qrels for docid, grade in grades.items()]
    (dataset / "qrels.txt").write_text("".join(lines), encoding="utf-8")


def write_embeddings(store: Path, directory: Path) -> None:
    """Write the impacts of a vector store as CSR, and its ids."""
    directory.mkdir(parents=True)
    opened = cast(VectorStore, open_store(store))
    known = opened.vocabulary.columns
    ids: list[str] = []
    pointers, columns, impacts = [0], list[int](), list[int]()
    for name, vector in opened.vectors():
        ids.append(name)
        columns += [known[term] for term in vector]
        impacts += vector.values()
        pointers.append(len(columns))
    path = directory / f"{directory.name}-embeddings.npz"
    np.savez(path, indices=np.array(columns), data=np.array(impacts), indptr=np.array(pointers))
    (directory / f"{directory.name}-ids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")


def run_engine(engine: str, dataset: Path, embedding: Path, options: LsrEnginesOptions) -> Path:
    """Index and search what lsr-benchmark reads, tracked by its tracker; return the directory of the run."""
    import lsr_benchmark
    from lsr_benchmark.irds import embeddings
    from tirex_tracker import ExportFormat, register_metadata, tracking

    place = options.output / engine
    place.mkdir()
    lsr_benchmark.register_to_ir_datasets(str(dataset))
    register_metadata({"actor": {"team": "milco"}, "tag": f"milco-{engine}-{options.k}"})
    documents, queries = (embeddings(str(dataset), str(embedding), kind) for kind in ("doc", "query"))
    vectors = [(name, dict(zip(terms.tolist(), values.tolist(), strict=True))) for name, terms, values in documents]
    write_lines(place / "vectors.jsonl", ({"id": name, "vector": vector} for name, vector in vectors))
    with tracking(export_file_path=place / "index-metadata.yml", export_format=ExportFormat.IR_METADATA):
        index = Index.build(str(place / "vectors.jsonl"), place / "index", engine, plain=True)
    # Weights, of which the engine makes the same impacts again.
    scale = index.manifest.query_scale
    terms = [(dict(zip(names.tolist(), (values / scale).tolist(), strict=True)),) for _, names, values in queries]
    searcher = Searcher.open(place / "index")
    with tracking(export_file_path=place / "retrieval-metadata.yml", export_format=ExportFormat.IR_METADATA):
        rankings = searcher.rank(terms, SearchRequest(k=options.k))
    with gzip.open(place / "run.txt.gz", "wt", encoding="utf-8") as run:
        for (topic, _, _), hits in zip(queries, rankings, strict=True):
            run.writelines(f"{topic} Q0 {hit.docid} {rank} {hit.score} milco\n" for rank, hit in enumerate(hits, 1))
    return place


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    return run_command("lsr_engines.py", LsrEnginesOptions, command, argv)


if __name__ == "__main__":
    raise SystemExit(main())
