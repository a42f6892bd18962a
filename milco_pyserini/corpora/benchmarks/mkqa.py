"""MKQA: questions in 25 languages against passages of English Wikipedia, as BGE M3-Embedding set it up.

The passages are BEIR's of Natural Questions; of the 10,000 questions, those with an answer that a passage can hold
(6,619). A passage is relevant if one of the answers stands in it (answers.py), so that the paper's R@100 is the share
of questions with an answer among the first 100 passages: Success@100.
"""

from pathlib import Path

from milco_pyserini.corpora.origin import Family, TopicsOrigin, answered, json_reader, per_line, queries
from milco_pyserini.corpora.records import BadLineError, Query, record_id, text_of
from milco_pyserini.corpora.remote import HubFile, Member

_LANGUAGES = "ar da de es fi fr he hu it ja km ko ms nl no pl pt ru sv th tr vi zh-cn zh-hk zh-tw".split()
_ARCHIVE = HubFile("Shitao/bge-m3-data", "MKQA_test-data.zip")
_QUESTIONS = 6619
CORPUS = "mkqa"


def _query(row: dict) -> Query:
    return Query(record_id(row["id"]), text_of(row["question"], "question"))


def _answers(row: dict) -> tuple[str, list[str]]:
    answers = row["answers"]
    if not isinstance(answers, list):
        raise BadLineError("'answers' is no list")
    return record_id(row["id"]), [text_of(answer, "answers") for answer in answers]


def _topics(code: str) -> TopicsOrigin:
    file = Member(_ARCHIVE, f"{code.replace('-', '_')}.jsonl")

    def answers(copy: Path | None) -> dict[str, list[str]]:
        return dict(per_line(json_reader(_answers), file, copy))

    refuse = answered(f"mkqa-{code}-test", CORPUS)
    return TopicsOrigin(queries(json_reader(_query), file), refuse, _QUESTIONS, answers)


FAMILIES = (
    Family(
        name="mkqa",
        title="MKQA on English Wikipedia",
        patterns=(CORPUS, "mkqa-LANG-test"),
        languages=tuple(_LANGUAGES),
        licence="CC BY-SA 3.0 (questions); passages as beir-nq",
        source=f"Hugging Face hub: {_ARCHIVE.repository}, branch main; passages: ir_datasets beir/nq",
        field_rule="title + ' ' + text",
        corpora={CORPUS: "beir/nq"},
        topics={f"mkqa-{code}-test": _topics(code) for code in _LANGUAGES},
        note="judged by answers: milco corpora judge, then Success@100, which is the paper's R@100. "
        "Passages are encoded as BEIR has them; BGE M3-Embedding rewrites their quotes and dashes first",
    ),
)
