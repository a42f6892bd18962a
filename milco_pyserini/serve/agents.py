"""Search and explanations as tools of the Model Context Protocol (MCP), for agents."""

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import Tool
from pydantic import Field, ValidationError

from milco_pyserini import __version__
from milco_pyserini.errors import MilcoError, validate_name
from milco_pyserini.request import SCORING
from milco_pyserini.serve.memory import Memory
from milco_pyserini.serve.schema import NOT_SERVED, problem_text, request_fields
from milco_pyserini.serve.service import SearchService, document_json, served_request

# Terms of an explanation that a model is given; all of them would fill its context.
_TERMS = 12
_Value = str | bool | int | float
_Filters = dict[str, _Value | list[_Value] | dict[str, _Value]] | list[str] | str | None
_FILTERS = (
    'filters expects {"lang": "de"}, {"year": {">=": 2000}}, or conditions such as ["lang=de", "year>=2000"], got '
)


def create_mcp_server(service: SearchService, memory: Memory | None = None) -> MCPServer:
    """Create a server with the tools search, context, explain (if the encoder allows it) and document.

    memory: of the service; with the tools remember, recall and forget.
    """
    name = service.title
    about = f"Search {name}, a multilingual collection: a query in any language finds documents in every language."
    if memory is not None:
        about = "Remember notes in any language, and recall them by a question in any other."
    # MCPServer would add a handler whose imports fail when there are no descriptors left, and end the event loop.
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    server = _StrictServer("milco", title=f"milco: {name}", instructions=about, version=__version__, log_level="ERROR")

    if memory is not None:
        server.before = service.refresh

    async def search(query: str, **options: Any) -> dict[str, Any]:
        """Search the collection; return ranked hits with docid, score, title and snippet.

        Where the collection is indexed by passages, hits are documents by their best one: passage is its id, text its
        text.

        Args:
            query: words or a question, in any language.
            alpha: the pivot view is the meaning in English, the source view the query's own words. 0.8 finds more in
                other languages than the query's.
            filters: such as {"lang": ["de", "fr"], "year": {">=": 2000, "<": 2010}}, or ["lang=de", "year>=2000"].
        """
        by_document = service.about.has_passages
        with _as_tool_error():
            request = served_request(**options, max_passage=by_document)
            response = await service.search(query, request, is_read=not by_document)
        answer = response.to_json()
        why = {} if memory is None else await memory.reasons(response)
        if by_document:
            # A passage is no longer than what the encoder reads.
            answer["hits"] = [found.hit.to_json() for found in response.hits]
        for hit in answer["hits"]:
            hit.pop("highlights", None)
            hit |= {"why": why[hit["docid"]]} if hit["docid"] in why else {}
        return answer

    async def context(query: str, tokens: int = 2000, **options: Any) -> dict[str, str]:
        """Return the sentences that answer a query best, by docid, from the best documents, in any language.

        Args:
            query: words or a question, in any language.
            tokens: the most that all sentences have together.
            filters: as those of search.
        """
        with _as_tool_error():
            return await service.context(query, served_request(**options), tokens)

    async def explain(query: str, docid: str, index: str = "", **options: Any) -> dict[str, Any]:
        """Explain why a document matches a query: the terms they share, and what each adds to the score.

        Args:
            query: the query of a search; other arguments are the same as in that search.
            docid: docid of one of its hits; of a hit with a passage, the passage.
            index: if hits have by_index, the index whose score is explained, as named there.
        """
        with _as_tool_error():
            (found,) = await service.explain(query, [docid], served_request(**options), index)
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

    without = (*NOT_SERVED, "views", "max_passage", "approximate")
    for tool in (search, context):
        server.tool()(_with_options(tool, request_fields(without=without)))
    if service.about.has_explanations:
        server.tool()(_with_options(explain, request_fields(*SCORING, without=("views",))))

    @server.tool()
    async def document(docid: str) -> dict[str, Any]:
        """Return title and text of a document. omitted_characters: those behind the text, if it is long.

        Args:
            docid: docid of a hit.
        """
        with _as_tool_error():
            return document_json(await service.document(docid))

    if memory is not None:
        _add_memory(server, memory)
    return server


def _add_memory(server: MCPServer, memory: Memory) -> None:
    @server.tool()
    async def remember(text: str, fields: dict[str, Any] | None = None) -> dict[str, Any]:
        """Remember a note; return its id. The same note with the same fields is remembered once.

        A long note is split into passages, whose number is returned: each is found, and all are one note.

        Args:
            text: the note in any language, up to 20,000 characters.
            fields: such as {"project": "atlas", "tags": ["travel"], "year": 2026}, for filters; lang is detected.
        """
        with _as_tool_error():
            return await memory.remember(text, fields)

    @server.tool()
    async def recall(query: str, k: int = 5, filters: _Filters = None) -> dict[str, Any]:
        """Recall the notes that fit a question best, whatever their languages, each with the reason in one line.

        text is the best passage of a note, which is all of a short one; the tool document returns the complete note by
        its id. share is the share of the question that is on terms of the passage, from 0 to 1: below 0.15, a note has
        nothing to do with the question, above 0.3 probably much.

        Args:
            query: words or a question, in any language.
            k: notes to return, up to 100.
            filters: such as {"project": "atlas", "year": {">=": 2025}}, or ["project=atlas", "year>=2025"].
        """
        with _as_tool_error():
            return {"notes": await memory.recall(query, k, filters)}

    @server.tool()
    async def forget(id: str | None = None, filters: _Filters = None) -> dict[str, Any]:
        """Forget a note, or all notes that pass filters; return their ids. Give one of both.

        Args:
            id: of a note.
            filters: such as {"project": "atlas"}.
        """
        with _as_tool_error():
            return {"forgotten": await memory.forget(id, filters)}


def _with_options(tool: Callable[..., Any], fields: Mapping[str, tuple[Any, Any]]) -> Callable[..., Any]:
    """Return a tool whose signature has options of a search in place of **options. Filters are an object."""
    signature = inspect.signature(tool)
    parameters = list(signature.parameters.values())[:-1]
    for name, (kind, field) in fields.items():
        if kind == list[str]:
            kind, field.default = _Filters, None
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=Annotated.__class_getitem__((kind, Field(description=field.description))),  # type: ignore
            )
        )
    tool.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return tool


class _StrictServer(MCPServer):
    """Refuses arguments that a tool does not have: MCPServer ignores them. before: is called before each tool."""

    before: Callable[[], Awaitable[None]] | None = None

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
            if self.before is not None:
                await self.before()
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            problem = error.__cause__.errors()[0]
            argument = str(problem["loc"][0])
            given = json.dumps(arguments.get(argument))[:60]
            raise ToolError(_FILTERS + given if argument == "filters" else problem_text(problem, argument)) from None


@contextmanager
def _as_tool_error() -> Iterator[None]:
    """Report an error that the model can correct as its message."""
    try:
        yield
    except MilcoError as error:
        raise ToolError(str(error)) from None
