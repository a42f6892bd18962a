"""MIRACL with hard negatives, as MTEB reads it; sizes are those of MTEB's descriptive statistics (2.26)."""

from milco_pyserini.corpora.benchmark import Benchmark
from milco_pyserini.corpora.hub_tables import FIELD_RULE, MMTEB, HubTask

# Documents and queries of each language.
_SIZES = {
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
_TASKS = {
    code: HubTask("mteb/MIRACLRetrievalHardNegatives", "d7d94fa4b946cec4a27c84653aa0cf6b33f74a3c", "dev", code)
    for code in _SIZES
}

MIRACL_HN = Benchmark(
    name="miracl-hn",
    title="MIRACL, hard negatives (MTEB)",
    corpus_names="miracl-hn-LANG",
    topics_names="miracl-hn-LANG-dev",
    languages=tuple(_SIZES),
    license="CC BY-SA 4.0 (according to MTEB; MIRACL itself is Apache-2.0)",
    citation="Zhang et al. MIRACL: A Multilingual Retrieval Dataset Covering 18 Diverse Languages. TACL 2023; " + MMTEB,
    source=f"Hugging Face hub: {_TASKS['ar']}",
    field_rule=FIELD_RULE,
    corpora={f"miracl-hn-{code}": task.corpus(code, _SIZES[code][0]) for code, task in _TASKS.items()},
    topics={f"miracl-hn-{code}-dev": task.topics(_SIZES[code][1]) for code, task in _TASKS.items()},
    note="the 250 best of BM25, multilingual-e5-large and e5-mistral, for up to 1,000 queries of dev",
)
