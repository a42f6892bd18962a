"""The web application of milco serve: a REST API, a search page, metrics, and an MCP endpoint for agents."""

import base64
import binascii
import contextlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from milco_pyserini import __version__
from milco_pyserini.errors import (
    MilcoError,
    ParameterError,
    UnknownDocument,
    Unreachable,
    shown,
    unknown_name,
    validate_name,
    validate_unique,
)
from milco_pyserini.explain.explanation import compare, explanation_fragment
from milco_pyserini.explain.render import accepted_language, content_security_policy, interfaces, render
from milco_pyserini.io.manifest import DamagedError
from milco_pyserini.options import value_types
from milco_pyserini.serve.memory import Memory
from milco_pyserini.serve.metrics import Metrics
from milco_pyserini.serve.schema import (
    MAX_BODY_BYTES,
    ContextAnswer,
    ContextParameters,
    DocumentAnswer,
    EmbedSparseBody,
    EncodeAnswer,
    EncodeBody,
    ErrorAnswer,
    ExplainAnswer,
    ExplainParameters,
    FieldsAnswer,
    FieldsParameters,
    QueryParameters,
    SearchAnswer,
    SearchBody,
    SearchesAnswer,
    SearchParameters,
    problem_text,
)
from milco_pyserini.serve.service import (
    FACET_HITS,
    MAX_DEPTH,
    MAX_QUERY_CHARACTERS,
    Busy,
    SearchService,
    ServedRequest,
    document_json,
    query_text,
    served_request,
)

_PAGE, _FRAGMENT, _HEALTH = "/", "/explanation", "/healthz"
_PAGE_PARAMETERS = ("q", "page", "filters", "balance", "doc", "index", "ui")
# Cookie with the language that a reader has chosen for the page, and how long it is kept.
_LANGUAGE, _YEAR = "ui", 365 * 24 * 3600
# Longer paths are truncated in the access log.
_MAX_LOGGED = 500
# A field with more values among the best hits is not offered as a filter, and one with more than a dozen unfolds.
_PAGE_VALUES, _MOST_PILLS = 30, 12
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_STATUS: dict[type[MilcoError], HTTPStatus] = {
    **{UnknownDocument: HTTPStatus.NOT_FOUND, Busy: HTTPStatus.SERVICE_UNAVAILABLE},
    **{Unreachable: HTTPStatus.BAD_GATEWAY, DamagedError: HTTPStatus.INTERNAL_SERVER_ERROR},
}


def create_app(
    service: SearchService,
    hosts: Sequence[str] = (),
    token: str = "",
    access_log: Callable[[str], object] = lambda line: None,
    memory: Memory | None = None,
) -> FastAPI:
    """Create the application.

    Args:
        hosts: Host headers that are answered without a token; () for all.
        token: requests must carry it, as "Authorization: Bearer TOKEN" or as the password of a browser; "" for none.
        access_log: gets a line of JSON for every request that was answered or refused.
        memory: agents write it.
    """
    metrics = Metrics(service)
    agents = _mcp_app(service, memory)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if agents is not None:
                await stack.enter_async_context(agents.router.lifespan_context(agents))
            await stack.enter_async_context(service.watching())
            yield

    app = FastAPI(
        title="milco serve",
        version=__version__,
        description=f"Search {service.title}, encoded by {service.about.encoder}.",
        dependencies=[Depends(_validate_unrepeated)],
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses={
            "4XX": {
                "model": ErrorAnswer,
                "description": "The error of the request; plain text if the request is not valid HTTP",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            "502": {"model": ErrorAnswer, "description": "The server that holds the index does not answer"},
            "503": {"model": ErrorAnswer, "description": "Too many requests: try again in a second"},
        },
    )

    def page(request: Request, query: str = "", **content: Any) -> str:
        values: dict[str, Any] = {"error": "", "response": None, "explanations": None, "comparison": None}
        values |= {"filtered": [], "passed": (), "balance": "", **content}
        values |= {"max_query": MAX_QUERY_CHARACTERS, "max_depth": MAX_DEPTH, "size": service.k}
        values |= {"facet_hits": FACET_HITS, "max_values": _PAGE_VALUES, "most_pills": _MOST_PILLS}
        kept = [item for item in request.query_params.multi_items() if item[0] != _LANGUAGE]
        values["languages"] = {code: f"/?{urlencode([*kept, (_LANGUAGE, code)])}" for code in interfaces()}
        values["names"] = {code: words["name"] for code, words in interfaces().items()}
        return render(
            "search.html", _language(request), query=query, about=service.about, title=service.title, **values
        )

    def error(request: Request, status: int, message: str) -> Response:
        status, path = HTTPStatus(status), request.url.path
        headers = {}
        if status == HTTPStatus.UNAUTHORIZED:
            is_browser = "text/html" in request.headers.get("accept", "")
            headers["WWW-Authenticate"] = 'Basic realm="milco serve", charset="UTF-8"' if is_browser else "Bearer"
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers["Retry-After"] = "1"
        if path == _FRAGMENT:
            return HTMLResponse(f'<p class="error" role="alert">{escape(message)}</p>', status, headers)
        is_lost = status == HTTPStatus.NOT_FOUND and "text/html" in request.headers.get("accept", "")
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) and path == _PAGE:
            # It must reveal nothing about the index.
            return HTMLResponse(f"<!DOCTYPE html><title>milco serve</title><p>{escape(message)}</p>", status, headers)
        if path == _PAGE or is_lost:
            query = " ".join(request.query_params.get("q", "").split())
            return HTMLResponse(page(request, query[:MAX_QUERY_CHARACTERS], error=message), status, headers)
        return _json({"error": message}, status, headers)

    app.add_middleware(_Guard, hosts=hosts, token=token, error=error, metrics=metrics, access_log=access_log)

    @app.exception_handler(MilcoError)
    async def failed(request: Request, failure: MilcoError) -> Response:
        # If an engine's library failed, the request is not the reason.
        other = HTTPStatus.BAD_REQUEST if failure.__cause__ is None else HTTPStatus.INTERNAL_SERVER_ERROR
        return error(
            request, next((_STATUS[kind] for kind in _STATUS if isinstance(failure, kind)), other), str(failure)
        )

    @app.exception_handler(HTTPException)
    async def refused(request: Request, failure: HTTPException) -> Response:
        message = str(failure.detail)
        if failure.status_code == HTTPStatus.NOT_FOUND:
            message = f"there is nothing at {shown(request.url.path)}: see /docs"
        if failure.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = (failure.headers or {}).get("Allow", "")
            message = f"{request.url.path} does not answer {request.method}: it takes {allowed}"
        answer = error(request, failure.status_code, message)
        answer.headers.update(failure.headers or {})
        return answer

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, failure: RequestValidationError) -> Response:
        return error(request, HTTPStatus.BAD_REQUEST, _first_problem(failure, request))

    @app.api_route(_PAGE, methods=["GET", "HEAD"], include_in_schema=False)
    async def search_page(
        request: Request,
        q: str = "",
        page_number: Annotated[str, Query(alias="page")] = "1",
        balance: str = "",
        index: str = "",
    ) -> Response:
        docids, chosen = request.query_params.getlist("doc"), request.query_params.get(_LANGUAGE)
        headers = {}
        if chosen is not None:
            validate_name(_LANGUAGE, chosen, interfaces())
            headers["Set-Cookie"] = f"{_LANGUAGE}={chosen}; Path=/; Max-Age={_YEAR}; SameSite=Lax; HttpOnly"
        if not q.split():
            return HTMLResponse(page(request), headers=headers)
        for name in request.query_params:
            validate_name("parameter", name, _PAGE_PARAMETERS)
        if not page_number.isdecimal() or not 1 <= int(page_number[:9]) <= MAX_DEPTH // service.k:
            raise ParameterError("page", page_number, f"must be from 1 to {MAX_DEPTH // service.k}")
        conditions = request.query_params.getlist("filters")
        options: dict[str, Any] = {"filters": conditions, "balance": balance or None}
        offset, by_document = (int(page_number) - 1) * service.k, service.about.has_passages
        wanted = served_request(k=service.k, offset=offset, max_passage=by_document, **options)
        content: dict[str, Any] = {"balance": balance}
        if not docids:
            content |= {"filtered": list(dict.fromkeys(conditions)), "passed": list(wanted.filters)}
            content["response"] = await service.search(q, wanted, service.about.fields)
            return HTMLResponse(page(request, query_text(q), **content), headers=headers)
        explanations = await service.explain(q, docids, wanted, index)
        content |= {
            "explanations": explanations,
            "comparison": compare(*explanations) if len(explanations) == 2 else None,
        }
        return HTMLResponse(page(request, query_text(q), **content), headers=headers)

    @app.get(_FRAGMENT, include_in_schema=False)
    async def explanation(request: Request, q: str = "", doc: str = "", balance: str = "", index: str = "") -> Response:
        options: dict[str, Any] = {"balance": balance or None}
        (found,) = await service.explain(q, [doc], served_request(**options), index)
        return HTMLResponse(explanation_fragment(found, _language(request)))

    @app.get("/search", responses={200: {"model": SearchAnswer}}, summary="Search for a query")
    async def search(given: Annotated[SearchParameters, Query()]) -> Response:
        return _json((await service.search(given.q, given.request())).to_json())

    @app.post("/search", responses={200: {"model": SearchesAnswer}}, summary="Search for several queries")
    async def search_several(body: SearchBody) -> Response:
        for number, text in enumerate(body.queries):
            if not text.split():
                raise ParameterError(f"queries.{number}", None, "is empty", "Omit it.")
        responses = await service.search_batch(body.queries, body.request())
        return _json({"results": [response.to_json() for response in responses]})

    @app.get("/context", responses={200: {"model": ContextAnswer}}, summary="Return the sentences that answer a query")
    async def context(given: Annotated[ContextParameters, Query()]) -> Response:
        found = await service.context(given.q, given.request(), given.tokens)
        return _json({"query": query_text(given.q), "context": found})

    @app.get("/explain", responses={200: {"model": ExplainAnswer}}, summary="Explain the score of a document")
    async def explain(given: Annotated[ExplainParameters, Query()]) -> Response:
        (found,) = await service.explain(given.q, [given.docid], given.request(), given.index)
        return _json(found.to_json())

    @app.get("/encode", responses={200: {"model": EncodeAnswer}}, summary="Encode a query")
    async def encode_query(given: Annotated[QueryParameters, Query()]) -> Response:
        vectors = await service.encode([query_text(given.q)], "query", given.request())
        return _json({"encoder": service.about.encoder, "scale": service.about.scale, "vectors": vectors})

    @app.post("/encode", responses={200: {"model": EncodeAnswer}}, summary="Encode queries or documents")
    async def encode_texts(body: EncodeBody) -> Response:
        vectors = await service.encode(body.texts, body.kind, body.request())
        return _json({"encoder": service.about.encoder, "scale": service.about.scale, "vectors": vectors})

    @app.post("/embed_sparse", summary="Encode texts as text-embeddings-inference does")
    async def embed_sparse(body: EmbedSparseBody) -> Response:
        vectors = await service.encode(body.inputs, body.prompt_name or "document", truncate=body.truncate is not False)
        columns = service.opened.encoder.encoder.vocabulary.columns
        rows = [sorted((columns[term], weight) for term, weight in vector.items()) for vector in vectors]
        return _json([[{"index": column, "value": weight} for column, weight in row] for row in rows])

    @app.get("/fields", responses={200: {"model": FieldsAnswer}}, summary="List the stored fields and their values")
    async def fields(given: Annotated[FieldsParameters, Query()]) -> Response:
        return _json({"fields": await service.fields(given.values)})

    @app.get("/documents/{docid:path}", responses={200: {"model": DocumentAnswer}}, summary="Return a document")
    async def document(docid: str) -> Response:
        return _json(document_json(await service.document(docid)))

    @app.get(_HEALTH, summary="Report that the server answers, which needs no token, and from which index")
    async def health(request: Request) -> Response:
        about, failure = service.about, await service.failure()
        health: dict[str, Any] = {"status": "unavailable" if failure else "ok"}
        if not token or _has_token(request.headers, token):
            health |= {"index": about.name, "generation": about.generation, "encoder": about.encoder}
            health |= {"documents": about.documents, **({"error": failure} if failure else {})}
        return _json(health, HTTPStatus.SERVICE_UNAVAILABLE if failure else HTTPStatus.OK)

    @app.get("/metrics", summary="Counters, times and memory, for Prometheus")
    async def report_metrics() -> Response:
        return metrics.response()

    @app.get("/docs", include_in_schema=False)
    async def documentation(request: Request) -> Response:
        values: dict[str, Any] = {"operations": _operations(app.openapi()), "has_tools": agents is not None}
        return HTMLResponse(
            render("docs.html", about=service.about, title=service.title, url=str(request.base_url), **values)
        )

    if agents is not None:

        @app.api_route("/mcp", methods=["GET", "PUT", "PATCH", "DELETE"], include_in_schema=False)
        async def no_stream() -> Response:
            # The server sends nothing by itself, so there is no stream to open, which would never end.
            status = HTTPStatus.METHOD_NOT_ALLOWED
            return _json({"error": "agents send requests by POST"}, status, {"Allow": "POST"})

        app.router.routes.extend(agents.routes)
    return app


@dataclass
class _Guard:
    """Refuses requests that must not be answered, and completes the headers of those that are.

    Args:
        hosts, token, access_log: as for create_app().
        error: makes the answer to a request that is refused.
    """

    app: ASGIApp
    hosts: Sequence[str]
    token: str
    error: Callable[[Request, int, str], Response]
    metrics: Metrics
    access_log: Callable[[str], object]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def complete(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(_HEADERS | {"Content-Security-Policy": content_security_policy()})
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is None:
                await self.app(scope, receive, complete)
            else:
                await self.error(Request(scope), *refusal)(scope, receive, complete)
        except Exception:
            logging.getLogger(__name__).exception(f"{scope['method']} {scope['path']} failed")
            if status:
                raise
            failure = self.error(Request(scope), HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed: see its log")
            await failure(scope, receive, complete)
        finally:
            path, seconds = getattr(scope.get("route"), "path", "other"), time.perf_counter() - started
            self.metrics.observe(path, status, seconds)
            self.access_log(_access_line(scope, status, seconds))

    def _refusal(self, scope: Scope) -> tuple[HTTPStatus, str] | None:
        """Return status and message for a request that is refused; None for one that is answered."""
        headers = Headers(scope=scope)
        # Another site's page, whose own name now points to this machine, must not read the documents. It has no token.
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.hosts and not self.token and host.lower() not in self.hosts:
            return HTTPStatus.FORBIDDEN, (
                f"Host {shown(host)} is not served: open the address that milco serve printed, or, behind a proxy, "
                "start it with a token"
            )
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return HTTPStatus.FORBIDDEN, f"cross-origin requests from {shown(origin)} are refused"
        # Their images and scripts come without an origin; a link to a page of this server is followed.
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            return HTTPStatus.FORBIDDEN, "requests from other sites are refused"
        if self.token and scope["path"] != _HEALTH and not _has_token(headers, self.token):
            return HTTPStatus.UNAUTHORIZED, "a token is needed: Authorization: Bearer TOKEN, or as a browser's password"
        if scope["method"] in ("POST", "PUT", "PATCH") or "transfer-encoding" in headers:
            # A body in chunks would count, whatever its Content-Length.
            size = "" if "transfer-encoding" in headers else headers.get("content-length", "")
            if not size.isdecimal():
                return HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length"
            if int(size) > MAX_BODY_BYTES:
                return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {MAX_BODY_BYTES:,} bytes"
        return None


async def _validate_unrepeated(request: Request) -> None:
    """Raise MilcoError if a parameter of one value is given twice: the last one would count."""
    several = {name for name, (_, is_list) in value_types(ServedRequest).items() if is_list}
    several |= {"doc"} if request.url.path == _PAGE else set()
    validate_unique("parameter", [name for name, _ in request.query_params.multi_items() if name not in several])


def _language(request: Request) -> str:
    """Return the language of a page: of its address, of the reader's choice, or of the browser."""
    chosen = (request.query_params.get(_LANGUAGE, ""), request.cookies.get(_LANGUAGE, ""))
    return accepted_language(chosen, request.headers.get("accept-language", ""))


def _access_line(scope: Scope, status: int, seconds: float) -> str:
    """Return a line of the access log: without the query string, which has what somebody searched for."""
    path = scope["path"]
    values = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "client": (scope.get("client") or ("",))[0],
        "method": scope["method"],
        "path": path if len(path) <= _MAX_LOGGED else f"{path[:_MAX_LOGGED]}…",
        "status": status,
        "ms": round(1000 * seconds, 1),
    }
    return json.dumps(values)


def _operations(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the operations of an OpenAPI schema with their fields, for a page."""
    operations = []
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if body:
                model = schema["components"]["schemas"][body["$ref"].rpartition("/")[2]]
                fields = [(name, schema, name in model["required"]) for name, schema in model["properties"].items()]
            else:
                fields = [(one["name"], one["schema"], one["required"]) for one in about.get("parameters", ())]
            rows = [
                {
                    "name": name,
                    "default": "required" if required else orjson.dumps(one.get("default")).decode(),
                    "description": one.get("description", ""),
                }
                for name, one, required in fields
            ]
            rows.sort(key=lambda row: row["default"] != "required")
            summary = about["summary"]
            operations.append({"method": method.upper(), "path": path, "summary": summary, "fields": rows})
    return operations


def _mcp_app(service: SearchService, memory: Memory | None) -> Any:
    """Return the application that answers agents at /mcp; None if the package mcp is not installed."""
    try:
        from milco_pyserini.serve.agents import create_mcp_server
    except ImportError:
        return None
    from mcp.server.transport_security import TransportSecuritySettings

    # _Guard checks hosts and origins.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    server = create_mcp_server(service, memory)
    return server.streamable_http_app(stateless_http=True, json_response=True, transport_security=security)


def _has_token(headers: Headers, token: str) -> bool:
    """Return whether a request has the token: Bearer TOKEN, or Basic with the token as password."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(value.strip().encode(), token.encode())


def _json(value: Any, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, "application/json")


def _first_problem(failure: RequestValidationError, request: Request) -> str:
    """Return one line on the first thing that is wrong with the parameters or the body of a request."""
    problem = failure.errors()[0]
    path = ".".join(str(part) for part in problem["loc"][1:])
    name = path or "the body"
    kind, value = problem["type"], problem.get("input")
    if kind == "json_invalid":
        return f"the body is not valid JSON: {problem['ctx']['error']} (character {problem['loc'][-1]})"
    if isinstance(value, bytes):
        return "the body is not sent as JSON: add the header Content-Type: application/json"
    if kind == "extra_forbidden":
        fields = {(one["method"], one["path"]): one["fields"] for one in _operations(request.app.openapi())}
        names = [field["name"] for field in fields[request.method, request.url.path]]
        return str(unknown_name("parameter", path, names))
    return problem_text(problem, name)
