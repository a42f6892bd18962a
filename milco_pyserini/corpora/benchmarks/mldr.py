"""MLDR: long documents in thirteen languages (BGE M3-Embedding, arXiv:2402.03216), from its publisher's repository.

The paper cuts documents into passages of 512 tokens, and a document's best passage counts: encode --split-passages.
"""

from milco_pyserini.corpora.jsonl import jsonl_documents, jsonl_queries
from milco_pyserini.corpora.origin import (
    CorpusOrigin,
    Family,
    Judgement,
    TopicsOrigin,
    documents,
    json_reader,
    judgements,
    queries,
)
from milco_pyserini.corpora.remote import HubFile

REPOSITORY = "Shitao/MLDR"
REVISION = "d076455304da5ccf7adf3a644325100062994718"

# Documents and queries in train, dev and test, as the repository's card counts them.
_SIZES = {
    "ar": (7607, 1817, 200, 200),
    "de": (10_000, 1847, 200, 200),
    "en": (200_000, 10_000, 200, 800),
    "es": (9551, 2254, 200, 200),
    "fr": (10_000, 1608, 200, 200),
    "hi": (3806, 1618, 200, 200),
    "it": (10_000, 2151, 200, 200),
    "ja": (10_000, 2262, 200, 200),
    "ko": (6176, 2198, 200, 200),
    "pt": (6569, 1845, 200, 200),
    "ru": (10_000, 1864, 200, 200),
    "th": (10_000, 1970, 200, 200),
    "zh": (200_000, 10_000, 200, 800),
}
_SPLITS = ("train", "dev", "test")


def _file(code: str, name: str) -> HubFile:
    return HubFile(REPOSITORY, f"mldr-v1.0-{code}/{name}.jsonl.gz", REVISION)


def _judged(row: dict) -> list[Judgement]:
    query = str(row["query_id"])
    grades = (("negative_passages", 0), ("positive_passages", 1))
    return [(query, str(passage["docid"]), grade) for field, grade in grades for passage in row[field]]


def _topics(code: str, split: str, count: int) -> TopicsOrigin:
    file = _file(code, split)
    return TopicsOrigin(queries(jsonl_queries, file), judgements(json_reader(_judged), file), count)


FAMILIES = (
    Family(
        name="mldr",
        title="MLDR",
        patterns=("mldr-LANG", "mldr-LANG-SPLIT"),
        languages=tuple(_SIZES),
        licence="MIT",
        source=f"Hugging Face hub: {REPOSITORY} at {REVISION[:10]}",
        field_rule="text",
        corpora={
            f"mldr-{code}": CorpusOrigin(documents(jsonl_documents, "text", _file(code, "corpus")), sizes[0])
            for code, sizes in _SIZES.items()
        },
        topics={
            f"mldr-{code}-{split}": _topics(code, split, count)
            for code, sizes in _SIZES.items()
            for split, count in zip(_SPLITS, sizes[1:], strict=True)
        },
        note="long documents: encode --split-passages, and the best passage of a document counts",
    ),
)
