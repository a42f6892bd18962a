"""Baselines of the paper's tables: BM25 by Anserini, and dense vectors by Faiss."""

from pathlib import Path

import numpy as np
import pytest
from golden_set import GOLDEN

from experiments.bm25 import Words, bm25_hits
from experiments.bm25 import main as bm25
from experiments.dense import main as dense
from milco_pyserini.corpora import Document, open_qrels
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import evaluate
from milco_pyserini.io.runs import read_run

pytestmark = pytest.mark.slow

DOCUMENTS = [
    Document("b", "", "rivers flow"),
    Document("a", "", "rivers flow"),
    Document("c", "", " "),
    Document("d", "", "x y"),
]


@pytest.mark.integration
def test_bm25_is_stemmed_by_the_language_and_tied_by_docid() -> None:
    """Documents without words are left out; tokens of a checkpoint are words, too."""
    (hits,) = bm25_hits(DOCUMENTS, ["a river flows"], Words("en"), 3)
    assert hits.docids == ["a", "b"] and hits.scores[0] > 0
    (hits,) = bm25_hits(DOCUMENTS, ["rivers"], Words(None, "mini"), 3)
    assert hits.docids == ["a", "b"]
    with pytest.raises(MilcoError, match="unknown language 'xx'"):
        Words("xx")


@pytest.mark.integration
def test_bm25_of_the_sample_has_its_published_figure(tmp_path: Path) -> None:
    """nDCG@10 of docs/reproducing.md."""
    run = tmp_path / "run.txt"
    assert bm25(["--corpus", "sample-sw", "--topics", "sample-sw", "--language", "sw", "--output", str(run)]) == 0
    assert evaluate(read_run(run), open_qrels("sample-sw"), ["nDCG@10"]).mean["nDCG@10"] == pytest.approx(
        0.95, abs=0.02
    )


def test_a_dense_run_has_the_cosines_of_the_encoder(tmp_path: Path) -> None:
    """Documents and queries are encoded alike, by two commands."""
    pytest.importorskip("faiss")
    from recipes.dense.encoder import DenseEncoder

    (tmp_path / "docs.tsv").write_text("a\tmusic\nb\ttwo words\nc\tthe river Nile\n")
    (tmp_path / "topics.tsv").write_text("q\tmusic of the river\n")
    vectors, run, name = tmp_path / "vectors", tmp_path / "run.txt", str(GOLDEN / "m_encoder")
    assert dense(["--corpus", str(tmp_path / "docs.tsv"), "--encoder", name, "--output", str(vectors)]) == 0
    assert dense(["--topics", str(tmp_path / "topics.tsv"), "--vectors", str(vectors), "--output", str(run)]) == 0
    encoder = DenseEncoder(name, device="cpu")
    expected = (
        encoder.encode_document(["music", "two words", "the river Nile"])
        @ encoder.encode_query("music of the river")[0]
    )
    found = read_run(run)["q"]
    assert list(found) == [("a", "b", "c")[row] for row in np.argsort(-expected)]
    assert [found[docid] for docid in "abc"] == pytest.approx(expected.tolist(), abs=1e-5)
    assert dense(["--topics", "x", "--output", str(run)]) == 2
