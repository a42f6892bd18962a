"""recipes/configurations: from toy data to the tables."""

import itertools
import json
from pathlib import Path

import numpy as np
import orjson
import pytest
import torch
from golden_set import bent

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.train.data.retrieval import RetrievalExample
from recipes.configurations.__main__ import main
from recipes.configurations.data import collections, split, spread
from recipes.configurations.evaluation import ndcg
from recipes.configurations.start import write_pivot_start

pytestmark = [pytest.mark.usefixtures("same_threads"), pytest.mark.slow]

WORDS = "river bridge book harbour town market train library letter map water doctor north morning story".split()
FOREIGN = "Fluss Brücke Buch Hafen Stadt Markt Zug Bibliothek Brief Karte Wasser Arzt Norden Morgen Geschichte".split()
SIZES = {"--sap-steps": "2", "--sct-steps": "2", "--sap-batch": "8", "--sct-batch": "4"}
SIZES |= {"--queries": "4", "--passages": "12", "--threads": "1"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Sentence pairs, a dictionary, two monolingual sets of queries, and a cross-lingual one."""
    pairs = [(f"{FOREIGN[a]} {FOREIGN[b]}", f"{WORDS[a]} {WORDS[b]}") for a, b in itertools.permutations(range(15), 2)]
    write_pairs(tmp_path / "data" / "bitext" / "toy", pairs)
    write_pairs(tmp_path / "data" / "lexicon" / "toy", list(zip(FOREIGN, WORDS, strict=True)))
    write_pairs(tmp_path / "probe", pairs[:20])
    for name, words in (("quiz.de", FOREIGN), ("quiz.fr", FOREIGN[::-1]), ("afriqa-xen.ha", WORDS)):
        lines = [
            json.dumps({"query": FOREIGN[n % 15], "positive": f"{words[n % 15]} {words[n % 7]} {WORDS[n % 4]}"})
            for n in range(30)
        ]
        path = tmp_path / "data" / "retrieval" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines), encoding="utf-8")
    return tmp_path / "data"


def write_pairs(directory: Path, pairs: list[tuple[str, str]]) -> None:
    """Write a file of German-English sentence pairs."""
    directory.mkdir(parents=True)
    (directory / "de-en.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")


def arguments(data: Path, start: Path, *more: str) -> list[str]:
    """Return the arguments of a small run."""
    places = {"--data": data, "--probe": data.parent / "probe", "--work": data.parent / "work", "--start": start}
    options = (
        {name: str(value) for name, value in places.items()} | SIZES | dict(zip(more[::2], more[1::2], strict=True))
    )
    return [word for option in options.items() for word in option]


def test_all_configurations_are_trained_and_tabulated(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Eight rows with the paper's results; a second run trains nothing and prints the same tables."""
    argv = arguments(data, bent(tmp_path, "distillation"))
    assert main(argv) == 0
    text = capfd.readouterr().out
    table = orjson.loads((tmp_path / "work" / "table.json").read_bytes())
    rows = table["configurations"]
    assert [row["number"] for row in rows] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [row["paper's rank"] for row in rows] == [1, 4, 3, 7, 6, 8, 5, 2]
    for row in rows:
        assert set(row["retrieval"]) == {"quiz.de", "quiz.fr", "afriqa-xen.ha"}
        assert row["same language"] == pytest.approx(
            np.mean([row["retrieval"][name] for name in ("quiz.de", "quiz.fr")])
        )
        assert row["cross language"] == row["retrieval"]["afriqa-xen.ha"]
        assert (row["collapse"] is None) == row["name"].startswith("dense")
        assert row["name"] in text
    assert any(row["same language"] > 0 for row in rows)
    assert (tmp_path / "work" / "table.txt").read_text(encoding="utf-8") == text
    views = {1: ("pivot", "source"), 2: ("pivot",), 3: ("pivot", "source"), 5: ("pivot",), 6: ("pivot",)}
    for number, expected in views.items():
        model = MilcoEncoder.from_pretrained(tmp_path / "work" / "runs" / f"contrast-{number}" / "model")
        assert model.views == expected
    assert model.vocabulary.english == [piece for piece in model.vocabulary.english if piece in model.vocabulary.source]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "work" / "runs").rglob("*.safetensors")}
    assert main(argv) == 0
    assert capfd.readouterr().out == text
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "work" / "runs").rglob("*.safetensors")}
    assert main([*argv, "--seed", "2"]) == 2
    assert "was begun with seed 1, not 2" in capfd.readouterr().err


def examples(language: str, *pairs: tuple[str, str]) -> list[RetrievalExample]:
    """Return an example for each query and its passage."""
    return [RetrievalExample(language, query, (passage,), ()) for query, passage in pairs]


def test_no_test_passage_is_trained_on() -> None:
    """Not even one of another set; every test query has its passage in the collection."""
    sets = {
        "a.de": examples("de", *((f"q{n}", f"p{n // 2}") for n in range(20))),
        "a.fr": examples("fr", *((f"r{n}", f"p{9 - n // 2}") for n in range(18))),
    }
    training, held_out = split(sets)
    assert [e.query for e in held_out["a.de"]] == ["q18", "q19"]
    assert [e.query for e in held_out["a.fr"]] == ["r16", "r17"]
    tested = {passage for part in held_out.values() for e in part for passage in e.positives}
    assert tested == {"p9", "p1"}
    assert tested.isdisjoint(passage for part in training.values() for e in part for passage in e.positives)
    (found,) = collections(sets, held_out, queries=2, passages=6)
    assert found.name == "a"
    assert len(found.passages) == len(set(found.passages)) == 6
    for language, part in (("de", held_out["a.de"]), ("fr", held_out["a.fr"])):
        assert [(q.text, found.passages[q.passage]) for q in found.queries[language]] == [
            (e.query, e.positives[0]) for e in part
        ]
    assert spread(range(10), 3) == [0, 3, 6]


def test_ndcg_of_found_and_missing_passages() -> None:
    """Rank 1 counts 1, rank 2 counts 1 / log2(3); a passage with score 0 is not found."""
    scores = np.array([[3.0, 1.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 0.0]], np.float32)
    assert ndcg(scores, [0, 1, 2]) == pytest.approx((1 + 1 / np.log2(3)) / 3, abs=1e-6)
    assert ndcg(np.zeros((2, 3), np.float32), [0, 1]) == 0


def test_a_start_has_a_new_connector_and_keeps_the_rest(tmp_path: Path) -> None:
    """Encoder and decoder are the checkpoint's, the connector depends on the seed, and there is no LexEcho head."""
    name = str(bent(tmp_path, "distillation"))
    for seed in (1, 2):
        write_pivot_start(name, seed, tmp_path / f"start-{seed}")
    whole, first, second = (
        MilcoEncoder.from_pretrained(path).model.state_dict()
        for path in (name, tmp_path / "start-1", tmp_path / "start-2")
    )
    assert {"connector.projector.weight"} == {key for key in first if not torch.equal(first[key], second[key])}
    assert not torch.equal(first["connector.projector.weight"], whole["connector.projector.weight"])
    assert set(whole) - set(first) == {"echo.weight", "echo.bias", "echo.scale"}
    assert all(torch.equal(whole[key], first[key]) for key in first if not key.startswith("connector."))
