"""CIRAL: English questions against news in four African languages, from its publisher's two repositories."""

from milco_pyserini.corpora.jsonl import jsonl_documents
from milco_pyserini.corpora.origin import CorpusOrigin, Family, TopicsOrigin, documents, queries, trec_judgements
from milco_pyserini.corpora.remote import HubFile
from milco_pyserini.corpora.tsv import tsv_queries

_PASSAGES = ("CIRAL/ciral-corpus", "81644d6e18427ab79a36bb31141c9281239ba40c")
_TOPICS = "CIRAL/ciral"
FIELD_RULE = "title + ' ' + text"

# Name in paths, passages, and questions in dev, test-a and test-b.
_LANGUAGES = {
    "ha": ("hausa", 715_355, (10, 80, 312)),
    "so": ("somali", 827_552, (10, 99, 239)),
    "sw": ("swahili", 949_013, (10, 85, 113)),
    "yo": ("yoruba", 82_095, (10, 100, 554)),
}
# The topics of test-a have two sets of judgements; the deeper one is of the passages that the track's systems found.
_POOLS = "-pools"
_SPLITS = {"dev": 0, "test-a": 1, f"test-a{_POOLS}": 1, "test-b": 2}


def _passages(name: str) -> HubFile:
    return HubFile(_PASSAGES[0], f"passages-v1.0/{name}_passages.jsonl", _PASSAGES[1])


def _topics(code: str, name: str, split: str, count: int) -> TopicsOrigin:
    topics, qrels = (
        HubFile(_TOPICS, f"ciral-{name}/{kind}/{kind}.ciral-v1.0-{code}-{which}.tsv")
        for kind, which in (("topics", split.removesuffix(_POOLS)), ("qrels", split))
    )
    return TopicsOrigin(queries(tsv_queries, topics), trec_judgements(qrels), count)


FAMILIES = (
    Family(
        name="ciral",
        title="CIRAL",
        patterns=("ciral-LANG", "ciral-LANG-SPLIT"),
        languages=tuple(_LANGUAGES),
        licence="Apache-2.0",
        source=f"Hugging Face hub: {_TOPICS}, branch main; {_PASSAGES[0]} at {_PASSAGES[1][:10]}",
        field_rule=FIELD_RULE,
        corpora={
            f"ciral-{code}": CorpusOrigin(documents(jsonl_documents, FIELD_RULE, _passages(name)), count)
            for code, (name, count, _) in _LANGUAGES.items()
        },
        topics={
            f"ciral-{code}-{split}": _topics(code, name, split, counts[place])
            for code, (name, _, counts) in _LANGUAGES.items()
            for split, place in _SPLITS.items()
        },
        note="questions in English, passages in the named language; test-a-pools are the topics of test-a with the "
        "deeper judgements of the track's pools",
    ),
)
