"""WikipediaRetrievalMultilingual of MTEB v2: generated queries on Wikipedia passages in 16 languages."""

from milco_pyserini.corpora.benchmark import Benchmark
from milco_pyserini.corpora.hub_tables import FIELD_RULE, MMTEB, HubTask

_LANGUAGES = "bg bn cs da de en fa fi hi it nl no pt ro sr sv".split()
_TASKS = {
    code: HubTask("mteb/WikipediaRetrievalMultilingual", "5f6c91d21f2f5b9afb663858d19848fbd223c775", "test", code)
    for code in _LANGUAGES
}

MTEB_WIKIPEDIA = Benchmark(
    name="mteb-wikipedia",
    title="WikipediaRetrievalMultilingual (MTEB v2)",
    corpus_names="mteb-wikipedia-LANG",
    topics_names="mteb-wikipedia-LANG-test",
    languages=tuple(_LANGUAGES),
    license="CC BY-SA 3.0",
    citation=MMTEB,
    source=f"Hugging Face hub: {_TASKS['bg']}",
    field_rule=FIELD_RULE,
    corpora={f"mteb-wikipedia-{code}": task.corpus(code, 13_500) for code, task in _TASKS.items()},
    topics={f"mteb-wikipedia-{code}-test": task.topics(1500) for code, task in _TASKS.items()},
)
