"""Term-by-term contributions to a score, read from the index itself, and the terms removed before indexing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from milco_pyserini.defaults import VECTORS
from milco_pyserini.encode.fields import EXPLAIN, must_agree
from milco_pyserini.errors import MilcoError
from milco_pyserini.explain.terms import matched_share
from milco_pyserini.index import Index
from milco_pyserini.index.protocol import EXACT_INTEGER, EngineSearcher
from milco_pyserini.sparse import SOURCE, VIEWS, PlainStore, SparseBatch, VectorStore, Vocabulary, open_store
from milco_pyserini.sparse.pruning import PruningRule
from milco_pyserini.sparse.quantization import quantize, quantize_vector


class EngineWeights:
    """The numbers that the engine of an open index multiplies: integers, or float32 weights.

    A score is the sum of query() x document() over the terms of both, in the order of document()'s terms.

    Attributes:
        scale: A document's number is its weight x scale, an integer unless scale is 1.
        unit: A score in these numbers is a score in weights x unit.
        is_readable: True if document() reads the index.
    """

    def __init__(self, searcher: EngineSearcher, index: Index) -> None:
        self._searcher = searcher
        self._is_integer = index.manifest["exactness"] == EXACT_INTEGER
        self._query_scale = index.query_scale
        self.scale = index.vectors["scale"] if self._is_integer else 1.0
        self.unit = self._query_scale * self.scale if self._is_integer else 1.0
        self.is_readable = searcher.has_weights

    def query(self, vector: dict[str, float]) -> dict[str, float]:
        """Return a query's {term: weight} in the engine's numbers."""
        if self._is_integer:
            return dict(quantize_vector(vector, self._query_scale))
        return {term: float(np.float32(weight)) for term, weight in vector.items()}

    def document(self, docid: str, terms: Sequence[str]) -> Mapping[str, float] | None:
        """Return the document's numbers for those of the terms that it has; None if they cannot be read."""
        return self._searcher.weights(docid, terms) if self.is_readable else None

    def round_score(self, total: float) -> float:
        """Return a sum in the precision of the engine's scores: sums of integers are float32, exact up to 2**24."""
        return float(np.float32(total)) if self._is_integer else total

    def matched_shares(self, vector: dict[str, float], docids: Sequence[str]) -> list[float | None]:
        """Return the share of a query's weight that each document matches: terms.matched_share(), None if unknown."""
        numbers = self.query(vector)
        terms = list(numbers)
        documents = (self.document(docid, terms) for docid in docids)
        return [None if document is None else matched_share(numbers, document) for document in documents]


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
    if exactness == EXACT_INTEGER or manifest.get("format") != "parquet":
        quantized, impacts = quantize(kept, scale)
        kept = step(kept, quantized, f"rounds to 0 at scale {scale:g}")
        kept = replace(kept, weights=impacts.astype(np.float32) / np.float32(scale))
    terms = vocabulary.terms
    encoded, indexed = (
        dict(zip(terms[vectors.columns].tolist(), vectors.weights.tolist(), strict=True)) for vectors in (batch, kept)
    )
    return VectorTrace(encoded, indexed, {terms[column]: reason for column, reason in removed.items()})


def find_store(index: Index, path: Path | None = None) -> VectorStore | PlainStore | None:
    """Open the vector store that an index was built from: at path, or else vectors/NAME; None if not available.

    Raises:
        MilcoError: path has other vectors.
    """
    is_plain = bool(index.vectors.get("plain"))

    def difference(store: VectorStore | PlainStore) -> str | None:
        return next((name for name in must_agree(EXPLAIN) if store.manifest.get(name) != index.vectors.get(name)), None)

    if path is not None:
        store = open_store(path, is_plain, index.vectors["scale"])
        field = difference(store)
        if field is not None:
            indexed, given = index.vectors.get(field), store.manifest.get(field)
            raise MilcoError(
                f"`vectors={path}`: {index.path} was built from other vectors, with {field} {indexed!r}, not {given!r}"
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
