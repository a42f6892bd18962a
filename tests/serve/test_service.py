"""The service of milco serve: many requests at a time give what one search gives, and too many are refused."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest
from explained_set import index as passages
from served_set import DOCUMENTS, searcher, service

from milco_pyserini.errors import MilcoError
from milco_pyserini.explain.origins import encode_with_origins
from milco_pyserini.request import SearchRequest
from milco_pyserini.search.searcher import Searcher
from milco_pyserini.serve.opened import IndexSnapshot
from milco_pyserini.serve.service import Busy, SearchService

QUERIES = ["the river Nile", "نهر النيل", "ナイル川", "water flows", "Document 7", "stones"]


def run(work: Callable[[SearchService], Coroutine[Any, Any, Any]], **options: int) -> Any:
    """Run a coroutine with a service."""
    with closing(service(**options)) as opened:
        return asyncio.run(work(opened))


def test_concurrent_requests_find_what_the_searcher_finds() -> None:
    """In batches, whatever alpha and views the others have; offsets continue a ranking."""
    requests = [
        (query, SearchRequest(5, offset, alpha=alpha, views=views))
        for query in QUERIES
        for offset in (0, 5)
        for alpha, views in ((None, ()), (0.3, ()), (None, ("pivot",)), (1.0, ("pivot", "source")))
    ]
    sizes: list[int] = []

    async def work(opened: SearchService) -> list[Any]:
        opened.batches = sizes.append
        return await asyncio.gather(*(opened.search(*request) for request in requests))

    for (text, request), response in zip(requests, run(work), strict=True):
        hits = searcher().search(text, 10, alpha=request.alpha, views=request.views)[request.offset :][:5]
        assert [found.hit.docid for found in response.hits] == hits.docids
        assert [found.hit.score for found in response.hits] == pytest.approx(hits.scores.tolist(), rel=1e-5)
        assert [found.hit.rank for found in response.hits] == [
            *range(request.offset + 1, request.offset + 1 + len(hits))
        ]
    assert sum(sizes) == len(requests)
    assert max(sizes) > 1


def test_requests_beyond_the_queue_are_refused_at_once() -> None:
    """Accepted requests are answered, and so are later ones."""

    async def work(opened: SearchService) -> list[Any]:
        searches = [opened.search(QUERIES[number % 6], SearchRequest()) for number in range(8)]
        return await asyncio.gather(*searches, return_exceptions=True)

    async def twice(opened: SearchService) -> list[Any]:
        return [await work(opened), await opened.search("river", SearchRequest()), opened.pending]

    answers, later, pending = run(twice, queue=3)
    assert [isinstance(answer, Busy) for answer in answers] == [False] * 3 + [True] * 5
    assert later.hits
    assert pending == 0


def test_an_error_reaches_every_request_of_its_batch_and_no_other() -> None:
    """The service continues."""

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(searcher(), name)

        def encode(self, texts: list[str], request: SearchRequest) -> Any:
            if "fail" in texts:
                raise MilcoError("no memory")
            return searcher().encode(texts, request)

    async def work(opened: SearchService) -> list[Any]:
        opened.opened.searcher = Failing()  # type: ignore[assignment]
        searches = [opened.search("fail", SearchRequest()) for _ in range(2)]
        first = await asyncio.gather(*searches, return_exceptions=True)
        return [*first, await opened.search("river", SearchRequest())]

    failed, too, found = run(work)
    assert str(failed) == str(too) == "no memory"
    assert found.hits


def test_texts_are_encoded_as_the_indexs_queries_and_documents() -> None:
    """Strongest terms first; views and alpha as for a search. Last digits depend on a thread's share of the cores."""

    async def work(opened: SearchService) -> list[Any]:
        both, pivot, half = [
            await opened.encode(["river"], "query", SearchRequest(alpha=alpha, views=views))
            for alpha, views in ((None, ()), (None, ("pivot",)), (0.5, ()))
        ]
        return [both[0], pivot[0], half[0], (await opened.encode([DOCUMENTS[3]["text"]], "document"))[0]]

    both, pivot, half, document = run(work)
    assert both == pytest.approx(searcher().encode(["river"], SearchRequest())[0][0], rel=1e-4)
    assert list(both.values()) == sorted(both.values(), reverse=True)
    assert pivot == {term: weight for term, weight in both.items() if not term.startswith("m_")}
    assert half == {term: pytest.approx(weight / 2) for term, weight in both.items()}
    encoder = searcher().query_encoder.encoder  # type: ignore[union-attr]
    assert document == pytest.approx(encoder.encode_document(DOCUMENTS[3]["text"]).to_dicts()[0], rel=1e-4)


def test_searches_do_not_wait_for_explanations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does what /encode encodes."""
    searched = threading.Event()
    find = encode_with_origins

    def slowly(*arguments: Any, **options: Any) -> Any:
        assert searched.wait(60)
        return find(*arguments, **options)

    async def work(opened: SearchService) -> Any:
        explaining = asyncio.create_task(opened.explain("river", ["ja"], SearchRequest()))
        await asyncio.sleep(0)
        assert (await opened.search("river", SearchRequest())).hits
        assert await opened.encode(["river"])
        searched.set()
        return await explaining

    monkeypatch.setattr("milco_pyserini.explain.explainer.encode_with_origins", slowly)
    assert run(work)[0].docid == "ja"


def test_documents_have_the_text_of_their_best_passage() -> None:
    """As the hit of the passage has it, which comes first; no document comes twice."""
    built = passages("exact", "--split-passages", "--max-length", "16")

    async def work(opened: SearchService) -> list[Any]:
        requests = [SearchRequest(20, max_passage=by_document) for by_document in (False, True)]
        return [(await opened.search("ペニシリン", request)).hits for request in requests]

    with closing(SearchService(IndexSnapshot(Searcher.open(built.path, device="cpu")))) as opened:
        assert opened.about.has_passages
        by_passage, by_document = asyncio.run(work(opened))
    best: dict[str, Any] = {}
    for found in by_passage:
        best.setdefault(found.hit.docid.rpartition("#")[0], found)
    assert 1 < len(best) <= len(by_document) == len({found.hit.docid for found in by_document})
    for found, (docid, other) in zip(by_document, best.items(), strict=False):
        hit, passage = found.hit, other.hit
        assert (hit.docid, hit.passage, hit.score) == (docid, passage.docid, passage.score)
        assert (hit.share, found.snippet, hit.document.text) == (passage.share, other.snippet, passage.document.text)
        assert found.to_json()["passage"] == passage.docid and passage.passage is None
