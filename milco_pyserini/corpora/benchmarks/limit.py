"""LIMIT: simple questions that no vector of few dimensions can answer (arXiv:2508.21038), from its publisher."""

from milco_pyserini.corpora.hub_tables import FIELD_RULE, HubTask
from milco_pyserini.corpora.origin import Family

_FULL = HubTask("orionweller/LIMIT", "48142cc741b04d0b4af370ade7e8b42430382670", "test")
_SMALL = HubTask("orionweller/LIMIT-small", "ff4a8f2476ae77476c1912f1f3cb5bb5f2d766d4", "test")

FAMILIES = (
    Family(
        name="limit",
        title="LIMIT",
        patterns=("limit, limit-small", "limit-test, limit-small-test"),
        languages=("en",),
        licence="CC BY 4.0",
        source="Hugging Face hub: "
        + ", ".join(f"{task.repository} at {task.revision[:10]}" for task in (_FULL, _SMALL)),
        field_rule=FIELD_RULE,
        corpora={"limit": _FULL.corpus(50_000), "limit-small": _SMALL.corpus(46)},
        topics={"limit-test": _FULL.topics(1000), "limit-small-test": _SMALL.topics(1000)},
    ),
)
