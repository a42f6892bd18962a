"""The tools of milco serve for agents, as MCP's own client sees them: in the process, over HTTP, on stdin."""

import json
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from explained_set import store
from served_set import DOCUMENTS, index, searcher, service

pytest.importorskip("mcp.server.mcpserver", reason="needs mcp 2 (pip install mcp)")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from milco_pyserini.index import Index
from milco_pyserini.search.searcher import Searcher
from milco_pyserini.serve.agents import create_mcp_server
from milco_pyserini.serve.app import create_app
from milco_pyserini.serve.opened import IndexSnapshot
from milco_pyserini.serve.server import address, create_server, listen
from milco_pyserini.serve.service import SearchService

QUERY = "the river Nile"


async def ask(server: Any) -> dict[str, Any]:
    """Call every tool of a server, one of them in vain; return what it gave."""
    async with Client(server) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

        async def call(name: str, **arguments: Any) -> Any:
            result = await client.call_tool(name, arguments)
            text = result.content[0].text
            return f"error: {text}" if result.is_error else json.loads(text)

        return {
            "tools": tools,
            "search": await call("search", query=QUERY, k=3, filters={"lang": ["en"]}),
            "context": await call("context", query=QUERY, k=3, tokens=40, filters=["lang=en"]),
            "explain": await call("explain", query=QUERY, docid="a/b#c?"),
            "weighted": await call("explain", query=QUERY, docid="a/b#c?", alpha=0.8),
            "document": await call("document", docid="ar"),
            "unknown": await call("document", docid="no"),
            "too many": await call("search", query=QUERY, k=1000),
            "misnamed": await call("search", query=QUERY, filter={"lang": ["ja"]}),
        }


def test_a_query_network_has_no_tool_that_explains() -> None:
    """Agents would call it in vain."""

    async def names() -> set[str]:
        with closing(service()) as opened:
            opened.opened.about = replace(opened.about, explained=())
            async with Client(create_mcp_server(opened)) as client:
                return {tool.name for tool in (await client.list_tools()).tools}

    assert anyio.run(names) == {"search", "context", "document"}


def test_agents_are_given_passages(tmp_path: Path) -> None:
    """Where the index holds them: the document, its best passage and its text; both are explained and read by id."""
    vectors = store("--split-passages", "--max-length", "16").path
    built = Index.build(vectors, tmp_path / "passages", "exact", store_documents=True)

    async def ask(opened: SearchService) -> Any:
        async with Client(create_mcp_server(opened)) as client:

            async def call(name: str, **arguments: Any) -> Any:
                return json.loads((await client.call_tool(name, arguments)).content[0].text)

            hits = (await call("search", query="ペニシリン", k=3))["hits"]
            explained = await call("explain", query="ペニシリン", docid=hits[0]["passage"])
            return hits, explained, await call("document", docid=hits[0]["docid"])

    with Searcher.open(built.path, device="cpu") as opened, closing(SearchService(IndexSnapshot(opened))) as served:
        hits, explained, document = anyio.run(ask, served)
        expected = opened.search("ペニシリン", 3, max_passage=True)
        assert [(hit["docid"], hit["passage"]) for hit in hits] == [(hit.docid, hit.passage) for hit in expected]
        assert all(0 < len(hit["text"]) < len(other.text or "") for hit, other in zip(hits, expected, strict=True))
        assert all(
            hit["text"] in (other.text or "") and "snippet" not in hit
            for hit, other in zip(hits, expected, strict=True)
        )
        assert explained["score"] == pytest.approx(hits[0]["score"])
        assert (document["docid"], document["text"]) == (hits[0]["docid"], expected[0].document.text)


def check(found: dict[str, Any]) -> None:
    """Compare with the library."""
    assert set(found["tools"]) == {"search", "context", "explain", "document"}
    parameters = {"query", "k", "offset", "alpha", "filters", "balance", "distinct"}
    assert set(found["tools"]["search"].input_schema["properties"]) == parameters
    assert set(found["tools"]["context"].input_schema["properties"]) == parameters | {"tokens"}
    assert found["context"] == searcher().context(QUERY, 40, 3, filters={"lang": "en"}) != {}
    hits = searcher().search(QUERY, 3, filters={"lang": "en"})
    assert [(hit["docid"], hit["score"]) for hit in found["search"]["hits"]] == [
        (hit.docid, pytest.approx(hit.score)) for hit in hits
    ]
    explanation = searcher().explain(QUERY, "a/b#c?")
    assert found["explain"]["score"] == pytest.approx(explanation.shown_score)
    assert [one["term"] for one in found["explain"]["terms"][:3]] == [
        one.term.text for one in explanation.strongest[:3]
    ]
    weighted = searcher().explain(QUERY, "a/b#c?", alpha=0.8)
    assert found["weighted"]["score"] == pytest.approx(weighted.shown_score) != found["explain"]["score"]
    assert found["document"]["text"] == DOCUMENTS[2]["text"]
    assert "has no document 'no'" in found["unknown"]
    assert "k=1000" in found["too many"]
    assert "unknown argument 'filter': did you mean 'filters'?" in found["misnamed"]
    assert not any(tool.input_schema["additionalProperties"] for tool in found["tools"].values())


def test_tools_return_what_the_library_returns() -> None:
    """Errors are messages that a model can act upon."""
    with closing(service()) as opened:
        check(anyio.run(ask, create_mcp_server(opened)))


def test_agents_ask_over_http() -> None:
    """At /mcp of the server, where hosts, origins and tokens are checked as everywhere."""
    with listen("127.0.0.1", 0) as listener, closing(service()) as opened:
        server = create_server(create_app(opened), listener)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            check(anyio.run(ask, streamable_http_client(f"{address(listener)}mcp")))
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.mark.integration
def test_agents_ask_a_process_on_stdin() -> None:
    """As they start it: milco serve --mcp. Nothing but the protocol is on stdout."""
    program = ["-m", "milco_pyserini", "serve", "--mcp", "--device", "cpu", "--dtype", "float32"]
    parameters = StdioServerParameters(command=sys.executable, args=[*program, "--index", str(index().path)])
    check(anyio.run(ask, stdio_client(parameters)))
