"""Mr. TyDi in a copy of its publisher's archives, or of what was in them.

Without a copy ir_datasets fetches it (names.py) and checks its MD5; a copy of ir_datasets' home will do, too.
"""

from milco_pyserini.corpora.jsonl import jsonl_documents
from milco_pyserini.corpora.names import MRTYDI_SPLITS
from milco_pyserini.corpora.origin import CorpusOrigin, TopicsOrigin, documents, queries, trec_judgements
from milco_pyserini.corpora.remote import Member, WebFile
from milco_pyserini.corpora.tsv import tsv_queries

_SERVER = "https://git.uwaterloo.ca/jimmylin/mr.tydi/-/raw/master/data/"
_LANGUAGES = {
    "ar": "arabic",
    "bn": "bengali",
    "en": "english",
    "fi": "finnish",
    "id": "indonesian",
    "ja": "japanese",
    "ko": "korean",
    "ru": "russian",
    "sw": "swahili",
    "te": "telugu",
    "th": "thai",
}


def _file(code: str, name: str) -> Member:
    folder = f"mrtydi-v1.0-{_LANGUAGES[code]}"
    archive = f"{folder}.tar.gz"
    path = f"{folder}/{name}"
    return Member(WebFile(_SERVER + archive, "mrtydi", archive), path, also=(f"mr-tydi/{code}.data/{path}",))


def _topics(code: str, split: str) -> TopicsOrigin:
    topics, qrels = _file(code, f"topic.{split}.tsv"), _file(code, f"qrels.{split}.txt")
    return TopicsOrigin(queries(tsv_queries, topics), trec_judgements(qrels))


# By their ids of ir_datasets.
CORPORA = {
    f"mr-tydi/{code}": CorpusOrigin(documents(jsonl_documents, "contents", _file(code, "collection/docs.jsonl.gz")))
    for code in _LANGUAGES
}
TOPICS = {f"mr-tydi/{code}/{split}": _topics(code, split) for code in _LANGUAGES for split in MRTYDI_SPLITS}
