"""Measure the lengths of the texts behind vectors, in the encoder's tokens, if texts and tokenizer are available."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import Progress, log
from milco_pyserini.corpora import Corpus, Document, Query, Topics, open_corpus, open_topics
from milco_pyserini.corpora.catalog import local_corpus_name
from milco_pyserini.corpora.collection import TextDigest
from milco_pyserini.corpora.records import encoded_text
from milco_pyserini.encode.parts import vector_ids
from milco_pyserini.errors import Message, MilcoError, ParameterError
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.tokenization import TextTokenizer
from milco_pyserini.sparse import PlainStore, VectorStore

# Length of a document without a text.
UNKNOWN = -1
_CHUNK = 1024
_SKIPPED = "Skipping length against sparsity"


@dataclass(frozen=True)
class StoreTexts:
    """Texts of a store, the tokenizer of its encoder, and its manifest. is_requested: the user named the corpus."""

    corpus: Corpus | Topics
    tokenizer: TextTokenizer
    manifest: StoreManifest
    is_requested: bool


@dataclass(frozen=True)
class TextLengths:
    """Lengths of N texts.

    Args:
        tokens: int32 [N], as --max-length counts and truncates them (with <s> and </s>); UNKNOWN without a text.
        truncated: Number of texts that were longer.
        same: The texts are those that were encoded; None if that is not known.
    """

    tokens: NDArray[np.int32]
    truncated: int
    same: bool | None


def open_texts(store: VectorStore | PlainStore, corpus: str | None, encoder: str | None) -> StoreTexts | None:
    """Return the texts and the tokenizer of a store; None, with a message, if they are not available.

    Without a corpus, only texts that need no download are used.

    Raises:
        MilcoError: A name that was given is unknown, or the encoder's tokens are not the store's.
    """
    manifest = store.manifest
    name = corpus or local_corpus_name(manifest, store.path)
    if name is None:
        known = f"corpus {manifest.corpus}" if manifest.corpus else "corpus"
        log(f"{_SKIPPED}: the {known} is not on this machine. " + Message("Name its path with {corpus}"))
        return None
    try:
        # Broken lines, which were skipped, have no vector either.
        opened = (open_topics if manifest.kind == "topics" else open_corpus)(name, skip_bad_lines=True)
        encoder_name = encoder or manifest.encoder or None
        if encoder_name is None:
            raise MilcoError("the encoder of external vectors is not known", Message("Name it with {encoder}."))
        tokenizer = Checkpoint.open(encoder_name).tokenizer
        # Texts were split into the source view's tokens; in SPLADE, which has no source view, into the pivot view's.
        if isinstance(store, VectorStore) and (store.vocabulary.source or store.vocabulary.english) != tokenizer.pieces:
            raise MilcoError(f"encoder {encoder_name!r} has other tokens than {store.path} ({len(tokenizer.pieces):,})")
        return StoreTexts(opened, tokenizer, manifest, corpus is not None)
    except MilcoError as error:
        if corpus is not None or encoder is not None:
            raise
        log(f"{_SKIPPED}: " + str(error))
        return None


def measure_lengths(ids: NDArray[np.int64], texts: StoreTexts) -> TextLengths | None:
    """Read the corpus once. Memory: 20 bytes per vector.

    Args:
        ids: Hashes of the vectors' ids in this process, int64 [N].

    Returns:
        None, with a message, if the corpus has no text of these vectors.

    Raises:
        MilcoError: The same, if the user named the corpus.
    """
    order = np.argsort(ids)
    ordered = ids[order]
    tokens = np.full(len(ids), UNKNOWN, np.int32)
    max_length = texts.manifest.max_length
    digest, progress, truncated = TextDigest(), Progress("texts"), 0
    records: Iterator[Document | Query] = iter(texts.corpus)
    while chunk := list(itertools.islice(records, _CHUNK)):
        for record in chunk:
            digest.add(record)
        names, lengths = _lengths(chunk, texts, max_length)
        hashes = np.fromiter(map(hash, names), np.int64, len(names))
        places = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
        known = ordered[places] == hashes
        truncated += int(np.count_nonzero(lengths[known] > max_length)) if max_length else 0
        tokens[order[places[known]]] = np.minimum(lengths[known], max_length or np.iinfo(np.int32).max)
        progress.add(len(chunk))
    progress.close("Read")
    if (tokens == UNKNOWN).all():
        if texts.is_requested:
            fix = "Name the encoded corpus."
            raise ParameterError("corpus", texts.corpus.name, "it has no text of these vectors", fix)
        log(f"{_SKIPPED}: {texts.corpus.name} has no text of these vectors")
        return None
    expected = texts.manifest.corpus_hash
    return TextLengths(tokens, truncated, None if expected is None else digest.hexdigest() == expected)


def _lengths(
    records: list[Document | Query], texts: StoreTexts, max_length: int | None
) -> tuple[list[str], NDArray[np.int64]]:
    """Return ids and lengths of records, or of their passages, not truncated."""
    contents = [encoded_text(record) for record in records]
    if texts.manifest.lowercase:
        contents = [text.lower() for text in contents]
    if not (texts.manifest.split_passages and max_length):
        return [record.id for record in records], np.asarray(list(map(len, texts.tokenizer.ids(contents))))
    split = texts.tokenizer.passages(contents, max_length)
    names = vector_ids(records, np.asarray(list(map(len, split))), passages=True)
    return names, np.asarray([len(row) for rows in split for row in rows])
