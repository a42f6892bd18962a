"""Lucene's analyzers as a tokenizer, whose tokens are words: one for each language, as Anserini chooses it."""

import copy
import threading
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.corpora import Document, Query
from milco_pyserini.corpora.languages import FIELD
from milco_pyserini.errors import Message, MilcoError, ParameterError, shown, unknown_name
from milco_pyserini.model.checkpoint import BM25
from milco_pyserini.model.tokenization import TextTokenizer, Tokens, replace_lone_surrogates
from milco_pyserini.sparse import Vocabulary
from milco_pyserini.sparse.terms import escape

# Words of a text that are kept by default: all.
LENGTH = 2**24
# Languages without an analyzer of Lucene's, whose texts Anserini splits at white space.
WHITE_SPACE = ("ha", "so", "sw", "yo")


class OpenVocabulary(Vocabulary):
    """Source terms without a prefix. A new term gets the next column or, if all are taken, that of the oldest.

    pieces: the first terms, which keep their columns. room: maximum number of further ones.
    """

    def __init__(self, pieces: Sequence[str], room: int) -> None:
        self._first, self._room, self._next = len(pieces), room, len(pieces)
        self._adding = threading.Lock()
        super().__init__([], pieces, "", "")

    @property
    def terms(self) -> NDArray[Any]:
        """The term of each column."""
        return self._array[: len(self.source)]

    @terms.setter
    def terms(self, value: NDArray[Any]) -> None:
        self._array = value

    def column(self, piece: str) -> int:
        """Return the column of a term, which gets one if it has none."""
        term = escape(piece)
        if (known := self.columns.get(term)) is not None:
            return known
        with self._adding:
            if term in self.columns:
                return self.columns[term]
            column = self._first + (self._next - self._first) % self._room
            if column < len(self.source):
                del self.columns[self._array[column]]
            else:
                self.source.append(piece)
                if column >= len(self._array):
                    self._array = np.append(self._array, np.empty(max(1024, column), object))
            self.source[column], self._array[column], self.columns[term] = piece, term, column
            self._next += 1
            return column


class AnalyzerTokenizer(TextTokenizer):
    """Lucene's analyzers as a tokenizer. A text's ids are, for each language, -1 - its number, then its words' columns.

    numbers: the language of each text, or of all texts if it is only one; None for every analyzer.
    """

    def __init__(self, languages: Sequence[str], vocabulary: OpenVocabulary, numbers: Sequence[int] | None = None):
        self.languages, self.vocabulary, self.numbers = languages, vocabulary, numbers
        self.special_ids, self.num_special_tokens = [], (1, 0)
        self.tokenizer: Any = self
        self.analyzers = [find_analyzer(language) for language in languages]

    @property
    def pieces(self) -> list[str]:
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
        documents = [record for record in records if isinstance(record, Document)]
        if len(self.languages) == 1 or not documents:
            return self
        return self.of_languages(map(document_language, documents))

    def tokenize(self, texts: Sequence[str], max_length: int) -> list[Tokens]:
        """Return the ids of each text, of up to max_length words for each analyzer."""
        if not self.languages:
            fix = Message("Give it, as in {encoder}.", encoder=f"{BM25}:en")
            raise MilcoError("the language of the texts is not known", fix)
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
        return [row.ids for row in self.tokenize(texts, LENGTH)]

    def passages(self, texts: Sequence[str], max_length: int) -> list[list[list[int]]]:
        """Split every text into consecutive passages of at most max_length words each."""
        return [
            [row[:1] + row[start : start + max_length] for start in range(1, len(row), max_length)] or [row]
            for row in self.ids(texts)
        ]

    def encode_batch(self, texts: Sequence[str], **_: Any) -> list[SimpleNamespace]:
        """Return the words of each text, with their places in it, as the tokenizers library returns tokens."""
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
                offsets += [(0, 0), *((start, stop) for start, stop in spans)]
            encodings.append(SimpleNamespace(ids=ids, tokens=tokens, offsets=offsets))
        return encodings

    def token_to_id(self, token: str) -> int | None:
        """Return the column of a term, None if it has none."""
        return self.vocabulary.columns.get(escape(token))


def find_analyzer(language: str) -> Any:
    """Return the analyzer of Lucene for a language, as Anserini chooses it.

    Raises MilcoError, with the valid codes, if there is none, or if this Java cannot split the language.
    """
    from milco_pyserini import jvm

    jvm.start()
    from jnius import JavaException, autoclass

    # By default Anserini reports every analyzer that it chooses.
    level = autoclass("org.apache.logging.log4j.Level").ERROR
    autoclass("org.apache.logging.log4j.core.config.Configurator").setLevel("io.anserini", level)
    if language in WHITE_SPACE:
        return autoclass("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if language == "en":
        return autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    analyzers = autoclass("io.anserini.analysis.AnalyzerMap")
    if not analyzers.analyzerMap.containsKey(language):
        valid = [*analyzers.analyzerMap.keySet().toArray(), "en", *WHITE_SPACE]
        raise unknown_name("language", language, valid, hint="For another one, yo splits texts at white space.")
    analyzer = analyzers.getLanguageSpecificAnalyzer(language)
    try:
        analyze(analyzer, "a")
    except JavaException as error:
        reason = str(error.innermessage or error).rstrip(".")
        fix = f"Let JAVA_HOME name a full Java {jvm.JAVA_VERSION} or later."
        raise ParameterError("language", language, reason, fix) from None
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


def document_language(document: Document) -> str:
    """Return the language that a document states. Raises MilcoError if it states none."""
    language = document.fields.get(FIELD)
    if not isinstance(language, str):
        raise MilcoError(
            f"the language of document {shown(document.id)} is not known",
            Message("Pass one language for all, as in {encoder},", encoder=f"{BM25}:en")
            + f" or a field {FIELD} of each (milco corpora detect).",
        )
    return language
