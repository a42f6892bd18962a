"""The BM25 engine: Anserini's indexer and searcher, those that Pyserini wraps, on texts; there are no vectors.

Words are what Anserini's analyzer for the language makes of a text, or the pieces of a tokenizer: BM25 on the pieces of
XLM-RoBERTa is the baseline of BGE-M3's tables. One analyzer serves both sides. Pyserini's own do not always agree:
LuceneIndexer takes the English one for Yoruba, where LuceneSearcher splits at white space.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from milco_pyserini.errors import MilcoError, shown, unknown_name
from milco_pyserini.index import jvm
from milco_pyserini.index.errors import engine_errors, reason_of
from milco_pyserini.index.lucene_java import refusing_newer
from milco_pyserini.index.protocol import TEXT, Built, Hits, Searcher, TextStore
from milco_pyserini.io.files import atomic_file

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document
    from milco_pyserini.model.tokenization import TextTokenizer

# Pyserini's defaults.
K1, B = 0.9, 0.4

_ENGLISH = "en"
# Where Anserini's IndexCollection splits words at white space and leaves them as they are.
_WHITE_SPACE = ("ha", "so", "sw", "yo")
_TOKENIZER = "tokenizer.json"
_CHUNK = 1000


class Bm25Engine:
    """BM25 with k1 = 0.9 and b = 0.4; ties by docid. Documents without a word are left out."""

    name = "bm25"
    exactness = "exact float"
    queries = TEXT

    def available(self) -> None:
        """Start Java. Raises MilcoError if it, or Anserini's jar, is missing."""
        jvm.start()
        _quieten()

    def build(self, store: TextStore, directory: Path, threads: int) -> Built:
        """Write an index that Pyserini can open; with a tokenizer, its queries have to be pieces there, too.

        Raises MilcoError for a language that Anserini does not know, or a checkpoint without a tokenizer.
        """
        from milco_pyserini.model.tokenization import open_tokenizer

        language, checkpoint = store.manifest["language"], store.manifest["tokenizer"]
        find_analyzer(language)
        words = _Words(open_tokenizer(checkpoint) if checkpoint else None)
        with engine_errors(self.name, "build", directory):
            built = _write(store.documents(), words, _arguments(directory, language, threads))
        if words.tokenizer is not None:
            with atomic_file(directory / _TOKENIZER, "w") as handle:
                handle.write(words.tokenizer.tokenizer.to_str())
        return built

    def open(self, directory: Path, manifest: dict) -> "Bm25Searcher":
        """Open the index with the analyzer or the tokenizer that it was built with."""
        about = manifest["texts"]
        tokenizer = _read_tokenizer(directory / _TOKENIZER) if about["tokenizer"] else None
        with refusing_newer(directory):
            return Bm25Searcher(directory, about["language"], _Words(tokenizer))


class Bm25Searcher(Searcher):
    """A BM25 index that is open. Scores are rounded to four digits, and lowered in ties, as Anserini does."""

    def __init__(self, directory: Path, language: str | None, words: "_Words") -> None:
        from jnius import autoclass

        self._words = words
        self._searcher = autoclass("io.anserini.search.SimpleSearcher")(str(directory.absolute()))
        super().__init__(Bm25Engine.name, directory, self._searcher.get_total_num_docs())
        self._searcher.set_analyzer(find_analyzer(language))
        self._searcher.set_bm25(K1, B)
        # A query has as many clauses as words; the default limit of 1,024 is against careless wildcards.
        autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(2**31 - 1)

    def find(self, queries: Sequence[str], k: int, threads: int) -> list[Hits]:
        """A query is a text."""
        texts = self._words.of(queries)
        if threads == 1:
            return [_hits(self._searcher.search(text, k)) for text in texts]
        numbers = [str(number) for number in range(len(texts))]
        found = self._searcher.batch_search(_java_list(texts), _java_list(numbers), k, threads)
        return [_hits(found.get(number)) for number in numbers]


class _Words:
    """Texts as Lucene's analyzers are to see them: as they are, or as the numbers of their pieces."""

    def __init__(self, tokenizer: "TextTokenizer | None") -> None:
        self.tokenizer = tokenizer
        self._marks = set(tokenizer.special_ids) if tokenizer else set()

    def of(self, texts: Sequence[str]) -> list[str]:
        if self.tokenizer is None:
            # Java's strings hold lone surrogates, but what brings them there does not.
            return [text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for text in texts]
        return [" ".join([str(one) for one in ids if one not in self._marks]) for ids in self.tokenizer.ids(texts)]


def find_analyzer(language: str | None) -> Any:
    """A new analyzer of Anserini's for a language; for None, one that splits at white space.

    Raises MilcoError, with the valid codes, if Anserini has none, or if this Java cannot split the language.
    """
    from jnius import JavaException, autoclass

    own = autoclass("io.anserini.analysis.AnalyzerMap")
    if language is None or language in _WHITE_SPACE:
        return autoclass("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if language == _ENGLISH:
        return autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    if not own.analyzerMap.containsKey(language):
        valid = [*own.analyzerMap.keySet().toArray(), _ENGLISH, *_WHITE_SPACE]
        raise unknown_name("language", language, valid, hint="For others, --tokenizer makes words of any language.")
    try:
        own.getLanguageSpecificAnalyzer(language).tokenStream("contents", "a")
    except JavaException as error:
        raise MilcoError(
            f"--language {language}: {reason_of(error).rstrip('.')}: let JAVA_HOME name a full Java "
            f"{jvm.JAVA_VERSION} or later, or use --tokenizer"
        ) from None
    return own.getLanguageSpecificAnalyzer(language)


def _arguments(directory: Path, language: str | None, threads: int) -> list[str]:
    """What Anserini's command line takes."""
    path = str(directory.absolute())
    where = ["-input", "", "-collection", "JsonCollection", "-index", path, "-threads", str(threads)]
    if language is None or language in _WHITE_SPACE:
        return [*where, "-pretokenized"]
    return [*where, "-language", language]


def _write(documents: "Iterator[Document]", words: _Words, arguments: list[str]) -> Built:
    from jnius import autoclass

    make = autoclass("io.anserini.collection.JsonCollection$Document").fromFields
    indexer = autoclass("io.anserini.index.SimpleIndexer", include_private=True)(arguments)
    read = written = 0
    try:
        while chunk := list(islice(documents, _CHUNK)):
            texts = words.of([document.contents for document in chunk])
            kept = [(document.id, text) for document, text in zip(chunk, texts, strict=True) if _has_a_word(text)]
            added = indexer.addJsonDocuments([make(*one) for one in kept]) if kept else 0
            if added != len(kept):
                span = f"{shown(kept[0][0])} to {shown(kept[-1][0])}"
                raise MilcoError(f"Lucene refuses {len(kept) - added} of the documents from {span}")
            read, written = read + len(chunk), written + added
        # What cannot be written, close() only logs.
        indexer.writer.commit()
    except BaseException:
        indexer.writer.rollback()
        raise
    indexer.close()
    return Built(written, read - written)


def _has_a_word(text: str) -> bool:
    """Whether Anserini takes a document: it refuses one of spaces and control characters alone."""
    return any(character > " " and not character.isspace() for character in text)


def _hits(found: Any) -> Hits:
    return Hits([hit.docid for hit in found], np.array([hit.score for hit in found], np.float32))


def _java_list(values: Sequence[str]) -> Any:
    from jnius import autoclass

    made = autoclass("java.util.ArrayList")()
    for value in values:
        made.add(value)
    return made


def _read_tokenizer(path: Path) -> "TextTokenizer":
    from tokenizers import Tokenizer

    from milco_pyserini.model.tokenization import TextTokenizer

    try:
        return TextTokenizer(Tokenizer.from_str(path.read_text(encoding="utf-8")))
    except Exception as error:
        # The library raises a plain Exception for every way in which a file can be damaged.
        raise MilcoError(f"{path} cannot be read, build the index again: {error}") from None


def _quieten() -> None:
    """Let Anserini speak of failures alone: it reports every analyzer that it chooses."""
    from jnius import autoclass

    level = autoclass("org.apache.logging.log4j.Level").ERROR
    autoclass("org.apache.logging.log4j.core.config.Configurator").setLevel("io.anserini", level)
