"""Capabilities of engines and targets: refusals, implementations and the tables of docs/ agree with the frozensets."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from built import INDEXES, Built

from milco_pyserini.errors import MilcoError
from milco_pyserini.export.cli import ExportOptions
from milco_pyserini.export.protocol import ExportTarget
from milco_pyserini.export.registry import TARGETS
from milco_pyserini.index import open_index
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.protocol import APPROXIMATE, ENGINES, SEARCH, Engine, EngineSearcher
from milco_pyserini.request import SearchRequest

ROOT = Path(__file__).parents[2]
OF_TARGETS = {Capability.FILL, Capability.CLUSTER, Capability.REQUEST}
# The implementation of each capability, of an engine and of a target.
METHODS = {Capability.BUILD: "build", Capability.UPDATE: "update"}
REQUESTS = {Capability.REQUEST: "search_request", Capability.HYBRID: "hybrid_request", Capability.FILL: "connect"}
SEARCHES = {Capability.BALANCE: "find_groups", Capability.READ: "weights", Capability.STORE: "stored"}


def table(things: Mapping[str, Any]) -> str:
    """Return a Markdown table of what some can do."""
    columns = [item for item in Capability if any(item in thing.capabilities for thing in things.values())]
    rows = [["", *columns], ["---"] * (len(columns) + 1)]
    rows += [
        [f"`{name}`", *("yes" if item in things[name].capabilities else "" for item in columns)]
        for name in sorted(things)
    ]
    return "".join("|".join(["", *(f" {cell} " if cell else " " for cell in row), "\n"]) for row in rows)


@pytest.mark.parametrize(("page", "things"), [("indexing", ENGINES), ("export", TARGETS)])
def test_the_docs_have_the_table_of_capabilities(page: str, things: Mapping[str, Any]) -> None:
    """Paste what is missing."""
    assert table(things) in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def first_cells(path: str, marker: str) -> list[str]:
    """Return the names in the first cells of the table of a page that has a line with a marker."""
    (block,) = [block for block in (ROOT / path).read_text(encoding="utf-8").split("\n\n") if marker in block]
    cells = [row.split("|")[1] for row in block.strip().split("\n")[2:]]
    return [name.strip(" `") for cell in cells for name in cell.split(",")]


def test_lists_of_targets_are_those_of_the_registry() -> None:
    """The command's help has their names; the tables have one row each, in the order of the registry."""
    titles = {target.title: target.capabilities for target in TARGETS.values()}
    assert first_cells("docs/export.md", "| `--to` |") == list(TARGETS)
    assert first_cells("docs/export.md", "| target | what to know |") == list(titles)
    stored = [title for title, capabilities in titles.items() if Capability.STORE in capabilities]
    assert first_cells("docs/export.md", "| target | where the document is |") == stored
    (to,) = (field for field in fields(ExportOptions) if field.name == "to")
    assert to.metadata["help"].endswith(": " + ", ".join(TARGETS))
    named = first_cells("README.md", "| works with |")
    assert [name for name in named if name in titles] == list(titles)
    (filled,) = [
        row for row in (ROOT / "README.md").read_text(encoding="utf-8").split("\n") if "--url` fills them" in row
    ]
    assert filled.split("|")[1].strip().split(", ") == stored


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_implements_what_it_can_do(name: str) -> None:
    """And nothing else; its exactness states whether all of its searches are approximate."""
    engine = ENGINES[name]
    for capability, method in METHODS.items():
        assert (getattr(type(engine), method) is not getattr(Engine, method)) == (capability in engine.capabilities)
    assert bool(engine.tuned) == (Capability.APPROXIMATE in engine.capabilities)
    assert engine.tuned.keys() <= engine.settings(SEARCH).keys() and (engine.exactness != APPROXIMATE or engine.tuned)
    assert not engine.capabilities & OF_TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_implements_what_it_can_do(name: str) -> None:
    """And nothing else."""
    target = TARGETS[name]
    for capability, method in REQUESTS.items():
        assert (getattr(type(target), method) is not getattr(ExportTarget, method)) == (
            capability in target.capabilities
        )
    assert bool(target.schemes) == (Capability.FILL in target.capabilities)


@pytest.mark.parametrize("kind", INDEXES)
def test_what_an_engine_cannot_do_is_refused_in_one_way(built: Built, kind: str) -> None:
    """The error names the engine, what it cannot do, and engines that can."""
    index = open_index(built.path(kind))
    with index.searcher() as searcher:
        for capability, method in SEARCHES.items():
            implemented = getattr(type(searcher), method) is not getattr(EngineSearcher, method)
            assert implemented == (capability in searcher.capabilities)
        calls = {
            Capability.STORE: lambda: searcher.search([{"a": 1.0}], 1, filters="lang=de"),
            Capability.BALANCE: lambda: searcher.search([{"a": 1.0}], 1, balance="lang"),
            Capability.HYBRID: searcher.bm25,
            Capability.UPDATE: lambda: index.update(delete=["d1"]),
            Capability.APPROXIMATE: lambda: searcher.rank([{"a": 1.0}], SearchRequest(approximate=True)),
        }
        for capability in calls.keys() - ENGINES[kind].capabilities:
            with pytest.raises(MilcoError, match=rf"engine {kind} cannot {capability}, .+ can"):
                calls[capability]()
