"""Documents ranked by their best passage."""

from collections.abc import Sequence

import numpy as np

from milco_pyserini.index import Hits
from milco_pyserini.request import SearchRequest
from milco_pyserini.search.steps import best_passages, filled, steps_of


def test_the_score_of_a_document_is_that_of_its_best_passage() -> None:
    """Ties are in order of docid; an id without a number is that of a document."""
    hits = Hits(["b#1", "a#1", "a-#2", "b#0", "c#d#3", "e", "f#g"], np.asarray([3.0, 2.0, 2.0, 2.0, 1.0, 0.5, 0.2]))
    best = best_passages(hits)
    assert best.docids == ["b", "a", "a-", "c#d", "e", "f#g"]
    assert best.scores.tolist() == [3.0, 2.0, 2.0, 1.0, 0.5, 0.2]
    assert best_passages(hits)[:2].docids == ["b", "a"]
    assert best_passages(Hits(["x.1", "x.2", "xy1"], np.asarray([2.0, 1.0, 0.5])), ".").docids == ["x", "xy1"]


def test_only_a_number_at_the_end_marks_a_passage() -> None:
    """Words after the delimiter, nothing after it, other digits than 0 to 9 and a line end are part of an id."""
    docids = ["a#b", "a#c", "a#", "a#1x", "a#٣", "a#1\n", "#1#", "a #1"]
    hits = Hits(docids, np.arange(len(docids), 0, -1.0))
    assert best_passages(hits).docids == [*docids[:-1], "a "]


class Ranking:
    """Finds the same passages for each query that has a term, and records its calls."""

    def __init__(self, docids: Sequence[str]) -> None:
        self.docids = list(docids)
        self.asked: list[tuple[int, int]] = []

    def search(self, queries: Sequence[dict[str, float]], options: SearchRequest) -> list[Hits]:
        def source(numbers: Sequence[int], k: int) -> list[Hits]:
            self.asked.append((len(numbers), k))
            found = [self.docids[:k] if queries[number] else [] for number in numbers]
            return [Hits(docids, np.arange(len(docids), 0, -1.0)) for docids in found]

        return filled(source, steps_of([], options), range(len(queries)), options.k)


def test_passages_are_fetched_until_there_are_enough_documents() -> None:
    """A document with many passages does not displace others; only incomplete queries are searched again, or none."""
    ranking = Ranking([*(f"long#{n}" for n in range(100)), "second#0", "third#0"])
    found = ranking.search([{"a": 1.0}, {}], SearchRequest(2, max_passage=True, passages=10))
    assert [hits.docids for hits in found] == [["long", "second"], []]
    assert ranking.asked == [(2, 10), (1, 40), (1, 160)]
    # A collection with fewer documents than wanted.
    ranking = Ranking(["a#0", "a#1", "b#0"])
    (hits,) = ranking.search([{"a": 1.0}], SearchRequest(50, max_passage="#", passages=1))
    assert (hits.docids, ranking.asked) == (["a", "b"], [(1, 50)])
