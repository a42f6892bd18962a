"""The targets by name, and searches of what they hold."""

from typing import TYPE_CHECKING

from milco_pyserini.errors import MilcoError, shown, unknown_name
from milco_pyserini.export.protocol import (
    HITS,
    TARGETS,
    EngineRequest,
    ExportTarget,
    ImpactDocument,
    validate_collection,
)
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.options import validate_number

if TYPE_CHECKING:
    from milco_pyserini.encode.contract import MilcoQueryEncoder


def find_target(name: str) -> ExportTarget:
    """Return the target with this name. Raises MilcoError, with the valid names, if there is none."""
    if name not in TARGETS:
        raise unknown_name("target", name, TARGETS)
    return TARGETS[name]


def search_request(
    target: str, collection: str, encoder: "MilcoQueryEncoder", text: str, k: int = HITS, hybrid: bool = False
) -> EngineRequest:
    """Return the request by which an application searches an exported collection for a text.

    >>> from milco_pyserini.encode.contract import MilcoQueryEncoder
    >>> encoder = MilcoQueryEncoder("mini")
    >>> path, body = search_request("elasticsearch", "sample", encoder, "Nani aligundua penisilini?", k=3)
    >>> path, body["size"]
    ('/sample/_search', 3)

    Args:
        target: one that is searched over HTTP.
        collection: its index or collection, as in milco export --collection.
        encoder: that of the documents, with their views; not another one for queries only, whose columns may be
            others. with_alpha() weighs the views.
        k: documents to return.
        hybrid: fuse the ranking with that of BM25, by reciprocal rank fusion. The collection was filled with stored
            documents, and the target searches their texts.

    Raises:
        MilcoError: the target is not searched over HTTP, the text has no terms, or a value is out of range.
    """
    engine = find_target(target)
    engine.require(Capability.REQUEST, "target", target)
    if hybrid:
        engine.require(Capability.HYBRID, "hybrid", True)
    validate_collection(collection)
    validate_number("k", k, minimum=1)
    impacts = encoder.encode(text)
    if not impacts:
        raise MilcoError(f"query {shown(text)} has no terms")
    vector = ImpactDocument.of(impacts, encoder.encoder.vocabulary.columns)
    if hybrid:
        return engine.hybrid_request(vector, text, collection, k)
    return engine.search_request(vector, collection, k)
