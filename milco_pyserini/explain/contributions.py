"""Term-by-term contributions to a score, read from the index itself, and the terms removed before indexing."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from milco_pyserini.defaults import VECTORS
from milco_pyserini.errors import MilcoError, ParameterError
from milco_pyserini.index import Index
from milco_pyserini.index.protocol import EXACT_INTEGER
from milco_pyserini.io.records import EXPLAIN, StoreManifest, fields_to_match
from milco_pyserini.sparse import SOURCE, VIEWS, PlainStore, SparseBatch, VectorStore, Vocabulary, open_store
from milco_pyserini.sparse.pruning import PruningRule
from milco_pyserini.sparse.quantization import quantize


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
    batch: SparseBatch, vocabulary: Vocabulary, exactness: str, manifest: StoreManifest, pruned_by: str = ""
) -> VectorTrace:
    """Repeat the steps from an encoded vector to the index: views, pruning rules, quantization.

    Args:
        batch: one vector.
        exactness: the exactness of the index.
        manifest: the manifest of the vectors that the index was built from.
        pruned_by: rules, separated by spaces, that the vector has been pruned by already.
    """
    removed: dict[int, str] = {}

    def step(before: SparseBatch, after: SparseBatch, reason: str) -> SparseBatch:
        removed.update(dict.fromkeys(np.setdiff1d(before.columns, after.columns).tolist(), reason))
        return after

    views, scale = tuple(manifest.views or VIEWS), manifest.scale
    missing = "pivot" if SOURCE in views else "source"
    kept = step(batch, batch.view(*views), f"the index has no {missing} view")
    for text in manifest.rules[len(pruned_by.split()) :]:
        rule = PruningRule.parse(text)
        kept = step(kept, rule(kept), f"pruning {rule}")
    if exactness == EXACT_INTEGER or manifest.format != "parquet":
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
    is_plain = bool(index.vectors.plain)

    def difference(store: VectorStore | PlainStore) -> str | None:
        pairs = (
            (name, getattr(store.manifest, name), getattr(index.vectors, name)) for name in fields_to_match(EXPLAIN)
        )
        return next((name for name, given, indexed in pairs if given != indexed), None)

    if path is not None:
        store = open_store(path, is_plain, index.vectors.scale)
        field = difference(store)
        if field is not None:
            indexed, given = getattr(index.vectors, field), getattr(store.manifest, field)
            rule = f"{index.path} was built from other vectors, with {field} {indexed!r}, not {given!r}"
            raise ParameterError("vectors", path, rule)
        return store
    ending = getattr(index.manifest, "target", index.manifest.engine)
    path = VECTORS / index.path.resolve().name.removesuffix(f".{ending}")
    if is_plain or not path.is_dir():
        return None
    try:
        store = open_store(path)
    except MilcoError:
        return None
    return store if difference(store) is None else None
