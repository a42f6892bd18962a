"""Several indexes in milco serve: every hit has what each index gave it, and is explained in those that can."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi.testclient import TestClient
from pages import Tags
from served_set import DOCUMENTS, index, searcher

from milco_pyserini import Index, Searcher
from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.explain.explanation import Explanation
from milco_pyserini.index import BM25
from milco_pyserini.serve.app import create_app
from milco_pyserini.serve.opened import OpenedIndex
from milco_pyserini.serve.schema import SearchAnswer, SearchesAnswer
from milco_pyserini.serve.service import SearchService

HOST = "127.0.0.1:8000"
QUERY = "the river Nile"


def build_pivot(path: Path, count: int = len(DOCUMENTS)) -> Path:
    """Index the pivot view of the served documents, with their fields."""
    encoder = searcher().query_encoder.encoder  # type: ignore[union-attr]
    documents = [Document(one["id"], one["title"], one["text"], {"lang": one["lang"]}) for one in DOCUMENTS[:count]]
    vectors = encoder.encode_document([document.contents for document in documents], views=["pivot"])
    stored: dict[str, Any] = {"store_documents": True, "corpus": documents, "overwrite": True}
    ids = [document.id for document in documents]
    return Index.build(vectors, path, "exact", ids=ids, encoder=encoder, **stored).path


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searcher]:
    """Open the served index and one of its pivot view together."""
    paths = [index().path, build_pivot(tmp_path_factory.mktemp("several") / "pivot")]
    with Searcher.open(paths, device="cpu", dtype="float32", fuse="rrf") as opened:
        yield opened


@pytest.fixture(scope="module")
def service(hybrid: Searcher) -> Iterator[SearchService]:
    """Serve both."""
    with closing(SearchService(OpenedIndex(hybrid))) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(service: SearchService) -> Iterator[TestClient]:
    """Return a client of the application."""
    with TestClient(create_app(service, (HOST,)), f"http://{HOST}") as made:
        yield made


def test_hits_have_what_each_index_gave_them(client: TestClient, hybrid: Searcher) -> None:
    """As the library fuses them, with titles and snippets; filters and a balance apply in each index."""
    found = client.get("/search", params={"q": QUERY, "k": 5}).json()
    SearchAnswer.model_validate(found)
    assert SearchesAnswer(**client.post("/search", json={"queries": [QUERY], "k": 5}).json()).results[0].hits
    expected = hybrid.search(QUERY, 5)
    assert [hit["docid"] for hit in found["hits"]] == expected.docids
    for hit, other in zip(found["hits"], expected, strict=True):
        assert {name: (one["rank"], pytest.approx(one["score"])) for name, one in hit["by_index"].items()} == dict(
            other.by_index
        )
        assert hit["snippet"]
    (filtered,) = client.get("/search", params={"q": QUERY, "filters": "lang=ja"}).json()["hits"]
    assert (filtered["docid"], set(filtered["by_index"])) == ("ja", {index.name for index in hybrid.indexes})
    assert [one["name"] for one in client.get("/fields").json()["fields"]] == ["lang"]
    for options, message in (
        ({"filters": "lng=ja"}, "did you mean 'lang'"),
        ({"balance": "lng"}, "did you mean 'lang'"),
        ({"alpha": 0.5}, "is for one index"),
    ):
        answer = client.get("/search", params={"q": QUERY, **options})
        assert (answer.status_code, message in answer.json()["error"]) == (400, True), answer.text


@pytest.mark.parametrize("balance", [{}, {"balance": "lang"}])
def test_the_score_in_each_index_is_explained(client: TestClient, hybrid: Searcher, balance: dict[str, str]) -> None:
    """By its path; without one, in the first. Another index is an error."""
    hit = client.get("/search", params={"q": QUERY, "k": 1, **balance}).json()["hits"][0]
    given = {"q": QUERY, "docid": hit["docid"], **balance}
    for name in (searched.name for searched in hybrid.indexes):
        explained = client.get("/explain", params={**given, "index": name}).json()
        assert explained["rank"] == hit["by_index"][name]["rank"]
        assert explained["score"] == pytest.approx(hit["by_index"][name]["score"])
        assert explained["difference"] == 0 and (explained["balance"] is not None) == bool(balance)
    assert client.get("/explain", params=given).json()["score"] == hit["by_index"][hybrid.indexes[0].name]["score"]
    refused = client.get("/explain", params={**given, "index": f"{hybrid.indexes[1].name}x"})
    assert refused.status_code == 400 and f"did you mean '{hybrid.indexes[1].name}'?" in refused.json()["error"]


def test_the_page_shows_ranks_and_explanations_by_index(client: TestClient, service: SearchService) -> None:
    """A fold for each index that is explained; every link works."""
    page = Tags(client.get("/", params={"q": QUERY, "balance": "lang"}).text)
    assert page.open == []
    folds = page.values("data-from")
    assert len(folds) == 2 * 10 and len({fold.partition("&index=")[2] for fold in folds}) == 2
    assert "docs.exact 1\N{NO-BREAK SPACE}(" in page.text and "pivot 1\N{NO-BREAK SPACE}(" in page.text
    assert "Why this matches in pivot" in page.text and "is not explained" not in page.text
    assert "why above the next" not in page.text
    links = [*folds[:2], *(link for link in page.values("href") if link.startswith("/"))]
    assert {client.get(link).status_code for link in links} == {200}
    assert (service.title, service.about.documents) == ("docs.exact + pivot", len(DOCUMENTS))


def test_an_index_that_changes_is_opened_again(tmp_path: Path) -> None:
    """With the other, whose encoder is kept; the old ones are closed."""
    pivot = build_pivot(tmp_path / "pivot", 3)
    old = OpenedIndex.open([index().path, pivot], fuse="rsf", device="cpu", dtype="float32")
    assert not old.has_changed()
    build_pivot(pivot)
    assert old.has_changed()
    new = old.reopened()
    old.release()
    assert new.about.generation != old.about.generation and not new.has_changed()
    assert new.encoder.encoder is old.encoder.encoder
    assert new.searcher.fuse == "rsf"
    assert set(new.searcher.search("ナイル川", 1)[0].by_index) == {index.name for index in new.searcher.indexes}
    with pytest.raises(MilcoError, match="is closed"):
        old.searcher.search(QUERY)
    new.release()


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index the words of the served documents."""
    return Index.build(index().path.parent / "corpus.jsonl", tmp_path_factory.mktemp("words") / "bm25", BM25("en")).path


@pytest.mark.integration
def test_an_index_of_words_has_ranks_and_no_explanations(words: Path) -> None:
    """The page states it, and offers neither filters nor a balance, which it does not have; alone, it is not served."""
    opened = OpenedIndex.open([words, index().path], fuse="rrf", device="cpu", dtype="float32")
    with (
        closing(SearchService(opened)) as service,
        TestClient(create_app(service, (HOST,)), f"http://{HOST}") as client,
    ):
        hit = client.get("/search", params={"q": QUERY}).json()["hits"][0]
        assert set(hit["by_index"]) == {str(words), str(index().path)} and hit["snippet"]
        page = Tags(client.get("/", params={"q": QUERY}).text)
        assert "rank (score) in bm25, which is not explained and docs.exact" in page.text
        assert len(page.values("data-from")) == 10
        assert "Balance languages" not in page.text and "among the best" not in page.text
        explained = client.get("/explain", params={"q": QUERY, "docid": hit["docid"]}).json()
        assert explained["score"] == pytest.approx(hit["by_index"][str(index().path)]["score"])
        refused = client.get("/explain", params={"q": QUERY, "docid": hit["docid"], "index": str(words)})
        assert refused.status_code == 400 and "is a bm25 index, whose queries are texts" in refused.json()["error"]
        refused = client.get("/search", params={"q": QUERY, "filters": "lang=en"})
        assert refused.status_code == 400 and "stores no fields to filter by" in refused.json()["error"]
        assert client.get("/encode", params={"q": QUERY}).json()["vectors"][0]
    with pytest.raises(MilcoError, match="whose queries are weighted terms"):
        OpenedIndex.open(words)


def test_agents_see_what_each_index_gave(service: SearchService, hybrid: Searcher) -> None:
    """And ask for an explanation in one of them, of a balanced search, too."""
    pytest.importorskip("mcp.server.mcpserver", reason="needs mcp 2 (pip install mcp)")
    from mcp import Client

    from milco_pyserini.serve.agents import create_mcp_server

    async def ask() -> tuple[Any, Any]:
        async with Client(create_mcp_server(service)) as agent:

            async def call(name: str, **arguments: Any) -> Any:
                return json.loads((await agent.call_tool(name, {"query": QUERY, **arguments})).content[0].text)

            hit = (await call("search", k=1, balance="lang"))["hits"][0]
            return hit, await call("explain", docid=hit["docid"], balance="lang", index=hybrid.indexes[1].name)

    hit, explained = anyio.run(ask)
    assert set(hit["by_index"]) == {index.name for index in hybrid.indexes}
    assert explained["score"] == pytest.approx(hit["by_index"][hybrid.indexes[1].name]["score"])
    explanation = hybrid.explain(QUERY, hit["docid"], index=hybrid.indexes[1].name, balance="lang")
    assert isinstance(explanation, Explanation) and explanation.balance is not None
    assert explained["balance"] == pytest.approx(explanation.balance.to_json())
