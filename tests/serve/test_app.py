"""The API and the search page of milco serve: answers, errors, the token, and what other sites may not do."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import numpy as np
import pytest
from explained_set import index as passages
from fastapi.testclient import TestClient
from network_set import write_model, write_network
from pages import EVIL, Tags
from served_set import DOCUMENTS, searcher, service

from milco_pyserini import MilcoEncoder
from milco_pyserini.corpora import Document
from milco_pyserini.errors import Unreachable
from milco_pyserini.index import Index
from milco_pyserini.index.hits import Hits
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.search.searcher import Searcher
from milco_pyserini.serve import service as service_module
from milco_pyserini.serve.app import create_app
from milco_pyserini.serve.opened import IndexSnapshot, example_queries
from milco_pyserini.serve.schema import (
    ContextAnswer,
    DocumentAnswer,
    EncodeAnswer,
    ExplainAnswer,
    FieldsAnswer,
    SearchAnswer,
    SearchesAnswer,
)
from milco_pyserini.serve.service import SearchService

HOST = "127.0.0.1:8000"
TOKEN = "0123456789abcdef"
# "The Nile is 6,650 kilometres long."
RIVER = "नील नदी 6,650 किलोमीटर लंबी है। "


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """Return a client of an application without a token."""
    yield from _client()


@pytest.fixture(scope="module")
def guarded() -> Iterator[TestClient]:
    """Return a client of an application with a token."""
    yield from _client(TOKEN)


def _client(token: str = "") -> Iterator[TestClient]:
    with closing(service(queue=4)) as opened:
        app = create_app(opened, (HOST,), token)
        with TestClient(app, f"http://{HOST}", raise_server_exceptions=False) as made:
            yield made


def test_search_returns_hits_with_titles_and_snippets(client: TestClient) -> None:
    """As the searcher ranks them, up to last digits, which depend on the thread; highlights are in the snippet."""
    query = "The river Nile flows"
    found = client.get("/search", params={"q": query, "k": 3}).json()
    SearchAnswer.model_validate(found)
    hits = searcher().search(query, 3)
    assert [hit["docid"] for hit in found["hits"]] == [hit.docid for hit in hits]
    assert [hit["score"] for hit in found["hits"]] == pytest.approx([hit.score for hit in hits], rel=1e-5)
    first = found["hits"][0]
    assert [hit["title"] for hit in found["hits"]] == [hit.document.title for hit in hits]
    assert first["highlights"]
    assert all(0 <= one["start"] < one["stop"] <= len(first["snippet"]) for one in first["highlights"])
    more = client.get("/search", params={"q": query, "k": 2, "offset": 1}).json()
    assert [hit["rank"] for hit in more["hits"]] == [2, 3]
    assert more["hits"] == found["hits"][1:]


@pytest.fixture(scope="module")
def hindi(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index of two documents in Hindi, in whose middle is the answer."""
    fill = 8 * "ऑर्केस्ट्रा पुराने सभागार में बजाता है। "
    documents = [{"id": "nile", "text": fill + RIVER + fill}, {"id": "short", "text": RIVER}]
    encoder = MilcoEncoder.from_pretrained("mini", device="cpu", dtype="float32")
    return Index.build(documents, tmp_path_factory.mktemp("hindi") / "docs", "exact", encoder=encoder)


@pytest.mark.parametrize("read_tokens", [4096, 0])
def test_snippets_answer_in_another_script_within_the_tokens_that_are_read(
    hindi: Index, read_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the API, for one query and several, and on the page, with words of the answer highlighted."""
    question = "How long is the river?"
    monkeypatch.setattr(service_module, "READ_TOKENS", read_tokens)
    opened = SearchService(IndexSnapshot(Searcher.open(hindi.path, device="cpu")))
    with closing(opened), TestClient(create_app(opened, (HOST,)), f"http://{HOST}") as own:
        hits = own.get("/search", params={"q": question}).json()["hits"]
        (several,) = own.post("/search", json={"queries": [question]}).json()["results"]
        assert own.post("/search", json={"queries": [question] * 32}).json()["results"][0]["hits"]
        page = own.get("/", params={"q": question}).text
    snippets = {hit["docid"]: hit for hit in hits}
    assert snippets["short"]["snippet"] == RIVER.strip() and several["hits"] == hits
    is_read = read_tokens > 0
    found = snippets["nile"]
    assert (RIVER.strip() in found["snippet"]) == is_read == ("लंबी</mark>" in page)
    marked = {found["snippet"][span["start"] : span["stop"]] for span in found["highlights"]}
    assert marked >= {"नदी", "लंबी"} if is_read else not marked


def test_a_context_is_what_the_library_returns(client: TestClient) -> None:
    """With the options of a search; a number of tokens out of its range is refused."""
    query = {"q": "the river Nile", "k": 3, "tokens": 40, "filters": "lang=en"}
    found = client.get("/context", params=query).json()
    ContextAnswer.model_validate(found)
    assert found["context"] == searcher().context(query["q"], 40, 3, filters="lang=en") != {}
    for tokens in (0, 100_001):
        refused = client.get("/context", params={**query, "tokens": tokens})
        assert (refused.status_code, f"tokens={tokens}" in refused.json()["error"]) == (400, True)
    assert client.get("/context", params={"q": " "}).status_code == 400


def test_documents_are_found_by_their_best_passage() -> None:
    """In the API and on the page, whose explanations are of the passage; other indexes hold no passages."""
    built = passages("exact", "--split-passages", "--max-length", "16")
    with (
        closing(SearchService(IndexSnapshot(Searcher.open(built.path, device="cpu")))) as opened,
        TestClient(create_app(opened, (HOST,)), f"http://{HOST}") as own,
    ):
        found = own.get("/search", params={"q": "Penicillin", "max_passage": True}).json()
        SearchAnswer.model_validate(found)
        first = found["hits"][0]
        assert first["passage"].rpartition("#")[0] == first["docid"]
        page = own.get("/", params={"q": "Penicillin"}).text
        assert quote_plus(first["passage"]) in page
        explained = own.get("/explain", params={"q": "Penicillin", "docid": first["passage"]}).json()
        assert explained["score"] == pytest.approx(first["score"], rel=1e-5)


def test_hits_are_the_best_of_each_value(client: TestClient) -> None:
    """For one query and for several; pages continue, and total is the number of all that match."""
    query = {"q": "the river Nile", "k": 50}
    every = client.get("/search", params=query).json()
    first = {hit["fields"].get("lang", hit["docid"]): hit["docid"] for hit in reversed(every["hits"])}
    expected = [hit["docid"] for hit in every["hits"] if hit["docid"] in first.values()]
    found = client.get("/search", params={**query, "distinct": "lang"}).json()
    assert [hit["docid"] for hit in found["hits"]] == expected and 1 < len(expected) < len(every["hits"])
    assert found["total"] == every["total"]
    more = client.post("/search", json={"queries": [query["q"]], "k": 1, "offset": 1, "distinct": "lang"}).json()
    assert [hit["docid"] for hit in more["results"][0]["hits"]] == expected[1:2]


def test_several_queries_are_answered_as_single_ones(client: TestClient) -> None:
    """With the same options, up to last digits, which depend on the batch; the number of queries is bounded."""
    queries = ["the river Nile", "ナイル川", "stones"]
    options = {"k": 2, "offset": 1, "alpha": 0.4, "filters": ["lang=en"]}
    answer = client.post("/search", json={"queries": queries, **options}).json()
    assert len(SearchesAnswer(**answer).results) == 3
    for query, found in zip(queries, answer["results"], strict=True):
        single = client.get("/search", params={"q": query, **options}).json()
        for name in ("rank", "docid", "title", "snippet", "fields"):
            assert [hit[name] for hit in found["hits"]] == [hit[name] for hit in single["hits"]]
        for name in ("score", "share"):
            expected = pytest.approx([hit[name] for hit in single["hits"]], rel=1e-4)
            assert [hit[name] for hit in found["hits"]] == expected
        assert found["total"] == single["total"]
    for body, named in (
        ({"queries": []}, "queries 0"),
        ({"queries": ["x"] * 33}, "queries 33"),
        ({"queries": ["x", " "]}, "queries.1"),
        ({"queries": ["x"], "ofset": 1}, "'offset'"),
        ({"queries": "x"}, "queries"),
        ({"queries": ["x"], "k": True}, "true"),
        ({"queries": ["x"], "k": "5"}, "'5'"),
        ({"queries": ["x"], "max_passage": 1}, "max_passage"),
        ({"queries": ["x"], "filter": ["lang=en"]}, "'filters'"),
    ):
        refused = client.post("/search", json=body)
        assert (refused.status_code, named in refused.json()["error"]) == (400, True), refused.text


@pytest.mark.parametrize("wrong", [{"queries": ["\ud800"]}, {"filters": ["lang=\ud800"]}, {"balance": "\ud800"}])
def test_lone_surrogates_are_refused(client: TestClient, wrong: dict[str, Any]) -> None:
    """In any string: no answer could have them."""
    body = json.dumps({"queries": ["river"], **wrong})
    answer = client.post("/search", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, "lone surrogates" in answer.json()["error"]) == (400, True), answer.text


def test_scores_that_are_no_numbers_fail_no_request(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON has null for them."""
    scores = np.array([np.inf, np.nan, 1.0], np.float32)
    found = Hits(["ja", "ar", "d01"], scores, lookup=searcher().search("river", 1).lookup)
    monkeypatch.setattr(searcher(), "rank", lambda *_, **__: [found])
    answer = client.get("/search?q=river")
    assert (answer.status_code, [hit["score"] for hit in answer.json()["hits"]]) == (200, [None, None, 1.0])
    assert client.get("/?q=river").status_code == 200


def test_health_follows_the_server_that_holds_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked every few seconds, in one thread, and not waited for; the reason needs the token."""
    asked, hangs, down = [], threading.Event(), True

    def ping(_: Any) -> None:
        asked.append(1)
        assert hangs.wait(60)
        if down:
            raise Unreachable("OpenSearch at http://10.0.0.1:9200 has no majority")

    monkeypatch.setattr(type(searcher().engine_searcher), "ping", ping)
    monkeypatch.setattr(service_module, "PING_WAIT", 0.2)
    known = {"Authorization": f"Bearer {TOKEN}"}
    with (
        closing(service()) as opened,
        TestClient(create_app(opened, (HOST,), TOKEN), f"http://{HOST}", headers=known) as own,
    ):
        for _ in range(2):
            answer = own.get("/healthz")
            assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
            assert answer.json()["error"] == "the server that holds docs.exact has not answered yet"
        hangs.set()
        monkeypatch.setattr(service_module, "PING_WAIT", 60)
        answers = [own.get("/healthz", headers=headers) for headers in ({}, {"Authorization": "Bearer x"})]
        assert [answer.status_code for answer in answers] == [503, 503]
        assert "has no majority" in answers[0].json()["error"]
        assert answers[1].json() == {"status": "unavailable"} and len(asked) == 1
        down = False
        monkeypatch.setattr(service_module, "PING_SECONDS", 0)
        assert own.get("/healthz").json()["status"] == "ok" and len(asked) == 2


def test_what_a_server_that_holds_the_index_reports_is_logged_and_not_answered(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """In one line: its address is not for everybody. The status is 502, until it answers again."""

    def fail(*_: Any, **__: Any) -> None:
        raise Unreachable("OpenSearch at http://10.0.0.1:9200: Connection refused", "If it has moved, ...")

    with monkeypatch.context() as down:
        for name in ("rank", "stored", "values"):
            down.setattr(searcher().engine_searcher, name, fail)
        for path in ("/search?q=river", "/?q=river", "/explain?q=river&docid=d01", "/documents/d01", "/fields"):
            refused = client.get(path)
            assert (refused.status_code, "10.0.0.1" in refused.text) == (502, False), path
            assert "the server that holds docs.exact does not answer: try again later" in refused.text
            error = capsys.readouterr().err
            assert (error.count("\n"), "10.0.0.1:9200: Connection refused" in error) == (1, True)
    assert client.get("/search?q=river").status_code == 200


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return a client of an index whose documents have years."""
    encoder = searcher().query_encoder.encoder  # type: ignore[union-attr]
    documents = [
        Document(f"d{year}", "", f"The river in {year}.", {"year": year, "decade": year // 10 * 10, "lang": "en"})
        for year in range(1996, 2004)
    ]
    vectors = encoder.encode_document([document.text for document in documents])
    path = tmp_path_factory.mktemp("dated") / "rivers"
    Index.build(vectors, path, "exact", ids=documents, encoder=encoder)
    opened = IndexSnapshot(Searcher.open(path, encoder))
    with (
        closing(SearchService(opened, title="Rivers & <lakes>")) as own,
        TestClient(create_app(own, (HOST,)), f"http://{HOST}") as made,
    ):
        yield made


def test_ranges_are_filters(dated: TestClient) -> None:
    """Ranges of numbers, with other filters; an invalid range is one line."""
    for conditions, years in (
        (["year>=1999", "year<2002"], {1999, 2000, 2001}),
        (["year>1997", "decade=1990"], {1998, 1999}),
        (["year<=1e3"], set()),
    ):
        found = dated.get("/search", params={"q": "river", "filters": conditions}).json()
        assert {hit["fields"]["year"] for hit in found["hits"]} == years
        assert found["total"] == len(years)
    for conditions, message in (
        (["year>=new"], "its values are numbers, 'new' is not"),
        (["year>=2000", "year=2001"], "a field has values (=) or a range, not both"),
        (["year>=2000", "year>=2001"], "year>=2000 is given, too"),
        (["yaer>=2000"], "did you mean 'year'?"),
        ([">=2000"], "expected FIELD=VALUE"),
    ):
        answer = dated.get("/search", params={"q": "river", "filters": conditions})
        assert (answer.status_code, message in answer.json()["error"]) == (400, True), answer.text


def test_fields_are_listed_with_their_values(dated: TestClient) -> None:
    """The most frequent ones, as filters take them."""
    answer = dated.get("/fields", params={"values": 1}).json()
    decade, language, year = FieldsAnswer(**answer).fields
    assert (decade.name, decade.type, decade.distinct) == ("decade", "number", 2)
    assert (language.name, language.type, language.distinct) == ("lang", "string", 1)
    assert (year.name, year.type, year.distinct) == ("year", "number", 8)
    assert [(one.value, one.documents) for one in decade.values] == [("1990", 4)]
    assert [(one.value, one.documents) for one in year.values] == [("1996", 1)]
    for wrong, message in (("values=-1", "values=-1"), ("value=1", "did you mean 'values'?")):
        refused = dated.get(f"/fields?{wrong}")
        assert (refused.status_code, message in refused.json()["error"]) == (400, True)


def test_the_page_filters_by_any_field(dated: TestClient) -> None:
    """By values that repeat, and by ranges in its address, together; it has the title that it was given."""
    page = Tags(dated.get("/?q=river").text)
    filters = [link for link in page.values("href") if "filters=" in link]
    assert sorted(filters) == [f"/?q=river&filters=decade%3D{year}" for year in (1990, 2000)]
    assert "Rivers & <lakes>" in page.text
    narrowed = Tags(dated.get("/", params={"q": "river", "filters": ["decade=2000", "year>=2002"]}).text)
    assert "of 2" in narrowed.text
    assert {"/?q=river&filters=decade%3D2000", "/?q=river&filters=year%3E%3D2002"} <= set(narrowed.values("href"))
    assert {dated.get(link).status_code for link in narrowed.values("href") if link.startswith("/")} == {200}


def test_every_request_is_a_line_of_the_access_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused and failed ones, too; never with a query or a token."""
    lines: list[str] = []
    with closing(service()) as opened:
        app = create_app(opened, (HOST,), TOKEN, lines.append)
        with TestClient(app, f"http://{HOST}", raise_server_exceptions=False) as made:
            made.get("/search?q=secret")
            made.headers["Authorization"] = f"Bearer {TOKEN}"
            made.get("/search?q=secret&k=1")
            made.post("/search", json={"queries": ["secret"]})
            made.get("/documents/no%0Awhere")
            made.get(f"/{1000 * 'x'}")
            monkeypatch.setattr("milco_pyserini.serve.service.FoundDocument", lambda *_: 1 / 0)
            made.get("/search?q=secret")
    logged = [json.loads(line) for line in lines]
    assert [(one["method"], one["path"], one["status"]) for one in logged] == [
        ("GET", "/search", 401),
        ("GET", "/search", 200),
        ("POST", "/search", 200),
        ("GET", "/documents/no\nwhere", 404),
        ("GET", f"/{499 * 'x'}…", 404),
        ("GET", "/search", 500),
    ]
    assert all(set(one) == {"time", "client", "method", "path", "status", "ms"} for one in logged)
    assert all(datetime.fromisoformat(one["time"]).tzinfo and one["ms"] >= 0 for one in logged)
    assert "secret" not in "".join(lines) and TOKEN not in "".join(lines) and "\n" not in "".join(lines)


def test_views_and_alpha_are_of_the_request(client: TestClient) -> None:
    """Nothing remains of them for the next one."""
    scores = [
        client.get(f"/search?q=the+river&k=1{more}").json()["hits"][0]["score"]
        for more in ("", "&views=pivot", "&views=source", "&alpha=.5", "&views=pivot&views=source", "")
    ]
    assert scores[1] < scores[0] > scores[2]
    assert scores[3] < scores[0]
    assert scores[0] == scores[4] == scores[5]


def test_long_documents_are_cut(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """In answers, which have the number of the other characters."""
    monkeypatch.setattr("milco_pyserini.serve.service.MAX_TEXT_CHARACTERS", 100)
    monkeypatch.setattr("milco_pyserini.explain.origins.MAX_TEXT_CHARACTERS", 100)
    text = DOCUMENTS[4]["text"]
    for path in ("/documents/long", "/explain?q=river&docid=long"):
        found = client.get(path).json()
        assert len(found["text"]) == 100
        assert text in found["text"] + text[-found["omitted_characters"] :] or path.startswith("/explain")
        assert found["omitted_characters"] >= len(text) - 100
    assert "more characters not shown" in client.get("/?q=river&doc=long").text


def test_documents_vectors_and_explanations(client: TestClient) -> None:
    """Docids may have any characters; texts are encoded by the body of a request."""
    found = client.get(f"/documents/{quote('a/b#c?', safe='')}").json()
    assert DocumentAnswer(**found).text == DOCUMENTS[1]["text"]
    explained = client.get("/explain", params={"q": "the Nile", "docid": "a/b#c?"}).json()
    assert ExplainAnswer(**explained).sum == pytest.approx(explained["score"])
    answer = EncodeAnswer(**client.get("/encode?q=river").json())
    by_query = answer.vectors
    assert answer.scale == 100
    assert client.post("/encode", json={"texts": ["river", ""]}).json()["vectors"] == [*by_query, {}]
    documents = client.post("/encode", json={"texts": ["river"], "kind": "document", "views": ["pivot"]}).json()
    assert 0 < len(documents["vectors"][0]) < len(by_query[0])


def test_sparse_embeddings_are_those_of_text_embeddings_inference(client: TestClient) -> None:
    """Columns of the vocabulary and the weights of /encode, in ascending order of columns, of a text or several."""
    body = {"inputs": "river", "truncate": True, "truncation_direction": "Right", "prompt_name": None}
    terms = searcher().query_encoder.encoder.vocabulary.terms  # type: ignore[union-attr]
    (vector,) = client.post("/embed_sparse", json=body).json()
    (expected,) = client.post("/encode", json={"texts": ["river"], "kind": "document"}).json()["vectors"]
    assert {terms[entry["index"]]: entry["value"] for entry in vector} == pytest.approx(expected, rel=1e-4)
    assert [entry["index"] for entry in vector] == sorted(entry["index"] for entry in vector)
    several = client.post("/embed_sparse", json={"inputs": ["river", "", "stones"], "prompt_name": "query"}).json()
    assert [bool(entries) for entries in several] == [True, False, True]
    assert client.post("/embed_sparse", json={"inputs": 9000 * "river "}).status_code == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": 1}, "inputs expects a list, got 1"),
        ({"inputs": ["x"] * 65}, "number of texts 65: must be from 1 to 64"),
        ({"inputs": 9000 * "river ", "truncate": False}, "tokens: shorten it, or pass truncate=true"),
        ({"inputs": "x", "prompt_name": "passage"}, "unknown value for prompt_name 'passage'"),
        ({"inputs": "x", "truncation_direction": "left"}, "unknown value for truncation_direction 'left'"),
        ({"inputs": "x", "normalise": True}, "unknown parameter 'normalise'"),
    ],
)
def test_sparse_embeddings_refuse_what_they_cannot_do(client: TestClient, body: dict, message: str) -> None:
    """A text that must not be truncated, and a side that is never truncated, included."""
    refused = client.post("/embed_sparse", json=body)
    assert (refused.status_code, message in refused.json()["error"]) == (400, True), refused.text


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/search", 400, "q is required"),
        (f"/search?q={'x' * 3000}", 400, "3,000 characters"),
        ("/search?q=x&k=5000", 400, "k=5000"),
        ("/search?q=x&offset=995", 400, "offset=995: k=10"),
        ("/search?q=x&k=ten", 400, "k expects an integer, got 'ten'"),
        ("/search?q=x&alpha=nan", 400, "alpha=nan"),
        ("/search?q=x&ofset=1", 400, "unknown parameter 'ofset': did you mean 'offset'?"),
        ("/search?q=x&views=pivot&alpha=.5", 400, "but this search only uses the pivot view"),
        ("/search?q=x&views=pivto", 400, "views 'pivto'"),
        # Docids of documents may contain a # and a number.
        ("/search?q=x&max_passage=true", 400, "does not hold passages"),
        ("/search?q=x&filters=language=de", 400, "did you mean 'lang'?"),
        ("/search?q=x&filters=lang", 400, "expected FIELD=VALUE, such as lang=de"),
        ("/search?q=x&distinct=language", 400, "did you mean 'lang'?"),
        ("/search?q=x&balance=language", 400, "did you mean 'lang'?"),
        ("/search?q=x&balance=lang%3Dx", 400, "expected FIELD or FIELD=STRENGTH"),
        ("/search?q=x&balance=lang%3D1e308", 400, "strength"),
        ("/explain?q=x&docid=no", 404, "has no document 'no'"),
        ("/explain?q=x", 400, "docid"),
        ("/documents/no", 404, "has no document 'no'"),
        ("/search?q=x&q=y", 400, "parameter q is given twice"),
        ("/search?q=x&k=1&k=2", 400, "parameter k is given twice"),
        ("/explain?q=x&docid=d01&docid=d02", 400, "parameter docid is given twice"),
        ("/fields?values=1&values=2", 400, "parameter values is given twice"),
        ("/serach?q=x", 404, "there is nothing at '/serach': see /docs"),
    ],
)
def test_errors_are_one_line_of_json(client: TestClient, path: str, status: int, message: str) -> None:
    """With the value and the rule."""
    answer = client.get(path)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert message in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "the body is not valid JSON: Expecting property name"),
        (b'{"texts": "a"}', 400, "texts expects a list, got 'a'"),
        (b'{"texts": [1]}', 400, "texts.0"),
        (b'{"texts": []}', 400, "number of texts 0: must be from 1 to 64"),
        (b'{"texts": ["a"], "knd": "document"}', 400, "did you mean 'kind'?"),
        (b'{"texts": ["\\ud800"]}', 400, "texts.0 expects a string without lone surrogates"),
        (b'{"texts": ["a"], "kind": "document", "alpha": 0.5}', 400, "alpha weighs the views of queries"),
        (b'{"texts": ["' + b"x" * 2**20 + b'"]}', 413, "the body has more than 1,048,576 bytes"),
    ],
)
def test_bad_bodies_are_one_line_of_json(client: TestClient, body: bytes, status: int, message: str) -> None:
    """Large ones are not read; curl -d sends no JSON without a header."""
    answer = client.post("/encode", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text
    answer = client.post("/encode", content=b'{"texts": ["a"]}')
    assert (answer.status_code, "header Content-Type: application/json" in answer.text) == (400, True)


def test_a_body_in_chunks_is_refused(client: TestClient) -> None:
    """Whatever Content-Length it has besides: the size of the body would not be known."""
    for more in ({}, {"Content-Length": "5"}):
        answer = client.post("/encode", content=b'{"texts": ["a"]}', headers={"Transfer-Encoding": "chunked"} | more)
        assert (answer.status_code, answer.json()) == (411, {"error": "the request has no Content-Length"})


def test_other_methods_are_refused_with_those_there_are(client: TestClient) -> None:
    """As JSON; agents open no stream, which would hold a connection: the server sends nothing by itself."""
    answer = client.delete("/search")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert answer.json() == {"error": "/search does not answer DELETE: it takes GET"}
    pytest.importorskip("mcp", reason="needs mcp (pip install '.[serve]')")
    answer = client.get("/mcp", headers={"Accept": "text/event-stream"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_busy_server_asks_to_try_again(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 for the API, and a page for the page."""
    with closing(service(queue=1)) as opened:
        opened.pending = 1
        with TestClient(create_app(opened), f"http://{HOST}") as made:
            answer, page = made.get("/search?q=x"), made.get("/?q=x")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"error": "the server is busy with 1 requests: try again in a second"}
    assert (page.status_code, 'role="alert"' in page.text) == (503, True)


def test_an_internal_error_is_500_without_details(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has them."""
    monkeypatch.setattr("milco_pyserini.serve.service.FoundDocument", lambda *_: 1 / 0)
    answer = client.get("/search?q=river")
    assert (answer.status_code, answer.json()) == (500, {"error": "the server failed: see its log"})
    assert "GET /search failed" in caplog.text and "ZeroDivisionError" in caplog.text


def test_requests_need_the_token(guarded: TestClient) -> None:
    """As a bearer, or as the password that a browser asks for; only health needs none."""
    basic = "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()
    for path in ("/", "/search?q=x", "/metrics", "/docs", "/openapi.json", "/nowhere"):
        for wrong in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Basic !"}):
            answer = guarded.get(path, headers=wrong)
            assert answer.status_code == 401, path
            assert "docs.exact" not in answer.text
            assert answer.headers["www-authenticate"] == "Bearer"
        for right in (f"Bearer {TOKEN}", basic):
            assert guarded.get(path, headers={"Authorization": right}).status_code in (200, 404), path
    browser = guarded.get("/", headers={"Accept": "text/html"})
    assert browser.headers["www-authenticate"].startswith("Basic")
    health = [guarded.get("/healthz", headers=headers).json() for headers in ({}, {"Authorization": basic})]
    assert health[0] == {"status": "ok"}
    assert health[1]["index"] == "docs.exact"


def test_a_proxy_may_forward_its_host_name_with_a_token(guarded: TestClient, client: TestClient) -> None:
    """A page whose name now points to this machine has no token."""
    headers = {"Host": "search.example.org", "Authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/search?q=x", headers=headers).status_code == 200
    assert guarded.get("/search?q=x", headers={"Host": "search.example.org"}).status_code == 401
    assert guarded.get("/healthz", headers={"Host": "search.example.org"}).status_code == 200
    refused = client.get("/search?q=x", headers=headers)
    assert refused.status_code == 403
    assert refused.json()["error"].startswith("Host 'search.example.org' is not served: open the address that milco")


def of_network(directory: Path) -> Searcher:
    """Open an index of the documents whose queries a query network encodes."""
    encoder = write_model(directory / "model")
    Index.build(DOCUMENTS, directory / "docs.exact", "exact", encoder=encoder)
    return Searcher.open(directory / "docs.exact", encoder=str(write_network(encoder, directory / "queries")))


def test_without_explanations_none_are_offered(tmp_path: Path) -> None:
    """A query network shows no states of tokens: the page, the API's description and the tools for agents know it."""
    opened = of_network(tmp_path)
    with (
        closing(SearchService(IndexSnapshot(opened))) as own,
        TestClient(create_app(own, (HOST,)), f"http://{HOST}") as answered,
    ):
        assert not own.about.has_explanations
        page = answered.get("/?q=river+Nile").text
        assert "<article" in page
        for offered in ("Why this matches", "why above the next", "why it matches", "/explanation"):
            assert offered not in page
        assert "<code>explain</code>" not in answered.get("/docs").text
        assert answered.get("/explain?q=river&docid=ja").status_code == 400


def test_stated_limits_are_those_that_hold(client: TestClient) -> None:
    """The largest request that the schema allows is accepted."""
    schema = client.get("/openapi.json").json()
    parameters = {one["name"]: one["schema"] for one in schema["paths"]["/search"]["get"]["parameters"]}
    largest = {"q": parameters["q"]["maxLength"] * "x", "k": parameters["k"]["maximum"]}
    assert client.get("/search", params=largest).status_code == 200
    assert client.get("/search", params=largest | {"q": largest["q"] + "x"}).status_code == 400
    assert (
        client.get("/search", params={"q": "x", "k": 1, "offset": parameters["offset"]["maximum"]}).status_code == 200
    )
    texts = schema["components"]["schemas"]["EncodeBody"]["properties"]["texts"]
    for number, status in ((texts["maxItems"], 200), (texts["maxItems"] + 1, 400), (texts["minItems"] - 1, 400)):
        assert client.post("/encode", json={"texts": number * ["x"]}).status_code == status
    assert client.post("/encode", json={"texts": [1_000_000 * "x"]}).status_code == 200


def test_other_sites_are_refused(client: TestClient) -> None:
    """Another name for this machine, or a page of another origin; and no header lets other origins read."""
    for headers in (
        {"Host": "evil.example"},
        {"Host": "evil.example:8000"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ):
        answer = client.get("/search?q=x", headers=headers)
        assert answer.status_code == 403, headers
        assert client.get("/", headers=headers).status_code == 403
    for site in ("cross-site", "same-site"):
        # An image of another site's page; then a link there that is followed.
        image = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
        assert client.get("/search?q=x", headers=image).status_code == 403
        assert client.get("/?q=x", headers=image | {"Sec-Fetch-Mode": "navigate"}).status_code == 200
    own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    answer = client.get("/search?q=x", headers=own | {"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:8000"})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    # A name has no case.
    with closing(service()) as opened, TestClient(create_app(opened, ("localhost",)), "http://localhost") as named:
        headers = {"Host": "LocalHost", "Origin": "http://LOCALHOST"}
        assert named.get("/healthz", headers=headers).status_code == 200


def test_the_api_is_described_without_a_network(client: TestClient) -> None:
    """A page of every operation and field, and the same as OpenAPI."""
    page, schema = client.get("/docs").text, client.get("/openapi.json").json()
    tags = Tags(page)
    assert tags.open == []
    assert not [value for name, value in tags.attributes if name in ("src", "href") and "//" in (value or "")]
    assert set(schema["paths"]) == {
        "/search",
        "/context",
        "/explain",
        "/encode",
        "/embed_sparse",
        "/fields",
        "/documents/{docid}",
        "/healthz",
        "/metrics",
    }
    for path, methods in schema["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in tags.text
    for name in ("k", "offset", "alpha", "views", "texts", "kind", "docid"):
        assert f"<code>{name}</code>" in page
    assert "422" not in str(schema)


def test_metrics_count_requests(client: TestClient) -> None:
    """By path of the route and status."""
    pytest.importorskip("prometheus_client")
    client.get("/search?q=river")
    client.get("/documents/nowhere")
    text = client.get("/metrics").text
    assert 'milco_requests_total{path="/search",status="200"}' in text
    assert 'milco_requests_total{path="/documents/{docid:path}",status="404"}' in text
    assert f"milco_documents {len(DOCUMENTS)}.0" in text


def test_the_first_page_links_example_queries(client: TestClient) -> None:
    """Nothing may be loaded from elsewhere."""
    answer = client.get("/", params={"utm_source": "x"})
    tags = Tags(answer.text)
    assert (answer.status_code, tags.open) == (200, [])
    assert "30 documents, encoded by" in tags.text
    links = [link for link in tags.values("href") if link.startswith("/?")]
    assert len(links) == 2
    assert [client.get(link).status_code for link in links] == [200, 200]
    assert ("lang", "ja") in tags.attributes
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy


def test_results_are_not_explained_yet(client: TestClient) -> None:
    """A page of results costs a search; every link works without a script, and no text becomes markup."""
    answer = client.get("/", params={"q": EVIL})
    tags = Tags(answer.text)
    assert tags.open == []
    assert {"script", "b"}.isdisjoint(set(Tags(answer.text.partition("<main>")[2].partition("</main>")[0]).seen))
    assert "table" not in tags.seen
    assert ("value", EVIL) in tags.attributes
    links = [link for link in tags.values("href") if link.startswith("/")]
    assert {client.get(link).status_code for link in links} == {200}
    assert client.head("/", params={"q": "x"}).text == ""


def test_long_results_have_pages(client: TestClient) -> None:
    """Each links the next while there is one."""
    path, ranks = "/?q=river", []
    while path:
        tags = Tags(client.get(path).text)
        ranks += tags.values("data-from")
        following = [link for link in tags.values("href") if "page=" in link]
        path = following[-1] if following and following[-1] > path else ""
    found = searcher().search("river", 100)
    assert len(ranks) == len(found)
    assert client.get("/?q=river&page=0").status_code == 400
    assert len(client.get("/", params={"q": 2000 * "x"}).text.partition("</title>")[0]) < 300
    assert "There are no further documents." in client.get("/?q=river&page=99").text


def test_a_hit_is_explained_on_demand(client: TestClient) -> None:
    """A fold's address returns what belongs into it."""
    addresses = Tags(client.get("/?q=the+Nile").text).values("data-from")
    assert addresses[0].startswith("/explanation?q=the+Nile&doc=")
    answer = client.get(addresses[0])
    tags = Tags(answer.text)
    assert (answer.status_code, tags.open) == (200, [])
    assert {"mark", "table", "summary"} <= set(tags.seen)
    assert {"html", "h2", "script"}.isdisjoint(tags.seen)
    for path, status in (("q=Nile&doc=nope", 404), ("q=Nile", 404), ("doc=ja", 400)):
        failed = client.get(f"/explanation?{path}")
        assert (failed.status_code, failed.text[:16]) == (status, '<p class="error"')


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/?q=x&doc=nope", 404, "has no document &#39;nope&#39;"),
        ("/etc/passwd", 404, "there is nothing at &#39;/etc/passwd&#39;"),
        (f"/?q={'x' * 3000}", 400, "3,000 characters"),
        (f"/?q=x{''.join(f'&doc={n}' for n in range(101))}", 400, "101 documents are named: up to 100"),
        ("/?q=%20", 200, "encoded by"),
        ("/?q=x&offset=5000", 400, "unknown parameter &#39;offset&#39;"),
        ("/?q=x&q=y", 400, "parameter q is given twice"),
        ("/?q=x&lang=fr", 400, "unknown parameter &#39;lang&#39;: valid are balance, doc, filters, index, page, q"),
    ],
)
def test_bad_requests_of_a_page_are_answered_by_a_page(
    client: TestClient, path: str, status: int, message: str
) -> None:
    """That searches again."""
    answer = client.get(path, headers={"Accept": "text/html"})
    assert (answer.status_code, message in answer.text, 'name="q"' in answer.text) == (status, True, True)


def test_topics_next_to_a_corpus_are_examples(tmp_path: Any) -> None:
    """The sample's in six languages; of a path, those of a file named queries or topics, unless it is broken."""
    assert len({query[:2] for query in example_queries(StoreManifest(scale=1.0, corpus="sample"))}) == 6
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "contents": "x"}')
    assert example_queries(StoreManifest(scale=1.0, corpus=str(corpus))) == []
    (tmp_path / "queries.tsv").write_text("".join(f"{number}\tquery {number}\n" for number in range(100)))
    for name in (corpus, tmp_path):
        assert example_queries(StoreManifest(scale=1.0, corpus=str(name)))[:2] == ["query 0", "query 17"]
    (tmp_path / "queries.tsv").write_text("broken")
    assert (
        example_queries(StoreManifest(scale=1.0, corpus=str(corpus)))
        == example_queries(StoreManifest(scale=1.0, corpus="miracl-ar"))
        == []
    )


def test_filters_are_exact_and_count(client: TestClient) -> None:
    """As the searcher's."""
    found = client.get("/search?q=river&filters=lang=ar&filters=lang=ja").json()
    assert {hit["docid"] for hit in found["hits"]} == {"ar", "ja"}
    assert found["total"] == 2 < client.get("/search?q=river").json()["total"] == len(searcher().search("river", 100))
    assert {hit["fields"]["lang"] for hit in found["hits"]} == {"ar", "ja"}


def test_languages_are_balanced_on_request(client: TestClient) -> None:
    """As the searcher balances them."""
    found = client.get("/search?q=river&k=5&balance=lang").json()
    expected = searcher().search("river", 5, balance="lang")
    assert [(hit["docid"], hit["score"]) for hit in found["hits"]] == [(hit.docid, hit.score) for hit in expected]
    assert found["hits"][0]["score"] < client.get("/search?q=river&k=1").json()["hits"][0]["score"]


def test_the_page_balances_languages(client: TestClient) -> None:
    """By a link that filters, pages, explanations and the next query keep, and that takes it back."""
    plain = Tags(client.get("/?q=river&filters=lang%3Den").text)
    (toggle,) = [link for link in plain.values("href") if "balance=" in link]
    assert toggle == "/?q=river&filters=lang%3Den&balance=lang"
    page = Tags(client.get("/?q=river&balance=lang").text)
    assert ("aria-current", "true") in page.attributes and ("value", "lang") in page.attributes
    links = [link for link in page.values("href") if "q=" in link]
    assert [link for link in links if "balance=lang" not in link] == ["/?q=river"]
    assert {client.get(link).status_code for link in links} == {200}
    hits = client.get("/search?q=river&k=10&balance=lang").json()["hits"]
    folds = page.values("data-from")
    assert folds == [f"/explanation?q=river&doc={quote_plus(hit['docid'])}&balance=lang" for hit in hits]
    (mean,) = {line for line in client.get(folds[0]).text.splitlines() if "the mean score of lang=" in line}
    assert mean.endswith("is subtracted</p>")
    explained = client.get("/explain", params={"q": "river", "docid": hits[0]["docid"], "balance": "lang"}).json()
    assert ExplainAnswer(**explained).balance is not None
    assert explained["score"] == pytest.approx(hits[0]["score"])
    assert (
        client.get("/?q=river&balance=lng").status_code == client.get("/explanation?q=x&doc=ja&balance=x").status_code
    )
    assert "did you mean &#39;lang&#39;" in client.get("/?q=river&balance=lng").text


def test_the_page_filters_by_language(client: TestClient) -> None:
    """By the languages of the best hits; pages keep the filter."""
    tags = Tags(client.get("/?q=river").text)
    links = [link for link in tags.values("href") if "filters=" in link]
    assert sorted(links) == [f"/?q=river&filters=lang%3D{code}" for code in ("ar", "en", "ja")]
    assert "among the best 100" in tags.text
    # Nearly every document has a term of a query: a number without a filter carries nothing.
    english = Tags(client.get("/?q=river&filters=lang%3Den").text)
    assert "neither a probability" in tags.text
    assert "1–10 of 28" in english.text and "of 30" not in tags.text
    assert "/?q=river&filters=lang%3Den&page=2" in english.values("href")
    assert "/?q=river" in english.values("href")
    both = Tags(client.get("/?q=river&filters=lang%3Den&filters=lang%3Dja").text)
    assert {"/?q=river&filters=lang%3Den", "/?q=river&filters=lang%3Dja"} <= set(both.values("href"))
    assert "No document that passes the filter" in client.get("/?q=river&filters=lang%3Dxx").text


def test_the_page_speaks_the_language_of_the_browser(client: TestClient) -> None:
    """With its direction and separators, in explanations, too; errors are in English, and marked so."""
    for header, language, words in (
        ("ar-EG,ar;q=0.9,en;q=0.8", 'lang="ar" dir="rtl"', "يطابق"),
        ("tlh, en;q=0.5, ja;q=0.9", 'lang="ja" dir="ltr"', "一致した理由"),
        ("de-DE", 'lang="de" dir="ltr"', "deckt"),
        ("de;q=0, *", 'lang="en" dir="ltr"', "Why this matches"),
        ("", 'lang="en" dir="ltr"', "Why this matches"),
    ):
        page = client.get("/?q=river", headers={"Accept-Language": header}).text
        assert f"<html {language}>" in page and words in page, header
    headers = {"Accept-Language": "de"}
    assert "Anteil" in client.get("/explanation?q=river&doc=d01", headers=headers).text
    failed = client.get("/?q=river&filters=x", headers=headers).text
    assert '<html lang="de"' in failed and '<p class="error" role="alert" lang="en" dir="ltr">' in failed


def test_the_choice_of_a_language_is_kept() -> None:
    """By a cookie, until another is chosen; every language is a link that keeps the search."""
    with closing(service()) as opened, TestClient(create_app(opened, (HOST,)), f"http://{HOST}") as own:
        links = [
            value or "" for key, value in Tags(own.get("/?q=river&filters=lang%3Den").text).attributes if key == "href"
        ]
        assert "/?q=river&filters=lang%3Den&ui=sw" in links and len([link for link in links if "ui=" in link]) == 13
        for language in ("sw", "fi"):
            assert (
                f'<html lang="{language}"'
                in own.get(f"/?q=river&ui={language}", headers={"Accept-Language": "ru"}).text
            )
            assert f'<html lang="{language}"' in own.get("/", headers={"Accept-Language": "ru"}).text
        refused = own.get("/?ui=xx")
        assert (refused.status_code, "unknown ui &#39;xx&#39;" in refused.text) == (400, True)


def test_many_values_of_a_field_unfold(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few are in the row of filters."""
    assert "<details name=" not in client.get("/?q=river").text
    monkeypatch.setattr("milco_pyserini.serve.app._MOST_PILLS", 2)
    page = client.get("/?q=river").text
    assert page.count('<details name="facet">') == 1 and Tags(page).open == []
    links = [link for link in Tags(page).values("href") if "filters=" in link]
    assert sorted(links) == [f"/?q=river&filters=lang%3D{code}" for code in ("ar", "en", "ja")]


def test_a_document_without_a_title_begins_with_its_text(client: TestClient) -> None:
    """Its docid is next to the score."""
    page = client.get("/", params={"q": "The river Nile flows", "filters": "lang=en"}).text
    heading = page.partition('<h2 class="untitled"')[2].partition("</h2>")[0]
    assert "".join(Tags(f"<h2{heading}</h2>").text.split()) == "TheriverNileflowsnorththroughEgypt."
    assert "<bdi>a/b#c?</bdi>" in page and '<p class="snippet"' not in page.partition("<bdi>a/b#c?</bdi>")[2][:500]


def test_a_filter_that_nothing_passes_is_answered_with_the_values_there_are(client: TestClient) -> None:
    """As links, of the field that filters; milco search names them, too."""
    page = Tags(client.get("/?q=river&filters=lang%3Dxx").text)
    assert "Without the filter, the best documents have:" in page.text
    links = [link for link in page.values("href") if "filters=" in link and "lang%3Dxx" not in link]
    assert sorted(links) == [f"/?q=river&filters=lang%3D{code}" for code in ("ar", "en", "ja")]


def test_a_page_with_a_query_network_is_marked_approximate(client: TestClient, tmp_path: Path) -> None:
    """One whose queries are encoded by the model does not."""
    opened = IndexSnapshot(of_network(tmp_path))
    with closing(SearchService(opened)) as own, TestClient(create_app(own, (HOST,)), f"http://{HOST}") as made:
        pages = [each.get(path).text for each in (made, client) for path in ("/", "/?q=river")]
    assert [">approximate</span>" in page for page in pages] == [True, True, False, False]
