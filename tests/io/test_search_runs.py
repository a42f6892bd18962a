"""Promises of a run: the order that was found is the order that trec_eval sees; passages stand for documents."""

import io
from collections.abc import Sequence

import numpy as np
import pytest

from milco_pyserini.index import Hits
from milco_pyserini.io.runs import decreasing_scores, write_hits
from milco_pyserini.search.passages import best_passages, search_documents


@pytest.mark.parametrize(
    "scores",
    [
        [],
        [3.0],
        [3.0, 2.0, 1.0],
        [761570.0] * 1000,
        [16777216.0] * 50 + [16777215.0] * 50 + [1.0],
        [2.0] * 20 + [np.nextafter(np.float32(2), np.float32(0))] * 20 + [1.5],
        [1.0 + 1e-12, 1.0, 1.0 - 1e-12, 1e-30, 1e-30],
    ],
)
def test_decreasing_scores_strictly_decrease_and_stay_near(scores: list[float]) -> None:
    """As float32, no two are equal, and each is within as many steps of its score as there are hits."""
    given = np.asarray(scores, np.float64)
    printed = np.asarray([np.float32(text) for text in decreasing_scores(given)], np.float32)
    assert (printed[1:] < printed[:-1]).all()
    assert np.allclose(printed, given, rtol=len(scores) * 2**-23, atol=1e-40)


def test_distinct_scores_are_printed_as_they_are() -> None:
    """Only a tie moves a score; a lone score prints as its shortest float32 text."""
    assert decreasing_scores(np.asarray([761570.0, 0.1, 0.05])) == ["761570.0", "0.1", "0.05"]


def test_trec_eval_sees_the_order_that_was_found() -> None:
    """trec_eval sorts by score and descending docid; among ties that would turn our ranking around."""
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="pytrec_eval-terrier is not installed")
    docids = [f"d{number:03d}" for number in range(300)]
    scores = np.repeat([761571.0, 761570.0, 5.0], 100)
    handle = io.StringIO()
    write_hits(handle, "q", Hits(docids, scores), "trec", "tag")
    lines = [line.split(" ") for line in handle.getvalue().splitlines()]
    assert [(line[0], line[1], line[2], line[3], line[5]) for line in lines] == [
        ("q", "Q0", docid, str(rank), "tag") for rank, docid in enumerate(docids, 1)
    ]
    run = {"q": {line[2]: float(line[4]) for line in lines}}
    for rank in (1, 50, 100, 101, 200, 300):
        judged = pytrec_eval.RelevanceEvaluator({"q": {docids[rank - 1]: 1}}, {"recip_rank"}).evaluate(run)
        assert judged["q"]["recip_rank"] == pytest.approx(1 / rank)


def test_msmarco_lines_have_three_columns() -> None:
    """Topic, docid and rank, with tabs between them."""
    handle = io.StringIO()
    write_hits(handle, "7", Hits(["b", "a"], np.asarray([2.0, 1.0])), "msmarco", "unused")
    assert handle.getvalue() == "7\tb\t1\n7\ta\t2\n"


def test_a_documents_score_is_its_best_passages() -> None:
    """The first passage of a document counts; ties stand by docid; an id without a number is a document's own."""
    hits = Hits(["b#1", "a#1", "a-#2", "b#0", "c#d#3", "e", "f#g"], np.asarray([3.0, 2.0, 2.0, 2.0, 1.0, 0.5, 0.2]))
    best = best_passages(hits, 10)
    assert best.docids == ["b", "a", "a-", "c#d", "e", "f#g"]
    assert best.scores.tolist() == [3.0, 2.0, 2.0, 1.0, 0.5, 0.2]
    assert best_passages(hits, 2).docids == ["b", "a"]
    assert best_passages(Hits(["x.1", "x.2", "xy1"], np.asarray([2.0, 1.0, 0.5])), 5, ".").docids == ["x", "xy1"]


def test_only_a_number_at_the_end_names_a_passage() -> None:
    """Words behind the delimiter, nothing behind it, other digits than 0 to 9 and a line end are parts of an id."""
    docids = ["a#b", "a#c", "a#", "a#1x", "a#٣", "a#1\n", "#1#", "a #1"]
    hits = Hits(docids, np.arange(len(docids), 0, -1.0))
    assert best_passages(hits, 10).docids == [*docids[:-1], "a "]


class Ranking:
    """A searcher that finds the same passages for every query, and remembers what it was asked for."""

    def __init__(self, docids: Sequence[str]) -> None:
        self.docids = list(docids)
        self.asked: list[tuple[int, int]] = []

    def search(self, queries: Sequence[dict[str, float]], k: int, threads: int = 1) -> list[Hits]:
        self.asked.append((len(queries), k))
        found = [self.docids if query else [] for query in queries]
        return [Hits(one[:k], np.arange(len(one[:k]), 0, -1.0)) for one in found]


def test_passages_are_fetched_until_there_are_enough_documents() -> None:
    """A document with many passages does not crowd the others out; only short queries are asked again."""
    searcher = Ranking([*(f"long#{n}" for n in range(100)), "second#0", "third#0"])
    found = search_documents(searcher, [{"a": 1.0}, {}], documents=2, passages=10)
    assert [hits.docids for hits in found] == [["long", "second"], []]
    assert searcher.asked == [(2, 10), (1, 40), (1, 160)]


def test_fetching_ends_when_there_are_no_more_passages() -> None:
    """A collection with fewer documents than wanted gives what it has."""
    searcher = Ranking(["a#0", "a#1", "b#0"])
    assert search_documents(searcher, [{"a": 1.0}], documents=50, passages=1)[0].docids == ["a", "b"]
    assert searcher.asked == [(1, 50)]
