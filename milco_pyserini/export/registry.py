"""The targets by name."""

from milco_pyserini.errors import unknown_name
from milco_pyserini.export.ciff import CiffTarget
from milco_pyserini.export.elasticsearch import ElasticsearchTarget
from milco_pyserini.export.milvus import MilvusTarget
from milco_pyserini.export.opensearch import OpenSearchTarget
from milco_pyserini.export.parquet import ParquetTarget
from milco_pyserini.export.pgvector import PgvectorTarget
from milco_pyserini.export.protocol import Target
from milco_pyserini.export.qdrant import QdrantTarget
from milco_pyserini.export.vespa import VespaTarget

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *(ElasticsearchTarget(), OpenSearchTarget(), QdrantTarget(), MilvusTarget(), PgvectorTarget(), VespaTarget()),
        *(CiffTarget(), ParquetTarget()),
    )
}


def find_target(name: str) -> Target:
    """Return the target with this name. Raises MilcoError, with the valid names, if there is none."""
    if name not in TARGETS:
        raise unknown_name("target", name, TARGETS)
    return TARGETS[name]
