"""Queries by a small network, without torch: a few layers that were trained to give the vectors of a larger model.

Its checkpoint has layers and connector. Embeddings, decoder, weights of tokens and tokenizers are read from the
documents' checkpoint, which it names, and whose fingerprint it states.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from milco_pyserini.console import Report
from milco_pyserini.defaults import BATCH_SIZE
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.views import ViewEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import checksum
from milco_pyserini.model.checkpoint import Checkpoint, loading
from milco_pyserini.model.configuration import NetworkConfig
from milco_pyserini.model.query_forward import EMBEDDINGS, WORDS, QueryForward, Stored, floats, open_tensors
from milco_pyserini.model.tokenization import TextTokenizer, hash_tokenizers
from milco_pyserini.sparse import PIVOT, SOURCE, SparseBatch, Vocabulary
from milco_pyserini.sparse.batch import row_pointers, validate_finite

__all__ = ["QueryNetwork"]

# Texts that the decoder multiplies at a time: their logits take some 10 MB.
_TEXTS = 8
_SHARED = (EMBEDDINGS, "decoder.", "echo.")
# Columns and weights of a text without terms.
_NOTHING = np.empty(0, np.int32), np.empty(0, np.float32)


class QueryNetwork(MilcoEncoder):
    """Encode queries by a small network in numpy, for documents that were encoded by the model that it names.

    It takes the place of that model for queries: milco search, milco serve and Searcher.open() accept it as encoder and
    as query encoder. The source view is the model's own, the pivot view an approximation. A vector depends only on its
    text, to the last bit.

    >>> from milco_pyserini import load_encoder
    >>> load_encoder("mini-query").encode_query("Wer erfand das Telefon?")  # doctest: +SKIP
    SparseBatch(1 vector, 36 terms, 36.0 per vector)

    Args:
        checkpoint: its own.
        english_prefix: as for MilcoEncoder.

    Raises:
        MilcoError: the checkpoint is damaged, or the documents' checkpoint is not the one that it was trained for.
    """

    def __init__(self, checkpoint: Checkpoint, english_prefix: str = "") -> None:
        self.name, self.documents = checkpoint.name, Checkpoint.open(checkpoint.config["documents"]).fetch()
        self.tokenizer, self.english_tokenizer = self.documents.tokenizer, self.documents.english_tokenizer
        self._requested_dtype, self._query_encoder = "float32", None
        english = TextTokenizer(self.english_tokenizer, f"the English tokenizer of {self.documents.name}").pieces
        self.vocabulary = Vocabulary(english, self.tokenizer.pieces, english_prefix)
        self.network = _Rows(checkpoint, self.documents, self.tokenizer)

    @cached_property
    def hashes(self) -> dict[str, str]:
        """The hashes of the documents' model."""
        tokenizer_hash = hash_tokenizers(self.tokenizer.tokenizer, self.english_tokenizer)
        return {"weight_hash": self.config.weight_hash, "tokenizer_hash": tokenizer_hash}

    @property
    def model(self) -> NoReturn:
        """Raise MilcoError: there is none in torch."""
        raise MilcoError(f"{self.name} has no model of torch: pass the encoder {self.documents.name}")

    def encode_document(self, *_: Any, **__: Any) -> NoReturn:
        """Raise MilcoError: it was trained with queries."""
        raise MilcoError(f"{self.name} encodes queries only: encode documents with {self.documents.name}")

    save_pretrained = encode_document


def load(checkpoint: Checkpoint, *options: Any) -> QueryNetwork:
    """Load a query network. options: english_prefix, the last; it needs neither device nor dtype."""
    with loading(checkpoint.directory, "a query network"):
        return QueryNetwork(checkpoint, options[-1])


def fingerprint(tensors: Stored) -> str:
    """Return BLAKE2b over the tensors of the documents' model that queries read.

    It covers the scales of quantized embeddings, not their values: reading all of them takes longer than a query.
    """
    is_quantized = f"{WORDS}_scale" in tensors
    names = sorted(name for name in tensors if name.startswith(_SHARED) and not (is_quantized and name == WORDS))
    digest = hashlib.blake2b(digest_size=16)
    for name in names:
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensors[name]).data)
    return digest.hexdigest()


class _Rows(ViewEncoder):
    """A QueryForward and the weights of tokens, float32 [V_m], in place of a network of torch."""

    encodes_documents = False

    def __init__(self, checkpoint: Checkpoint, documents: Checkpoint, tokenizer: TextTokenizer) -> None:
        config: Any = NetworkConfig(**documents.config)
        files = [one.weight_files[0] for one in (checkpoint, documents)]
        own, shared = map(open_tensors, files)
        stated = checkpoint.config
        if (found := fingerprint(shared)) != stated["fingerprint"]:
            raise MilcoError(
                f"query encoder {checkpoint.name} does not fit {documents.name}: it was trained for weights with "
                f"fingerprint {stated['fingerprint']}, these have {found}. Take the query encoder of these weights."
            )
        if config.echo and config.echo_variant != "token":
            raise MilcoError(f"encoder {documents.name} has a LexEcho head that reads the states of its own layers")
        config.checkpoint, config.weight_hash = documents.name, stated["weight_hash"]
        config.query_network = checksum(files[0])
        super().__init__(
            SimpleNamespace(config=config), checkpoint.name, tokenizer, config.english_vocab_size, "cpu", "float32"
        )
        self.forward = QueryForward(own, shared, config.encoder, stated["layers"])
        self.echo = np.zeros(len(tokenizer.pieces), np.float32)
        if config.echo:
            weights = floats(shared, "echo.weight")[0] + floats(shared, "echo.bias")
            self.echo = np.maximum(weights, 0)[: len(self.echo)] * floats(shared, "echo.scale")
        if config.source_drop_special:
            self.echo[tokenizer.special_ids] = 0

    def encode(
        self,
        rows: Sequence[Sequence[int]],
        views: Sequence[str],
        batch_size: int = BATCH_SIZE,
        names: Sequence[str] = (),
        report: Report | None = None,
    ) -> SparseBatch:
        """Return the vectors of tokenized texts. Arguments and errors as for Network.encode()."""
        vectors = []
        for start in range(0, len(rows), _TEXTS):
            part = rows[start : start + _TEXTS]
            filled = [ids for ids in part if ids]
            found = iter(self.forward(filled) if PIVOT in views and filled else ())
            for ids in part:
                pivot = next(found) if ids and PIVOT in views else _NOTHING
                source = self._tokens(ids) if ids and SOURCE in views else _NOTHING
                vectors.append([np.concatenate(both) for both in zip(pivot, source, strict=True)])
            if report:
                report(len(part), sum(map(len, part)))
        indptr = row_pointers(np.array([len(columns) for columns, _ in vectors], np.int64))
        columns, weights = (np.concatenate(side) for side in zip(_NOTHING, *vectors, strict=True))
        name = f"encoder {self.name}"
        validate_finite(weights, indptr, name, lambda row: names[row] if names else self.tokenizer.beginning(rows[row]))
        return self.limit_terms(SparseBatch(indptr, columns, weights, self.english_size))

    def _tokens(self, ids: Sequence[int]) -> tuple[Any, Any]:
        """Return the source terms of a text, and the weights of its tokens, pooled."""
        tokens, places = np.unique(np.asarray(ids), return_inverse=True)
        weights = np.zeros(len(tokens), np.float32)
        (np.maximum if self.config.source_pool == "max" else np.add).at(weights, places, self.echo[np.asarray(ids)])
        kept = weights > 0
        return (tokens[kept] + self.english_size).astype(np.int32), weights[kept]
