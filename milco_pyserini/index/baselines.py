"""Baselines through Anserini and Faiss: bm25 on texts, flat and hnsw on dense vectors.

Indexing and searching are theirs, and Pyserini opens the indexes. Anserini's SimpleIndexer and SimpleSearcher are
called without Pyserini's wrappers, which import torch, transformers and pandas, and whose analyzers differ for some
languages: LuceneIndexer uses the English one for Yoruba, where LuceneSearcher splits at white space.
"""

import contextlib
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import milco_pyserini.index.jvm as jvm
from milco_pyserini.console import counted
from milco_pyserini.corpora.collection import TextDigest
from milco_pyserini.errors import MilcoError, shown, unknown_name
from milco_pyserini.index.documents import CheckedDocuments
from milco_pyserini.index.errors import engine_errors, reason_of
from milco_pyserini.index.lucene_java import explain_newer_lucene, lucene_version
from milco_pyserini.index.protocol import (
    APPROXIMATE,
    BUILD,
    CONTENT,
    DEFAULT_QUERIES,
    EXACT_FLOAT,
    SEARCH,
    BuildResult,
    Engine,
    EngineSearcher,
    GroundTruth,
    Hits,
    QueryOptions,
)
from milco_pyserini.index.recall import best_documents, sample_rows, sample_topics
from milco_pyserini.index.sparse_engine import validate_same_encoder
from milco_pyserini.index.storage import StringTable, write_strings
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.manifest import DENSE_INDEX, TEXT_INDEX
from milco_pyserini.options import option
from milco_pyserini.request import SearchRequest

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document
    from milco_pyserini.encode.dense import DenseQueryEncoder
    from milco_pyserini.encode.dense_store import DenseStore
    from milco_pyserini.model.tokenization import TextTokenizer

# Pyserini's defaults.
K1, B = 0.9, 0.4
_ENGLISH = "en"
# Where Anserini's IndexCollection splits at white space and leaves the words as they are.
_WHITE_SPACE = ("ha", "so", "sw", "yo")
_TOKENIZER = "tokenizer.json"
_CHUNK = 1000

# The names of FaissSearcher's files; our own ids may contain line breaks.
_INDEX, _DOCIDS, _IDS = "index", "docid", "ids"
# Sums of the same products may differ in the last digits: scores that are equal but for them are ties.
_DECIMALS = 5


@dataclass(frozen=True)
class TextDocuments:
    """Documents as texts. The manifest has their language or their tokenizer, the other is None."""

    path: Path
    manifest: dict
    source: "Iterable[Document]"

    def documents(self) -> "Iterator[Document]":
        """Yield every document."""
        return iter(self.source)


class CheckedTexts(CheckedDocuments):
    """TextDocuments, validated and counted. Read them once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._digest = TextDigest()

    def documents(self) -> "Iterator[Document]":
        """Yield every document."""
        for document in self.source.documents():
            self.count([document.id])
            self._digest.add(document)
            yield document

    def describe(self) -> dict[str, Any]:
        """Return the manifest of the texts, with their digest."""
        return {"texts": self.manifest | {"corpus_hash": self._digest.hexdigest()}}

    def ids(self) -> Iterator[str]:
        """Yield every id."""
        return (document.id for document in self.source.documents())


class CheckedDenseVectors(CheckedDocuments):
    """A DenseStore, validated and counted."""

    def batches(self) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Yield ids and float32 [ids, d]."""
        for names, vectors in self.source.batches():
            self.count(names)
            yield names, vectors


@dataclass(frozen=True)
class BM25(Engine):
    """BM25 with k1 = 0.9 and b = 0.4; ties by docid. Documents without a word are left out.

    Words are made by Anserini's analyzer for the language of the texts, or are the tokens of a tokenizer: BM25 on the
    tokens of XLM-RoBERTa is the baseline of BGE-M3's tables. The idf depends on all documents, so an index has no
    shards.
    """

    name = "bm25"
    exactness = EXACT_FLOAT
    query_type = "texts"
    manifest_fields = TEXT_INDEX
    checked = CheckedTexts
    indexes_texts = True
    scanned = "segments_*"

    language: str | None = option(
        None, group=CONTENT, help="code of Anserini's analyzer, such as ar (default: by the name of the corpus)"
    )
    tokenizer: str | None = option(
        None, group=CONTENT, help="checkpoint whose tokenizer splits the texts of any language, instead of an analyzer"
    )

    def available(self) -> None:
        """Start Java. Raises MilcoError if it, or Anserini's jar, is missing."""
        jvm.start()
        from jnius import autoclass

        # By default Anserini reports every analyzer that it chooses.
        level = autoclass("org.apache.logging.log4j.Level").ERROR
        autoclass("org.apache.logging.log4j.core.config.Configurator").setLevel("io.anserini", level)

    def open_source(self, source: Any, *, shard_num: int = 1, shard_id: int = 0) -> TextDocuments:
        """Return the texts of a corpus: a name, a path, or documents, as open_corpus() takes them."""
        from milco_pyserini.corpora import corpus_language, open_corpus

        if shard_num > 1:
            raise MilcoError(f"`shard_num={shard_num}`: bm25 has no shards, its idf depends on all documents: omit it")
        if self.language and self.tokenizer:
            raise MilcoError(f"`tokenizer={self.tokenizer}` splits texts of any language: omit `language`")
        corpus = open_corpus(source)
        name = corpus.name
        language = None if self.tokenizer else self.language or corpus_language(name)
        if language is None and self.tokenizer is None:
            raise MilcoError(
                f"the language of {name} is not known: give `language`, whose analyzer makes the words (ar, bn, en, "
                "...), or `tokenizer=mini`, whose tokens are words of any language"
            )
        about = {"corpus": name, "field_rule": corpus.field_rule, "language": language, "tokenizer": self.tokenizer}
        return TextDocuments(Path(name), about, corpus)

    def open_query_encoder(self, index: Path, manifest: dict, options: QueryOptions) -> None:
        """Return None: texts are queries."""
        for name, value in (("encoder", options.encoder), ("alpha", options.alpha)):
            if value is not None:
                raise MilcoError(f"`{name}={value}`: {self.name} searches for the words of a query, it has no encoder")

    def build(self, documents: Any, directory: Path, threads: int) -> BuildResult:
        """Write an index that Pyserini can open; with a tokenizer, its queries have to be token ids there, too.

        Raises MilcoError for a language that Anserini does not have, or a checkpoint without a tokenizer.
        """
        from milco_pyserini.model.checkpoint import Checkpoint

        language, checkpoint = documents.manifest["language"], documents.manifest["tokenizer"]
        find_analyzer(language)
        tokenizer = Checkpoint.open(checkpoint).tokenizer if checkpoint else None
        path = str(directory.absolute())
        arguments = ["-input", "", "-collection", "JsonCollection", "-index", path, "-threads", str(threads)]
        arguments += ["-pretokenized"] if language is None or language in _WHITE_SPACE else ["-language", language]
        with engine_errors(self.name, "build", directory):
            result = _write_texts(documents.documents(), tokenizer, arguments)
        if tokenizer is not None:
            with atomic_file(directory / _TOKENIZER, "w") as handle:
                handle.write(tokenizer.tokenizer.to_str())
        return result

    def versions(self) -> dict[str, str]:
        """Return the version of Lucene, which older ones may not be able to read."""
        return {"lucene": lucene_version()}

    def open(self, directory: Path, manifest: dict) -> "Bm25Searcher":
        """Open the index with the analyzer or the tokenizer that it was built with."""
        from tokenizers import Tokenizer

        from milco_pyserini.model.tokenization import TextTokenizer

        about, tokenizer = manifest["texts"], None
        if about["tokenizer"]:
            tokenizer = TextTokenizer(Tokenizer.from_str((directory / _TOKENIZER).read_text(encoding="utf-8")))
        with explain_newer_lucene(directory):
            return Bm25Searcher(directory, about["language"], tokenizer)


class Bm25Searcher(EngineSearcher):
    """An open BM25 index. Scores are rounded to four digits, and lowered in ties, as Anserini does."""

    def __init__(self, directory: Path, language: str | None, tokenizer: "TextTokenizer | None") -> None:
        from jnius import autoclass

        self._tokenizer = tokenizer
        self._searcher = autoclass("io.anserini.search.SimpleSearcher")(str(directory.absolute()))
        super().__init__(BM25.name, directory, self._searcher.get_total_num_docs())
        self._searcher.set_analyzer(find_analyzer(language))
        self._searcher.set_bm25(K1, B)
        # A query has as many clauses as words; the default limit of 1,024 is against careless wildcards.
        autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(2**31 - 1)

    def release(self) -> None:
        """Close the index in Java."""
        self._searcher.close()

    def find(self, queries: Sequence[str], request: SearchRequest) -> list[Hits]:
        """Return hits for texts."""
        from jnius import autoclass

        texts, k, threads = _as_words(queries, self._tokenizer), request.k, request.threads
        if threads == 1:
            rankings = [self._searcher.search(text, k) for text in texts]
        else:
            as_list, numbers = autoclass("java.util.Arrays").asList, [str(number) for number in range(len(texts))]
            by_number = self._searcher.batch_search(as_list(*texts), as_list(*numbers), k, threads)
            rankings = [by_number.get(number) for number in numbers]
        return [
            Hits([hit.docid for hit in ranking], np.array([hit.score for hit in ranking], np.float32))
            for ranking in rankings
        ]


def find_analyzer(language: str | None) -> Any:
    """Return a new analyzer of Anserini's for a language; for None, one that splits at white space.

    Raises MilcoError, with the valid codes, if Anserini has none, or if this Java cannot split the language.
    """
    from jnius import JavaException, autoclass

    if language is None or language in _WHITE_SPACE:
        return autoclass("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if language == _ENGLISH:
        return autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    analyzers = autoclass("io.anserini.analysis.AnalyzerMap")
    if not analyzers.analyzerMap.containsKey(language):
        valid = [*analyzers.analyzerMap.keySet().toArray(), _ENGLISH, *_WHITE_SPACE]
        raise unknown_name("language", language, valid, hint="For others, give `tokenizer=mini`.")
    try:
        analyzers.getLanguageSpecificAnalyzer(language).tokenStream("contents", "a")
    except JavaException as error:
        raise MilcoError(
            f"`language={language}`: {reason_of(error).rstrip('.')}: let JAVA_HOME name a full Java "
            f"{jvm.JAVA_VERSION} or later, or give `tokenizer` instead"
        ) from None
    return analyzers.getLanguageSpecificAnalyzer(language)


def _as_words(texts: Sequence[str], tokenizer: "TextTokenizer | None") -> list[str]:
    """Return texts for Lucene's analyzers: as they are, or as the ids of their tokens."""
    if tokenizer is None:
        # Java's strings hold lone surrogates, but pyjnius' encoder does not take them.
        return [text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for text in texts]
    special_ids = set(tokenizer.special_ids)
    return [" ".join([str(token) for token in ids if token not in special_ids]) for ids in tokenizer.ids(texts)]


def _write_texts(
    documents: "Iterator[Document]", tokenizer: "TextTokenizer | None", arguments: list[str]
) -> BuildResult:
    from jnius import autoclass

    make = autoclass("io.anserini.collection.JsonCollection$Document").fromFields
    indexer = autoclass("io.anserini.index.SimpleIndexer", include_private=True)(arguments)
    read = written = 0
    try:
        while chunk := list(islice(documents, _CHUNK)):
            texts = _as_words([document.contents for document in chunk], tokenizer)
            # Anserini refuses documents that have only spaces and control characters.
            kept = [
                (document.id, text)
                for document, text in zip(chunk, texts, strict=True)
                if any(character > " " and not character.isspace() for character in text)
            ]
            added = indexer.addJsonDocuments([make(*fields) for fields in kept]) if kept else 0
            if added != len(kept):
                span = f"{shown(kept[0][0])} to {shown(kept[-1][0])}"
                raise MilcoError(f"Lucene refuses {len(kept) - added} of the documents from {span}")
            read, written = read + len(chunk), written + added
        # close() only logs it if something cannot be written.
        indexer.writer.commit()
    except BaseException:
        indexer.writer.rollback()
        raise
    indexer.close()
    return BuildResult(written, read - written)


class FaissEngine(Engine):
    """Base of flat and hnsw: everything but the type of Faiss index.

    Scores are inner products, cosines for L2-normalized vectors. spare: how many more hits to fetch than are wanted, to
    see whether there is a tie at the last position; 0 if ties may be cut.
    """

    query_type = "dense vectors"
    manifest_fields = DENSE_INDEX
    checked = CheckedDenseVectors
    spare = 0

    def available(self) -> None:
        """Raise MilcoError if Faiss is not installed."""
        if importlib.util.find_spec("faiss") is None:
            raise MilcoError("dense vectors need Faiss: pip install '.[dense]'")

    def open_source(self, source: Any, *, shard_num: int = 1, shard_id: int = 0) -> "DenseStore":
        """Return a store of dense vectors, at a path or open."""
        store = self.open_topics(Path(source)) if isinstance(source, str | Path) else source
        return store.take_shard(shard_id, shard_num) if shard_num > 1 else store

    def open_topics(self, path: Path) -> "DenseStore":
        """Return the store of dense vectors at path."""
        from milco_pyserini.encode.dense_store import open_dense_store

        return open_dense_store(path)

    def ground_truth(self, documents: Any, topics: "DenseStore | None", count: int) -> GroundTruth:
        """Search for the vectors of topics (a sample of very many), or for those of sampled documents.

        Raises MilcoError if there are none, or if they have another dimension than the documents.
        """
        if topics is not None:
            queries = np.concatenate([vectors for _, vectors in topics.batches()])
            queries = queries[queries.any(axis=1)]
            queries = queries[sample_topics(len(queries))]
            what = f"{counted(len(queries), 'topic')} of {topics.path}"
        else:
            sampled = sample_rows(documents, count, lambda vectors: vectors.any(axis=1))
            queries = np.concatenate([vectors[rows] for vectors, rows in sampled])
            what = f"the vectors of {counted(len(queries), 'sampled document')}"
        dimensions = documents.manifest["dimensions"]
        if not len(queries) or queries.shape[1] != dimensions:
            raise MilcoError(f"{what}: recall is measured with vectors of {dimensions} dimensions that are not zero")
        scored = (
            (names, np.where(vectors.any(axis=1), (queries @ vectors.T).round(_DECIMALS), np.float32(-np.inf)))
            for names, vectors in documents.batches()
        )
        return GroundTruth(queries.tolist(), best_documents(documents, len(queries), scored, above=-np.inf), what)

    def open_query_encoder(self, index: Path, manifest: dict, options: QueryOptions) -> "DenseQueryEncoder":
        """Return the encoder of the index."""
        from milco_pyserini.encode.dense import open_dense_query_encoder

        if options.alpha is not None:
            raise MilcoError(f"`alpha={options.alpha}`: {index} has dense vectors, which have no views")
        encoder = None if options.encoder is None else str(options.encoder)
        return open_dense_query_encoder(manifest["vectors"], encoder, options.device, options.dtype)

    def read_queries(
        self, path: Path, index: Path, manifest: dict, options: QueryOptions = DEFAULT_QUERIES
    ) -> tuple[list[str], list[NDArray[np.float32]]]:
        """Read a store of dense vectors of topics."""
        if not path.is_dir():
            return super().read_queries(path, index, manifest, options)
        store = self.open_topics(path)
        validate_same_encoder(path, store.manifest, index, manifest["vectors"])
        batches = list(store.batches())
        return [docid for names, _ in batches for docid in names], [row for _, rows in batches for row in rows]

    def build(self, documents: Any, directory: Path, threads: int) -> BuildResult:
        """Write index, docid and ids. Holds all vectors in memory; zero vectors are left out."""
        import faiss

        index: Any = None
        ids: list[str] = []
        empty = 0
        for names, vectors in documents.batches():
            rows = np.flatnonzero(vectors.any(axis=1))
            empty += len(names) - len(rows)
            with engine_errors(self.name, "build", directory), _openmp_threads(threads):
                if index is None:
                    index = faiss.index_factory(vectors.shape[1], self.description, faiss.METRIC_INNER_PRODUCT)
                index.add(np.ascontiguousarray(vectors[rows]))
            ids += [names[row] for row in rows]
        if ids:
            # Faiss' own files lose their last bytes without an error if the disk is full when they are closed.
            with atomic_file(directory / _INDEX) as handle, engine_errors(self.name, "build", directory):
                faiss.write_index(index, faiss.PyCallbackIOWriter(handle.write))  # type: ignore[attr-defined]
            write_strings(directory, _IDS, ids)
            with atomic_file(directory / _DOCIDS, "w") as lines:
                lines.writelines(f"{docid}\n" for docid in ids)
        return BuildResult(len(ids), empty)

    def open(self, directory: Path, manifest: dict) -> "FaissSearcher":
        """Read the index into memory."""
        import faiss

        # Faiss does not distinguish a file that may not be read from a damaged one.
        (directory / _INDEX).open("rb").close()
        index, ids = faiss.read_index(str(directory / _INDEX)), StringTable(directory, _IDS)
        self.prepare(index)
        return FaissSearcher(self.name, directory, index, ids, self.spare)

    @property
    def description(self) -> str:
        """The type of index, as faiss.index_factory() reads it."""
        return "Flat"

    def prepare(self, index: Any) -> None:
        """Apply the settings of a search to an index that was read."""


class Flat(FaissEngine):
    """The inner product with every document: the ground truth of dense vectors."""

    name = "flat"
    exactness = EXACT_FLOAT
    spare = 16


@dataclass(frozen=True)
class HNSW(FaissEngine):
    """A graph of neighbors (Malkov and Yashunin, 2020); the default settings are those of the paper's latency table."""

    name = "hnsw"
    exactness = APPROXIMATE

    links: int = option(
        32, group=BUILD, minimum=2, maximum=1024, help="neighbors of a vector in the graph, M; more find more, slower"
    )
    ef_search: int = option(
        64, group=SEARCH, minimum=1, maximum=10**6, help="candidate vectors of a search; more find more, slower"
    )

    @property
    def description(self) -> str:
        """The type of index, with the neighbors of a vector."""
        return f"HNSW{self.links}"

    def prepare(self, index: Any) -> None:
        """Set efSearch."""
        index.hnsw.efSearch = self.ef_search


class FaissSearcher(EngineSearcher):
    """An open Faiss index. spare: as of FaissEngine."""

    def __init__(self, engine: str, path: Path, index: Any, ids: StringTable, spare: int) -> None:
        super().__init__(engine, path, len(ids))
        self.ids = ids
        self._index = index
        self._spare = spare

    def find(self, queries: Sequence[NDArray[np.float32]], request: SearchRequest) -> list[Hits]:
        """Return hits with float32 scores for queries float32 [d]; a query of zeros has no hits.

        Raises MilcoError for queries of another dimension than the documents' vectors.
        """
        matrix = np.asarray(queries, np.float32).reshape(len(queries), -1 if len(queries) else self._index.d)
        if matrix.shape[1] != self._index.d:
            raise MilcoError(f"queries have {matrix.shape[1]} dimensions, the documents' vectors {self._index.d}")
        results, k = [Hits([], np.empty(0, np.float32))] * len(matrix), request.k
        filled = np.flatnonzero(matrix.any(axis=1))
        fetched = min(k + self._spare, len(self.ids))
        with _openmp_threads(request.threads):
            scores, rows = self._index.search(matrix[filled], fetched)
            for place, number in enumerate(filled.tolist()):
                best, best_rows, depth = scores[place], rows[place], fetched
                # A tie at position k that reaches the end of what was fetched: fetch more until it ends.
                while self._spare and depth < len(self.ids) and best[-1] == best[k - 1]:
                    depth = min(2 * depth, len(self.ids))
                    more, more_rows = self._index.search(matrix[number : number + 1], depth)
                    best, best_rows = more[0], more_rows[0]
                # Where the graph leads to fewer documents, Faiss fills up with -1.
                best, docids = best[best_rows >= 0], self.ids.take(best_rows[best_rows >= 0])
                order = sorted(range(len(docids)), key=lambda at: (-best[at], docids[at]))[:k]
                results[number] = Hits([docids[at] for at in order], best[order])
        return results


@contextlib.contextmanager
def _openmp_threads(number: int) -> Iterator[None]:
    """Let Faiss use this number of threads within the block, and as many as before afterwards."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(number)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
