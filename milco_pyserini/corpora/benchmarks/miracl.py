"""MIRACL in a copy of its publisher's two repositories.

Without a copy ir_datasets fetches it (names.py); a copy of ir_datasets' home will do, too.
"""

from milco_pyserini.corpora.jsonl import jsonl_documents
from milco_pyserini.corpora.names import MIRACL_SPLITS
from milco_pyserini.corpora.origin import CorpusOrigin, TopicsOrigin, documents, queries, trec_judgements
from milco_pyserini.corpora.remote import HubFile
from milco_pyserini.corpora.tsv import tsv_queries

# How many files the passages of a language are in.
_FILES = {
    "ar": 5,
    "bn": 1,
    "de": 32,
    "en": 66,
    "es": 21,
    "fa": 5,
    "fi": 4,
    "fr": 30,
    "hi": 2,
    "id": 3,
    "ja": 14,
    "ko": 3,
    "ru": 20,
    "sw": 1,
    "te": 2,
    "th": 2,
    "yo": 1,
    "zh": 10,
}


def _passages(code: str, number: int) -> HubFile:
    kept = 1 if code == "yo" else number  # as ir_datasets calls that one
    return HubFile(
        "miracl/miracl-corpus",
        f"miracl-corpus-v1.0-{code}/docs-{number}.jsonl.gz",
        also=(f"miracl/v1.0/{code}/docs/docs-{kept}.jsonl.gz",),
    )


def _topics(code: str, split: str) -> TopicsOrigin:
    topics, qrels = (
        HubFile(
            "miracl/miracl",
            f"miracl-v1.0-{code}/{kind}/{kind}.miracl-v1.0-{code}-{split}.tsv",
            also=(f"miracl/v1.0/{code}/{split}/{kind}.tsv",),
        )
        for kind in ("topics", "qrels")
    )
    return TopicsOrigin(queries(tsv_queries, topics), trec_judgements(qrels))


# By their ids of ir_datasets.
CORPORA = {
    f"miracl/{code}": CorpusOrigin(
        documents(jsonl_documents, "title + ' ' + text", *(_passages(code, number) for number in range(count)))
    )
    for code, count in _FILES.items()
}
TOPICS = {f"miracl/{code}/{split}": _topics(code, split) for split, codes in MIRACL_SPLITS.items() for code in codes}
