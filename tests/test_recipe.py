"""recipes/milco_mini: from toy sentence pairs to a checkpoint that translates."""

import gzip
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.model import find_checkpoint
from milco_pyserini.train.losses import sparse_mean_squared_error
from recipes.milco_mini import calibration, codes, corpus, echo, export, network, packed, sounds, stages
from recipes.milco_mini.__main__ import main
from recipes.milco_mini.words import WordTable

pytestmark = pytest.mark.usefixtures("same_threads")

GERMAN = dict(
    zip(
        "hund katze haus fluss brot schule baum berg vogel kind stadt wald tisch uhr".split(),
        "dog cat house river bread school tree mountain bird child city forest table clock".split(),
        strict=True,
    )
)
HEAVY = ("torch", "numba", "scipy", "transformers", "tokenizers", "sentencepiece")
HELP = f"""
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__")
finally:
    sys.stderr.write(" ".join(name for name in {HEAVY} if name in sys.modules))
"""
SIZES = ("--source-pieces", 64, "--english-pieces", 200, "--hidden", 192, "--layers", 1, "--epochs", 60)
STEPS = ("--sound-steps", 2, "--sap-steps", 2, "--sct-steps", 2, "--threads", 1)
VERBS = {"sieht": "sees", "findet": "finds", "malt": "paints", "kauft": "buys"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """German-English sentence pairs and a dictionary."""
    pairs = [
        (f"der {a} {verb} das {b}", f"the {GERMAN[a]} {VERBS[verb]} the {GERMAN[b]}")
        for a, verb, b in itertools.product(GERMAN, VERBS, GERMAN)
    ]
    data = tmp_path_factory.mktemp("recipe") / "data"
    for folder, rows in (("bitext/tico19", pairs), ("lexicon/wikipedia-indic-dict", list(GERMAN.items()))):
        path = data / folder / "de-en.tsv.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress("".join(f"{text}\t{english}\n" for text, english in rows).encode()))
    (data / "retrieval").mkdir()
    return data


@pytest.fixture(scope="module")
def work(data: Path) -> Path:
    """The work directory of the recipe, next to the checkpoint."""
    work = data.parent / "work"
    argv = ["--data", data, "--work", work, "--output", work.parent / "model"]
    assert main([str(value) for value in (*argv, *SIZES, *STEPS)]) == 0
    return work


@pytest.fixture(scope="module")
def packed_file(data: Path, work: Path) -> Path:
    """What training needs, in one file."""
    file = data.parent / "recipe.tar.xz"
    assert main([str(value) for value in ("--data", data, "--work", work, "--pack", file, *SIZES)]) == 0
    return file


def test_the_recipe_makes_a_model_that_translates(work: Path) -> None:
    """A German noun's strongest English term is its translation, as in the word table."""
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
        assert fold(text) == corpus.normalize(text)


def test_terms_of_one_language_weigh_less() -> None:
    """A rare term everywhere keeps its weight; a common one loses some, and one that is common in one language more."""
    frequencies = np.array([[0.0, 0.3, 0.3, 1.0], [0.0, 0.3, 0.0, 0.0]])
    rare, common, habit, always = calibration.term_gains(frequencies)
    assert rare == 1
    assert rare > common > habit > always > 0
    _, common, habit, _ = calibration.spread(frequencies)
    assert (common, habit) == pytest.approx((1, 2), rel=0.01)


def test_calibration_scales_terms_and_keeps_their_order(data: Path, work: Path) -> None:
    """The weight of a word's translation is scaled by its gain; source weights are those of before."""
    before = MilcoEncoder.from_pretrained(work / "averaged", dtype="float32")
    after = MilcoEncoder.from_pretrained(work / "calibrated", dtype="float32")
    gains = calibration.term_gains(calibration.document_frequencies(before, data))
    size = before.vocabulary.english_size
    for word in ("hund", "baum"):
        old, new = (encoder.encode_document([word]).to_scipy().toarray()[0] for encoder in (before, after))
        strongest = int(old[:size].argmax())
        assert int(new[:size].argmax()) == strongest
        # Weights near LogSat(1.5) are scaled by the gain, others nearly so.
        scale = ((1 + 1.5) ** gains[strongest] - 1) / 1.5
        assert new[strongest] == pytest.approx(np.log1p(scale * np.expm1(old[strongest])), rel=1e-3)
        assert new[size:].max() == pytest.approx(old[size:].max(), rel=1e-6)
    decoder = after.model.decoder.weight.detach().clone()
    spread = calibration.spread(calibration.document_frequencies(after, data))
    calibration.recalibrate(after, data)
    scales = (after.model.decoder.weight.detach().norm(dim=1) / decoder.norm(dim=1)).numpy()
    assert scales == pytest.approx((2.5**spread**0.2 - 1) / 1.5, rel=1e-5)
    assert scales.max() > 1.1


def test_names_sound_alike_in_all_scripts() -> None:
    """The consonants of a romanized name, by class."""
    names = ["morozov", "морозов", "μορόζοφ", "مروزوف", "मोरोज़ोव", "মোরোজভ", "모로조프", "モロゾフ", "โมโรซอฟ"]
    assert {sounds.sounds(name) for name in names} == {"mlsp"}
    assert sounds.sounds("chekhov") == sounds.sounds("чехов") == "skp"


def test_a_token_completes_the_sound_terms_that_end_in_it() -> None:
    """Words of one token, numbers, and words of scripts without spaces have none; a word's term counts once."""
    tokenizer = Tokenizer.from_file(str(Path(find_checkpoint("mini")) / "tokenizer.json"))
    reader, terms = sounds.SoundReader(tokenizer), sounds.sound_terms()
    tokens = ["▁где", "▁", "мороз", "ов", ",", "▁1883", "洞里", "トン", "レ", "サ", "ップ"]
    found = [(token, terms[term]) for token, term in reader.read(tokens)]
    name = [(2, "~-mls"), (3, "~mlsp"), (3, "~lsp-")]
    assert found[:3] == name
    assert [token for token, _ in found[3:]] == [8, 9, 10, 10, 10]
    assert reader.read(["▁где", "▁1883", "洞里"]) == []
    bag = reader.bag(["Морозов и Морозов", ""]).toarray()
    assert bag.max() == 1
    assert bag[1].sum() == 0
    assert {terms[i] for i in bag[0].nonzero()[0]} == {term for _, term in name}


def test_sounds_replace_what_english_terms_read_least(work: Path) -> None:
    """The other directions of the embeddings keep their values, and the network its size."""
    encoder = MilcoEncoder.from_pretrained(work / "calibrated", dtype="float32")
    before = encoder.model.encoder.embeddings.word_embeddings.weight.detach().clone()
    spelled = sounds.token_sounds(encoder.tokenizer.tokenizer)
    sounds.graft(encoder.model, spelled)
    moved = encoder.model.encoder.embeddings.word_embeddings.weight.detach() - before
    singular = torch.linalg.svdvals(moved)
    assert (singular > 1e-3 * singular[0]).sum() <= spelled.shape[1]
    assert moved[:, network.code_size(before.shape[1]) :].abs().max() == 0


def test_taught_models_have_sound_terms(work: Path) -> None:
    """They follow the English terms, and no text has them as words."""
    before = MilcoEncoder.from_pretrained(work / "calibrated", dtype="float32")
    taught = MilcoEncoder.from_pretrained(work / "sounds", dtype="float32")
    assert taught.vocabulary.english == [*before.vocabulary.english, *sounds.sound_terms()]
    assert sounds.has_sound_terms(taught.english_tokenizer)
    assert not sounds.has_sound_terms(before.english_tokenizer)
    assert not {"~-mls", "~mlsp"} & set(taught.english_tokenizer.encode("~-mls ~mlsp").tokens)


def test_layers_learn_sound_terms(data: Path, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network computes the terms of words that it has seen; English terms that have moved are restored."""
    monkeypatch.setattr(sounds, "_TEXTS_OF_STEP", 16)
    monkeypatch.setattr(sounds, "_WORDS_OF_TEXT", 2)
    monkeypatch.setattr(sounds, "_RANDOM", (4, 4))
    names = ["".join(parts) for parts in itertools.product(("hau", "tur", "miko"), repeat=3)]
    for folder in ("bitext/tico19", "lexicon/omw"):
        path = tmp_path / folder / "de-en.tsv.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress("".join(f"{name} {folder}\t{name}\n" for name in names).encode()))
    before = MilcoEncoder.from_pretrained(work / "calibrated", dtype="float32")
    weights = sounds.measure_weights(tmp_path, before.tokenizer.tokenizer)
    taught = sounds.teach(before, tmp_path, weights, 400, seed=1)
    size = before.vocabulary.english_size
    expected = sounds.SoundReader(before.tokenizer.tokenizer).bag(names).toarray() > 0

    def pivot(encoder: MilcoEncoder, texts: list[str]) -> np.ndarray:
        return encoder.encode_document(texts, views="pivot").to_scipy().toarray()

    found = pivot(taught, names)[:, size : size + len(weights)] > 0
    assert (found & expected).sum() > 0.8 * max(found.sum(), expected.sum())
    goal = pivot(before, list(GERMAN))[:, :size]
    words = taught.model.encoder.embeddings.word_embeddings.weight
    with torch.no_grad():
        words += 0.2 * torch.randn(words.shape, generator=torch.Generator().manual_seed(1))
    moved = np.square(pivot(taught, list(GERMAN))[:, :size] - goal).mean()
    monkeypatch.setattr(sounds, "_WARMUP_STEPS", 5)
    echo_weights = echo.measure_echo(data, before.tokenizer.tokenizer)
    sounds.restore(before, taught, data, weights, echo_weights, 200, seed=1)
    assert np.square(pivot(taught, list(GERMAN))[:, :size] - goal).mean() < moved


def test_false_friends_weigh_less(tmp_path: Path) -> None:
    """A token that English has, too, is kept as far as the translations of its sentences have it."""
    rows = [
        (f"{word} {i}", f"{meant} {i}") for i in range(30) for word, meant in (("gift", "poison"), ("hand", "hand"))
    ]
    path = tmp_path / "bitext" / "tico19" / "de-en.tsv.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress("".join(f"{a}\t{b}\n" for a, b in [*rows, ("schule", "a gift")]).encode()))
    tokenizer = Tokenizer.from_file(str(Path(find_checkpoint("mini")) / "tokenizer.json"))
    kept = echo.kept_meaning(tmp_path, tokenizer)
    gift, hand, schule, poison = (kept[tokenizer.token_to_id(f"▁{w}")] for w in "gift hand schule poison".split())
    assert 0 < gift < 0.1
    assert 0.9 < hand < 1
    assert schule == poison == 1


def test_tokens_of_scripts_with_few_languages_weigh_less() -> None:
    """LexEcho's weights of Cyrillic tokens are scaled, those of Latin and Chinese tokens are not."""
    encoder = MilcoEncoder.from_pretrained("mini", device="cpu", dtype="float32")
    tokenizer = encoder.tokenizer.tokenizer
    text = "haus дом 狗"
    idf = np.ones(tokenizer.get_vocab_size(), np.float32)
    idf[tokenizer.token_to_id("▁haus")] = 1.5
    idf[tokenizer.token_to_id("<s>")] = 0
    tokens, (found,) = echo.scale_scripts(encoder.model, tokenizer, echo.token_rows(tokenizer, [text]), idf)
    vector = encoder.encode_document([text], views="source").to_scipy().toarray()[0, encoder.vocabulary.english_size :]
    _, latin, cyrillic, chinese, _ = tokenizer.encode(text).ids
    factors = [1, 0.38, 1]
    assert found[1:-1] == pytest.approx(vector[[latin, cyrillic, chinese]] * factors, rel=1e-4)
    assert tokens[cyrillic] == pytest.approx(0.38 * tokens[chinese])
    assert tokens[latin] != pytest.approx(tokens[chinese])
    assert tokens[tokenizer.token_to_id("<s>")] == found[0] == 0


def test_frequent_tokens_are_stored_more_exactly(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 8 bits, all others in 4; scores of the tokenizer have three decimals."""
    monkeypatch.setattr(export, "FREQUENT", 20)
    encoder = MilcoEncoder.from_pretrained(work / "averaged", dtype="float32")
    stages.write_checkpoint(encoder, tmp_path / "stored")
    stored = MilcoEncoder.from_pretrained(tmp_path / "stored", dtype="float32")
    before, after = (each.model.encoder.embeddings.word_embeddings.weight.detach() for each in (encoder, stored))
    codes = slice(0, network.code_size(before.shape[1]))
    errors = (before - after)[4:, codes].abs().amax(dim=1) / before[4:].abs().amax(dim=1)
    assert 0 < errors[:16].max() < 0.01 < errors[16:].max() < 0.1
    scores = json.loads((tmp_path / "stored" / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert all(score == round(score, 3) for _, score in scores)


def test_rounded_rows_stay_as_they_are_when_they_are_rounded_again() -> None:
    """The LexEcho head is trained on the embeddings of the checkpoint, which are written once more with it."""
    words = torch.randn(500, 192, generator=torch.Generator().manual_seed(1))
    echo = network.echo_dimensions(192)
    words[:, echo] *= 0.3
    packed, scales = export.quantize_words(words)
    levels = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).float() - 8
    assert (levels.abs().amax(dim=1) == 7).all()
    assert torch.equal(export.rounded_words(words), levels * scales.float().unsqueeze(1))
    again, same_scales = export.quantize_words(levels * scales.float().unsqueeze(1))
    assert torch.equal(same_scales, scales)
    # The two dimensions of the LexEcho weight are added up and divided again.
    codes = slice(0, echo.start // 2)
    assert torch.equal(again[:, codes], packed[:, codes])


def test_a_work_directory_of_other_options_is_refused(
    data: Path, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Its files would be used as if they were those of these options."""
    argv = ["--data", data, "--work", work, "--output", tmp_path / "model", *SIZES, "--seed", 2]
    assert main([str(value) for value in argv]) == 2
    assert "was begun with seed 1, not 2: choose another --work" in capsys.readouterr().err


def test_polytonic_and_modern_greek_are_normalized_alike() -> None:
    """Accents, breathings and the final sigma are folded; accents of other scripts are kept."""
    assert corpus.words("Ὁ λόγος, ὁ ΛΌΓΟΣ: été") == ["ο", "λογοσ", "ο", "λογοσ", "été"]


def test_a_data_directory_without_bitext_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """With exit code 2, before anything is written."""
    argv = ["--data", tmp_path, "--work", tmp_path / "work", "--output", tmp_path / "model"]
    assert main([str(value) for value in argv]) == 2
    assert "it has no bitext/" in capsys.readouterr().err
    assert main(["--data", str(tmp_path), "--work", str(tmp_path / "work")]) == 2
    assert "give --output DIR to train, or --pack FILE to train on another machine" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def test_a_packed_recipe_trains_the_same_model(data: Path, work: Path, packed_file: Path, tmp_path: Path) -> None:
    """SAP and SCT see equivalent pairs and equal targets: checkpoints are bit-identical."""
    directory = tmp_path / "there"
    argv = ["--packed", packed_file, "--work", directory, "--output", tmp_path / "model", *STEPS]
    assert main([str(value) for value in argv]) == 0
    there = directory / "data", directory / "work"
    for path in (Path("averaged"), Path("sct") / "model"):
        name = path / "model.safetensors"
        assert (there[1] / name).read_bytes() == (work / name).read_bytes()
    assert packed.unpack(packed_file, directory) == there
    pairs = [sorted(root.glob("*/*/*.tsv.gz")) for root in (data, there[0])]
    for before, after in zip(*pairs, strict=True):
        assert gzip.decompress(before.read_bytes()) == gzip.decompress(after.read_bytes())


def test_a_packed_pair_is_equivalent_for_training(data: Path, work: Path, tmp_path: Path) -> None:
    """Token ids, words, terms and bytes are equal; texts that tokens cannot represent are kept as they are."""
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


def test_a_size_limit_samples_pairs(data: Path, work: Path, packed_file: Path, tmp_path: Path) -> None:
    """The file is below the limit, with some pairs of every file, in order."""
    most = packed_file.stat().st_size - 1000
    packed.pack(data, work, tmp_path / "small.tar.xz", most / 1e6)
    assert (tmp_path / "small.tar.xz").stat().st_size <= most
    there, _ = packed.unpack(tmp_path / "small.tar.xz", tmp_path / "there")
    before, after = ([(p.text, p.english) for p in corpus.bitext(root, "de")] for root in (data, there))
    assert 0 < len(after) < len(before)
    assert after == [pair for pair in before if pair in set(after)]
    assert corpus.lexicon(there, "de")


def test_packing_errors_are_reported(data: Path, work: Path, packed_file: Path, tmp_path: Path) -> None:
    """A low limit, an incomplete work directory, an existing file, a truncated file: nothing is written."""
    output = tmp_path / "recipe.tar.xz"
    with pytest.raises(MilcoError, match="leaves nothing for pairs: model and tables take"):
        packed.pack(data, work, output, 0.01)
    with pytest.raises(MilcoError, match=r"lacks english\.json, .*translations\.de\.npz: make it with the recipe"):
        packed.pack(data, tmp_path, output, 10)
    assert not output.exists()
    with pytest.raises(MilcoError, match="exists: choose another --output"):
        packed.pack(data, work, packed_file, 10)
    output.write_bytes(packed_file.read_bytes()[:-100])
    with pytest.raises(MilcoError, match="is not a complete packed file"):
        packed.unpack(output, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_the_code_loss_equals_the_dense_loss() -> None:
    """Loss and gradients over the active coordinates equal those over all logits."""
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
    for sparse, dense in zip(*gradients, strict=True):
        torch.testing.assert_close(sparse, dense, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("recipe", ["recipes.milco_mini", "recipes.configurations"])
def test_help_of_a_recipe_loads_nothing_heavy(recipe: str) -> None:
    """--help prints to stdout and exits with 0, without torch, numba, scipy or compiled tokenizers."""
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", HELP, recipe, "--help"], capture_output=True, text=True, cwd=root)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--sap-steps" in done.stdout


@pytest.mark.parametrize("option", ["--sap-steps", "--sct-steps", "--epochs", "--threads"])
def test_counts_below_one_are_refused(option: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """With exit code 2, before anything is written."""
    (tmp_path / "bitext").mkdir()
    argv = ["--data", tmp_path, "--work", tmp_path / "work", "--output", tmp_path / "model", option, 0]
    assert main([str(value) for value in argv]) == 2
    assert f"{option} 0: must be at least 1" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def test_a_recipe_without_the_packages_for_training_is_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """In one line that names the installation, before anything is written."""
    missing = ("accelerate", "anyascii")
    monkeypatch.setattr("milco_pyserini.cli.train.find_spec", lambda name: None if name in missing else object())
    argv = ["--data", data, "--work", tmp_path / "work", "--output", tmp_path / "model"]
    assert main([str(value) for value in argv]) == 2
    assert "training needs accelerate, anyascii. Run pip install '.[train]'." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
