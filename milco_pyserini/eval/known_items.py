"""Topics and qrels from documents themselves: a title or a sentence searches for the document that it is taken from.

A share of the documents is held out. A held-out document loses its title, and one of its sentences, before anything is
encoded: both are topics, and the document is what they have to find among all others. The figures rank models on one
collection; they are not those of users' queries.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from milco_pyserini.console import counted
from milco_pyserini.corpora import Document, Query
from milco_pyserini.corpora.languages import FIELD, UNDETERMINED, detect_languages
from milco_pyserini.corpora.records import PASSAGE_DELIMITER, document_line
from milco_pyserini.errors import Message, MilcoError
from milco_pyserini.eval.evaluation import HELD_OUT
from milco_pyserini.io.qrels import Qrels

# Fewer topics do not show a difference between two models, and fewer documents are found by chance.
MIN_TOPICS, MIN_DOCUMENTS = 20, 50
TITLE, SENTENCE = "title", "sentence"
CORPUS, TOPICS, QRELS = "corpus.jsonl", "topics.tsv", "qrels.txt"

_SENTENCE_END = re.compile(r"(?<=[.!?…।۔؟])\s+|(?<=[。！？])|\n+")
# Bytes of a sentence that may be a query: a good proxy for its words in any script.
_SHORTEST, _LONGEST = 30, 300
# Sentences of a document from which one is taken, and bytes of a text that remains.
_LEAST_SENTENCES, _LEAST_BYTES = 3, 60


@dataclass(frozen=True)
class KnownItems:
    """A collection, without what its topics are taken from.

    documents: all that are searched. held_out: ids of those that topics search for. duplicates: documents left out
    because another one has their text. untitled: documents without a title. topics: their ids are LANG-KIND-NUMBER.
    shared: sentences, and titles in lower case, of several documents.
    """

    documents: list[Document]
    held_out: frozenset[str]
    duplicates: int
    untitled: int
    topics: Sequence[Query] = ()
    qrels: Qrels = field(default_factory=dict)
    shared: frozenset[str] = frozenset()

    def describe(self) -> Iterator[str]:
        """Yield lines about the collection: its size and languages, and what it lacks."""
        counts = Counter(map(language_of, self.documents))
        listed = ", ".join(f"{language} {count:,}" for language, count in counts.most_common())
        yield (
            f"{counted(len(self.documents), 'document')} ({listed}), {len(self.held_out):,} held out with "
            f"{counted(len(self.topics), 'topic')}"
        )
        if len(counts) == 1:
            yield f"One language only, {next(iter(counts))}: search across languages is not part of it"
        if self.duplicates:
            yield f"Left out {counted(self.duplicates, 'document')} whose text another one has"
        if self.untitled:
            yield f"{counted(self.untitled, 'document')} without a title"


def language_of(document: Document) -> str:
    """Return the language that a document states, or "und"."""
    return str(document.fields.get(FIELD) or UNDETERMINED)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, by the punctuation and the line ends of any script."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def fraction(*keys: object) -> float:
    """Return a number from 0 to 1 that depends on the keys only, however many others are drawn."""
    digest = blake2b("\t".join(map(str, keys)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def take_sentence(document: Document, shared: frozenset[str]) -> tuple[str, str]:
    """Return a sentence of a document, and its text without it; two empty strings if it has none to spare.

    shared: sentences that are not taken, because several documents have them.
    """
    parts = sentences(document.text)
    fit = [
        place
        for place, part in enumerate(parts)
        if _SHORTEST <= len(part.encode("utf-8", "surrogatepass")) <= _LONGEST and part not in shared
    ]
    if len(parts) < _LEAST_SENTENCES or not fit:
        return "", ""
    place = min(fit, key=lambda place: fraction(document.id, place))
    rest = " ".join(parts[:place] + parts[place + 1 :])
    return (parts[place], rest) if len(rest) >= _LEAST_BYTES else ("", "")


def make_known_items(
    documents: Iterable[Document], share: float = HELD_OUT, parallel: Mapping[str, str] | None = None
) -> KnownItems:
    """Hold out a share of documents, and make topics of them.

    >>> text = "Town number {0} has a bridge. The bridge of town {0} is old. It is {0} meters long and made of stone."
    >>> documents = [Document(str(n), f"Town {n}", text.format(n), {"lang": "en"}) for n in range(100)]
    >>> made = make_known_items(documents, share=0.2)
    >>> made.qrels[made.topics[0].id].keys() <= made.held_out
    True

    The choice depends on ids only. Passages of a document (DOCID#0, DOCID#1) are held out together. The language of a
    document without a field lang is detected.

    Args:
        parallel: docid -> name of a group of translations, which are held out together and are all relevant.

    Raises:
        MilcoError: there are too few documents, or too few topics for a test of significance.
    """
    kept: dict[str, Document] = {}
    given = 0
    for document in documents:
        kept.setdefault(document.contents, document)
        given += 1
    if len(kept) < MIN_DOCUMENTS:
        found = f"{counted(given, 'document')}, {len(kept):,} of them different"
        raise MilcoError(f"{found}: at least {MIN_DOCUMENTS} are needed to hold some out")
    collection = list(detect_languages(kept.values()))
    counts = Counter(part for document in collection for part in {document.title.casefold(), *sentences(document.text)})
    shared = frozenset(part for part, count in counts.items() if count > 1)
    group_of = parallel or {}
    groups: dict[str, dict[str, int]] = {}
    for document in collection:
        groups.setdefault(group_of.get(document.id, document.id), {})[document.id] = 1
    held = frozenset(
        docid
        for group, members in groups.items()
        if fraction(group.partition(PASSAGE_DELIMITER)[0]) < share
        for docid in members
    )
    untitled = sum(not document.title for document in collection)
    topics: list[Query] = []
    qrels: Qrels = {}
    for place, document in enumerate(collection):
        if document.id in held:
            texts, collection[place] = _taken_out(document, shared)
            for kind, text in texts.items():
                name = f"{language_of(document)}-{kind}-{len(topics)}"
                topics.append(Query(name, " ".join(text.split())))
                qrels[name] = groups[group_of.get(document.id, document.id)]
    if len(topics) < MIN_TOPICS:
        fix = Message("Give more documents, or a larger {held_out}.")
        rule = f"{counted(len(topics), 'topic')} of {counted(len(held), 'held-out document')}"
        raise MilcoError(f"{rule}: a test of significance needs {MIN_TOPICS}", fix)
    return KnownItems(collection, held, given - len(kept), untitled, topics, qrels, shared)


def _taken_out(document: Document, shared: frozenset[str]) -> tuple[dict[str, str], Document]:
    """Return the title and a sentence of a document, as far as they may be topics, and the document without them."""
    sentence, rest = take_sentence(document, shared)
    text = rest or document.text
    texts = {SENTENCE: sentence} if sentence else {}
    if document.title.strip() and document.title.casefold() not in shared and len(text) >= _LEAST_BYTES:
        texts = {TITLE: document.title, **texts}
    return texts, replace(document, title="" if TITLE in texts else document.title, text=text)


def known_item_files(made: KnownItems) -> dict[str, bytes]:
    """Return the contents of corpus.jsonl, topics.tsv and qrels.txt, which every command and trec_eval read."""
    files = {
        CORPUS: map(document_line, made.documents),
        TOPICS: (f"{topic.id}\t{topic.text}" for topic in made.topics),
        QRELS: (f"{name} 0 {docid} 1" for name, grades in made.qrels.items() for docid in grades),
    }
    return {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in files.items()}
