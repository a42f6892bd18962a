"""LIMIT: simple queries that no low-dimensional vector can answer, from the publisher's repositories."""

from milco_pyserini.corpora.benchmark import Benchmark
from milco_pyserini.corpora.hub_tables import FIELD_RULE, HubTask

_FULL = HubTask("orionweller/LIMIT", "48142cc741b04d0b4af370ade7e8b42430382670", "test")
_SMALL = HubTask("orionweller/LIMIT-small", "ff4a8f2476ae77476c1912f1f3cb5bb5f2d766d4", "test")

LIMIT = Benchmark(
    name="limit",
    title="LIMIT",
    corpus_names="limit, limit-small",
    topics_names="limit-test, limit-small-test",
    languages=("en",),
    license="CC BY 4.0",
    citation="Weller et al. On the Theoretical Limitations of Embedding-Based Retrieval. arXiv:2508.21038, 2025",
    source=f"Hugging Face hub: {_FULL}, {_SMALL}",
    field_rule=FIELD_RULE,
    corpora={"limit": _FULL.corpus("en", 50_000), "limit-small": _SMALL.corpus("en", 46)},
    topics={"limit-test": _FULL.topics(1000), "limit-small-test": _SMALL.topics(1000)},
)
