"""MLQA as MTEB v2 reads it: a task with its own documents for each pair of languages."""

from itertools import product

from milco_pyserini.corpora.benchmark import Benchmark, language_code
from milco_pyserini.corpora.hub_tables import FIELD_RULE, MMTEB, HubTask

_LANGUAGES = "ara deu eng spa hin vie zho".split()
# Documents and queries of a pair; MTEB's statistics have only those with Chinese documents one by one.
_SIZES = {
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
_TASKS = {
    f"mteb-mlqa-{documents}-{queries}-{split}": HubTask(
        "mteb/MLQARetrieval", "5bef8b6e2601af974fb1a1cca03fd702229be4b6", split, f"{documents}-{queries}"
    )
    for documents, queries in product(_LANGUAGES, repeat=2)
    for split in ("validation", "test")
}


def _size(task: HubTask, kind: int) -> int | None:
    sizes = _SIZES.get((task.split, task.config))
    return None if sizes is None else sizes[kind]


MTEB_MLQA = Benchmark(
    name="mteb-mlqa",
    title="MLQA (MTEB v2)",
    corpus_names="mteb-mlqa-DOCUMENTS-QUERIES-SPLIT",
    topics_names="mteb-mlqa-DOCUMENTS-QUERIES-SPLIT",
    languages=tuple(_LANGUAGES),
    license="CC BY-SA 3.0",
    citation=f"Lewis et al. MLQA: Evaluating Cross-lingual Extractive Question Answering. ACL 2020; {MMTEB}",
    source=f"Hugging Face hub: {_TASKS['mteb-mlqa-zho-zho-test']}",
    field_rule=FIELD_RULE,
    corpora={
        name: task.corpus(language_code(task.config.split("-")[0]), _size(task, 0)) for name, task in _TASKS.items()
    },
    topics={name: task.topics(_size(task, 1)) for name, task in _TASKS.items()},
    note="each pair of languages is a task with documents of its own; the 49 of test have 138,636 documents and "
    "158,029 queries together",
)
