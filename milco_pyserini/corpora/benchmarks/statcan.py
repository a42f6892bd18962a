"""The StatCan Dialogue Dataset as MTEB v2 reads it: conversations as queries, in English and French."""

from milco_pyserini.corpora.benchmark import Benchmark
from milco_pyserini.corpora.hub_tables import FIELD_RULE, MMTEB, HubTask

_LANGUAGES = {"en": "english", "fr": "french"}
# Number of queries.
_QUERIES = {"dev": {"en": 543, "fr": 122}, "test": {"en": 553, "fr": 108}}
_TASKS = {
    (code, split): HubTask(
        "mteb/StatcanDialogueDatasetRetrieval", "6f9747b22a93c6cf714945bca43576089fb80de3", split, config
    )
    for code, config in _LANGUAGES.items()
    for split in _QUERIES
}

STATCAN = Benchmark(
    name="mteb-statcan",
    title="StatCan Dialogue Dataset (MTEB v2)",
    corpus_names="mteb-statcan-LANG",
    topics_names="mteb-statcan-LANG-SPLIT",
    languages=tuple(_LANGUAGES),
    license="its own: LICENSE.md of McGill-NLP/statcan-dialogue-dataset-retrieval on the hub",
    citation="Lu et al. The StatCan Dialogue Dataset: Retrieving Data Tables through Conversations with Genuine "
    f"Intents. EACL 2023; {MMTEB}",
    source=f"Hugging Face hub: {_TASKS['en', 'test']}",
    field_rule=FIELD_RULE,
    corpora={f"mteb-statcan-{code}": _TASKS[code, "test"].corpus(code, 5907) for code in _LANGUAGES},
    topics={
        f"mteb-statcan-{code}-{split}": task.topics(_QUERIES[split][code]) for (code, split), task in _TASKS.items()
    },
    note="MTEB's measure is R@10. A query is a conversation, its turns as 'role: content' joined by '; '",
)
