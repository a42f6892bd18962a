"""BEIR in a copy of its publisher's archives, or of what was in them.

What was in an archive is a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv, which may have any name. Without
a copy ir_datasets fetches it (names.py) and checks its MD5; a copy of ir_datasets' home will do, too.
"""

from milco_pyserini.corpora.jsonl import jsonl_documents, jsonl_queries
from milco_pyserini.corpora.names import BEIR_SPLITS, CQADUPSTACK
from milco_pyserini.corpora.origin import (
    CorpusOrigin,
    TopicsOrigin,
    documents,
    judged_topics,
    queries,
    trec_judgements,
)
from milco_pyserini.corpora.remote import Member, WebFile

_SERVER = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/"


def _file(folder: str, name: str) -> Member:
    stem = folder.split("/")[0]
    archive = WebFile(f"{_SERVER}{stem}.zip", "beir", f"{stem}.zip", also=(f"beir/{stem}/source.zip",))
    return Member(archive, f"{folder}/{name}", also=(name,))


def _corpus(folder: str) -> CorpusOrigin:
    return CorpusOrigin(documents(jsonl_documents, "title + ' ' + text", _file(folder, "corpus.jsonl")))


def _topics(folder: str, split: str, alone: bool) -> TopicsOrigin:
    """alone: whether the collection has no other split; else the queries of all are in one file."""
    every = queries(jsonl_queries, _file(folder, "queries.jsonl"))
    qrels = trec_judgements(_file(folder, f"qrels/{split}.tsv"))
    return TopicsOrigin(every, qrels) if alone else judged_topics(every, qrels)


# By their ids of ir_datasets, which leaves unsaid a split that is the only one.
_SPLITS = {**BEIR_SPLITS, **{f"cqadupstack/{name}": ("test",) for name in CQADUPSTACK}}
CORPORA = {f"beir/{folder}": _corpus(folder) for folder in _SPLITS}
TOPICS = {
    f"beir/{folder}" if len(splits) == 1 else f"beir/{folder}/{split}": _topics(folder, split, len(splits) == 1)
    for folder, splits in _SPLITS.items()
    for split in splits
}
