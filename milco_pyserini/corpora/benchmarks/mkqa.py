"""MKQA: questions in 25 languages against passages of English Wikipedia, in the setup of BGE M3-Embedding.

The passages are those of Natural Questions in BEIR; the queries are the 6,619 of 10,000 questions with an answer that a
passage can contain. A passage is relevant if it contains one of the answers (answers.py), so the paper's R@100 is the
share of questions with an answer among the first 100 passages: Success@100.
"""

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkTopics, dataset_corpus
from milco_pyserini.corpora.readers import json_reader
from milco_pyserini.corpora.records import BadLineError, Query, record_id, text_of
from milco_pyserini.corpora.remote import ArchiveMember, HubFile, RemoteRecords

_LANGUAGES = "ar da de es fi fr he hu it ja km ko ms nl no pl pt ru sv th tr vi zh-cn zh-hk zh-tw".split()
_ARCHIVE = HubFile("Shitao/bge-m3-data", "MKQA_test-data.zip")


_queries = json_reader(lambda row: Query(record_id(row["id"]), text_of(row["question"], "question")))


def read_answers(row: dict) -> tuple[str, list[str]]:
    """Return the answers of a row."""
    answers = row["answers"]
    if not isinstance(answers, list):
        raise BadLineError("'answers' is not a list")
    return record_id(row["id"]), [text_of(answer, "answers") for answer in answers]


def _topics(code: str) -> BenchmarkTopics:
    files = [ArchiveMember(_ARCHIVE, f"{code.replace('-', '_')}.jsonl")]
    answers = RemoteRecords(json_reader(read_answers), files)
    return BenchmarkTopics(RemoteRecords(_queries, files), None, 6619, answers=answers)


MKQA = Benchmark(
    name="mkqa",
    title="MKQA on English Wikipedia",
    corpus_names="mkqa",
    topics_names="mkqa-LANG-test",
    languages=tuple(_LANGUAGES),
    license="CC BY-SA 3.0 (questions); passages as beir-nq",
    citation="Longpre et al. MKQA: A Linguistically Diverse Benchmark for Multilingual Open Domain Question Answering. "
    "TACL 2021",
    source=f"Hugging Face hub: {_ARCHIVE.repository}, branch main; passages: ir_datasets beir/nq",
    corpora={"mkqa": dataset_corpus("beir/nq", "en")},
    topics={f"mkqa-{code}-test": _topics(code) for code in _LANGUAGES},
    note="judged by answers: python -m experiments.judge, then Success@100, which is the paper's R@100. Passages "
    "are encoded as in BEIR; BGE M3-Embedding first normalizes their quotes and dashes",
)
