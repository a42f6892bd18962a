"""MIRACL with hard negatives, and other retrieval tasks of MTEB v2 that the paper reports, as MTEB reads them.

Repositories, revisions and numbers are those of MTEB's task definitions and descriptive statistics (2.26). The sixth
task of the paper's table is in belebele.py.
"""

from itertools import product

from milco_pyserini.corpora.benchmark import Benchmark, language_code
from milco_pyserini.corpora.hub_tables import FIELD_RULE, HubTask

_MIRACL = ("mteb/MIRACLRetrievalHardNegatives", "d7d94fa4b946cec4a27c84653aa0cf6b33f74a3c")
_MLQA = ("mteb/MLQARetrieval", "5bef8b6e2601af974fb1a1cca03fd702229be4b6")
_STATCAN = ("mteb/StatcanDialogueDatasetRetrieval", "6f9747b22a93c6cf714945bca43576089fb80de3")
_TWITTER = ("mteb/TwitterHjerneRetrieval", "97ad55673cf9746f8e4b3aaa92b1bb92d82e52db")
_WIKIPEDIA = ("mteb/WikipediaRetrievalMultilingual", "5f6c91d21f2f5b9afb663858d19848fbd223c775")

# Documents and queries of each language.
_MIRACL_SIZES = {
    "ar": (192_103, 1000),
    "bn": (297_265, 411),
    "de": (71_277, 305),
    "en": (178_768, 799),
    "es": (146_750, 648),
    "fa": (133_596, 632),
    "fi": (194_415, 1000),
    "fr": (75_357, 343),
    "hi": (63_066, 350),
    "id": (168_173, 960),
    "ja": (185_319, 860),
    "ko": (43_293, 213),
    "ru": (219_114, 1000),
    "sw": (131_924, 482),
    "te": (101_961, 828),
    "th": (116_649, 733),
    "yo": (49_043, 119),
    "zh": (81_309, 393),
}
_MLQA_LANGUAGES = "ara deu eng spa hin vie zho".split()
# Documents and queries of a pair; MTEB's statistics have only those with Chinese documents one by one.
_MLQA_SIZES = {
    ("validation", "zho-ara"): (161, 188),
    ("validation", "zho-deu"): (164, 190),
    ("validation", "zho-eng"): (443, 504),
    ("validation", "zho-spa"): (148, 161),
    ("validation", "zho-hin"): (163, 189),
    ("validation", "zho-vie"): (168, 184),
    ("validation", "zho-zho"): (443, 504),
    ("test", "zho-ara"): (1718, 1911),
    ("test", "zho-deu"): (1464, 1621),
    ("test", "zho-eng"): (4546, 5135),
    ("test", "zho-spa"): (1753, 1947),
    ("test", "zho-hin"): (1525, 1766),
    ("test", "zho-vie"): (1745, 1943),
    ("test", "zho-zho"): (4546, 5136),
}
_STATCAN_QUERIES = {"dev": {"english": 543, "french": 122}, "test": {"english": 553, "french": 108}}
_WIKIPEDIA_LANGUAGES = "bg bn cs da de en fa fi hi it nl no pt ro sr sv".split()

_MMTEB = "Enevoldsen et al. MMTEB: Massive Multilingual Text Embedding Benchmark. ICLR 2025"


def _miracl() -> Benchmark:
    tasks = {code: HubTask(*_MIRACL, "dev", code) for code in _MIRACL_SIZES}
    return Benchmark(
        name="miracl-hn",
        title="MIRACL, hard negatives (MTEB)",
        corpus_names="miracl-hn-LANG",
        topics_names="miracl-hn-LANG-dev",
        languages=tuple(_MIRACL_SIZES),
        license="CC BY-SA 4.0 (according to MTEB; MIRACL itself is Apache-2.0)",
        citation="Zhang et al. MIRACL: A Multilingual Retrieval Dataset Covering 18 Diverse Languages. TACL 2023; "
        + _MMTEB,
        source=f"Hugging Face hub: {tasks['ar']}",
        field_rule=FIELD_RULE,
        corpora={f"miracl-hn-{code}": task.corpus(code, _MIRACL_SIZES[code][0]) for code, task in tasks.items()},
        topics={f"miracl-hn-{code}-dev": task.topics(_MIRACL_SIZES[code][1]) for code, task in tasks.items()},
        note="the 250 best of BM25, multilingual-e5-large and e5-mistral, for up to 1,000 queries of dev",
    )


def _mlqa() -> Benchmark:
    corpora, topics = {}, {}
    for documents, queries in product(_MLQA_LANGUAGES, repeat=2):
        pair = f"{documents}-{queries}"
        for split in ("validation", "test"):
            task = HubTask(*_MLQA, split, pair)
            sizes = _MLQA_SIZES.get((split, pair), (None, None))
            corpora[f"mteb-mlqa-{pair}-{split}"] = task.corpus(language_code(documents), sizes[0])
            topics[f"mteb-mlqa-{pair}-{split}"] = task.topics(sizes[1])
    return Benchmark(
        name="mteb-mlqa",
        title="MLQA (MTEB v2)",
        corpus_names="mteb-mlqa-DOCUMENTS-QUERIES-SPLIT",
        topics_names="mteb-mlqa-DOCUMENTS-QUERIES-SPLIT",
        languages=tuple(_MLQA_LANGUAGES),
        license="CC BY-SA 3.0",
        citation=f"Lewis et al. MLQA: Evaluating Cross-lingual Extractive Question Answering. ACL 2020; {_MMTEB}",
        source=f"Hugging Face hub: {HubTask(*_MLQA, 'test')}",
        field_rule=FIELD_RULE,
        corpora=corpora,
        topics=topics,
        note="each pair of languages is a task with documents of its own; the 49 of test have 138,636 documents and "
        "158,029 queries together",
    )


def _statcan() -> Benchmark:
    languages = {"en": "english", "fr": "french"}
    tasks = {
        (code, split): HubTask(*_STATCAN, split, config)
        for code, config in languages.items()
        for split in _STATCAN_QUERIES
    }
    return Benchmark(
        name="mteb-statcan",
        title="StatCan Dialogue Dataset (MTEB v2)",
        corpus_names="mteb-statcan-LANG",
        topics_names="mteb-statcan-LANG-SPLIT",
        languages=tuple(languages),
        license="its own: LICENSE.md of McGill-NLP/statcan-dialogue-dataset-retrieval on the hub",
        citation="Lu et al. The StatCan Dialogue Dataset: Retrieving Data Tables through Conversations with Genuine "
        f"Intents. EACL 2023; {_MMTEB}",
        source=f"Hugging Face hub: {tasks['en', 'test']}",
        field_rule=FIELD_RULE,
        corpora={f"mteb-statcan-{code}": tasks[code, "test"].corpus(code, 5907) for code in languages},
        topics={
            f"mteb-statcan-{code}-{split}": task.topics(_STATCAN_QUERIES[split][languages[code]])
            for (code, split), task in tasks.items()
        },
        note="MTEB's measure is R@10. A query is a conversation, its turns as 'role: content' joined by '; '",
    )


def _twitter() -> Benchmark:
    task = HubTask(*_TWITTER, "train")
    return Benchmark(
        name="mteb-twitterhjerne",
        title="TwitterHjerne (MTEB v2)",
        corpus_names="mteb-twitterhjerne",
        topics_names="mteb-twitterhjerne-train",
        languages=("da",),
        license="CC BY 4.0",
        citation=f"Holm. Are GLLMs Danoliterate? Benchmarking Generative NLP in Danish. 2024; {_MMTEB}",
        source=f"Hugging Face hub: {task}",
        field_rule=FIELD_RULE,
        corpora={"mteb-twitterhjerne": task.corpus("da", 262)},
        topics={"mteb-twitterhjerne-train": task.topics(78)},
        note="its only split is called train",
    )


def _wikipedia() -> Benchmark:
    tasks = {code: HubTask(*_WIKIPEDIA, "test", code) for code in _WIKIPEDIA_LANGUAGES}
    return Benchmark(
        name="mteb-wikipedia",
        title="WikipediaRetrievalMultilingual (MTEB v2)",
        corpus_names="mteb-wikipedia-LANG",
        topics_names="mteb-wikipedia-LANG-test",
        languages=tuple(_WIKIPEDIA_LANGUAGES),
        license="CC BY-SA 3.0",
        citation=_MMTEB,
        source=f"Hugging Face hub: {tasks['bg']}",
        field_rule=FIELD_RULE,
        corpora={f"mteb-wikipedia-{code}": task.corpus(code, 13_500) for code, task in tasks.items()},
        topics={f"mteb-wikipedia-{code}-test": task.topics(1500) for code, task in tasks.items()},
    )


MTEB = (_miracl(), _mlqa(), _statcan(), _twitter(), _wikipedia())
