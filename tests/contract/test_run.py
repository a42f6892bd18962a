"""The contract of every run, whatever engine wrote it."""

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from built import INDEXES, Built, queries_for

from milco_pyserini.index import open_index
from milco_pyserini.io.runs import read_run, write_hits


def written(built: Built, kind: str) -> str:
    """Return the run of an engine's hits as text."""
    run = io.StringIO()
    for number, hits in enumerate(open_index(built.path(kind)).searcher().search(queries_for(kind), 20)):
        write_hits(run, f"q{number}", hits, "trec", "tag")
    return run.getvalue()


@pytest.mark.parametrize("kind", INDEXES)
def test_a_written_run_is_read_back(built: Built, kind: str, tmp_path: Path) -> None:
    """The same documents in the same order."""
    path = tmp_path / "run.txt"
    path.write_text(written(built, kind), encoding="utf-8")
    run = read_run(path)
    for number, hits in enumerate(open_index(built.path(kind)).searcher().search(queries_for(kind), 20)):
        scores = run.get(f"q{number}", {})
        assert sorted(scores, key=lambda docid: (-scores[docid],)) == hits.docids


@pytest.mark.parametrize("kind", INDEXES)
def test_ranks_begin_with_1_and_scores_decrease(built: Built, kind: str) -> None:
    """As 32-bit floats too, so that trec_eval, which ignores ranks, keeps the order."""
    seen: dict[str, list[tuple[int, float]]] = {}
    for line in written(built, kind).splitlines():
        topic, q0, _, rank, score, tag = line.split(" ")
        assert (q0, tag) == ("Q0", "tag")
        seen.setdefault(topic, []).append((int(rank), float(np.float32(score))))
    assert seen
    for ranking in seen.values():
        assert [rank for rank, _ in ranking] == list(range(1, len(ranking) + 1))
        scores = [score for _, score in ranking]
        assert all(above > below for above, below in itertools.pairwise(scores))
