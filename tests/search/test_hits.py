"""Hits as tables: a data frame, and HTML in notebooks."""

import builtins
from pathlib import Path
from typing import Any

import pytest
from golden_set import GOLDEN

from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import Hits

CHECKPOINT = str(GOLDEN / "ckpt_distillation")
TEXTS = ["Alexander Graham Bell patented the telephone.", "The Nile is a long river in Africa."]


@pytest.fixture(scope="module")
def encoder() -> MilcoEncoder:
    return MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def hits(encoder: MilcoEncoder, tmp_path_factory: pytest.TempPathFactory) -> Hits:
    """It has both documents, whose texts have markup."""
    documents = [{"id": "a", "title": "Bell & <b>", "text": TEXTS[0], "lang": "en"}, {"id": "b", "text": TEXTS[1]}]
    path = tmp_path_factory.mktemp("texts") / "docs"
    Index.build(documents, path, "exact", encoder=encoder)
    return Searcher.open(path, encoder).search("the telephone, a river", k=2)


def test_hits_are_a_data_frame(hits: Hits, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row per hit, with title, text and fields; pandas is needed for it only."""
    frame = hits.to_frame().set_index("docid").loc[["a", "b"]]
    assert list(frame.columns) == ["rank", "score", "share", "title", "text", "lang"]
    assert frame["text"].tolist() == TEXTS and sorted(frame["rank"]) == [1, 2]
    assert frame.loc["a", "lang"] == "en" and 0 < frame.loc["a", "share"] <= 1
    imported = builtins.__import__

    def without_pandas(name: str, *arguments: Any) -> Any:
        if name == "pandas":
            raise ImportError
        return imported(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(MilcoError, match="pip install pandas"):
        hits.to_frame()


def test_hits_are_a_table_in_notebooks(hits: Hits, encoder: MilcoEncoder, tmp_path: Path) -> None:
    """Escaped; without texts once the searcher is closed, and without those after the twentieth."""
    html = hits._repr_html_()
    assert "<b>Bell &amp; &lt;b&gt;</b> Alexander" in html and "%</td>" in html and "more" not in html
    index = Index.build([f"river {number}" for number in range(22)], tmp_path / "index", "exact", encoder=encoder)
    with Searcher.open(index.path, encoder) as searcher:
        many = searcher.search("river", k=22)
        assert "and 2 more" in many._repr_html_() and many[21].text not in many._repr_html_()
        closed = searcher.search("river", k=1)
    assert "is closed: open it again" in closed._repr_html_()
