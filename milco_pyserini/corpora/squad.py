"""SQuAD's format: passages with their questions, of which each has its own passage for the relevant one."""

from collections.abc import Callable, Iterator
from hashlib import blake2b

import orjson

from milco_pyserini.corpora.origin import (
    CorpusOrigin,
    Judgement,
    LineReader,
    TopicsOrigin,
    documents,
    judgements,
    queries,
)
from milco_pyserini.corpora.records import BadLineError, Document, Query, record_id, text_of
from milco_pyserini.corpora.remote import RemoteFile

FIELD_RULE = "context"
# A text and its questions (id, text) -> the passage's id.
PassageId = Callable[[str, list[tuple[str, str]]], str]


def first_question(context: str, questions: list[tuple[str, str]]) -> str:
    """A passage's id where questions have the same ids in all languages."""
    return min(identity for identity, _ in questions)


def text_hash(context: str, questions: list[tuple[str, str]]) -> str:
    """A passage's id where files share passages, but not all of their questions."""
    return blake2b(context.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def squad_documents(passage_id: PassageId) -> LineReader[Document]:
    """A reader of passages, each once, numbered from 1."""
    return _reader(lambda context, questions: [Document(passage_id(context, questions), "", context)])


def squad_queries() -> LineReader[Query]:
    """A reader of questions, numbered from 1."""
    return _reader(lambda _, questions: [Query(identity, text) for identity, text in questions])


def squad_judgements(passage_id: PassageId) -> LineReader[list[Judgement]]:
    """A reader of judgements: each question's passage."""
    return _reader(
        lambda context, questions: [[(identity, passage_id(context, questions), 1) for identity, _ in questions]]
    )


def _reader(make: Callable[[str, list[tuple[str, str]]], list]) -> LineReader:
    def read(lines: Iterator[tuple[int, bytes]], bad: Callable[[int, str], None]) -> Iterator[tuple[int, object]]:
        try:
            passages = _passages(orjson.loads(b"\n".join(line for _, line in lines)))
        except (BadLineError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            bad(1, f"not in SQuAD's format: {error}")
            return
        records = [record for context, questions in passages.items() for record in make(context, questions)]
        yield from enumerate(records, start=1)

    return read


def _passages(squad: dict) -> dict[str, list[tuple[str, str]]]:
    """Text -> its questions (id, text). A text that stands several times is one passage."""
    passages: dict[str, list[tuple[str, str]]] = {}
    for article in squad["data"]:
        for paragraph in article["paragraphs"]:
            questions = passages.setdefault(text_of(paragraph["context"], "context"), [])
            questions += [(record_id(qa["id"]), text_of(qa["question"], "question")) for qa in paragraph["qas"]]
    return {context: questions for context, questions in passages.items() if questions}


def squad_corpus(file: RemoteFile, passage_id: PassageId, count: int | None = None) -> CorpusOrigin:
    """The passages of a file; count as CorpusOrigin has it."""
    return CorpusOrigin(documents(squad_documents(passage_id), FIELD_RULE, file), count)


def squad_topics(file: RemoteFile, passage_id: PassageId, count: int | None = None) -> TopicsOrigin:
    """The questions of a file, and their passages."""
    return TopicsOrigin(queries(squad_queries(), file), judgements(squad_judgements(passage_id), file), count)
