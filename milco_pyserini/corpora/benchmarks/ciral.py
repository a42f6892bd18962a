"""CIRAL: English queries against news in four African languages, from the publisher's two repositories."""

from milco_pyserini.corpora.benchmark import FIELD_RULE, Benchmark, BenchmarkCorpus, BenchmarkTopics
from milco_pyserini.corpora.readers import jsonl_documents, tsv_queries
from milco_pyserini.corpora.remote import HubFile, RemoteQrels, RemoteRecords

_PASSAGES = ("CIRAL/ciral-corpus", "81644d6e18427ab79a36bb31141c9281239ba40c")
_TOPICS = "CIRAL/ciral"

# Name in paths, number of passages, number of queries in dev, test-a and test-b.
_LANGUAGES = {
    "ha": ("hausa", 715_355, (10, 80, 312)),
    "so": ("somali", 827_552, (10, 99, 239)),
    "sw": ("swahili", 949_013, (10, 85, 113)),
    "yo": ("yoruba", 82_095, (10, 100, 554)),
}
# test-a-pools are the queries of test-a with the deeper judgments of the track's pools.
_SPLITS = {"dev": 0, "test-a": 1, "test-a-pools": 1, "test-b": 2}


def _topics(code: str, split: str) -> BenchmarkTopics:
    name, _, counts = _LANGUAGES[code]
    topics, qrels = (
        HubFile(_TOPICS, f"ciral-{name}/{kind}/{kind}.ciral-v1.0-{code}-{part}.tsv")
        for kind, part in (("topics", split.removesuffix("-pools")), ("qrels", split))
    )
    return BenchmarkTopics(RemoteRecords(tsv_queries, [topics]), RemoteQrels([qrels]), counts[_SPLITS[split]])


CIRAL = Benchmark(
    name="ciral",
    title="CIRAL",
    corpus_names="ciral-LANG",
    topics_names="ciral-LANG-SPLIT",
    languages=tuple(_LANGUAGES),
    license="Apache-2.0",
    citation="Adeyemi et al. CIRAL: A Test Collection for CLIR Evaluations in African Languages. SIGIR 2024",
    source=f"Hugging Face hub: {_TOPICS}, branch main; {_PASSAGES[0]} at {_PASSAGES[1][:10]}",
    corpora={
        f"ciral-{code}": BenchmarkCorpus(
            RemoteRecords(
                jsonl_documents,
                [HubFile(_PASSAGES[0], f"passages-v1.0/{name}_passages.jsonl", _PASSAGES[1])],
                FIELD_RULE,
            ),
            code,
            count,
        )
        for code, (name, count, _) in _LANGUAGES.items()
    },
    topics={f"ciral-{code}-{split}": _topics(code, split) for code in _LANGUAGES for split in _SPLITS},
    note="queries in English, passages in the named language; test-a-pools are the topics of test-a with the deeper "
    "judgments of the track's pools",
)
