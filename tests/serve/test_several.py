"""Several indexes in milco serve: every hit has what each index gave it, and is explained in those that can."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pages import Tags
from served_set import DOCUMENTS, index, searcher

from milco_pyserini import Index, Searcher
from milco_pyserini.corpora import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.serve.app import create_app
from milco_pyserini.serve.opened import IndexSnapshot
from milco_pyserini.serve.schema import SearchAnswer, SearchesAnswer
from milco_pyserini.serve.service import SearchService

HOST = "127.0.0.1:8000"
QUERY = "the river Nile"


def build_pivot(path: Path, count: int = len(DOCUMENTS)) -> Path:
    """Index the pivot view of the served documents, with their fields."""
    encoder = searcher().query_encoder.encoder  # type: ignore[union-attr]
    documents = [Document(one["id"], one["title"], one["text"], {"lang": one["lang"]}) for one in DOCUMENTS[:count]]
    vectors = encoder.encode_document([document.contents for document in documents], views=["pivot"])
    return Index.build(vectors, path, "exact", ids=documents, encoder=encoder, overwrite=True).path


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searcher]:
    """Open the served index and one of its pivot view together."""
    paths = [index().path, build_pivot(tmp_path_factory.mktemp("several") / "pivot")]
    with Searcher.open(paths, device="cpu", dtype="float32", fuse="rrf") as opened:
        yield opened


@pytest.fixture(scope="module")
def service(hybrid: Searcher) -> Iterator[SearchService]:
    """Serve both."""
    with closing(SearchService(IndexSnapshot(hybrid))) as opened:
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
        assert {name: (one["rank"], pytest.approx(one["score"])) for name, one in hit["by_index"].items()} == {
            name: (one.rank, one.score) for name, one in other.by_index.items()
        }
        assert hit["snippet"]
    distinct = client.get("/search", params={"q": QUERY, "k": 5, "distinct": "lang"}).json()["hits"]
    assert [hit["docid"] for hit in distinct] == hybrid.search(QUERY, 5, distinct="lang").docids
    (filtered,) = client.get("/search", params={"q": QUERY, "filters": "lang=ja"}).json()["hits"]
    assert (filtered["docid"], set(filtered["by_index"])) == ("ja", {index.name for index in hybrid.indexes})
    assert [one["name"] for one in client.get("/fields").json()["fields"]] == ["lang"]
    for options, message in (
        ({"filters": "lng=ja"}, "did you mean 'lang'"),
        ({"distinct": "lng"}, "did you mean 'lang'"),
        ({"balance": "lng"}, "did you mean 'lang'"),
        ({"alpha": 0.5}, "applies to a single ranking"),
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
    assert "Why this matches · pivot" in page.text and "is not explained" not in page.text
    assert "why above the next" not in page.text
    links = [*folds[:2], *(link for link in page.values("href") if link.startswith("/"))]
    assert {client.get(link).status_code for link in links} == {200}
    assert (service.title, service.about.documents) == ("docs.exact + pivot", len(DOCUMENTS))


def test_an_index_that_changes_is_opened_again(tmp_path: Path) -> None:
    """With the other, whose encoder is kept; the old ones are closed."""
    pivot = build_pivot(tmp_path / "pivot", 3)
    old = IndexSnapshot.open([index().path, pivot], fuse="rsf", device="cpu", dtype="float32")
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
