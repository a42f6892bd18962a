"""The recipe of milco-mini, from toy sentence pairs to a checkpoint that translates."""

import gzip
import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.train.losses import sparse_mean_squared_error
from recipes.milco_mini import codes, corpus, packed
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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """German sentences of four words with their English, a dictionary, and nothing of any other language."""
    pairs = [
        (f"der {a} {verb} das {b}", f"the {GERMAN[a]} {VERBS[verb]} the {GERMAN[b]}")
        for a, verb, b in itertools.product(GERMAN, VERBS, GERMAN)
    ]
    data = tmp_path_factory.mktemp("recipe") / "data"
    for folder, rows in (("bitext/tico19", pairs), ("lexicon/wiktionary", list(GERMAN.items()))):
        path = data / folder / "de-en.tsv.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress("".join(f"{text}\t{english}\n" for text, english in rows).encode()))
    (data / "retrieval").mkdir()
    return data


@pytest.fixture(scope="module")
def work(data: Path) -> Path:
    """What the recipe leaves, with the checkpoint beside it."""
    work = data.parent / "work"
    argv = ["--data", data, "--work", work, "--output", work.parent / "model"]
    sizes = ["--source-pieces", 64, "--english-pieces", 200, "--hidden", 192, "--layers", 1, "--epochs", 60]
    sizes += ["--sap-steps", 2, "--sct-steps", 2, "--threads", 1]
    assert main([str(value) for value in (*argv, *sizes)]) == 0
    return work


def test_the_recipe_makes_a_model_that_translates(work: Path) -> None:
    """A German noun's strongest English term is its translation, as always in the word table that the recipe leaves."""
    encoder = MilcoEncoder.from_pretrained(work.parent / "model", dtype="float32")
    words = WordTable(work)
    meant = (words.encode("de", list(GERMAN)) @ words.encode_english(list(GERMAN.values())).T).toarray()
    assert np.array_equal(meant.argmax(axis=1), np.arange(len(GERMAN)))
    vectors = encoder.encode_query(list(GERMAN))
    strongest = [terms[0][0] for terms in encoder.decode(vectors.view("pivot"), 1)]
    # The toy has hardly more dimensions than words: rounding in threads decides one or the other.
    assert sum(map(str.__eq__, strongest, GERMAN.values())) >= len(GERMAN) - 2
    assert vectors.view("source").lengths().min() > 0
    fold = Tokenizer.from_file(str(work / "tokenizer.json")).normalizer.normalize_str
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
    assert main(["--data", str(tmp_path), "--work", str(tmp_path / "work")]) == 2
    assert "give --output DIRECTORY to train, or --pack FILE to train elsewhere" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def test_a_packed_recipe_trains_the_same_model(data: Path, work: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, SAP and SCT see the same pairs and the same targets, to the last bit of the checkpoint."""
    file, directory = tmp_path / "recipe.tar.xz", tmp_path / "there"
    assert main([str(value) for value in ("--data", data, "--work", work, "--pack", file)]) == 0
    argv = ["--packed", file, "--work", directory, "--output", tmp_path / "model", "--threads", 1]
    argv += ["--sap-steps", 2, "--sct-steps", 2]
    assert main([str(value) for value in argv]) == 0
    there = directory / "data", directory / "work"
    for path in (Path("averaged"), Path("sct") / "model"):
        name = path / "model.safetensors"
        assert (there[1] / name).read_bytes() == (work / name).read_bytes()
    assert packed.unpack(file, directory) == there
    pairs = [sorted(root.glob("*/*/*.tsv.gz")) for root in (data, there[0])]
    for before, after in zip(*pairs, strict=True):
        assert gzip.decompress(before.read_bytes()) == gzip.decompress(after.read_bytes())


def test_a_packed_pair_is_what_training_read_before(data: Path, work: Path, tmp_path: Path) -> None:
    """Case and punctuation go; ids, words, terms and bytes stay. Where ids would not say all, a text is as it was."""
    sides = ["Der Hund, die KATZE!", "…", "Der Hund (鋲)", "鋲", "haus+fluß", "Das Haus."]
    english = ["The dog — the CAT.", "?", "The Dog (鋲)", "Tree.", "House+river", "The ｈouse."]
    path = tmp_path / "data" / "bitext" / "tanaka" / "de-en.tsv.gz"
    shutil.copytree(data, tmp_path / "data")
    path.parent.mkdir()
    pairs = list(zip(sides, english, strict=True))
    path.write_bytes(gzip.compress("".join(f"{text}\t{english}\n" for text, english in pairs).encode()))
    packed.pack(tmp_path / "data", work, tmp_path / "recipe.tar.xz", 10)
    there, _ = packed.unpack(tmp_path / "recipe.tar.xz", tmp_path / "there")
    after = [(pair.text, pair.english) for pair in corpus.bitext(there, "de") if pair.source == "tanaka"]
    assert after[0] == ("der hund die katze..", "the dog the cat.....")
    assert (after[2], after[3]) == (pairs[2], ("鋲", "tree."))
    assert after[5][1] == english[5]
    encode = Tokenizer.from_file(str(work / "tokenizer.json")).encode
    weigh = WordTable(work).bag
    for before, now in zip(itertools.chain(*pairs), itertools.chain(*after), strict=True):
        assert encode(before).ids == encode(now).ids
        assert corpus.words(before) == corpus.words(now)
        assert len(before.encode()) == len(now.encode())
    assert (weigh(english) != weigh([now for _, now in after])).nnz == 0


def test_a_small_pack_keeps_what_a_short_run_would_draw(data: Path, work: Path, tmp_path: Path) -> None:
    """The file is as small as was asked, with a share of every file's pairs, in their order."""
    packed.pack(data, work, tmp_path / "whole.tar.xz", 10)
    most = (tmp_path / "whole.tar.xz").stat().st_size - 1000
    packed.pack(data, work, tmp_path / "small.tar.xz", most / 1e6)
    assert (tmp_path / "small.tar.xz").stat().st_size <= most
    there, _ = packed.unpack(tmp_path / "small.tar.xz", tmp_path / "there")
    before, after = ([(p.text, p.english) for p in corpus.bitext(root, "de")] for root in (data, there))
    assert 0 < len(after) < len(before)
    assert after == [pair for pair in before if pair in set(after)]
    assert corpus.lexicon(there, "de")


def test_what_cannot_be_packed_or_unpacked_is_said(data: Path, work: Path, tmp_path: Path) -> None:
    """No room, no work, a file that was cut short: nothing is left in their place."""
    output = tmp_path / "recipe.tar.xz"
    with pytest.raises(MilcoError, match="hold no pairs: the model and the tables alone take"):
        packed.pack(data, work, output, 0.01)
    with pytest.raises(MilcoError, match=r"lacks english\.json, .*translations\.de\.npz: make it with the recipe"):
        packed.pack(data, tmp_path, output, 10)
    assert not output.exists()
    packed.pack(data, work, output, 10)
    with pytest.raises(MilcoError, match="exists: choose another --output"):
        packed.pack(data, work, output, 10)
    output.write_bytes(output.read_bytes()[:-100])
    with pytest.raises(MilcoError, match="is no packed recipe, or not all of it"):
        packed.unpack(output, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_the_loss_of_codes_is_that_of_all_logits() -> None:
    """The coordinates that are active give the loss, and the gradients, of the dense form."""
    torch.manual_seed(0)
    states, decoder, bias = (torch.randn(shape, requires_grad=True) for shape in ((40, 8), (5000, 8), (5000,)))
    targets = torch.where(torch.rand(40, 5000) < 0.001, torch.rand(40, 5000) + 0.1, 0)
    gradients = []
    for loss in (
        codes.code_loss(states, decoder, bias, targets.to_sparse()),
        sparse_mean_squared_error(states @ decoder.T + bias, targets, 0.3, "teacher"),
    ):
        found = torch.autograd.grad(loss, (states, decoder, bias))
        gradients.append([loss.detach(), *found])
    for ours, dense in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, dense, rtol=1e-3, atol=1e-3)
