"""Training runs from the command line, on the golden checkpoints: what they write, how they go on, how they stop."""

import gzip
import json
import shutil
from pathlib import Path

import orjson
import pytest
import torch
import yaml
from golden_set import GOLDEN, bent
from safetensors.torch import load_file

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.train.__main__ import main
from milco_pyserini.train.recipe import RECIPES

WORDS = "river bridge book harbour town market train library letter map water doctor north morning story".split()
FOREIGN = "Fluss Brücke Buch Hafen Stadt Markt Zug Bibliothek Brief Karte Wasser Arzt Norden Morgen Geschichte".split()


@pytest.fixture
def bitext(tmp_path: Path) -> Path:
    """Sixty sentence pairs in German and English, and their copy in French."""
    directory = tmp_path / "bitext"
    directory.mkdir()
    lines = []
    for number in range(60):
        places = [(number * 7 + step * (number % 5 + 1)) % len(WORDS) for step in range(3 + number % 4)]
        lines.append(f"{' '.join(FOREIGN[p] for p in places)}\t{' '.join(WORDS[p] for p in places)}\n")
    (directory / "de-en.tsv").write_text("".join(lines), encoding="utf-8")
    with gzip.open(directory / "fr-en.tsv.gz", "wt", encoding="utf-8") as handle:
        handle.writelines(lines[:30])
    return directory


@pytest.fixture
def retrieval(tmp_path: Path) -> Path:
    """Forty queries with a positive, three negatives and a teacher's scores."""
    path = tmp_path / "pairs.de.jsonl"
    with path.open("w", encoding="utf-8") as handle:
        for number in range(40):
            texts = [f"{WORDS[(number + step) % 15]} {WORDS[(number + 2 * step + 1) % 15]} town" for step in range(4)]
            line = {"query": FOREIGN[number % 15], "positives": texts[:1], "negatives": texts[1:]}
            handle.write(json.dumps(line | {"scores": [4.0, 1.0, 0.5, -1.0]}) + "\n")
    return path


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """The golden alignment checkpoint, with its sub-models beside it."""
    return bent(tmp_path, "alignment")


def sap(start: Path, bitext: Path, output: Path, *more: str) -> list[str]:
    """A short SAP run."""
    recipe = output.parent / "tiny-sap.yaml"
    values = {"model": str(start), "teacher": str(GOLDEN / "en_lsr"), "batch-size": 8, "learning-rate": "1e-3"}
    values |= {"bitext": [str(bitext)], "max-length": 32, "log-steps": 2, "save-steps": 4, "steps": 8, "device": "cpu"}
    recipe.write_text(yaml.safe_dump(values | {"dtype": "float32"}))
    return ["sap", "--config", str(recipe), "--output", str(output), *more]


def weights(run: Path) -> dict[str, torch.Tensor]:
    """The tensors that a run ended with."""
    return load_file(run / "model" / "model.safetensors")


def test_sap_learns_and_its_checkpoint_encodes(
    start: Path, bitext: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """The loss falls, the log tells it, nothing is on stdout, and the model encodes like any other."""
    assert main(sap(start, bitext, tmp_path / "run", "--steps", "30")) == 0
    assert capfd.readouterr().out == ""
    log = [orjson.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_bytes().splitlines()]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]
    assert {"text", "english", "pivot/terms/text/de", "pivot/grounded/text/fr", "learning_rate"} <= set(log[0])
    encoder = MilcoEncoder.from_pretrained(tmp_path / "run" / "model", device="cpu")
    assert encoder.encode_query(["Fluss und Hafen"]).weights.size


def test_an_interrupted_run_ends_with_the_same_weights(start: Path, bitext: Path, tmp_path: Path) -> None:
    """Stopped at a checkpoint and started again: weights, alarms and checkpoints are those of a run in one piece."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(sap(start, bitext, whole)) == 0
    assert main(sap(start, bitext, parts)) == 0
    shutil.rmtree(parts / "model")
    shutil.rmtree(parts / "checkpoint-8")
    assert main(sap(start, bitext, parts)) == 0
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(parts)[name]), name
    assert [path.name for path in sorted(parts.glob("checkpoint-*"))] == ["checkpoint-4", "checkpoint-8"]
    logs = [list(map(orjson.loads, (run / "log.jsonl").read_bytes().splitlines())) for run in (whole, parts)]
    kept = [
        [{k: v for k, v in entry.items() if k == "step" or k.startswith("pivot/")} for entry in log] for log in logs
    ]
    assert kept[0] == kept[1]


def test_sct_adds_a_lexecho_head_and_learns(start: Path, retrieval: Path, tmp_path: Path) -> None:
    """From an alignment checkpoint, which has none: after distillation both views are there."""
    for loss in ("kd", "infonce"):
        run = tmp_path / loss
        options = [
            "--model",
            str(start),
            "--data",
            str(retrieval),
            "--loss",
            loss,
            "--group-size",
            "4",
            "--steps",
            "20",
        ]
        options += ["--batch-size", "8", "--log-steps", "5", "--learning-rate", "1e-3", "--device", "cpu"]
        options += ["--query-max-length", "16", "--passage-max-length", "32", "--dtype", "float32"]
        assert main(["sct", "--config", "authors-sct", "--output", str(run), *options]) == 0
        log = [orjson.loads(line) for line in (run / "log.jsonl").read_bytes().splitlines()]
        losses = [entry["loss"] for entry in log if "loss" in entry]
        assert losses[-1] < losses[0]
        assert "echo.weight" in weights(run)
        assert MilcoEncoder.from_pretrained(run / "model", device="cpu").views == ("pivot", "source")


def test_a_run_may_start_from_an_encoder_and_an_english_head(bitext: Path, tmp_path: Path) -> None:
    """As the paper's does: a new connector between the two, whose own weights it keeps."""
    arguments = sap(tmp_path, bitext, tmp_path / "run", "--steps", "1", "--learning-rate", "0")
    recipe = yaml.safe_load((tmp_path / "tiny-sap.yaml").read_text())
    del recipe["model"]
    recipe |= {"encoder": str(GOLDEN / "m_encoder"), "english": str(GOLDEN / "en_lsr")}
    (tmp_path / "tiny-sap.yaml").write_text(yaml.safe_dump(recipe))
    assert main(arguments) == 0
    found = weights(tmp_path / "run")
    encoder, english = (load_file(GOLDEN / name / "model.safetensors") for name in ("m_encoder", "en_lsr"))
    words = "embeddings.word_embeddings.weight"
    assert torch.equal(found[f"encoder.{words}"], encoder[words])
    assert torch.equal(found["decoder.weight"], english[f"bert.{words}"])
    assert "echo.weight" not in found


def test_a_finished_run_has_nothing_to_do_and_another_is_refused(
    start: Path, bitext: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """The same command again does nothing; with another option it names the option; --overwrite replaces."""
    assert main(sap(start, bitext, tmp_path / "run", "--steps", "2")) == 0
    before = weights(tmp_path / "run")
    assert main(sap(start, bitext, tmp_path / "run", "--steps", "2")) == 0
    assert "nothing to do" in capfd.readouterr().err
    assert main(sap(start, bitext, tmp_path / "run", "--steps", "3")) == 2
    assert "other options (steps)" in capfd.readouterr().err
    assert main(sap(start, bitext, tmp_path / "run", "--steps", "3", "--overwrite")) == 0
    assert not torch.equal(weights(tmp_path / "run")["decoder.weight"], before["decoder.weight"])


def test_a_loss_that_is_not_finite_stops_the_run(
    start: Path, bitext: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """It names the step and the last good checkpoint, and leaves that one as it is."""
    options = ("--learning-rate", "1e18", "--max-grad-norm", "1e30", "--save-steps", "1")
    assert main(sap(start, bitext, tmp_path / "run", *options)) == 2
    error = capfd.readouterr().err.strip().splitlines()[-1]
    assert "the loss is nan" in error or "the loss is inf" in error
    assert "checkpoint-" in error
    assert not (tmp_path / "run" / "model").exists()


def test_a_full_disk_leaves_the_last_checkpoint(
    start: Path, bitext: Path, tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that cannot be written whole is not there; the one before it is, and the run goes on from it."""
    written = torch.save

    def save(value: object, path: str, *arguments: object) -> None:
        if "optimizer" in str(path) and ".saving/checkpoint-8" in str(path):
            raise RuntimeError("PytorchStreamWriter failed writing file data/7: file write failed")
        written(value, path, *arguments)

    monkeypatch.setattr(torch, "save", save)
    assert main(sap(start, bitext, tmp_path / "run")) == 2
    error = capfd.readouterr().err.strip().splitlines()[-1]
    assert "the checkpoint of step 8 could not be written" in error
    assert "checkpoint-4 is whole" in error
    assert [path.name for path in (tmp_path / "run").glob("*checkpoint*")] == ["checkpoint-4"]
    assert not (tmp_path / "run" / ".saving").exists()
    monkeypatch.undo()
    assert main(sap(start, bitext, tmp_path / "run")) == 0


def test_a_missing_extra_is_named(
    start: Path, bitext: Path, tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TensorBoard or accelerate: one line that says what to install."""
    monkeypatch.setattr("milco_pyserini.train.__main__.find_spec", lambda name: None)
    assert main(sap(start, bitext, tmp_path / "run")) == 2
    assert "pip install 'milco-pyserini[train]'" in capfd.readouterr().err


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.yaml")))
def test_every_recipe_is_valid(name: str, capfd: pytest.CaptureFixture) -> None:
    """A recipe of the package has known keys alone, of the right kinds."""
    stage = name.rpartition("-")[2]
    with pytest.raises(SystemExit) as ended:
        main([stage, "--config", name, "--help"])
    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "mini-spa"], ["mini-spa", "mini-sap"]),
        (["--config", "{tmp}/bad.yaml"], ["learning-rat", "learning-rate"]),
        (["--config", "{tmp}/kind.yaml"], ["batch-size", "a whole number", "'many'"]),
        (["--config", "mini-sap"], ["--bitext is needed"]),
        (["--config", "mini-sap", "--bitext", "{bitext}", "--teacher", "{golden}/en_lsr"], ["358", "14,000"]),
        (["--config", "mini-sap", "--bitext", "{tmp}/one.de-en.tsv"], ["de-en.tsv:2", "column"]),
        (["--config", "mini-sap", "--bitext", "{bitext}", "--part-rates", "decodr=0"], ["decodr", "decoder"]),
        (["--config", "mini-sap", "--bitext", "{bitext}", "--languages", "xx"], ["xx", "de"]),
        (["--config", "mini-sap", "--bitext", "{bitext}", "--max-length", "9000"], ["9000", "512"]),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: list[str], bitext: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """Each names the value and the fix, with exit code 2, before training begins."""
    (tmp_path / "bad.yaml").write_text("learning-rat: 1\n")
    (tmp_path / "kind.yaml").write_text("batch-size: many\n")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "de-en.tsv").write_text("ein Satz\ta sentence\nallein\n")
    names = {"tmp": tmp_path, "bitext": bitext, "golden": GOLDEN}
    filled = [argument.format(**names).replace("one.de-en", "one/de-en") for argument in arguments]
    assert main(["sap", *filled, "--output", str(tmp_path / "run")]) == 2
    error = capfd.readouterr().err.strip().splitlines()[-1]
    for word in words:
        assert word in error
    assert not (tmp_path / "run").exists()
