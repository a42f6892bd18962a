"""BM25 as an encoder: `--encoder bm25`. Terms are the words of Lucene's analyzer for the language of a text.

The weight of a term in a document is its part of the BM25 score, as Lucene defines it (Robertson et al., 1994; Kamphuis
et al., ECIR 2020), and in a query its count, so that their dot product is the score:

    ln(1 + (N - n + 0.5) / (n + 0.5)) x f / (f + k1 x (1 - b + b x length / mean length))

of N documents with a word, n with this term, which occurs f times in the document. Lengths above 40 words are rounded
as Lucene stores them, so that scores are Pyserini's. Documents of several languages have statistics per language, and a
query is split by the analyzer of each.
"""

import contextlib
import copy
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
import orjson
import torch
from numpy.typing import NDArray

from milco_pyserini.console import Report
from milco_pyserini.corpora import Corpus, Topics, open_corpus
from milco_pyserini.corpora.catalog import corpus_language
from milco_pyserini.defaults import BATCH_SIZE
from milco_pyserini.encode.analyzers import LENGTH, AnalyzerTokenizer, OpenVocabulary, document_language
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.network import Network
from milco_pyserini.encode.parts import PartEncoder
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import Message, MilcoError, ParameterError
from milco_pyserini.io.files import atomic_file, checksum_bytes
from milco_pyserini.model.checkpoint import BM25, BM25_FILE, Checkpoint, loading
from milco_pyserini.options import validate_number
from milco_pyserini.sparse import SparseBatch

__all__ = ["BM25Encoder"]

# Pyserini's defaults.
K1, B = 0.9, 0.4
# Maximum number of new query terms that an encoder keeps: a server meets new ones forever.
_ROOM = 2**20
_CHUNK = 1024
# A language and a column, or a row and a column, as one integer.
_SHIFT = 32
_COLUMN = 2**_SHIFT - 1


@dataclass(frozen=True)
class Statistics:
    """Statistics of documents, for L languages.

    Args:
        documents: number of documents with a word: int64 [L].
        lengths: mean number of words of these: float64 [L].
        keys: language << 32 | column of each term of each language, ascending: int64 [n].
        frequencies: number of documents with the term: int64 [n].
    """

    documents: NDArray[np.int64]
    lengths: NDArray[np.float64]
    keys: NDArray[np.int64]
    frequencies: NDArray[np.int64]

    def idf(self, languages: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the idf of terms, one by one, in the documents of languages; the largest for unknown terms."""
        wanted = languages << _SHIFT | columns
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        frequencies = np.where(self.keys[places] == wanted, self.frequencies[places], 0)
        return np.log1p((self.documents[languages] - frequencies + 0.5) / (frequencies + 0.5))


class BM25Encoder(MilcoEncoder):
    """BM25 as an encoder of texts: fit() counts words in documents, whose vectors have the weights of BM25.

    >>> from milco_pyserini.encode.bm25 import BM25Encoder
    >>> texts = ["The Nile is a river.", "Bell patented the telephone."]
    >>> encoder = BM25Encoder.fit(texts, language="en")  # doctest: +SKIP
    >>> encoder.similarity("Which river?", encoder.encode_document(texts)).round(2)  # doctest: +SKIP
    array([[0.38, 0.  ]], dtype=float32)

    Without statistics it encodes queries only, which need none.

    Args:
        languages: whose analyzers split texts, such as "ar"; none if they are yet to be found in a corpus.
        k1, b: how soon repetitions count less (at least 0), and how much length counts (0 to 1).
        statistics: of the documents.
        terms: those of the columns, in their order.
        room: maximum number of further terms, which get columns when they first occur in a text.

    Raises:
        MilcoError: k1 or b is out of its range, or Lucene has no analyzer for a language.
    """

    def __init__(
        self,
        languages: Sequence[str] = (),
        k1: float = K1,
        b: float = B,
        statistics: Statistics | None = None,
        terms: Sequence[str] = (),
        room: int = _ROOM,
    ) -> None:
        validate_number("k1", k1, minimum=0)
        validate_number("b", b, 0, 1)
        settings = [f"{name}={value:g}" for name, value, default in (("k1", k1, K1), ("b", b, B)) if value != default]
        self.languages, self.k1, self.b, self.statistics = tuple(languages), k1, b, statistics
        self.name = ":".join(filter(None, [BM25, ",".join([*self.languages, *settings])]))
        self._terms, self._requested_dtype, self._query_encoder = list(terms), "float32", None
        self.vocabulary = OpenVocabulary(terms, room)
        self.tokenizer = self._words = AnalyzerTokenizer(self.languages, self.vocabulary)
        self.network = _Words(self.name, self.tokenizer)
        if statistics is not None:
            self._query_encoder = copy.copy(self)
            self.network = _Words(self.name, self.tokenizer, statistics, k1, b)

    @classmethod
    def fit(cls, corpus: Any, language: str | None = None, k1: float = K1, b: float = B) -> "BM25Encoder":
        """Return the encoder of documents, by their statistics.

        Args:
            corpus: a name, a path, or texts, as open_corpus() takes them.
            language: of all documents (default: what the name of the corpus states, else their fields `lang`).
            k1, b: as for the class.

        Raises:
            MilcoError: there is no document, its language is not known, or as for the class.
        """
        records, encoder = open_corpus(corpus), cls([language] if language else [], k1, b)
        records.check()
        return encoder.fitted(records, EncodePlan().resolve(encoder, topics=False))

    def fitted(self, records: Corpus | Topics, plan: EncodePlan, store: Path | None = None) -> "BM25Encoder":
        """Return the encoder with a column for each term of some records, and statistics: its own, or theirs.

        For topics, it has no statistics. plan: resolved. store: of the same records by the same plan; what it has is
        not counted again. Raises MilcoError if the language of a record is not known.
        """
        if store is not None and (store / BM25_FILE).is_file():
            # A damaged file is written again.
            with contextlib.suppress(MilcoError):
                known = load(Checkpoint.open(store), None, None)
                encoder = BM25Encoder(known.languages, self.k1, self.b, known.statistics, known._terms)
                if not self.languages or self.hashes.items() <= encoder.hashes.items():
                    return encoder
        topics = isinstance(records, Topics)
        statistics, pieces = (None, []) if topics else (self.statistics, self._terms)
        languages = self.languages or _languages(records)
        growing = BM25Encoder(languages, self.k1, self.b, statistics, pieces, room=2**31)
        tokenized, counted = PartEncoder(plan, growing), topics or statistics is not None
        documents, words = np.zeros((2, len(languages)), np.int64)
        frequencies: Counter[int] = Counter()
        stream: Iterator[Any] = iter(records)
        while part := list(islice(stream, _CHUNK)):
            rows = _WordRows.of(tokenized.tokenize(0, part).rows)
            if not counted:
                documents += np.bincount(rows.languages, minlength=len(languages))
                words += np.bincount(rows.languages, rows.lengths, len(languages)).astype(np.int64)
                terms = np.unique(rows.segments << _SHIFT | rows.columns)
                keys = rows.languages[terms >> _SHIFT] << _SHIFT | terms & _COLUMN
                keys, counts = np.unique(keys, return_counts=True)
                frequencies.update(dict(zip(keys.tolist(), counts.tolist(), strict=True)))
        if not counted:
            if not frequencies:
                raise MilcoError(f"{records.name} holds no document with a word: BM25 needs one")
            keys = np.array(sorted(frequencies), np.int64)
            counts = np.array([frequencies[key] for key in keys.tolist()], np.int64)
            statistics = Statistics(documents, words / np.maximum(documents, 1), keys, counts)
        return BM25Encoder(languages, self.k1, self.b, statistics, growing.vocabulary.source)

    @cached_property
    def hashes(self) -> dict[str, str]:
        """weight_hash, over the statistics, if there are any, and tokenizer_hash, over the languages."""
        hashes = {"tokenizer_hash": checksum_bytes(",".join(self.languages).encode())}
        if (known := self.statistics) is None:
            return hashes
        # Terms that were added later are in no document of the statistics.
        terms = self._terms[: int((known.keys & _COLUMN).max()) + 1]
        content = [orjson.dumps([self.k1, self.b, terms]), *(array.tobytes() for array in vars(known).values())]
        return {"weight_hash": checksum_bytes(b"".join(content)), **hashes}

    def encode_document(self, texts: str | Iterable[str], *, language: str = "", **settings: Any) -> SparseBatch:
        """Return the vectors of documents, of one language.

        Args:
            language: default the encoder's only one.
            texts, settings: as for encode().

        Raises:
            MilcoError: there are no statistics, or the language is not known.
        """
        if self.statistics is None:
            raise MilcoError(f"{self.name} has no statistics, so it encodes queries only: use BM25Encoder.fit()")
        encoder = copy.copy(self)
        encoder.tokenizer = self._words.of_languages([language]) if language else self._words
        return encoder.encode(texts, **settings)

    def save_pretrained(self, directory: str | os.PathLike) -> None:
        """Write the statistics and terms to one file in a directory, unless it has them. Raises MilcoError without."""
        if self.statistics is None:
            raise MilcoError(f"{self.name} has no statistics to save: use BM25Encoder.fit()")
        content, path = io.BytesIO(), Path(directory) / BM25_FILE
        config = {"languages": self.languages, "k1": self.k1, "b": self.b, "terms": self._terms}
        np.savez_compressed(content, config=np.frombuffer(orjson.dumps(config), np.uint8), **vars(self.statistics))
        if not path.is_file() or path.read_bytes() != content.getvalue():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as handle:
                handle.write(content.getvalue())


def load(checkpoint: Checkpoint, _device: Any, _dtype: Any, english_prefix: str = "") -> BM25Encoder:
    """Load what save_pretrained() wrote, or the encoder of queries of a name such as "bm25:ar" or "bm25:ar,k1=1.2".

    Raises MilcoError if the file is damaged, the name is not possible, or as for the class.
    """
    if english_prefix:
        raise ParameterError("english_prefix", english_prefix, f"{checkpoint.name} has no English terms", "Omit it.")
    path = checkpoint.directory / BM25_FILE
    if path.is_file():
        with loading(path, "statistics of BM25"), np.load(path, allow_pickle=False) as arrays:
            config = orjson.loads(arrays["config"].tobytes())
            statistics = Statistics(*(arrays[name] for name in Statistics.__dataclass_fields__))
            return BM25Encoder(config["languages"], config["k1"], config["b"], statistics, config["terms"])
    parts = [part for part in checkpoint.name.partition(":")[2].split(",") if part]
    settings: dict[str, Any] = {}
    for name, is_setting, value in (part.partition("=") for part in parts):
        if is_setting:
            try:
                settings[{"k1": "k1", "b": "b"}[name]] = float(value)
            except (KeyError, ValueError):
                rule = f"{name}={value} is not one of languages, k1=NUMBER or b=NUMBER, as in bm25:ar,k1=1.2"
                raise ParameterError("encoder", checkpoint.name, rule) from None
    return BM25Encoder(sorted({part for part in parts if "=" not in part}), **settings)


class _WordRows(NamedTuple):
    """Ids of texts as arrays: words in their order, and the segments of each language of each text that has words.

    segments: of each word. columns: of each word. rows, languages, lengths: of each segment, int64.
    """

    segments: NDArray[np.int64]
    columns: NDArray[np.int64]
    rows: NDArray[np.int64]
    languages: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Self:
        """Return the arrays of AnalyzerTokenizer's ids."""
        ids = np.fromiter(chain.from_iterable(rows), np.int64)
        is_word = ids >= 0
        segments, row_numbers = np.cumsum(~is_word) - 1, np.repeat(np.arange(len(rows)), list(map(len, rows)))
        lengths = np.bincount(segments[is_word], minlength=int(np.count_nonzero(~is_word)))
        return cls(segments[is_word], ids[is_word], row_numbers[~is_word], -1 - ids[~is_word], lengths)


class _Words(Network):
    """Counts of words as the vectors of queries; with statistics, weights of BM25 as those of documents."""

    has_token_states = True

    def __init__(
        self,
        name: str,
        tokenizer: AnalyzerTokenizer,
        statistics: Statistics | None = None,
        k1: float = K1,
        b: float = B,
    ) -> None:
        lengths = dict.fromkeys(("query_max_length", "passage_max_length", "token_limit"), LENGTH)
        limits = dict.fromkeys(("pivot_top_k", "source_top_k"))
        config = SimpleNamespace(english_vocab_size=0, echo=True, source_pool="sum", **lengths, **limits)
        super().__init__(SimpleNamespace(config=config), name, tokenizer, 0, torch.device("cpu"), torch.float32)
        self._statistics, self._k1, self._b = statistics, k1, b
        self.encodes_documents = statistics is not None

    def on(self, device: torch.device, dtype: torch.dtype) -> Self:
        """Return self: counting needs no other device or dtype."""
        return self

    def encode(
        self,
        rows: Sequence[Sequence[int]],
        views: Sequence[str],
        batch_size: int = BATCH_SIZE,
        names: Sequence[str] = (),
        report: Report | None = None,
    ) -> SparseBatch:
        """Return the vectors of tokenized texts. Arguments as for Network.encode()."""
        words = _WordRows.of(rows)
        entries, counts = np.unique(words.segments << _SHIFT | words.columns, return_counts=True)
        segments, columns = entries >> _SHIFT, entries & _COLUMN
        weights = counts.astype(np.float32)
        if (known := self._statistics) is not None:
            if len(np.unique(words.rows)) < len(words.rows):
                fix = Message("Pass the language of the documents as {language}.")
                raise MilcoError(f"{self.name} has several languages", fix)
            languages = words.languages[segments]
            share = stored_length(words.lengths)[segments] / known.lengths[languages]
            norm = self._k1 * (1 - self._b + self._b * share)
            weights = (known.idf(languages, columns) * counts / (counts + norm)).astype(np.float32)
        # A word of several languages counts once, as often as in the one with the most.
        vectors = SparseBatch.from_maxima(words.rows[segments], columns, weights, len(rows), 0)
        if report:
            report(len(rows), len(words.columns))
        return vectors

    def token_scores(self, rows: Sequence[Sequence[int]], *_: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return no logits, and the same weight for every word."""
        words = sum(map(len, rows))
        return np.zeros((words, 0), np.float32), np.ones(words, np.float32)


def stored_length(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers of words as Lucene stores them in 8 bits: exact up to 40, four binary digits of the rest above 24.

    >>> stored_length(np.array([40, 41, 42, 1000])).tolist()
    [40, 40, 42, 984]
    """
    rest = np.maximum(lengths - 24, 0)
    dropped = np.maximum(np.frexp(rest)[1] - 4, 0)
    return lengths - rest + (rest >> dropped << dropped)


def _languages(records: Corpus | Topics) -> list[str]:
    """Return the languages of records: what their name states, or the field of each document."""
    if language := corpus_language(records.name):
        return [language]
    if isinstance(records, Topics):
        fix = Message("Name it, as in {encoder}.", encoder=f"{BM25}:en")
        raise MilcoError(f"the language of {records.name} is not known", fix)
    return sorted({document_language(document) for document in records})
