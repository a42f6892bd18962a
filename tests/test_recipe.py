"""The recipe of milco-mini, from toy sentence pairs to a checkpoint that translates."""

import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from milco_pyserini.encode import MilcoEncoder
from recipes.milco_mini import corpus
from recipes.milco_mini.__main__ import main
from recipes.milco_mini.words import WordTable

GERMAN = dict(
    zip(
        "hund katze haus fluss brot schule baum berg vogel kind stadt wald tisch uhr".split(),
        "dog cat house river bread school tree mountain bird child city forest table clock".split(),
        strict=True,
    )
)
VERBS = {"sieht": "sees", "findet": "finds", "malt": "paints", "kauft": "buys"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """German sentences of four words with their English, a dictionary, and nothing of any other language."""
    pairs = [
        (f"der {a} {verb} das {b}", f"the {GERMAN[a]} {VERBS[verb]} the {GERMAN[b]}")
        for a, verb, b in itertools.product(GERMAN, VERBS, GERMAN)
    ]
    for folder, rows in (("bitext/tico19", pairs), ("lexicon/wiktionary", list(GERMAN.items()))):
        path = tmp_path / "data" / folder / "de-en.tsv.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress("".join(f"{text}\t{english}\n" for text, english in rows).encode()))
    (tmp_path / "data" / "retrieval").mkdir()
    return tmp_path / "data"


def test_the_recipe_makes_a_model_that_translates(data: Path, tmp_path: Path) -> None:
    """Every German noun's strongest English term is its translation, as in the word table that the recipe leaves."""
    argv = ["--data", data, "--work", tmp_path / "work", "--output", tmp_path / "model"]
    sizes = ["--source-pieces", 64, "--english-pieces", 200, "--hidden", 192, "--layers", 1, "--epochs", 60]
    sizes += ["--sap-steps", 2, "--sct-steps", 2, "--threads", 1]
    assert main([str(value) for value in (*argv, *sizes)]) == 0
    encoder = MilcoEncoder.from_pretrained(tmp_path / "model", dtype="float32")
    words = WordTable(tmp_path / "work")
    meant = (words.encode("de", list(GERMAN)) @ words.encode_english(list(GERMAN.values())).T).toarray()
    assert np.array_equal(meant.argmax(axis=1), np.arange(len(GERMAN)))
    for german, english in GERMAN.items():
        vector = encoder.encode_query(german)
        assert encoder.decode(vector.view("pivot"), 1)[0][0][0] == english
        assert vector.view("source").lengths()[0] > 0
    fold = Tokenizer.from_file(str(tmp_path / "work" / "tokenizer.json")).normalizer.normalize_str
    for text in ("Ἐν ἀρχῇ ἐποίησεν ὁ Θεὸς", "ΕΊΣΑΙ πώς", "Straße İstanbul Été"):
        assert fold(text) == corpus.normalise(text)


def test_greek_of_any_century_is_spelled_alike() -> None:
    """Accents, breathings and the final sigma fold away; accents of other scripts stay."""
    assert corpus.words("Ὁ λόγος, ὁ ΛΌΓΟΣ: été") == ["ο", "λογοσ", "ο", "λογοσ", "été"]


def test_a_folder_without_data_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """--data that holds no bitext ends with exit code 2 before anything is made."""
    argv = ["--data", tmp_path, "--work", tmp_path / "work", "--output", tmp_path / "model"]
    assert main([str(value) for value in argv]) == 2
    assert "there is no bitext/" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()
