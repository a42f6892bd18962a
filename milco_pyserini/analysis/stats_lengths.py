"""The lengths of the texts that vectors were made of, in the encoder's tokens, if texts and tokenizer are at hand."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.analysis.stats_counts import Counts
from milco_pyserini.console import Progress, say
from milco_pyserini.corpora import Corpus, Document, Query, Topics, open_corpus, open_topics
from milco_pyserini.corpora.catalog import local_corpus_name
from milco_pyserini.corpora.collection import TextDigest
from milco_pyserini.corpora.records import PASSAGE_DELIMITER, encoded_text
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.tokenization import TextTokenizer, open_tokenizer
from milco_pyserini.sparse import PlainStore, VectorStore

UNKNOWN = -1
_CHUNK = 1024
_LEFT_OUT = "length against sparsity is left out"


@dataclass(frozen=True)
class Texts:
    """What lengths are counted of and with. asked: whether somebody named the corpus."""

    corpus: Corpus | Topics
    tokenizer: TextTokenizer
    manifest: dict
    asked: bool


@dataclass(frozen=True)
class Lengths:
    """tokens: int32 [N], as --max-length counts them (<s> and </s> too) and cuts them; UNKNOWN without a text.

    truncated: how many were longer. same: whether the texts are those that were encoded; None where that is not known.
    """

    tokens: NDArray[np.int32]
    truncated: int
    same: bool | None


def open_texts(store: VectorStore | PlainStore, corpus: str | None, encoder: str | None) -> Texts | None:
    """Texts and tokenizer of a store's documents; None, said on stderr, if they are not at hand and nobody asked.

    Without a corpus, only what is surely on this machine counts. Raises MilcoError for a name that is unknown, or an
    encoder whose tokens are not the store's.
    """
    manifest = store.manifest
    topics = manifest.get("kind") == "topics"
    name = corpus or local_corpus_name(manifest)
    if name is None:
        texts = manifest.get("corpus") or "they"
        say(f"{_LEFT_OUT}: the texts are not at hand; --corpus says where {texts} can be read")
        return None
    try:
        # What was left out when the vectors were made has no vector to be compared with.
        opened = (open_topics if topics else open_corpus)(name, skip_bad_lines=True)
        return Texts(opened, _tokenizer(store, encoder), manifest, corpus is not None)
    except MilcoError as error:
        if corpus is not None or encoder is not None:
            raise
        say(f"{_LEFT_OUT}: {error}")
        return None


def text_lengths(counts: Counts, texts: Texts) -> Lengths | None:
    """Read the corpus once; None, said on stderr, if it has no text of these vectors.

    Raises MilcoError instead if somebody named the corpus. Memory: 20 bytes a vector.
    """
    order = np.argsort(counts.ids)
    ordered = counts.ids[order]
    tokens = np.full(len(counts), UNKNOWN, np.int32)
    longest = texts.manifest.get("max_length")
    digest, progress, truncated = TextDigest(), Progress("texts"), 0
    for records in _chunks(texts.corpus):
        for record in records:
            digest.add(record)
        ids, lengths = _tokenised(records, texts, longest)
        hashes = np.fromiter(map(hash, ids), np.int64, len(ids))
        places = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
        known = ordered[places] == hashes
        truncated += int(np.count_nonzero(lengths[known] > longest)) if longest else 0
        tokens[order[places[known]]] = np.minimum(lengths[known], longest or np.iinfo(np.int32).max)
        progress.add(len(records))
    progress.close("read")
    if (tokens == UNKNOWN).all():
        message = f"no vector is of a text of {texts.corpus.name}"
        if texts.asked:
            raise MilcoError(f"--corpus {message}: give the corpus that was encoded")
        say(f"{_LEFT_OUT}: {message}")
        return None
    wanted = texts.manifest.get("corpus_hash")
    return Lengths(tokens, truncated, None if wanted is None else digest.hexdigest() == wanted)


def _tokenizer(store: VectorStore | PlainStore, encoder: str | None) -> TextTokenizer:
    name = encoder or store.manifest.get("encoder")
    if name is None:
        raise MilcoError("these vectors were written by others: say with --encoder whose tokens are to be counted")
    tokenizer = open_tokenizer(name)
    if isinstance(store, VectorStore) and _pieces(store) != tokenizer.pieces:
        raise MilcoError(f"encoder {name!r} does not fit: its {len(tokenizer.pieces):,} tokens are not {store.path}'s")
    return tokenizer


def _pieces(store: VectorStore) -> list[str]:
    """The pieces that texts were cut into; the pivot view's are such where there is no source view, as in SPLADE."""
    return store.vocabulary.source or store.vocabulary.english


def _chunks(corpus: Corpus | Topics) -> Iterator[Sequence[Document | Query]]:
    records: Iterator[Document | Query] = iter(corpus)
    while chunk := list(itertools.islice(records, _CHUNK)):
        yield chunk


def _tokenised(
    records: Sequence[Document | Query], texts: Texts, longest: int | None
) -> tuple[list[str], NDArray[np.int64]]:
    """Ids and lengths of records, or of their passages, not cut."""
    spelled = [encoded_text(record) for record in records]
    if texts.manifest.get("lowercase"):
        spelled = [text.lower() for text in spelled]
    if not (texts.manifest.get("split_passages") and longest):
        return [record.id for record in records], np.asarray(list(map(len, texts.tokenizer.ids(spelled))))
    split = texts.tokenizer.passages(spelled, longest)
    ids = [
        f"{record.id}{PASSAGE_DELIMITER}{number}"
        for record, rows in zip(records, split, strict=True)
        for number in range(len(rows))
    ]
    return ids, np.asarray([len(row) for rows in split for row in rows])
