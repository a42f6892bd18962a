"""Encode texts into sparse or dense vectors: encoders, Pyserini's encoder interface, vector stores."""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.encode.contract import MilcoDocumentEncoder as MilcoDocumentEncoder
    from milco_pyserini.encode.contract import MilcoQueryEncoder as MilcoQueryEncoder
    from milco_pyserini.encode.contract import open_english_query_encoder as open_english_query_encoder
    from milco_pyserini.encode.contract import open_query_encoder as open_query_encoder
    from milco_pyserini.encode.contract import validate_english_terms as validate_english_terms
    from milco_pyserini.encode.corpus import encode_corpus as encode_corpus
    from milco_pyserini.encode.dense import DenseEncoder as DenseEncoder
    from milco_pyserini.encode.dense import open_dense_query_encoder as open_dense_query_encoder
    from milco_pyserini.encode.dense_store import open_dense_store as open_dense_store
    from milco_pyserini.encode.encoder import MilcoEncoder as MilcoEncoder
    from milco_pyserini.encode.opening import load_encoder as load_encoder
    from milco_pyserini.encode.plan import EncodePlan as EncodePlan
    from milco_pyserini.encode.query_table import QueryTable as QueryTable

_LAZY = {
    "EncodePlan": "milco_pyserini.encode.plan",
    "encode_corpus": "milco_pyserini.encode.corpus",
    "DenseEncoder": "milco_pyserini.encode.dense",
    "open_dense_query_encoder": "milco_pyserini.encode.dense",
    "open_dense_store": "milco_pyserini.encode.dense_store",
    "MilcoEncoder": "milco_pyserini.encode.encoder",
    "MilcoQueryEncoder": "milco_pyserini.encode.contract",
    "MilcoDocumentEncoder": "milco_pyserini.encode.contract",
    "load_encoder": "milco_pyserini.encode.opening",
    "QueryTable": "milco_pyserini.encode.query_table",
    "open_english_query_encoder": "milco_pyserini.encode.contract",
    "open_query_encoder": "milco_pyserini.encode.contract",
    "validate_english_terms": "milco_pyserini.encode.contract",
}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy(__name__, _LAZY)
