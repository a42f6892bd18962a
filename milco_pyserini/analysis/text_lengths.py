"""Measure the lengths of the texts behind vectors, in the encoder's tokens, if texts and tokenizer are available."""

import itertools
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from milco_pyserini.console import Progress, log
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.tokenization import TextTokenizer
from milco_pyserini.sparse import PlainStore, VectorStore

_CHUNK = 1024
_SKIPPED = "Skipping length against sparsity"


@dataclass(frozen=True)
class TextLengths:
    """Lengths of N texts.

    Args:
        tokens: int32 [N], as --max-length counts and truncates them (with <s> and </s>).
        truncated: Number of texts that were longer.
    """

    tokens: NDArray[np.int32]
    truncated: int


def open_tokenizer(store: VectorStore | PlainStore, encoder: str | None) -> TextTokenizer | None:
    """Return the tokenizer of a store; None, with a message, if it or the texts are not available.

    Raises:
        MilcoError: The encoder that was given is unknown, or its tokens are not the store's.
    """
    manifest = store.manifest
    is_plain = isinstance(store, PlainStore)
    if encoder is None if is_plain else manifest.documents_hash is None and manifest.kind != "topics":
        log(f"{_SKIPPED}: {store.path} does not hold the texts")
        return None
    try:
        name = encoder or manifest.encoder or ""
        tokenizer = Checkpoint.open(name).tokenizer
        # Texts were split into the source view's tokens; in SPLADE, which has no source view, into the pivot view's.
        if isinstance(store, VectorStore) and (store.vocabulary.source or store.vocabulary.english) != tokenizer.pieces:
            raise MilcoError(f"encoder {name!r} has other tokens than {store.path} ({len(tokenizer.pieces):,})")
        return tokenizer
    except MilcoError as error:
        if encoder is not None:
            raise
        log(f"{_SKIPPED}: " + str(error))
        return None


def measure_lengths(store: VectorStore | PlainStore, tokenizer: TextTokenizer) -> TextLengths:
    """Read the texts of a store once. Memory: 4 bytes per vector."""
    about, progress = store.manifest, Progress("texts")
    records = (orjson.loads(record) for record in store.documents())
    # Further passages of a document have no text.
    texts = (record.get("contents", "") for record in records if "contents" in record or not about.split_passages)
    found: list[NDArray[np.int64]] = []
    while chunk := list(itertools.islice(texts, _CHUNK)):
        contents = [text.lower() for text in chunk] if about.lowercase else chunk
        if about.split_passages and about.max_length:
            rows = [row for passages in tokenizer.passages(contents, about.max_length) for row in passages]
        else:
            rows = list(tokenizer.ids(contents))
        found.append(np.asarray(list(map(len, rows)), np.int64))
        progress.add(len(chunk))
    progress.close("Read")
    lengths = np.concatenate(found)
    limit = about.max_length or np.iinfo(np.int32).max
    return TextLengths(np.minimum(lengths, limit).astype(np.int32), int((lengths > limit).sum()))
