"""The BM25 engine: Anserini's indexer and searcher, those that Pyserini wraps, on texts; there are no vectors.

Words are made by Anserini's analyzer for the language of the texts, or are the tokens of a tokenizer: BM25 on the
tokens of XLM-RoBERTa is the baseline of BGE-M3's tables. Documents and queries share one analyzer. Pyserini's own do
not always agree: LuceneIndexer uses the English one for Yoruba, where LuceneSearcher splits at white space.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from milco_pyserini.corpora.collection import TextDigest
from milco_pyserini.errors import MilcoError, shown, unknown_name
from milco_pyserini.index import jvm
from milco_pyserini.index.documents import CheckedDocuments
from milco_pyserini.index.errors import engine_errors, reason_of
from milco_pyserini.index.lucene_java import explain_newer_lucene, lucene_version
from milco_pyserini.index.protocol import (
    CONTENT,
    EXACT_FLOAT,
    BuildResult,
    Engine,
    EngineSearcher,
    Hits,
    QueryOptions,
)
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.manifest import TEXT_INDEX
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document
    from milco_pyserini.model.tokenization import TextTokenizer

# Pyserini's defaults.
K1, B = 0.9, 0.4

_ENGLISH = "en"
# Where Anserini's IndexCollection splits at white space and leaves the words as they are.
_WHITE_SPACE = ("ha", "so", "sw", "yo")
_TOKENIZER = "tokenizer.json"
_CHUNK = 1000


@dataclass(frozen=True)
class TextDocuments:
    """Documents as texts. The manifest has their language or their tokenizer, the other is None."""

    path: Path
    manifest: dict
    source: "Iterable[Document]"

    def documents(self) -> "Iterator[Document]":
        """Yield every document."""
        return iter(self.source)


class CheckedTexts(CheckedDocuments):
    """TextDocuments, validated and counted. Read them once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._digest = TextDigest()

    def documents(self) -> "Iterator[Document]":
        """Yield every document."""
        for document in self.source.documents():
            self.count([document.id])
            self._digest.add(document)
            yield document

    def describe(self) -> dict[str, Any]:
        """Return the manifest of the texts, with their digest."""
        return {"texts": self.manifest | {"corpus_hash": self._digest.hexdigest()}}

    def ids(self) -> Iterator[str]:
        """Yield every id."""
        return (document.id for document in self.source.documents())


@dataclass(frozen=True)
class BM25(Engine):
    """BM25 with k1 = 0.9 and b = 0.4; ties by docid. Documents without a word are left out.

    The idf depends on all documents, so an index of texts has no shards.
    """

    language: str | None = option(
        None, group=CONTENT, help="code of Anserini's analyzer, such as ar (default: by the name of the corpus)"
    )
    tokenizer: str | None = option(
        None, group=CONTENT, help="checkpoint whose tokenizer splits the texts of any language, instead of an analyzer"
    )

    name = "bm25"
    exactness = EXACT_FLOAT
    query_type = "texts"
    manifest_fields = TEXT_INDEX
    checked = CheckedTexts
    indexes_texts = True
    scanned = "segments_*"

    def available(self) -> None:
        """Start Java. Raises MilcoError if it, or Anserini's jar, is missing."""
        jvm.start()
        from jnius import autoclass

        # By default Anserini reports every analyzer that it chooses.
        level = autoclass("org.apache.logging.log4j.Level").ERROR
        autoclass("org.apache.logging.log4j.core.config.Configurator").setLevel("io.anserini", level)

    def open_source(self, source: Any) -> TextDocuments:
        """Return the texts of a corpus: a name, a path, or an iterable of Document objects."""
        from milco_pyserini.corpora import Corpus, corpus_language, open_corpus

        if self.language and self.tokenizer:
            raise MilcoError(f"`tokenizer={self.tokenizer}` splits texts of any language: omit `language`")
        if isinstance(source, str | Path):
            source = open_corpus(str(source))
        name = source.name if isinstance(source, Corpus) else "the given documents"
        language = None if self.tokenizer else self.language or corpus_language(name)
        if language is None and self.tokenizer is None:
            raise MilcoError(
                f"the language of {name} is not known: set `language`, whose analyzer makes the words (ar, bn, en, "
                "...), or `tokenizer=mini`, whose tokens are words of any language"
            )
        manifest = {
            "corpus": name,
            "field_rule": source.field_rule if isinstance(source, Corpus) else None,
            "language": language,
            "tokenizer": self.tokenizer,
        }
        return TextDocuments(Path(name), manifest, source)

    def open_query_encoder(self, index: Path, manifest: dict, options: QueryOptions) -> None:
        """Return None: texts are queries."""
        for name, value in (("encoder", options.encoder), ("alpha", options.alpha)):
            if value is not None:
                raise MilcoError(f"`{name}={value}`: {self.name} searches for the words of a query, it has no encoder")

    def build(self, documents: Any, directory: Path, threads: int) -> BuildResult:
        """Write an index that Pyserini can open; with a tokenizer, its queries have to be token ids there, too.

        Raises MilcoError for a language that Anserini does not have, or a checkpoint without a tokenizer.
        """
        from milco_pyserini.model.tokenization import open_tokenizer

        language, checkpoint = documents.manifest["language"], documents.manifest["tokenizer"]
        find_analyzer(language)
        words = _Words(open_tokenizer(checkpoint) if checkpoint else None)
        path = str(directory.absolute())
        arguments = ["-input", "", "-collection", "JsonCollection", "-index", path, "-threads", str(threads)]
        arguments += ["-pretokenized"] if language is None or language in _WHITE_SPACE else ["-language", language]
        with engine_errors(self.name, "build", directory):
            built = _write(documents.documents(), words, arguments)
        if words.tokenizer is not None:
            with atomic_file(directory / _TOKENIZER, "w") as handle:
                handle.write(words.tokenizer.tokenizer.to_str())
        return built

    def versions(self) -> dict[str, str]:
        """Return the version of Lucene, which older ones may not be able to read."""
        return {"lucene": lucene_version()}

    def open(self, directory: Path, manifest: dict) -> "Bm25Searcher":
        """Open the index with the analyzer or the tokenizer that it was built with."""
        about = manifest["texts"]
        words = _Words(_read_tokenizer(directory / _TOKENIZER) if about["tokenizer"] else None)
        with explain_newer_lucene(directory):
            return Bm25Searcher(directory, about["language"], words)


class Bm25Searcher(EngineSearcher):
    """An open BM25 index. Scores are rounded to four digits, and lowered in ties, as Anserini does."""

    def __init__(self, directory: Path, language: str | None, words: "_Words") -> None:
        from jnius import autoclass

        self._words = words
        self._searcher = autoclass("io.anserini.search.SimpleSearcher")(str(directory.absolute()))
        super().__init__(BM25.name, directory, self._searcher.get_total_num_docs())
        self._searcher.set_analyzer(find_analyzer(language))
        self._searcher.set_bm25(K1, B)
        # A query has as many clauses as words; the default limit of 1,024 is against careless wildcards.
        autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(2**31 - 1)

    def release(self) -> None:
        """Close the index in Java."""
        self._searcher.close()

    def find(self, queries: Sequence[str], k: int, threads: int) -> list[Hits]:
        """Return hits for texts."""
        texts = self._words.split(queries)
        if threads == 1:
            found = [self._searcher.search(text, k) for text in texts]
        else:
            numbers = [str(number) for number in range(len(texts))]
            by_number = self._searcher.batch_search(_java_list(texts), _java_list(numbers), k, threads)
            found = [by_number.get(number) for number in numbers]
        return [Hits([hit.docid for hit in one], np.array([hit.score for hit in one], np.float32)) for one in found]


class _Words:
    """Prepares texts for Lucene's analyzers: as they are, or as the ids of their tokens."""

    def __init__(self, tokenizer: "TextTokenizer | None") -> None:
        self.tokenizer = tokenizer
        self._special_ids = set(tokenizer.special_ids) if tokenizer else set()

    def split(self, texts: Sequence[str]) -> list[str]:
        if self.tokenizer is None:
            # Java's strings hold lone surrogates, but pyjnius' encoder does not take them.
            return [text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for text in texts]
        rows = self.tokenizer.ids(texts)
        return [" ".join([str(token) for token in ids if token not in self._special_ids]) for ids in rows]


def find_analyzer(language: str | None) -> Any:
    """Return a new analyzer of Anserini's for a language; for None, one that splits at white space.

    Raises MilcoError, with the valid codes, if Anserini has none, or if this Java cannot split the language.
    """
    from jnius import JavaException, autoclass

    if language is None or language in _WHITE_SPACE:
        return autoclass("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if language == _ENGLISH:
        return autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    analyzers = autoclass("io.anserini.analysis.AnalyzerMap")
    if not analyzers.analyzerMap.containsKey(language):
        valid = [*analyzers.analyzerMap.keySet().toArray(), _ENGLISH, *_WHITE_SPACE]
        raise unknown_name("language", language, valid, hint="For others, set `tokenizer=mini`.")
    try:
        analyzers.getLanguageSpecificAnalyzer(language).tokenStream("contents", "a")
    except JavaException as error:
        raise MilcoError(
            f"`language={language}`: {reason_of(error).rstrip('.')}: let JAVA_HOME name a full Java "
            f"{jvm.JAVA_VERSION} or later, or set `tokenizer` instead"
        ) from None
    return analyzers.getLanguageSpecificAnalyzer(language)


def _write(documents: "Iterator[Document]", words: _Words, arguments: list[str]) -> BuildResult:
    from jnius import autoclass

    make = autoclass("io.anserini.collection.JsonCollection$Document").fromFields
    indexer = autoclass("io.anserini.index.SimpleIndexer", include_private=True)(arguments)
    read = written = 0
    try:
        while chunk := list(islice(documents, _CHUNK)):
            texts = words.split([document.contents for document in chunk])
            # Anserini refuses documents that have only spaces and control characters.
            kept = [
                (document.id, text)
                for document, text in zip(chunk, texts, strict=True)
                if any(character > " " and not character.isspace() for character in text)
            ]
            added = indexer.addJsonDocuments([make(*one) for one in kept]) if kept else 0
            if added != len(kept):
                span = f"{shown(kept[0][0])} to {shown(kept[-1][0])}"
                raise MilcoError(f"Lucene refuses {len(kept) - added} of the documents from {span}")
            read, written = read + len(chunk), written + added
        # close() only logs it if something cannot be written.
        indexer.writer.commit()
    except BaseException:
        indexer.writer.rollback()
        raise
    indexer.close()
    return BuildResult(written, read - written)


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
