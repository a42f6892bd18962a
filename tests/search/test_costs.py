"""Mean terms and FLOPs next to the measures, from what the record of a run names."""

from collections.abc import Callable
from math import isnan
from pathlib import Path

import numpy as np
import pytest
from synthetic_stores import synthetic_batch, write_store

from milco_pyserini.cli.eval import main as evaluate_command
from milco_pyserini.cli.search import main
from milco_pyserini.index import Index, build_index, find_engine
from milco_pyserini.index.hits import Hits
from milco_pyserini.index.protocol import EngineSearcher
from milco_pyserini.request import SearchRequest
from milco_pyserini.search.costs import search_costs
from milco_pyserini.sparse import open_store

DOCUMENTS = {"d1": "The Nile is a river.", "d2": "Bell patented the telephone.", "d3": "Ein Fluss in Afrika."}


@pytest.fixture
def search(tmp_path: Path) -> Callable[[], Path]:
    """Search an index of 20 vectors for two of them, and return the path of the run."""
    ids, batch = synthetic_batch(20)
    build_index(open_store(write_store(tmp_path / "vectors", ids, batch)), find_engine("exact"), tmp_path / "index")
    write_store(tmp_path / "topics", ["1", "2"], batch.take([0, 1]), kind="topics")
    (tmp_path / "qrels.txt").write_text(f"1 0 {ids[0]} 1\n2 0 {ids[1]} 1\n")

    def run() -> Path:
        path = tmp_path / "run.txt"
        given = {"--index": tmp_path / "index", "--topics": tmp_path / "topics", "--output": path}
        assert main([str(text) for option in given.items() for text in option]) == 0
        return path

    return run


def test_flops_are_the_mean_number_of_products_of_a_score(search: Callable[[], Path]) -> None:
    """They are counted one by one for each query and document; empty documents count, too."""
    _, batch = synthetic_batch(20)
    documents = [set(batch.columns[batch.row_numbers() == row].tolist()) for row in range(20)]
    products = [len(query & document) for query in documents[:2] for document in documents]
    assert search_costs(search()) == pytest.approx(
        {
            "QueryTerms": sum(map(len, documents[:2])) / 2,
            "PassageTerms": sum(map(len, documents)) / 20,
            "FLOPs": sum(products) / len(products),
        }
    )


def test_costs_are_columns_next_to_the_measures(
    search: Callable[[], Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """With two digits; a run without them has dashes, and one sentence states why."""
    path, other = search(), tmp_path / "other.txt"
    other.write_text(path.read_text())
    qrels = str(tmp_path / "qrels.txt")
    assert (
        evaluate_command(
            ["--run", str(other), str(path), "--qrels", qrels, "--efficiency", "-m", "RR", "--test", "none"]
        )
        == 0
    )
    shown = capsys.readouterr()
    head, first, second = (line.split() for line in shown.out.splitlines())
    assert head == ["run", "RR", "QueryTerms", "PassageTerms", "FLOPs"] and first[2:] == ["-"] * 3
    assert float(second[2]) == pytest.approx(search_costs(path)["QueryTerms"], abs=0.01)
    assert (
        f"{other}: QueryTerms, PassageTerms, FLOPs are not known: it has no record of a search of one index"
        in shown.err
    )


def test_an_engine_that_does_not_count_has_no_flops(
    search: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for one term only; mean terms are known."""
    path, asked = search(), []

    def rank(_: EngineSearcher, queries: list, request: SearchRequest) -> list[Hits]:
        asked.append(len(queries))
        return [Hits([], np.empty(0, np.float32)) for _ in queries]

    monkeypatch.setattr(EngineSearcher, "rank", rank)
    costs = search_costs(path)
    assert costs["QueryTerms"] > 0 and isnan(costs["FLOPs"]) and asked == [1]


def test_texts_are_encoded_again_by_the_encoder_of_the_search(tmp_path: Path) -> None:
    """With its weight of the views, which drops one at 1; once the topics have changed, the costs are not known."""
    documents = [{"id": name, "text": text} for name, text in DOCUMENTS.items()]
    Index.build(documents, tmp_path / "texts.exact", "exact", encoder="mini")
    topics, run = tmp_path / "topics.tsv", tmp_path / "run.txt"
    topics.write_text("1\twhich river\n2\twho invented the telephone\n")
    arguments = ["--index", str(tmp_path / "texts.exact"), "--topics", str(topics), "--output", str(run), "--overwrite"]
    found = []
    for options in ([], ["--alpha", "1"]):
        assert main([*arguments, *options]) == 0
        found.append(search_costs(run))
    assert found[1]["QueryTerms"] < found[0]["QueryTerms"] and found[1]["FLOPs"] < found[0]["FLOPs"]
    assert found[1]["PassageTerms"] == found[0]["PassageTerms"]
    topics.write_text("1\twhich river\n")
    assert search_costs(run) == {}
