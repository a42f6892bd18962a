"""MIRACL with hard negatives, and other retrieval tasks of MTEB v2 that the paper reports, as MTEB reads them.

Repositories, revisions and numbers are those of MTEB's own task definitions and descriptive statistics (2.26). The
sixth task of the paper's table is in belebele.py.
"""

from itertools import product

from milco_pyserini.corpora.hub_tables import FIELD_RULE, HubTask
from milco_pyserini.corpora.origin import Family

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
# Documents and queries of a split's pairs; those with documents in Chinese are all that the statistics have one by one.
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


def _source(repository: str, revision: str) -> str:
    return f"Hugging Face hub: {repository} at {revision[:10]}"


def _miracl() -> Family:
    tasks = {code: HubTask(*_MIRACL, "dev", code) for code in _MIRACL_SIZES}
    return Family(
        name="miracl-hn",
        title="MIRACL, hard negatives (MTEB)",
        patterns=("miracl-hn-LANG", "miracl-hn-LANG-dev"),
        languages=tuple(_MIRACL_SIZES),
        licence="CC BY-SA 4.0 (as MTEB says; MIRACL itself is Apache-2.0)",
        source=_source(*_MIRACL),
        field_rule=FIELD_RULE,
        corpora={f"miracl-hn-{code}": task.corpus(_MIRACL_SIZES[code][0]) for code, task in tasks.items()},
        topics={f"miracl-hn-{code}-dev": task.topics(_MIRACL_SIZES[code][1]) for code, task in tasks.items()},
        note="the 250 best of BM25, multilingual-e5-large and e5-mistral, for up to 1,000 queries of dev",
    )


def _mlqa() -> Family:
    pairs = ["-".join(pair) for pair in product(_MLQA_LANGUAGES, repeat=2)]
    splits = ("validation", "test")
    tasks = {f"mteb-mlqa-{pair}-{split}": HubTask(*_MLQA, split, pair) for pair in pairs for split in splits}
    sizes = {name: _MLQA_SIZES.get((task.split, task.config), (None, None)) for name, task in tasks.items()}
    return Family(
        name="mteb-mlqa",
        title="MLQA (MTEB v2)",
        patterns=("mteb-mlqa-DOCUMENTS-QUERIES-SPLIT", "mteb-mlqa-DOCUMENTS-QUERIES-SPLIT"),
        languages=tuple(_MLQA_LANGUAGES),
        licence="CC BY-SA 3.0",
        source=_source(*_MLQA),
        field_rule=FIELD_RULE,
        corpora={name: task.corpus(sizes[name][0]) for name, task in tasks.items()},
        topics={name: task.topics(sizes[name][1]) for name, task in tasks.items()},
        note="each pair of languages is a task with documents of its own; the 49 of test have 138,636 documents and "
        "158,029 queries together",
    )


def _statcan() -> Family:
    languages = {"en": "english", "fr": "french"}
    tasks = {
        (code, split): HubTask(*_STATCAN, split, subset)
        for code, subset in languages.items()
        for split in _STATCAN_QUERIES
    }
    return Family(
        name="mteb-statcan",
        title="StatCan Dialogue Dataset (MTEB v2)",
        patterns=("mteb-statcan-LANG", "mteb-statcan-LANG-SPLIT"),
        languages=tuple(languages),
        licence="its own: LICENSE.md of McGill-NLP/statcan-dialogue-dataset-retrieval on the hub",
        source=_source(*_STATCAN),
        field_rule=FIELD_RULE,
        corpora={f"mteb-statcan-{code}": tasks[code, "test"].corpus(5907) for code in languages},
        topics={
            f"mteb-statcan-{code}-{split}": task.topics(_STATCAN_QUERIES[split][languages[code]])
            for (code, split), task in tasks.items()
        },
        note="MTEB's measure is R@10. A query is a conversation, its turns as 'role: content' with '; ' between them",
    )


def _twitter() -> Family:
    task = HubTask(*_TWITTER, "train")
    return Family(
        name="mteb-twitterhjerne",
        title="TwitterHjerne (MTEB v2)",
        patterns=("mteb-twitterhjerne", "mteb-twitterhjerne-train"),
        languages=("da",),
        licence="CC BY 4.0",
        source=_source(*_TWITTER),
        field_rule=FIELD_RULE,
        corpora={"mteb-twitterhjerne": task.corpus(262)},
        topics={"mteb-twitterhjerne-train": task.topics(78)},
        note="the split is called train, and is all there is",
    )


def _wikipedia() -> Family:
    tasks = {code: HubTask(*_WIKIPEDIA, "test", code) for code in _WIKIPEDIA_LANGUAGES}
    return Family(
        name="mteb-wikipedia",
        title="WikipediaRetrievalMultilingual (MTEB v2)",
        patterns=("mteb-wikipedia-LANG", "mteb-wikipedia-LANG-test"),
        languages=tuple(_WIKIPEDIA_LANGUAGES),
        licence="CC BY-SA 3.0",
        source=_source(*_WIKIPEDIA),
        field_rule=FIELD_RULE,
        corpora={f"mteb-wikipedia-{code}": task.corpus(13_500) for code, task in tasks.items()},
        topics={f"mteb-wikipedia-{code}-test": task.topics(1500) for code, task in tasks.items()},
    )


FAMILIES = (_miracl(), _mlqa(), _statcan(), _twitter(), _wikipedia())
