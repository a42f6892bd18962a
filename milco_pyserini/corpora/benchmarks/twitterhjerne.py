"""TwitterHjerne as MTEB v2 reads it: Danish questions and answers from Twitter."""

from milco_pyserini.corpora.benchmark import Benchmark
from milco_pyserini.corpora.hub_tables import FIELD_RULE, MMTEB, HubTask

_TASK = HubTask("mteb/TwitterHjerneRetrieval", "97ad55673cf9746f8e4b3aaa92b1bb92d82e52db", "train")

TWITTERHJERNE = Benchmark(
    name="mteb-twitterhjerne",
    title="TwitterHjerne (MTEB v2)",
    corpus_names="mteb-twitterhjerne",
    topics_names="mteb-twitterhjerne-train",
    languages=("da",),
    license="CC BY 4.0",
    citation=f"Holm. Are GLLMs Danoliterate? Benchmarking Generative NLP in Danish. 2024; {MMTEB}",
    source=f"Hugging Face hub: {_TASK}",
    field_rule=FIELD_RULE,
    corpora={"mteb-twitterhjerne": _TASK.corpus("da", 262)},
    topics={"mteb-twitterhjerne-train": _TASK.topics(78)},
    note="its only split is called train",
)
