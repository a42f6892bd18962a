"""Queries for training, from the documents themselves: titles, headings, mentions, sentences and terms."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from milco_pyserini.corpora import Document
from milco_pyserini.corpora.bitext import open_bitext
from milco_pyserini.corpora.languages import UNDETERMINED
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import ParameterError
from milco_pyserini.eval.known_items import (
    MIN_TOPICS,
    TITLE,
    KnownItems,
    fraction,
    language_of,
    sentences,
    take_sentence,
)
from milco_pyserini.sparse import SOURCE, SparseBatch
from milco_pyserini.train.data.retrieval import RetrievalExample, dump_example, file_language

# Words of a title that is looked for in other documents, terms of a query, and bytes of a passage, at least or at most.
_LEAST_WORDS, _MOST_WORDS, _TERMS, _LEAST_BYTES = 2, 6, 4, 60
_ENCODED_AT_A_TIME = 128
# A sentence of which more documents have a better score than its own finds nothing in particular.
_FIRST = 10
# Examples of a language in a file of its own, whose passages are contrasted with each other only: the negatives of
# another language would be translations of the positive.
_OWN_FILE = 16

_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
_WORD = re.compile(r"\w+")
_PIECE = re.compile(r"m_(▁?)(\w+)")


def training_examples(
    made: KnownItems, encoder: MilcoEncoder, vectors: SparseBatch, limit: int, seed: int
) -> tuple[list[RetrievalExample], dict[str, int]]:
    """Return up to limit queries with the passage that each is taken from, and the number of each kind.

    The kinds take turns, and so do the documents of a kind, in an order that depends on ids and seed only. A document
    that is held out takes no part.

    Args:
        encoder: whose strongest source terms of a document are a query.
        vectors: of made.documents, in which a sentence has to find its document.
    """
    trained = (document for document in made.documents if document.id not in made.held_out)
    documents = sorted(trained, key=lambda document: fraction(seed, document.id))
    kinds = {
        "titles": _titles(documents, made.shared),
        "headings": _headings(documents),
        "mentions": _mentions(documents, made.shared),
        # Sentences of manuals and forms could be of any page.
        "sentences": iter(()) if has_titles(made) else _sentences(made, documents, encoder, vectors),
        "terms": _terms(documents, encoder) if SOURCE in encoder.views else iter(()),
    }
    found: list[RetrievalExample] = []
    counts = dict.fromkeys(kinds, 0)
    while kinds and len(found) < limit:
        for kind in list(kinds):
            example = next(kinds[kind], None)
            if example is None:
                del kinds[kind]
            elif len(found) < limit:
                found.append(example)
                counts[kind] += 1
    return found, {kind: count for kind, count in counts.items() if count}


def has_titles(made: KnownItems) -> bool:
    """Return whether enough held-out documents have a title for titles to be the only topics."""
    return sum(f"-{TITLE}-" in topic.id for topic in made.topics) >= MIN_TOPICS


def write_examples(examples: Sequence[RetrievalExample], directory: Path) -> None:
    """Write a training set of each language, and one of all languages with few examples."""
    languages = Counter(example.language for example in examples)
    files: dict[str, list[RetrievalExample]] = {}
    for example in examples:
        name = f"documents.{example.language}.jsonl"
        is_rare = len(languages) > 1 and languages[example.language] < _OWN_FILE
        if is_rare or file_language(Path(name)) == UNDETERMINED:
            name = "documents.jsonl"
        files.setdefault(name, []).append(example)
    directory.mkdir(parents=True)
    for name, listed in files.items():
        (directory / name).write_bytes(b"".join(dump_example(example) + b"\n" for example in listed))


def write_pairs(names: Sequence[str], made: KnownItems, directory: Path, least: int) -> int:
    """Write sentence pairs without what topics and held-out documents have; return their number.

    Raises MilcoError if fewer than least English sentences remain.
    """
    texts = [document.text for document in made.documents if document.id in made.held_out]
    held = {part for text in texts for part in sentences(text)} | {topic.text for topic in made.topics}
    lines: dict[str, list[str]] = {}
    english: set[str] = set()
    for source in open_bitext(names):
        for pair in source.pairs():
            sides = [" ".join(side.split()) for side in (pair.text, pair.english)]
            if held.isdisjoint(sides):
                lines.setdefault(source.language, []).append("\t".join(sides) + "\n")
                english.add(sides[1])
    if len(english) < least:
        rule = f"{len(english):,} English sentences that no held-out document has: at least {least:,} are needed"
        raise ParameterError("parallel", " ".join(names), rule)
    directory.mkdir(parents=True)
    for language, listed in lines.items():
        (directory / f"{language}-en.tsv").write_text("".join(listed), encoding="utf-8")
    return sum(map(len, lines.values()))


def _example(document: Document, query: str, passage: str) -> RetrievalExample:
    return RetrievalExample(language_of(document), " ".join(query.split()), (passage,), ())


def _titles(documents: Sequence[Document], shared: frozenset[str]) -> Iterator[RetrievalExample]:
    for document in documents:
        if document.title.strip() and document.title.casefold() not in shared and _is_passage(document.text):
            yield _example(document, document.title, document.text)


def _headings(documents: Sequence[Document]) -> Iterator[RetrievalExample]:
    """Yield Markdown's headings with their sections."""
    for document in documents:
        _, *parts = _HEADING.split(document.text)
        for heading, section in zip(parts[::2], parts[1::2], strict=True):
            if _is_passage(section):
                yield _example(document, f"{document.title} {heading}", section.strip())


def _mentions(documents: Sequence[Document], shared: frozenset[str]) -> Iterator[RetrievalExample]:
    """Yield sentences that have the title of another document, as the texts of links do, with that document."""
    titled: dict[tuple[str, ...], Document] = {}
    for document in documents:
        words = tuple(_WORD.findall(document.title.casefold()))
        if _LEAST_WORDS <= len(words) <= _MOST_WORDS and document.title.casefold() not in shared:
            titled[words] = document
    for document in documents if titled else ():
        for sentence in sentences(document.text):
            words = tuple(_WORD.findall(sentence.casefold()))
            spans = (
                words[start : start + size]
                for size in range(_MOST_WORDS, _LEAST_WORDS - 1, -1)
                for start in range(len(words) - size + 1)
            )
            target = next((titled[span] for span in spans if span in titled), document)
            if target is not document and len(words) > _MOST_WORDS and _is_passage(target.text):
                yield _example(target, sentence, target.contents)
                break


def _sentences(
    made: KnownItems, documents: Sequence[Document], encoder: MilcoEncoder, vectors: SparseBatch
) -> Iterator[RetrievalExample]:
    """Yield sentences that find their document, with the rest of it (inverse cloze task)."""
    places = {document.id: place for place, document in enumerate(made.documents)}
    for start in range(0, len(documents), _ENCODED_AT_A_TIME):
        some = documents[start : start + _ENCODED_AT_A_TIME]
        taken = [(document, *take_sentence(document, made.shared)) for document in some]
        taken = [(document, sentence, rest) for document, sentence, rest in taken if sentence]
        if taken:
            scores = encoder.encode_query([sentence for _, sentence, _ in taken]).dot(vectors)
            for (document, sentence, rest), row in zip(taken, scores, strict=True):
                if (row > row[places[document.id]]).sum() < _FIRST:
                    yield _example(document, sentence, f"{document.title} {rest}".strip())


def _terms(documents: Sequence[Document], encoder: MilcoEncoder) -> Iterator[RetrievalExample]:
    """Yield the strongest terms of the source view, in the order of their weights, with the document."""
    for start in range(0, len(documents), _ENCODED_AT_A_TIME):
        some = documents[start : start + _ENCODED_AT_A_TIME]
        vectors = encoder.encode_document([document.contents for document in some]).view(SOURCE)
        for document, terms in zip(some, encoder.decode(vectors, top_k=4 * _TERMS), strict=True):
            pieces = (_PIECE.fullmatch(term) for term, _ in terms)
            # Pieces within a word are not words where words have spaces.
            words = [piece[2] for piece in pieces if piece and (piece[1] or not piece[2].isascii())]
            if len(words) >= _TERMS:
                yield _example(document, " ".join(words[:_TERMS]), document.contents)


def _is_passage(text: str) -> bool:
    return len(text.encode("utf-8", "surrogatepass")) >= _LEAST_BYTES
