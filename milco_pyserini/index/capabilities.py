"""Capabilities of engines and export targets: refusals and the tables of docs/ follow from a frozenset of each."""

from enum import StrEnum
from typing import Any

from milco_pyserini.errors import ParameterError
from milco_pyserini.registry import Registry


class Capability(StrEnum):
    """A thing that not every engine, or not every target, can do; the value completes "can" and "cannot"."""

    BUILD = "build indexes here"
    STORE = "store documents"
    UPDATE = "be updated"
    BALANCE = "balance scores"
    READ = "show the terms of documents"
    APPROXIMATE = "trade recall for speed"
    HYBRID = "search stored texts by BM25"
    # Only targets have these.
    FILL = "be filled while it runs"
    CLUSTER = "have several nodes, shards and replicas"
    REQUEST = "be searched over HTTP"


def require(
    capability: Capability,
    name: str,
    capabilities: frozenset[Capability],
    others: Registry[Any],
    parameter: str,
    value: Any,
    hint: str = "",
) -> None:
    """Raise ParameterError, with those that have it, unless an engine or target has a capability.

    Args:
        name: the engine or target, for the message.
        others: all engines or targets by name.
        parameter, value: what was given that needs the capability.
    """
    if capability not in capabilities:
        able = sorted(other for other, value in others.available().items() if capability in value.capabilities)
        *first, last = able or ["none"]
        listed = f"{', '.join(first)} and {last}" if first else last
        raise ParameterError(parameter, value, f"{name} cannot {capability}, {listed} can", hint)
