"""BM25 as an encoder: `--encoder bm25`. Terms are the words of Lucene's analyzer for the language of a text.

The weight of a term in a document is its part of the BM25 score, as Lucene defines it (Robertson et al., 1994; Kamphuis
et al., ECIR 2020), and in a query its count, so that their dot product is the score:

    ln(1 + (N - n + 0.5) / (n + 0.5)) x f / (f + k1 x (1 - b + b x length / mean length))

of N documents with a word, n with this term, which occurs f times in the document. Lengths above 40 words are rounded
as Lucene stores them, so that scores are Pyserini's. Documents of several languages have statistics per language, and a
query is split by the analyzer of each.
"""

import copy
import io
import os
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
import orjson
import torch
from numpy.typing import NDArray

from milco_pyserini.console import Report
from milco_pyserini.corpora import Corpus, Document, Query, Topics, corpus_language, open_corpus
from milco_pyserini.corpora.languages import FIELD
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.network import BATCH_SIZE, Network
from milco_pyserini.encode.parts import PartEncoder
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError, shown, unknown_name
from milco_pyserini.io.files import atomic_file, checksum_bytes
from milco_pyserini.model.checkpoint import BM25, BM25_FILE, Checkpoint, loading
from milco_pyserini.model.tokenization import TextTokenizer, Tokens, replace_lone_surrogates
from milco_pyserini.sparse import SparseBatch, Vocabulary
from milco_pyserini.sparse.batch import row_pointers
from milco_pyserini.sparse.terms import escape

# Pyserini's defaults.
K1, B = 0.9, 0.4
# Languages without an analyzer of Lucene's, whose texts Anserini splits at white space.
_WHITE_SPACE = ("ha", "so", "sw", "yo")
# A text has no maximum length.
_LENGTH = 2**24
# New terms of queries that an encoder keeps: a server meets ever more.
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
        room: the most further terms that it keeps: those of its texts get columns as they come.

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
        if not (0 <= k1 < np.inf and 0 <= b <= 1):
            raise MilcoError(f"`k1={k1:g}` `b={b:g}`: k1 must be at least 0, and b from 0 to 1")
        settings = [f"{name}={value:g}" for name, value, default in (("k1", k1, K1), ("b", b, B)) if value != default]
        self.languages, self.k1, self.b, self.statistics = tuple(languages), k1, b, statistics
        self.name = ":".join(filter(None, [BM25, ",".join([*self.languages, *settings])]))
        self._terms, self._requested_dtype, self._query_encoder = list(terms), "float32", None
        self.vocabulary = OpenVocabulary(terms, room)
        self.tokenizer = AnalyzerTokenizer(self.languages, self.vocabulary)
        self.network = _Counts(self.name, self.tokenizer)
        if statistics is not None:
            self._query_encoder = copy.copy(self)
            self.network = _Weights(self.name, self.tokenizer, statistics, k1, b)

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

    def fitted(self, records: Corpus | Topics, plan: EncodePlan) -> "BM25Encoder":
        """Return the encoder with a column for each term of some records, and statistics: its own, or theirs.

        For topics, it has no statistics. plan: resolved. Raises MilcoError if the language of a record is not known.
        """
        topics = isinstance(records, Topics)
        statistics, pieces = (None, []) if topics else (self.statistics, self._terms)
        languages = self.languages or _languages(records)
        growing = BM25Encoder(languages, self.k1, self.b, statistics, pieces, room=2**31)
        tokenized, counted = PartEncoder(plan, growing), topics or statistics is not None
        documents, words = np.zeros((2, len(languages)), np.int64)
        frequencies: Counter[int] = Counter()
        stream = iter(records)
        while part := list(islice(stream, _CHUNK)):
            rows = _Rows.of(tokenized.tokenize(0, part).rows)
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

    @property
    def model(self) -> NoReturn:
        """Raise MilcoError: there is none."""
        raise MilcoError(f"{self.name} counts words, it has no model")

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
        encoder.tokenizer = self.tokenizer.of_languages([language]) if language else self.tokenizer
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
        raise MilcoError(f"`english_prefix={english_prefix}`: {checkpoint.name} has no English terms: omit it")
    path = checkpoint.directory / BM25_FILE
    if path.is_file():
        with loading(path, "statistics of BM25"), np.load(path, allow_pickle=False) as arrays:
            config = orjson.loads(arrays["config"].tobytes())
            statistics = Statistics(*(arrays[name] for name in Statistics.__dataclass_fields__))
            return BM25Encoder(config["languages"], config["k1"], config["b"], statistics, config["terms"])
    parts = [part for part in checkpoint.name.partition(":")[2].split(",") if part]
    settings = {}
    for name, is_setting, value in (part.partition("=") for part in parts):
        if is_setting:
            try:
                settings[{"k1": "k1", "b": "b"}[name]] = float(value)
            except (KeyError, ValueError):
                fix = "expected languages, k1=NUMBER or b=NUMBER, as in bm25:ar,k1=1.2"
                raise MilcoError(f"`encoder={checkpoint.name}`: {name}={value}: {fix}") from None
    return BM25Encoder(sorted({part for part in parts if "=" not in part}), **settings)


class OpenVocabulary(Vocabulary):
    """Source terms without a prefix; new ones get columns as they come.

    Beyond the first terms there is room for some: when it is full, the oldest of these lose their columns.
    """

    def __init__(self, pieces: Sequence[str], room: int) -> None:
        self._first, self._room, self._next = len(pieces), room, len(pieces)
        self._adding = threading.Lock()
        super().__init__([], pieces, "", "")

    @property
    def terms(self) -> NDArray[Any]:  # type: ignore[override]
        """The term of each column."""
        return self._array[: len(self.source)]

    @terms.setter
    def terms(self, value: NDArray[Any]) -> None:
        self._array = value

    def column(self, piece: str) -> int:
        """Return the column of a term, which gets one if it has none."""
        term = escape(piece)
        column = self.columns.get(term)
        return self._add(piece, term) if column is None else column

    def _add(self, piece: str, term: str) -> int:
        with self._adding:
            if term in self.columns:
                return self.columns[term]
            column = self._first + (self._next - self._first) % self._room
            if column < len(self.source):
                del self.columns[self._array[column]]
                self.source[column] = piece
            else:
                if column >= len(self._array):
                    self._array = np.append(self._array, np.empty(max(1024, column), object))
                self.source.append(piece)
            self._array[column] = term
            self.columns[term] = column
            self._next += 1
            return column


class Encoding(NamedTuple):
    """The words of a text as the tokenizers library gives tokens: ids, terms, and start and stop of each."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]

    def token_to_chars(self, token: int) -> tuple[int, int]:
        """Return start and stop of a token."""
        return self.offsets[token]


class AnalyzerTokenizer(TextTokenizer):
    """Analyzers of Lucene as a tokenizer. A text's ids are, for each language, -1 - its number, and columns of words.

    numbers: the language of each text, or of all texts if it is only one; None for every analyzer.
    """

    def __init__(self, languages: Sequence[str], vocabulary: OpenVocabulary, numbers: Sequence[int] | None = None):
        self.languages, self.vocabulary, self.numbers = languages, vocabulary, numbers
        self.special_ids, self.num_special_tokens = [], (1, 0)
        self.tokenizer: Any = self
        self.analyzers = [find_analyzer(language) for language in languages]

    @property
    def pieces(self) -> list[str]:  # type: ignore[override]
        """The term of each column."""
        return self.vocabulary.source

    def of_languages(self, languages: Iterable[str]) -> Self:
        """Return the tokenizer for texts of these languages. Raises MilcoError for one that it lacks."""
        other = copy.copy(self)
        languages = list(languages)
        for language in languages:
            if language not in self.languages:
                raise unknown_name("language", language, self.languages)
        other.numbers = [self.languages.index(language) for language in languages]
        return other

    def of_records(self, records: Sequence[Document | Query]) -> Self:
        """Return the tokenizer for the texts of records. Raises MilcoError if the language of a document is unknown."""
        if len(self.languages) == 1 or not isinstance(records[0], Document):
            return self
        return self.of_languages(map(_language, records))

    def tokenize(self, texts: Sequence[str], max_length: int) -> list[Tokens]:
        """Return the ids of each text, of up to max_length words for each analyzer."""
        if not self.languages:
            raise MilcoError(f"the language of the texts is not known: give it, as in `encoder={BM25}:en`")
        every, column, rows = range(len(self.languages)), self.vocabulary.column, []
        for place, text in enumerate(map(replace_lone_surrogates, texts)):
            chosen = every if self.numbers is None else [self.numbers[place % len(self.numbers)]]
            ids: list[int] = []
            truncated = False
            for number in chosen:
                if words := analyze(self.analyzers[number], text):
                    ids += [-1 - number, *map(column, words[:max_length])]
                    truncated |= len(words) > max_length
            rows.append(Tokens(ids, truncated))
        return rows

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return [row.ids for row in self.tokenize(texts, _LENGTH)]

    def passages(self, texts: Sequence[str], max_length: int) -> list[list[list[int]]]:
        """Split every text into consecutive passages of at most max_length words each."""
        return [
            [row[:1] + row[start : start + max_length] for start in range(1, len(row), max_length)] or [row]
            for row in self.ids(texts)
        ]

    def encode_batch(self, texts: Sequence[str], **_: Any) -> list[Encoding]:
        """Return words with their places in each text, by every analyzer."""
        encodings = []
        for text in texts:
            ids: list[int] = []
            tokens: list[str] = []
            offsets: list[tuple[int, int]] = []
            # Java counts UTF-16 units.
            starts = np.cumsum([0, *(1 + (sign > "\uffff") for sign in text)])
            for number, language in enumerate(self.languages):
                words = places(self.analyzers[number], text)
                spans = np.searchsorted(starts, [span for _, *span in words]).reshape(-1, 2).tolist()
                ids += [-1 - number, *(self.vocabulary.column(term) for term, *_ in words)]
                tokens += [f"{BM25}:{language}", *(term for term, *_ in words)]
                offsets += [(0, 0), *map(tuple, spans)]
            encodings.append(Encoding(ids, tokens, offsets))
        return encodings

    def token_to_id(self, token: str) -> int | None:
        """Return the column of a term, None if it has none."""
        return self.vocabulary.columns.get(escape(token))


class _Rows(NamedTuple):
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


class _Counts(Network):
    """The counts of words as weights: the vectors of queries."""

    encodes_documents = False
    has_token_states = True

    def __init__(self, name: str, tokenizer: AnalyzerTokenizer) -> None:
        lengths = {"query_max_length": _LENGTH, "passage_max_length": _LENGTH, "token_limit": _LENGTH}
        limits = {"pivot_top_k": None, "source_top_k": None}
        config = SimpleNamespace(english_vocab_size=0, echo=True, source_pool="sum", **lengths, **limits)
        super().__init__(SimpleNamespace(config=config), name, tokenizer, 0, torch.device("cpu"), torch.float32)

    def on(self, device: torch.device, dtype: torch.dtype) -> Network:
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
        words = _Rows.of(rows)
        entries, counts = np.unique(words.segments << _SHIFT | words.columns, return_counts=True)
        segments, columns = entries >> _SHIFT, entries & _COLUMN
        weights = self.weigh(words, segments, columns, counts).astype(np.float32)
        # A word of several languages counts once, as often as in the one with the most.
        entries = words.rows[segments] << _SHIFT | columns
        order = np.lexsort((-weights, entries))
        entries, first = np.unique(entries[order], return_index=True)
        lengths = np.bincount(entries >> _SHIFT, minlength=len(rows))
        if report:
            report(len(rows), sum(map(len, rows)))
        return SparseBatch(row_pointers(lengths), (entries & _COLUMN).astype(np.int32), weights[order][first], 0)

    def weigh(
        self, words: _Rows, segments: NDArray[np.int64], columns: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> NDArray[Any]:
        """Return the weight of each of the distinct terms of each segment. counts: how often it occurs there."""
        return counts

    def token_scores(self, ids: Sequence[int], columns: NDArray[np.int32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return no logits, and the same weight for every word."""
        return np.zeros((len(ids), 0), np.float32), np.ones(len(ids), np.float32)


class _Weights(_Counts):
    """The weights of BM25: the vectors of documents."""

    encodes_documents = True

    def __init__(self, name: str, tokenizer: AnalyzerTokenizer, statistics: Statistics, k1: float, b: float) -> None:
        super().__init__(name, tokenizer)
        self._statistics, self._k1, self._b = statistics, k1, b

    def weigh(
        self, words: _Rows, segments: NDArray[np.int64], columns: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> NDArray[Any]:
        """Return the part of each term in the score. Raises MilcoError for a text in an unknown language."""
        if len(np.unique(words.rows)) < len(words.rows):
            raise MilcoError(f"{self.name} has several languages: give that of the documents, as `language`")
        languages = words.languages[segments]
        share = stored_length(words.lengths)[segments] / self._statistics.lengths[languages]
        norm = self._k1 * (1 - self._b + self._b * share)
        return self._statistics.idf(languages, columns) * counts / (counts + norm)


def stored_length(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers of words as Lucene stores them in 8 bits: exact up to 40, four binary digits of the rest above 24.

    >>> stored_length(np.array([40, 41, 42, 1000])).tolist()
    [40, 40, 42, 984]
    """
    rest = np.maximum(lengths - 24, 0)
    dropped = np.maximum(np.frexp(rest)[1] - 4, 0)
    return lengths - rest + (rest >> dropped << dropped)


def find_analyzer(language: str) -> Any:
    """Return the analyzer of Lucene for a language, as Anserini chooses it.

    Raises MilcoError, with the valid codes, if there is none, or if this Java cannot split the language.
    """
    from milco_pyserini.index import jvm

    jvm.start()
    from jnius import JavaException, autoclass

    # By default Anserini reports every analyzer that it chooses.
    level = autoclass("org.apache.logging.log4j.Level").ERROR
    autoclass("org.apache.logging.log4j.core.config.Configurator").setLevel("io.anserini", level)
    if language in _WHITE_SPACE:
        return autoclass("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if language == "en":
        return autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    analyzers = autoclass("io.anserini.analysis.AnalyzerMap")
    if not analyzers.analyzerMap.containsKey(language):
        valid = [*analyzers.analyzerMap.keySet().toArray(), "en", *_WHITE_SPACE]
        raise unknown_name("language", language, valid, hint="For another one, yo splits texts at white space.")
    analyzer = analyzers.getLanguageSpecificAnalyzer(language)
    try:
        analyze(analyzer, "a")
    except JavaException as error:
        reason = str(error.innermessage or error).rstrip(".")
        raise MilcoError(
            f"`language={language}`: {reason}: let JAVA_HOME name a full Java {jvm.JAVA_VERSION} or later"
        ) from None
    return analyzer


def analyze(analyzer: Any, text: str) -> list[str]:
    """Return the words of a text, by one call of Java."""
    from jnius import autoclass

    words = autoclass("io.anserini.analysis.AnalyzerUtils").analyze(analyzer, text)
    # Several times faster than an array of strings, which is needed for words with a comma and a space.
    listed = words.toString()[1:-1].split(", ")
    return listed if len(listed) == words.size() and listed != [""] else list(words.toArray())


def places(analyzer: Any, text: str) -> list[tuple[str, int, int]]:
    """Return the words of a text, with start and stop in UTF-16 units."""
    from jnius import autoclass, cast

    stream, found = analyzer.tokenStream("contents", text), []
    names = [f"org.apache.lucene.analysis.tokenattributes.{name}Attribute" for name in ("CharTerm", "Offset")]
    term, offset = (cast(name, stream.addAttribute(autoclass("java.lang.Class").forName(name))) for name in names)
    stream.reset()
    while stream.incrementToken():
        found.append((term.toString(), offset.startOffset(), offset.endOffset()))
    stream.end()
    stream.close()
    return found


def _languages(records: Corpus | Topics) -> list[str]:
    """Return the languages of records: what their name states, or the field of each document."""
    if language := corpus_language(records.name):
        return [language]
    if isinstance(records, Topics):
        raise MilcoError(f"the language of {records.name} is not known: name it, as in `encoder={BM25}:en`")
    return sorted({_language(document) for document in records})


def _language(document: Document) -> str:
    language = document.fields.get(FIELD)
    if not isinstance(language, str):
        raise MilcoError(
            f"the language of document {shown(document.id)} is not known: give that of all, as in `encoder={BM25}:en`, "
            f"or a field {FIELD} of each (milco corpora detect)"
        )
    return language
