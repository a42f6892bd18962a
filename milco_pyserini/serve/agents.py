"""Search and explanations as tools of the Model Context Protocol (MCP), for agents."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import Tool

from milco_pyserini import __version__
from milco_pyserini.errors import MilcoError, validate_name
from milco_pyserini.serve.service import SearchRequest, SearchService, document_json

# Terms of an explanation that a model is given; all of them would fill its context.
_TERMS = 12


def create_mcp_server(service: SearchService) -> MCPServer:
    """Create a server with the tools search, explain (if the encoder allows it) and document."""
    name = service.title
    about = f"Search {name}, a multilingual collection: a query in any language finds documents in every language."
    server = _StrictServer("milco", title=f"milco: {name}", instructions=about, version=__version__, log_level="ERROR")

    @server.tool()
    async def search(
        query: str,
        k: int = 10,
        offset: int = 0,
        alpha: float | None = None,
        filters: dict[str, list[str] | dict[str, str]] | None = None,
        balance: str | None = None,
    ) -> dict[str, Any]:
        """Search the collection; return ranked hits with docid, score, title and snippet.

        Where the collection is indexed by passages, hits are documents by their best one: passage is its id, text its
        text.

        Args:
            query: words or a question, in any language.
            k: number of hits, from 1 to 100.
            offset: number of better hits to skip.
            alpha: weight from 0 to 1 of the meaning in English; the query's own words have 1 - alpha. 0.8 finds more in
                other languages than the query's.
            filters: only documents that have one of the values in each field, such as {"lang": ["de", "fr"]}, or a
                value in a range, such as {"year": {">=": "2000", "<": "2010"}}.
            balance: "lang", if hits have it as a field, gives every language its due: the mean score of all documents
                of a language is subtracted from the score of each.
        """
        by_document = service.about.has_passages
        options: dict[str, Any] = {"filters": filters or {}, "max_passage": by_document, "balance": balance}
        with _as_tool_error():
            response = await service.search(SearchRequest(query, k, offset, alpha, **options))
        answer = response.to_json()
        for hit, found in zip(answer["hits"], response.hits, strict=True):
            del hit["highlights"]
            if by_document:
                # A passage is no longer than what the encoder reads.
                del hit["snippet"]
                hit["text"] = found.document.text if found.document else None
        return answer

    async def explain(
        query: str, docid: str, alpha: float | None = None, balance: str | None = None, index: str = ""
    ) -> dict[str, Any]:
        """Explain why a document matches a query: the terms they share, and what each adds to the score.

        Args:
            query: the query of a search.
            docid: docid of one of its hits; of a hit with a passage, the passage.
            alpha: that of the search.
            balance: that of the search.
            index: if hits have by_index, the index whose score is explained, as named there.
        """
        with _as_tool_error():
            (found,) = await service.explain(SearchRequest(query, alpha=alpha, balance=balance), [docid], index)
        terms = [
            {
                "term": match.term.text,
                "view": match.term.view,
                "score": match.score,
                "share": round(match.score / (found.total or 1), 4),
                "in_query": found.query.tokens(match.term),
                "in_document": found.document.tokens(match.term),
            }
            for match in found.strongest[:_TERMS]
        ]
        balanced = {"balance": found.balance.to_json()} if found.balance else {}
        return {"docid": docid, "rank": found.rank, "score": found.shown_score, "terms": terms, **balanced}

    if service.about.has_explanations:
        server.tool()(explain)

    @server.tool()
    async def document(docid: str) -> dict[str, Any]:
        """Return title and text of a document. omitted_characters: those behind the text, if it is long.

        Args:
            docid: docid of a hit.
        """
        with _as_tool_error():
            return document_json(await service.document(docid))

    return server


class _StrictServer(MCPServer):
    """Refuses arguments that a tool does not have: MCPServer ignores them."""

    async def list_tools(self) -> list[Tool]:
        tools = await super().list_tools()
        for tool in tools:
            tool.input_schema["additionalProperties"] = False
        return tools

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        known = {tool.name: tool.input_schema["properties"] for tool in await self.list_tools()}
        with _as_tool_error():
            for argument in arguments:
                validate_name("argument", argument, known.get(name, arguments))
        return await super().call_tool(name, arguments, context)


@contextmanager
def _as_tool_error() -> Iterator[None]:
    """Report an error that the model can correct as its message."""
    try:
        yield
    except MilcoError as error:
        raise ToolError(str(error)) from None
