"""The formats of benchmarks' files, by the names that benchmarks.toml gives them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

import orjson

from milco_pyserini.corpora.readers import (
    BadLine,
    Judgment,
    Lines,
    Reader,
    json_reader,
    jsonl_documents,
    jsonl_queries,
    tsv_queries,
)
from milco_pyserini.corpora.records import BadLineError, Document, Query, record_id, text_of

T = TypeVar("T")


@dataclass(frozen=True)
class Format:
    """The readers of a format.

    Args:
        judgments: of the file with the queries; None if they are another file, in the format of TREC or BEIR.
        answers: (query id, answers), in the file with the queries, of topics that are judged by answers.
    """

    queries: Reader[Query]
    judgments: Reader[list[Judgment]] | None = None
    documents: Reader[Document] = jsonl_documents
    answers: Reader[tuple[str, list[str]]] | None = None


# A passage and its questions (id, text) -> the passage's id.
_PassageId = Callable[[str, list[tuple[str, str]]], str]


def _squad(passage_id: _PassageId) -> Format:
    """Return SQuAD's format: passages, each once, and questions, both numbered from 1."""
    return Format(
        _squad_reader(lambda _, questions: [Query(*question) for question in questions]),
        _squad_reader(lambda passage, questions: [[(key, passage_id(passage, questions), 1) for key, _ in questions]]),
        _squad_reader(lambda passage, questions: [Document(passage_id(passage, questions), "", passage)]),
    )


def _squad_reader(make: Callable[[str, list[tuple[str, str]]], list[T]]) -> Reader[T]:
    def read(lines: Lines, bad: BadLine) -> Iterator[tuple[int, T]]:
        # Passage -> its questions. A passage that occurs several times is one document.
        passages: dict[str, list[tuple[str, str]]] = {}
        try:
            squad = orjson.loads(b"\n".join(line for _, line in lines))
            for paragraph in (paragraph for article in squad["data"] for paragraph in article["paragraphs"]):
                questions = passages.setdefault(text_of(paragraph["context"], "context"), [])
                questions += [(record_id(qa["id"]), text_of(qa["question"], "question")) for qa in paragraph["qas"]]
        except (BadLineError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            bad(1, f"not in SQuAD's format: {error}")
            return
        asked = ((passage, questions) for passage, questions in passages.items() if questions)
        yield from enumerate((record for entry in asked for record in make(*entry)), start=1)

    return read


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


_NAN = re.compile(rb"([:\[] ?)NaN(?=[,\]}])")


def _afriqa(make: Callable[[dict], T]) -> Reader[T]:
    """Return a reader of the rows that have a passage.

    Python wrote these files: empty cells of a spreadsheet are NaN, which is not JSON.
    """
    read = json_reader(lambda row: None if row["context"] is None else make(row))
    return lambda lines, bad: read(((number, _NAN.sub(rb"\1null", line)) for number, line in lines), bad)


def _afriqa_passage(row: dict) -> Document:
    # Some passages have no title.
    title, text = text_of(row["title"] or "", "title").strip(), text_of(row["context"], "context").strip()
    return Document(_hash(f"{title}\n{text}"), title, text)


def _belebele_passage(row: dict) -> str:
    # A link has no white space; if one has, the id must not.
    return "_".join(text_of(row["link"], "link").split())


def _belebele_question(row: dict) -> str:
    return f"{_belebele_passage(row)}#{row['question_number']}"


def _mkqa_answers(row: dict) -> tuple[str, list[str]]:
    if not isinstance(row["answers"], list):
        raise BadLineError("'answers' is not a list")
    return record_id(row["id"]), [text_of(answer, "answers") for answer in row["answers"]]


def _mldr_judgments(row: dict) -> list[Judgment]:
    query = str(row["query_id"])
    grades = (("negative_passages", 0), ("positive_passages", 1))
    return [(query, str(passage["docid"]), grade) for field, grade in grades for passage in row[field]]


def _neuclir_query(row: dict) -> Query:
    """Return the English title of a topic."""
    for topic in row["topics"]:
        if topic["lang"] == "eng":
            return Query(record_id(row["topic_id"]), text_of(topic["topic_title"], "topic_title"))
    raise BadLineError("no topic in English")


FORMATS = {
    "jsonl": Format(jsonl_queries),
    "tsv": Format(tsv_queries),
    "mldr": Format(jsonl_queries, json_reader(_mldr_judgments)),
    # The first question in sorted order, which is the same in all languages.
    "xquad": _squad(lambda _, questions: min(key for key, _ in questions)),
    # A hash of the text, because files share passages but not all of their questions.
    "mlqa": _squad(lambda passage, _: _hash(passage)),
    "afriqa": Format(
        _afriqa(lambda row: Query(record_id(row["id"]), text_of(row["question_lang"], "question_lang"))),
        _afriqa(lambda row: [(record_id(row["id"]), _afriqa_passage(row).id, 1)]),
        _afriqa(_afriqa_passage),
    ),
    "belebele": Format(
        json_reader(lambda row: Query(_belebele_question(row), text_of(row["question"], "question"))),
        json_reader(lambda row: [(_belebele_question(row), _belebele_passage(row), 1)]),
        json_reader(lambda row: Document(_belebele_passage(row), "", text_of(row["flores_passage"], "flores_passage"))),
    ),
    "mkqa": Format(
        json_reader(lambda row: Query(record_id(row["id"]), text_of(row["question"], "question"))),
        answers=json_reader(_mkqa_answers),
    ),
    "neuclir": Format(json_reader(_neuclir_query)),
}
