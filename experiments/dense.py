"""python -m experiments.dense: dense baselines, encoded into NumPy files and searched by Faiss.

A directory of dense vectors has documents.npy, float [N, d], and documents.txt, the id of each row on a line; and
either manifest.json, which names the encoder of queries, or queries.npy and queries.txt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.analysis.experiment import RetrievalTask
from milco_pyserini.cli import program
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import Progress, counted, log
from milco_pyserini.corpora import open_corpus, open_topics
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.index import Hits
from milco_pyserini.io.files import atomic_directory, atomic_file, is_json_with, read_json, write_json
from milco_pyserini.io.manifest import MANIFEST
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.io.runs import write_hits
from milco_pyserini.options import option
from recipes.dense.encoder import POOLINGS, DenseEncoder

PROG = "python -m experiments.dense"
DOCUMENTS, QUERIES = "documents", "queries"
# Faiss's HNSW as in the paper's latency table.
LINKS, EF_SEARCH = 32, 64
_BATCH = 8192


@dataclass(frozen=True)
class DenseOptions:
    """Encode a corpus by a dense encoder, or search what was encoded for topics, exactly.

    python -m experiments.dense --corpus sample --encoder intfloat/multilingual-e5-small --output vectors/sample.e5
    python -m experiments.dense --topics sample --vectors vectors/sample.e5 --output runs/e5.txt
    """

    output: Path = option(metavar="PATH", help="directory of vectors, or TREC run")
    corpus: str | None = option(None, metavar="NAME|PATH", help="documents to encode")
    topics: str | None = option(None, metavar="NAME|PATH", help="topics to search")
    vectors: Path | None = option(None, metavar="DIR", help="with --topics: what was encoded")
    encoder: str | None = option(None, metavar="NAME|DIR", help="with --corpus: bi-encoder")
    pooling: str | None = option(None, choices=POOLINGS, help="pooling (default: the checkpoint's, else mean)")
    query_prompt: str | None = option(None, metavar="TEXT", help="prefix of queries (default: the checkpoint's)")
    max_length: int | None = option(None, minimum=3, help="tokens of a text (default: the checkpoint's)")
    lowercase: bool = option(False, help="lowercase texts")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    k: int = option(1000, minimum=1, help="documents per topic")
    remove_query: bool = option(False, help="leave out the document with the topic's id")

    def conflicts(self) -> Iterator[str]:
        """Yield messages about options that exclude each other."""
        if (self.corpus is None) != (self.encoder is None) or (self.topics is None) != (self.vectors is None):
            yield "give --corpus and --encoder, or --topics and --vectors"
        if (self.corpus is None) == (self.topics is None):
            yield "give one of --corpus and --topics"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 2 for bad input, 130 for Ctrl-C."""
    return run_command(PROG, DenseOptions, dense_command, argv, "nothing was written")


def dense_command(options: DenseOptions) -> None:
    """Encode or search."""
    if options.corpus is not None and options.encoder is not None:
        about = {"pooling": options.pooling, "query_prompt": options.query_prompt, "lowercase": options.lowercase}
        encode_documents(options.corpus, options.output, options.encoder, options.max_length, options.device, **about)
        return
    topics, vectors = list(open_topics(options.topics or "")), options.vectors or Path()
    documents = load_vectors(vectors, DOCUMENTS)
    queries = encode_queries(vectors, [topic.text for topic in topics], options.device)
    with atomic_file(options.output, "w") as file:
        for topic, hits in zip(topics, search(documents, queries, options.k + options.remove_query), strict=True):
            kept = [place for place, docid in enumerate(hits.docids) if not options.remove_query or docid != topic.id]
            kept = kept[: options.k]
            found = Hits([hits.docids[place] for place in kept], hits.scores[kept])
            write_hits(file, topic.id, found, "trec", vectors.name)
    log(f"Searched {vectors} into {options.output}: {counted(len(topics), 'topic')}")


def encode_documents(
    corpus: str, output: Path, name: str, max_length: int | None = None, device: str = "auto", **about: Any
) -> None:
    """Write a directory of dense vectors, which exists when it is complete.

    Args:
        about: pooling, query_prompt and lowercase, which queries need, too.
    """
    documents = open_corpus(corpus)
    report = documents.check()
    encoder = DenseEncoder(name, about.get("pooling"), device, query_prompt=about.get("query_prompt"))
    shape, progress = (report.records, encoder.dimensions), Progress("documents", report.records)
    with atomic_directory(output, False, lambda _: False) as directory:
        matrix = np.lib.format.open_memmap(directory / f"{DOCUMENTS}.npy", "w+", np.float32, shape)
        with (directory / f"{DOCUMENTS}.txt").open("w", encoding="utf-8") as names:
            stream = iter(documents)
            while batch := list(islice(stream, _BATCH)):
                names.writelines(f"{document.id}\n" for document in batch)
                matrix[progress.done : progress.done + len(batch)] = encoder.encode_document(
                    [document.contents for document in batch],
                    max_length=max_length,
                    lowercase=about.get("lowercase") or False,
                )
                progress.add(len(batch))
        matrix.flush()
        about |= {"encoder": name, "max_length": max_length, "corpus": corpus}
        write_json(directory / MANIFEST, about)
    progress.close(f"Encoded {counted(report.records, 'document')} into {output}")


def encode_queries(directory: Path, texts: Sequence[str], device: str = "auto") -> NDArray[np.float32]:
    """Return float32 [N, d], encoded as the documents of a directory were."""
    about = read_json(directory / MANIFEST)
    encoder = DenseEncoder(about["encoder"], about.get("pooling"), device, query_prompt=about.get("query_prompt"))
    return encoder.encode_query(texts, max_length=about["max_length"], lowercase=about.get("lowercase") or False)


def search(documents: "DenseVectors", queries: NDArray[np.float32], k: int) -> Iterator[Hits]:
    """Yield the k best documents of each query by exact search, ties by docid; cosines."""
    import faiss

    scores, rows = faiss.knn(queries, documents.matrix, min(k, len(documents.ids)), faiss.METRIC_INNER_PRODUCT)
    for row, numbers in zip(scores, rows, strict=True):
        yield _hits(documents.ids, row, numbers)


def build_hnsw(documents: "DenseVectors", path: Path) -> None:
    """Write Faiss's HNSW of documents to a file, with their manifest next to it."""
    import faiss

    index: Any = faiss.index_factory(documents.matrix.shape[1], f"HNSW{LINKS}", faiss.METRIC_INNER_PRODUCT)
    index.add(documents.matrix)
    path.parent.mkdir(parents=True, exist_ok=True)
    faiss.write_index(index, str(path))
    write_json(path.with_name(MANIFEST), documents.manifest)


class HnswSearcher:
    """Searches what build_hnsw() wrote, on one thread."""

    def __init__(self, documents: "DenseVectors", path: Path) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        self._index: Any = faiss.read_index(str(path))
        faiss.ParameterSpace().set_index_parameter(self._index, "efSearch", EF_SEARCH)
        self._ids = documents.ids

    def search(self, query: NDArray[np.float32], k: int) -> Hits:
        """Return about the k best documents for float32 [d]."""
        scores, rows = self._index.search(query[None], min(k, len(self._ids)))
        return _hits(self._ids, scores[0], rows[0])


def _hits(ids: Sequence[str], scores: NDArray[np.float32], rows: NDArray[np.int64]) -> Hits:
    # Where the graph leads to fewer documents, Faiss fills up with -1.
    pairs = sorted((-score, ids[row]) for score, row in zip(scores.tolist(), rows.tolist(), strict=True) if row >= 0)
    return Hits([docid for _, docid in pairs], np.asarray([-score for score, _ in pairs], np.float32))


@dataclass(frozen=True)
class DenseVectors:
    """Ids, and float32 [N, d]: L2-normalized, so that inner products are cosines.

    manifest: what they are made of: equal for equal vectors.
    """

    ids: list[str]
    matrix: NDArray[np.float32]
    manifest: dict


def open_dense(
    name: str, pooling: str | None, task: RetrievalTask, cache: Path
) -> tuple[DenseVectors, NDArray[np.float32]]:
    """Return dense vectors of a task's documents, and float32 [N, d] of its topics.

    Args:
        name: An encoder's hub name or directory, or a directory of dense vectors.
        pooling: "cls", "mean" or "last"; None for the encoder's own.
        cache: Directory for the vectors of an encoder, whose documents are encoded once.

    Raises:
        MilcoError: Texts are not known, or vectors, ids and the task do not belong together.
    """
    path = Path(name)
    if (path / f"{QUERIES}.npy").is_file():
        documents, queries = load_vectors(path, DOCUMENTS), load_vectors(path, QUERIES)
        _validate_size(name, documents, task)
        rows = {topic: row for row, topic in enumerate(queries.ids)}
        missing = [topic for topic in task.ids if topic not in rows]
        if missing:
            raise MilcoError(f"--dense {name} has no vector of topic {shown(missing[0])}")
        return documents, queries.matrix[[rows[topic] for topic in task.ids]]
    texts = _topic_texts(name, task)
    if not (path / f"{DOCUMENTS}.npy").is_file():
        path = cache / directory_name(f"{name}.{pooling}" if pooling else name)
        if not path.exists():
            encode_documents(_texts_of(name, task.store.path, task.store.manifest), path, name, pooling=pooling)
    documents = load_vectors(path, DOCUMENTS)
    _validate_size(name, documents, task)
    return documents, encode_queries(path, texts)


def load_vectors(directory: Path, kind: str) -> DenseVectors:
    """Read KIND.npy and KIND.txt. Raises MilcoError if they do not exist or do not fit together."""
    path, names = directory / f"{kind}.npy", directory / f"{kind}.txt"
    try:
        matrix = np.load(path)
        # Not splitlines(), which would also split at characters that an id may have.
        ids = names.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        files = [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in (path, names)]
    except (OSError, ValueError, EOFError) as error:
        raise MilcoError(f"dense vectors in {directory}: {error}") from None
    if matrix.ndim != 2 or len(ids) != len(matrix):
        raise MilcoError(f"{path} has shape {matrix.shape}, {names} has {len(ids):,} ids: one for each row is needed")
    if matrix.dtype.kind not in "fiu" or not np.isfinite(matrix).all():
        raise MilcoError(f"{path} has values of type {matrix.dtype}: finite real numbers are needed")
    matrix = matrix.astype(np.float32, copy=False)
    lengths = np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), np.float32(1e-12))
    return DenseVectors(ids, matrix / lengths, {"dimensions": matrix.shape[1], "files": files})


def _validate_size(name: str, documents: DenseVectors, task: RetrievalTask) -> None:
    if len(documents.ids) != len(task.store):
        raise MilcoError(
            f"--dense {name} has vectors of {len(documents.ids):,} documents, {task.store.path} of {len(task.store):,}"
            ": they do not belong together"
        )


def _topic_texts(name: str, task: RetrievalTask) -> list[str]:
    """Return the texts of a task's topics; of a vector store of topics, those that it was made of."""
    if task.texts is not None:
        return list(task.texts)
    path = Path(task.topics)
    about = read_json(path / MANIFEST) if is_json_with(path / MANIFEST, "corpus") else {}
    corpus = _texts_of(name, path, StoreManifest(scale=1.0, corpus=about.get("corpus")))
    texts = {query.id: query.text for query in open_topics(corpus)}
    missing = [topic for topic in task.ids if topic not in texts]
    if missing:
        raise MilcoError(f"{corpus} has no topic {shown(missing[0])}, which {task.topics} has")
    return [texts[topic] for topic in task.ids]


def _texts_of(name: str, path: Path, manifest: StoreManifest) -> str:
    if not manifest.corpus:
        raise MilcoError(f"--dense {name} encodes texts, and those of {path} are not known")
    return manifest.corpus


if __name__ == "__main__":
    raise SystemExit(program.start(main, PROG))
