"""Term-by-term contributions to a score, read from the index itself, and the terms removed before indexing."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from milco_pyserini.defaults import VECTORS
from milco_pyserini.errors import MilcoError
from milco_pyserini.explain.terms import matched_share
from milco_pyserini.index import Index
from milco_pyserini.index.exact import ExactSearcher
from milco_pyserini.index.lucene import LuceneEngine, LuceneSearcher
from milco_pyserini.index.protocol import EngineSearcher
from milco_pyserini.index.qdrant import QdrantSearcher
from milco_pyserini.index.shards import ShardedSearcher
from milco_pyserini.sparse import SOURCE, VIEWS, PlainStore, SparseBatch, VectorStore, Vocabulary, open_store
from milco_pyserini.sparse.pruning import PruningRule
from milco_pyserini.sparse.quantization import quantize, quantize_vector

# Fields in which the manifests of the same vectors agree.
_IDENTITY = ("weight_hash", "tokenizer_hash", "corpus_hash", "scale", "max_length", "split_passages")


class EngineWeights:
    """The numbers that an engine multiplies; this class is for engines whose postings cannot be read.

    A score is the sum of query() x document() over the terms of both, in the order of document()'s terms.

    Attributes:
        scale: A document's number is its weight x scale, an integer unless scale is 1.
        unit: A score in these numbers is a score in weights x unit.
        is_readable: True if document() reads the index.
    """

    scale = unit = 1.0
    is_readable = False

    def query(self, vector: dict[str, float]) -> dict[str, float]:
        """Return a query's {term: weight} in the engine's numbers."""
        return vector

    def document(self, docid: str, terms: Sequence[str]) -> Mapping[str, float] | None:
        """Return the document's numbers for those of the terms that it has; None if the index lacks the document."""
        return None

    def round_score(self, total: float) -> float:
        """Return a sum in the precision of the engine's scores."""
        return total

    def matched_shares(self, vector: dict[str, float], docids: Sequence[str]) -> list[float | None]:
        """Return the share of a query's weight that each document matches: terms.matched_share(), None if unknown."""
        numbers = self.query(vector)
        terms = list(numbers)
        documents = (self.document(docid, terms) for docid in docids)
        return [None if document is None else matched_share(numbers, document) for document in documents]


class IntegerWeights(EngineWeights):
    """Impacts. Engines of exact integers return their sums as float32."""

    is_readable = True

    def __init__(self, index: Index) -> None:
        self._query_scale = index.query_scale
        self.scale = index.vectors["scale"]
        self.unit = index.query_scale * self.scale

    def query(self, vector: dict[str, float]) -> dict[str, float]:
        """Return impacts >= 1."""
        return dict(quantize_vector(vector, self._query_scale))

    def round_score(self, total: float) -> float:
        """Return the nearest float32, which is exact up to 2**24."""
        return float(np.float32(total))


class LuceneWeights(IntegerWeights):
    """The term frequencies in the postings."""

    def __init__(self, searcher: LuceneSearcher, index: Index) -> None:
        super().__init__(index)
        self._searcher = searcher

    def document(self, docid: str, terms: Sequence[str]) -> Mapping[str, float] | None:
        """Return impacts >= 1."""
        return self._searcher.impacts(docid, terms)


class QdrantWeights(IntegerWeights):
    """The values of the vectors."""

    def __init__(self, searcher: QdrantSearcher, index: Index) -> None:
        super().__init__(index)
        self._searcher = searcher

    def document(self, docid: str, terms: Sequence[str]) -> Mapping[str, float] | None:
        """Return impacts >= 1."""
        vector = self._searcher.vector(docid)
        return None if vector is None else {term: vector[term] for term in terms if term in vector}


class ExactWeights(EngineWeights):
    """Float32 weights; products and sums are float64, term after term in the order of the index's columns."""

    is_readable = True

    def __init__(self, searcher: ExactSearcher) -> None:
        self._ids = searcher.ids
        self._columns = searcher.columns
        self._matrix = searcher.matrix()

    def query(self, vector: dict[str, float]) -> dict[str, float]:
        """Return float32 values."""
        return {term: float(np.float32(weight)) for term, weight in vector.items()}

    def document(self, docid: str, terms: Sequence[str]) -> Mapping[str, float] | None:
        """Return float32 values in the order of the index's columns."""

        def docid_of(row: int) -> str:
            return self._ids.take(np.array([row]))[0]

        row = bisect_left(range(len(self._ids)), docid, key=docid_of)
        if row == len(self._ids) or docid_of(row) != docid:
            return None
        matrix, weights = self._matrix, {}
        for column, term in sorted((self._columns[term], term) for term in terms if term in self._columns):
            span = slice(matrix.indptr[column], matrix.indptr[column + 1])
            rows = matrix.indices[span]
            place = int(np.searchsorted(rows, row))
            if place < len(rows) and rows[place] == row:
                weights[term] = float(matrix.data[span][place])
        return weights


class ShardedWeights(EngineWeights):
    """The numbers in the shard that has the document."""

    def __init__(self, shards: Sequence[EngineWeights]) -> None:
        self._shards = shards
        self.scale, self.unit, self.is_readable = shards[0].scale, shards[0].unit, shards[0].is_readable

    def query(self, vector: dict[str, float]) -> dict[str, float]:
        """Return a query's {term: weight} in the engine's numbers."""
        return self._shards[0].query(vector)

    def document(self, docid: str, terms: Sequence[str]) -> Mapping[str, float] | None:
        """Return the numbers of the first shard that has the document."""
        found = (shard.document(docid, terms) for shard in self._shards)
        return next((numbers for numbers in found if numbers is not None), None)

    def round_score(self, total: float) -> float:
        """Return a sum in the precision of the engine's scores."""
        return self._shards[0].round_score(total)


def engine_weights(searcher: EngineSearcher, index: Index) -> EngineWeights:
    """Return the reader of the numbers of the index that a searcher has open."""
    if isinstance(searcher, ShardedSearcher):
        return ShardedWeights([engine_weights(shard, index) for shard in searcher.shards])
    if isinstance(searcher, LuceneSearcher):
        return LuceneWeights(searcher, index)
    if isinstance(searcher, QdrantSearcher):
        return QdrantWeights(searcher, index)
    if isinstance(searcher, ExactSearcher):
        return ExactWeights(searcher)
    return EngineWeights()


@dataclass(frozen=True)
class VectorTrace:
    """A document's vector between encoder and index.

    encoded: {term: weight} from the encoder or the store. indexed: {term: weight} as the index should have them.
    removed: {term: reason} for the other terms of encoded.
    """

    encoded: dict[str, float]
    indexed: dict[str, float]
    removed: dict[str, str]


def trace_vector(
    batch: SparseBatch, vocabulary: Vocabulary, exactness: str, manifest: Mapping, pruned_by: str = ""
) -> VectorTrace:
    """Repeat the steps from an encoded vector to the index: views, pruning rules, quantization.

    Args:
        batch: One vector.
        exactness: Of the index.
        manifest: The manifest of the vectors that the index was built from.
        pruned_by: Rules, separated by spaces, that the vector has been pruned by already.
    """
    removed: dict[int, str] = {}

    def step(before: SparseBatch, after: SparseBatch, reason: str) -> SparseBatch:
        removed.update(dict.fromkeys(np.setdiff1d(before.columns, after.columns).tolist(), reason))
        return after

    views, scale = tuple(manifest.get("views") or VIEWS), manifest["scale"]
    missing = "pivot" if SOURCE in views else "source"
    kept = step(batch, batch.view(*views), f"the index has no {missing} view")
    for text in (manifest.get("pruning") or "").split()[len(pruned_by.split()) :]:
        rule = PruningRule.parse(text)
        kept = step(kept, rule(kept), f"pruning {rule}")
    if exactness == LuceneEngine.exactness or manifest.get("format") != "parquet":
        quantized, impacts = quantize(kept, scale)
        kept = step(kept, quantized, f"rounds to 0 at scale {scale:g}")
        kept = replace(kept, weights=impacts.astype(np.float32) / np.float32(scale))
    terms = vocabulary.terms
    encoded, indexed = (
        dict(zip(terms[one.columns].tolist(), one.weights.tolist(), strict=True)) for one in (batch, kept)
    )
    return VectorTrace(encoded, indexed, {terms[column]: reason for column, reason in removed.items()})


def find_store(index: Index, path: Path | None = None) -> VectorStore | PlainStore | None:
    """Open the vector store that an index was built from: at path, or else vectors/NAME; None if not available.

    Raises:
        MilcoError: path has other vectors.
    """
    is_plain = bool(index.vectors.get("plain"))

    def difference(store: VectorStore | PlainStore) -> str | None:
        return next((field for field in _IDENTITY if store.manifest.get(field) != index.vectors.get(field)), None)

    if path is not None:
        store = open_store(path, is_plain, index.vectors["scale"])
        field = difference(store)
        if field is not None:
            indexed, given = index.vectors.get(field), store.manifest.get(field)
            raise MilcoError(
                f"--vectors {path}: {index.path} was built from other vectors, with {field} {indexed!r}, not {given!r}"
            )
        return store
    path = VECTORS / index.path.resolve().name.removesuffix(f".{index.manifest['engine']}")
    if is_plain or not path.is_dir():
        return None
    try:
        store = open_store(path)
    except MilcoError:
        return None
    return store if difference(store) is None else None
