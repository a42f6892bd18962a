"""Benchmarks in MTEB's layout on the Hugging Face hub. Sizes are those of MTEB's descriptive statistics (2.26)."""

from itertools import product

from milco_pyserini.corpora.benchmark import Benchmark, language_code, size_table
from milco_pyserini.corpora.hub_tables import HubTask

_MMTEB = "Enevoldsen et al. MMTEB: Massive Multilingual Text Embedding Benchmark. ICLR 2025"

# Documents and queries.
_MIRACL_SIZES = size_table("""
ar=192_103/1000 bn=297_265/411 de=71_277/305 en=178_768/799 es=146_750/648 fa=133_596/632 fi=194_415/1000
fr=75_357/343 hi=63_066/350 id=168_173/960 ja=185_319/860 ko=43_293/213 ru=219_114/1000 sw=131_924/482
te=101_961/828 th=116_649/733 yo=49_043/119 zh=81_309/393
""")
_MIRACL_TASKS = {
    code: HubTask("mteb/MIRACLRetrievalHardNegatives", "d7d94fa4b946cec4a27c84653aa0cf6b33f74a3c", "dev", code)
    for code in _MIRACL_SIZES
}
MIRACL_HN = Benchmark(
    name="miracl-hn",
    title="MIRACL, hard negatives (MTEB)",
    corpus_names="miracl-hn-LANG",
    topics_names="miracl-hn-LANG-dev",
    languages=tuple(_MIRACL_TASKS),
    license="CC BY-SA 4.0 (according to MTEB; MIRACL itself is Apache-2.0)",
    citation="Zhang et al. MIRACL: A Multilingual Retrieval Dataset Covering 18 Diverse Languages. TACL 2023; "
    f"{_MMTEB}",
    source=f"Hugging Face hub: {_MIRACL_TASKS['ar']}",
    corpora={f"miracl-hn-{code}": task.corpus(code, _MIRACL_SIZES[code][0]) for code, task in _MIRACL_TASKS.items()},
    topics={f"miracl-hn-{code}-dev": task.topics(_MIRACL_SIZES[code][1]) for code, task in _MIRACL_TASKS.items()},
    note="the 250 best of BM25, multilingual-e5-large and e5-mistral, for up to 1,000 queries of dev; MTEB's .v2 is "
    "the same data with another prompt for dense models",
)

_MLQA_LANGUAGES = "ara deu eng spa hin vie zho".split()
# Documents and queries of a pair; MTEB's statistics have only those with Chinese documents one by one.
_MLQA_SIZES = size_table("""
zho-ara-validation=161/188 zho-deu-validation=164/190 zho-eng-validation=443/504 zho-spa-validation=148/161
zho-hin-validation=163/189 zho-vie-validation=168/184 zho-zho-validation=443/504
zho-ara-test=1718/1911 zho-deu-test=1464/1621 zho-eng-test=4546/5135 zho-spa-test=1753/1947
zho-hin-test=1525/1766 zho-vie-test=1745/1943 zho-zho-test=4546/5136
""")
_MLQA_TASKS = {
    f"{documents}-{queries}-{split}": HubTask(
        "mteb/MLQARetrieval", "5bef8b6e2601af974fb1a1cca03fd702229be4b6", split, f"{documents}-{queries}"
    )
    for documents, queries, split in product(_MLQA_LANGUAGES, _MLQA_LANGUAGES, ("validation", "test"))
}
MTEB_MLQA = Benchmark(
    name="mteb-mlqa",
    title="MLQA (MTEB v2)",
    corpus_names="mteb-mlqa-DOCUMENTS-QUERIES-SPLIT",
    topics_names="mteb-mlqa-DOCUMENTS-QUERIES-SPLIT",
    languages=tuple(_MLQA_LANGUAGES),
    license="CC BY-SA 3.0",
    citation=f"Lewis et al. MLQA: Evaluating Cross-lingual Extractive Question Answering. ACL 2020; {_MMTEB}",
    source=f"Hugging Face hub: {_MLQA_TASKS['zho-zho-test']}",
    corpora={
        f"mteb-mlqa-{name}": task.corpus(language_code(name[:3]), _MLQA_SIZES.get(name, (None, None))[0])
        for name, task in _MLQA_TASKS.items()
    },
    topics={
        f"mteb-mlqa-{name}": task.topics(_MLQA_SIZES.get(name, (None, None))[1]) for name, task in _MLQA_TASKS.items()
    },
    note="each pair of languages is a task with documents of its own; the 49 of test have 138,636 documents and "
    "158,029 queries together",
)

_STATCAN_LANGUAGES = {"en": "english", "fr": "french"}
_STATCAN_QUERIES = {("en", "dev"): 543, ("fr", "dev"): 122, ("en", "test"): 553, ("fr", "test"): 108}
_STATCAN_TASKS = {
    (code, split): HubTask(
        "mteb/StatcanDialogueDatasetRetrieval",
        "6f9747b22a93c6cf714945bca43576089fb80de3",
        split,
        _STATCAN_LANGUAGES[code],
    )
    for code, split in _STATCAN_QUERIES
}
STATCAN = Benchmark(
    name="mteb-statcan",
    title="StatCan Dialogue Dataset (MTEB v2)",
    corpus_names="mteb-statcan-LANG",
    topics_names="mteb-statcan-LANG-SPLIT",
    languages=tuple(_STATCAN_LANGUAGES),
    license="its own: LICENSE.md of McGill-NLP/statcan-dialogue-dataset-retrieval on the hub",
    citation="Lu et al. The StatCan Dialogue Dataset: Retrieving Data Tables through Conversations with Genuine "
    f"Intents. EACL 2023; {_MMTEB}",
    source=f"Hugging Face hub: {_STATCAN_TASKS['en', 'test']}",
    corpora={f"mteb-statcan-{code}": _STATCAN_TASKS[code, "test"].corpus(code, 5907) for code in _STATCAN_LANGUAGES},
    topics={
        f"mteb-statcan-{code}-{split}": task.topics(_STATCAN_QUERIES[code, split])
        for (code, split), task in _STATCAN_TASKS.items()
    },
    note="MTEB's measure is R@10. A query is a conversation, its turns as 'role: content' joined by '; '",
)

_TWITTERHJERNE = HubTask("mteb/TwitterHjerneRetrieval", "97ad55673cf9746f8e4b3aaa92b1bb92d82e52db", "train")
TWITTERHJERNE = Benchmark(
    name="mteb-twitterhjerne",
    title="TwitterHjerne (MTEB v2)",
    corpus_names="mteb-twitterhjerne",
    topics_names="mteb-twitterhjerne-train",
    languages=("da",),
    license="CC BY 4.0",
    citation=f"Holm. Are GLLMs Danoliterate? Benchmarking Generative NLP in Danish. 2024; {_MMTEB}",
    source=f"Hugging Face hub: {_TWITTERHJERNE}",
    corpora={"mteb-twitterhjerne": _TWITTERHJERNE.corpus("da", 262)},
    topics={"mteb-twitterhjerne-train": _TWITTERHJERNE.topics(78)},
    note="its only split is called train",
)

_WIKIPEDIA_TASKS = {
    code: HubTask("mteb/WikipediaRetrievalMultilingual", "5f6c91d21f2f5b9afb663858d19848fbd223c775", "test", code)
    for code in "bg bn cs da de en fa fi hi it nl no pt ro sr sv".split()
}
MTEB_WIKIPEDIA = Benchmark(
    name="mteb-wikipedia",
    title="WikipediaRetrievalMultilingual (MTEB v2)",
    corpus_names="mteb-wikipedia-LANG",
    topics_names="mteb-wikipedia-LANG-test",
    languages=tuple(_WIKIPEDIA_TASKS),
    license="CC BY-SA 3.0",
    citation=_MMTEB,
    source=f"Hugging Face hub: {_WIKIPEDIA_TASKS['bg']}",
    corpora={f"mteb-wikipedia-{code}": task.corpus(code, 13_500) for code, task in _WIKIPEDIA_TASKS.items()},
    topics={f"mteb-wikipedia-{code}-test": task.topics(1500) for code, task in _WIKIPEDIA_TASKS.items()},
)

_LIMIT = HubTask("orionweller/LIMIT", "48142cc741b04d0b4af370ade7e8b42430382670", "test")
_LIMIT_SMALL = HubTask("orionweller/LIMIT-small", "ff4a8f2476ae77476c1912f1f3cb5bb5f2d766d4", "test")
LIMIT = Benchmark(
    name="limit",
    title="LIMIT",
    corpus_names="limit, limit-small",
    topics_names="limit-test, limit-small-test",
    languages=("en",),
    license="CC BY 4.0",
    citation="Weller et al. On the Theoretical Limitations of Embedding-Based Retrieval. arXiv:2508.21038, 2025",
    source=f"Hugging Face hub: {_LIMIT}, {_LIMIT_SMALL}",
    corpora={"limit": _LIMIT.corpus("en", 50_000), "limit-small": _LIMIT_SMALL.corpus("en", 46)},
    topics={"limit-test": _LIMIT.topics(1000), "limit-small-test": _LIMIT_SMALL.topics(1000)},
)
