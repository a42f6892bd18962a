"""Training runs from the command line: what they write, how they resume, how they fail."""

import errno
import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_set import GOLDEN, bent
from safetensors.torch import load_file, save_file
from torch import Tensor
from training_set import WORDS, logged, weights, write_lines
from transformers import AutoConfig, XLMRobertaForMaskedLM

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.io import files
from milco_pyserini.io.locks import locked_file
from milco_pyserini.options import InvalidOptions, replace_options, validate
from milco_pyserini.train import losses
from milco_pyserini.train.cli import main, train
from milco_pyserini.train.config import OptimizerOptions, SapConfig, SctConfig, TrainingConfig
from milco_pyserini.train.optimization import make_schedule, part_rate
from milco_pyserini.train.presets import PAPER_SAP, PARALLEL_SCT, PRESETS
from milco_pyserini.train.run import run_stage
from milco_pyserini.train.start import connect
from recipes.dense.teacher import taught_by

Arguments = Callable[..., list[str]]
Refused = Callable[[list[str]], str]
SHORT = (
    "--group-size 4 --steps 12 --batch-size 8 --log-steps 4 --learning-rate 1e-3 --query-max-length 16 "
    "--passage-max-length 32 --device cpu --dtype float32 --workers 0"
).split()
FOREIGN = "Fluss Brücke Buch Hafen Stadt Markt Zug Bibliothek Brief Karte Wasser Arzt Norden Morgen Geschichte".split()


@pytest.fixture(scope="module")
def bitext(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty sentence pairs in German and English, and half of them in French."""
    directory = tmp_path_factory.mktemp("data") / "bitext"
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
    lines = []
    for number in range(40):
        texts = [f"{WORDS[(number + step) % 15]} {WORDS[(number + 2 * step + 1) % 15]} town" for step in range(4)]
        line = {"query": FOREIGN[number % 15], "positives": texts[:1], "negatives": texts[1:]}
        lines.append(line | {"scores": [4.0, 1.0, 0.5, -1.0]})
    return write_lines(tmp_path / "pairs.de.jsonl", *lines)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden alignment checkpoint."""
    return bent(tmp_path_factory.mktemp("start"), "alignment")


@pytest.fixture(scope="module")
def finished(sap: Arguments, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight steps that was not interrupted, with checkpoints of steps 4 and 8."""
    run = tmp_path_factory.mktemp("finished") / "run"
    assert main(sap(run)) == 0
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture(scope="module")
def sap(start: Path, bitext: Path) -> Arguments:
    """Return a function that gives the arguments of a short SAP run."""

    def arguments(output: Path, *more: str) -> list[str]:
        recipe = output.parent / "tiny-sap.json"
        values = {"model": str(start), "teacher": str(GOLDEN / "en_lsr"), "batch_size": 8, "learning_rate": 1e-3}
        values |= {"bitext": [str(bitext)], "max_length": 32, "log_steps": 2, "save_steps": 4, "steps": 8}
        recipe.write_text(json.dumps(values | {"device": "cpu", "dtype": "float32"}))
        return ["sap", "--preset", str(recipe), "--output", str(output), *more]

    return arguments


def with_parts(recipe: Path) -> None:
    """Make a configuration start from an encoder and an English head."""
    values = json.loads(recipe.read_text())
    del values["model"]
    values |= {"encoder": str(GOLDEN / "m_encoder"), "english": str(GOLDEN / "en_lsr")}
    recipe.write_text(json.dumps(values))


@pytest.fixture
def refused(capfd: pytest.CaptureFixture) -> Refused:
    """Return a function that runs a command that fails; it returns its last line. There must be no traceback."""

    def run(arguments: list[str]) -> str:
        capfd.readouterr()
        assert main(arguments) == 2
        text = capfd.readouterr().err
        assert "Traceback" not in text
        return text.strip().splitlines()[-1]

    return run


def test_sap_learns_and_its_model_encodes(sap: Arguments, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """The logged loss falls, stdout stays empty, and the model encodes."""
    assert main(sap(tmp_path / "run", "--steps", "20")) == 0
    assert capfd.readouterr().out == ""
    log = logged(tmp_path / "run")
    found = [entry["loss"] for entry in log if "loss" in entry]
    assert found[-1] < 0.8 * found[0]
    assert {"text", "english", "pivot/terms/text/de", "pivot/grounded/text/fr", "learning_rate"} <= set(log[-2])
    encoder = MilcoEncoder.from_pretrained(tmp_path / "run" / "model", device="cpu")
    assert encoder.encode_query(["Fluss und Hafen"]).weights.size


def test_a_resumed_run_ends_with_the_same_weights(sap: Arguments, finished: Path, run: Path) -> None:
    """Weights, alarms and log equal those of an uninterrupted run, even if a killed one left half a line of the log."""
    for name in ("model", "checkpoint-8"):
        shutil.rmtree(run / name)
    with (run / "log.jsonl").open("ab") as handle:
        handle.write(b'{"step":3,"lo')
    assert main(sap(run)) == 0
    for name, tensor in weights(finished).items():
        assert torch.equal(tensor, weights(run)[name]), name
    assert [path.name for path in sorted(run.glob("checkpoint-*"))] == ["checkpoint-4", "checkpoint-8"]
    kept = [
        [{k: v for k, v in entry.items() if k == "step" or k.startswith("pivot/")} for entry in logged(one)]
        for one in (finished, run)
    ]
    assert kept[0] == kept[1]


def test_a_damaged_checkpoint_is_set_aside(sap: Arguments, run: Path, capfd: pytest.CaptureFixture) -> None:
    """So is a damaged model, and a checkpoint that has lost its checksums."""
    arguments = sap(run)
    before = weights(run)
    for checksums, name in ((True, "optimizer.pt"), (False, "scheduler.pt")):
        content = bytearray((run / "checkpoint-8" / name).read_bytes())
        content[len(content) // 2] ^= 1
        (run / "checkpoint-8" / name).write_bytes(content)
        (run / "model" / "config.json").write_bytes(b"")
        if not checksums:
            (run / "checkpoint-8" / "checksums.json").unlink()
        assert main(arguments) == 0
        errors = capfd.readouterr().err
        assert f"{run / 'checkpoint-8'} is damaged: {name if checksums else 'checksums.json'} " in errors
        assert "checkpoint-8.damaged" in errors and "checkpoint-4" in errors and "model.damaged" in errors
        assert all(torch.equal(tensor, before[key]) for key, tensor in weights(run).items())
    assert main(arguments) == 0
    assert "is up to date" in capfd.readouterr().err


def test_an_unreadable_checkpoint_is_reported_in_one_line(sap: Arguments, run: Path, refused: Refused) -> None:
    """Its checksums are right, its content is not."""
    arguments = sap(run)
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoint-8")
    checksums = json.loads((run / "checkpoint-4" / "checksums.json").read_text())
    for name in ("rng_state.pth", "scheduler.pt", "optimizer.pt", "alarms.pt"):
        torch.save({"of": "another"}, run / "checkpoint-4" / name)
        checksums[name] = files.checksum(run / "checkpoint-4" / name)
        (run / "checkpoint-4" / "checksums.json").write_text(json.dumps(checksums))
        error = refused(arguments)
        assert "checkpoint-4" in error and "cannot be read as the state of this run's" in error
        assert error.endswith("Remove the checkpoint to resume from the one before it.")


def test_a_checkpoint_is_flushed_before_it_gets_its_name(
    sap: Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older checkpoints are removed only after that."""
    run, seen = tmp_path / "run", []
    flush = files.sync_tree

    def sync_tree(directory: Path) -> None:
        flush(directory)
        if directory.name.startswith("checkpoint-"):
            assert all((directory / name).exists() for name in ("model.safetensors", "alarms.pt", "checksums.json"))
            seen.append((directory.name, sorted(path.name for path in run.glob("checkpoint-*"))))

    monkeypatch.setattr(files, "sync_tree", sync_tree)
    assert main(sap(run, "--keep", "1")) == 0
    assert seen == [("checkpoint-4", []), ("checkpoint-8", ["checkpoint-4"])]
    assert [path.name for path in run.glob("checkpoint-*")] == ["checkpoint-8"]


def test_a_run_that_lacks_only_its_model_does_not_train(sap: Arguments, finished: Path, run: Path) -> None:
    """Killed after its last checkpoint, whose weights become the model."""
    shutil.rmtree(run / "model")
    assert main(sap(run)) == 0
    assert all(torch.equal(tensor, weights(finished)[name]) for name, tensor in weights(run).items())
    assert logged(run) == logged(finished)
    assert sorted(path.name for path in run.glob("check*")) == ["checkpoint-4", "checkpoint-8"]


def test_sct_adds_a_lexecho_head_and_learns(start: Path, retrieval: Path, tmp_path: Path) -> None:
    """From an alignment checkpoint without one, for every loss."""
    for loss in losses.LOSSES:
        run = tmp_path / loss
        options = ["--model", str(start), "--data", str(retrieval), "--loss", loss, *SHORT]
        assert main(["sct", "--preset", "authors-sct", "--output", str(run), *options]) == 0
        found = [entry["loss"] for entry in logged(run) if "loss" in entry]
        assert found[-1] < found[0]
        assert "echo.weight" in weights(run)
        assert MilcoEncoder.from_pretrained(run / "model", device="cpu").views == ("pivot", "source")


def test_sct_starts_without_sap_from_an_english_or_a_multilingual_head(retrieval: Path, tmp_path: Path) -> None:
    """Rows 5 and 6 (noMILCO) of the paper's table: terms are English pieces, or those of the encoder."""
    multilingual = shutil.copytree(GOLDEN / "m_encoder", tmp_path / "multilingual")
    config = AutoConfig.from_pretrained(multilingual)
    torch.manual_seed(0)
    XLMRobertaForMaskedLM(config).save_pretrained(multilingual)
    for english, pieces in ((GOLDEN / "en_lsr", 358), (multilingual, config.vocab_size)):
        run = tmp_path / f"run-{pieces}"
        options = ["--encoder", str(GOLDEN / "m_encoder"), "--english", str(english), "--data", str(retrieval)]
        assert main(["sct", "--preset", "paper-sct", "--output", str(run), "--views", "pivot", *options, *SHORT]) == 0
        found = [entry["loss"] for entry in logged(run) if "loss" in entry]
        assert found[-1] < found[0]
        assert MilcoEncoder.from_pretrained(run / "model", device="cpu").vocabulary.english_size == pieces


def test_lexecho_of_the_paper_is_an_option(start: Path, retrieval: Path, tmp_path: Path, refused: Refused) -> None:
    """The model has the variant, pooling and special tokens; another variant cannot follow."""
    options = ["--preset", "paper-sct", "--data", str(retrieval), *SHORT]
    chosen = ["--echo-variant", "paper", "--source-pool", "max", "--source-drop-special"]
    assert main(["sct", *options, "--model", str(start), "--output", str(tmp_path / "run"), *chosen]) == 0
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert (config["echo_variant"], config["source_pool"], config["source_drop_special"]) == ("paper", "max", True)
    assert weights(tmp_path / "run")["echo.weight"].shape[1] == config["english_hidden_size"]
    again = ["--model", str(tmp_path / "run" / "model"), "--output", str(tmp_path / "next"), "--echo-variant", "linear"]
    assert "--echo-variant linear: the model has a LexEcho head of the variant paper" in refused(
        ["sct", *options, *again]
    )


def test_sct_across_languages_learns_and_resumes(start: Path, bitext: Path, retrieval: Path, tmp_path: Path) -> None:
    """Alone and next to queries. A run resumes."""
    options = ["sct", "--preset", "parallel-sct", "--model", str(start), "--group-size", "1"]
    options += "--steps 12 --batch-size 3 --log-steps 4 --learning-rate 1e-3 --lambda-passage 0 --save-steps 6".split()
    options += "--query-max-length 16 --passage-max-length 32 --device cpu --dtype float32 --workers 0".split()
    alone, mixed = ["--parallel", str(bitext)], ["--parallel", f"{bitext}=.5", "--data", str(retrieval)]
    for name, data in (("alone", [*alone, "--concatenate", "0"]), ("mixed", [*mixed, "--views", "pivot", "source"])):
        run = tmp_path / name
        assert main([*options, *data, "--output", str(run)]) == 0
        entries = [entry for entry in logged(run) if "parallel" in entry]
        assert entries[-1]["parallel"] < entries[0]["parallel"]
        assert ("infonce" in entries[-1]) == (name == "mixed")
        before = weights(run)
        shutil.rmtree(run / "model")
        shutil.rmtree(run / "checkpoint-12")
        assert main([*options, *data, "--output", str(run)]) == 0
        after = weights(run)
        assert all(torch.equal(before[key], after[key]) for key in before)


def test_a_dense_teacher_is_distilled_across_languages_and_within_one(
    start: Path, bitext: Path, retrieval: Path, tmp_path: Path
) -> None:
    """Its loss is logged for both kinds of batches and falls, as does alignment's."""
    sizes = {"steps": 12, "batch_size": 3, "log_steps": 6, "group_size": 1, "workers": 0}
    lengths = {"query_max_length": 16, "passage_max_length": 32}
    data = {"parallel": (f"{bitext}=.5",), "data": (str(retrieval),)}
    losses = {"alignment_weight": 0.5, "learning_rate": 1e-3, "lambda_passage": 0.0, "views": ("pivot",)}
    place = {"model": str(start), "output": tmp_path / "run", "device": "cpu", "dtype": "float32"}
    config = replace_options(PARALLEL_SCT, **sizes, **lengths, **data, **losses, **place)
    run_stage(config, taught_by(str(start)))
    entries = [entry for entry in logged(tmp_path / "run") if "distillation" in entry]
    assert entries[-1]["distillation"] < entries[0]["distillation"]
    assert {"parallel", "infonce"} <= entries[0].keys() | entries[-1].keys()
    aligned = [entry["alignment"] for entry in logged(tmp_path / "run") if "alignment" in entry]
    assert aligned and aligned[-1] <= aligned[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "--data is required"),
        ("--data x --views pivot pivot", "--views pivot pivot"),
        ("--data x --parallel de", "--parallel de: "),
        ("--data x --parallel a=.5 b=.5", "--parallel has shares that sum to 1"),
        ("--parallel a=-1", "--parallel a=-1"),
        ("--parallel a=x", "expected a number after =, got 'x'"),
        ("--parallel a", "unknown bitext 'a'"),
        ("--parallel a=.2 a=.7", "source a is given twice"),
        ("--parallel {bitext} --batch-size 1", "--batch-size 1: --parallel"),
        ("--data x --loss kd --group-size 1", "--group-size 1: --loss kd"),
        ("--data x --loss infonce --direction student-teacher", "--direction requires --loss kd"),
        ("--data x --source-pool max", "--source-pool requires --views source"),
        ("--data {pairs} --languages de yo", "--languages yo"),
        ("--parallel {bitext}", "60 English sentences"),
    ],
)
def test_data_of_sct_that_cannot_be_right_is_refused(
    options: str, words: str, bitext: Path, retrieval: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """With the value and the fix, exit code 2, before training."""
    given = options.format(bitext=bitext, pairs=retrieval).split()
    assert main(["sct", "--preset", "mini-sct", *given, "--output", str(tmp_path / "run")]) == 2
    assert words in capfd.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("loss", [name for name, loss in losses.LOSSES.items() if loss.needs_scores])
def test_a_loss_that_needs_scores_or_negatives_refuses_data_without_them(
    loss: str, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """In one line with the fix, before training."""
    data = write_lines(tmp_path / "bare.de.jsonl", {"query": "q", "positives": ["p"], "negatives": ["n", "m"]})
    given = ["sct", "--preset", "mini-sct", "--data", str(data), "--loss", loss, "--output", str(tmp_path / "run")]
    for size, words in (
        ("2", "bare.de.jsonl:1: no teacher scores to distill"),
        ("1", f"--group-size 1: --loss {loss}"),
    ):
        assert main([*given, "--group-size", size]) == 2
        assert words in capfd.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("config_class", "missing"), [(SapConfig, "bitext"), (SctConfig, "data")])
def test_missing_data_is_reported_with_everything_else_that_is_wrong(
    config_class: type[TrainingConfig], missing: str
) -> None:
    """One run of the command shows all of it."""
    with pytest.raises(InvalidOptions) as raised:
        validate(config_class(preset="mine", optimizer=OptimizerOptions(warmup=1.5)))
    assert [str(error).partition(" ")[0].strip(":") for error in raised.value.errors] == [f"{missing}", "warmup=1.5"]


def test_a_damaged_configuration_of_a_run_is_named(sap: Arguments, run: Path, tmp_path: Path, refused: Refused) -> None:
    """In one line; so is that of a run of release 0.3."""
    shutil.copytree(run, tmp_path / "copy")
    for content in ("", "[]"):
        (tmp_path / "copy" / "config.json").write_text(content)
        assert "config.json" in refused(sap(tmp_path / "copy"))
    (tmp_path / "copy" / "config.json").rename(tmp_path / "copy" / "config.yaml")
    error = refused(sap(tmp_path / "copy"))
    assert "is a run of release 0.3" in error and f"--model {tmp_path / 'copy' / 'checkpoint-8'}" in error


def test_a_run_can_start_from_an_encoder_and_an_english_head(sap: Arguments, tmp_path: Path) -> None:
    """It keeps the weights of both and adds a connector, as in the paper."""
    arguments = sap(tmp_path / "run", "--steps", "1", "--part-rates", "encoder=0", "decoder=0")
    with_parts(tmp_path / "tiny-sap.json")
    assert main(arguments) == 0
    found = weights(tmp_path / "run")
    encoder, english = (load_file(GOLDEN / name / "model.safetensors") for name in ("m_encoder", "en_lsr"))
    words = "embeddings.word_embeddings.weight"
    assert torch.equal(found[f"encoder.{words}"], encoder[words])
    assert torch.equal(found["decoder.weight"], english[f"bert.{words}"])
    assert "echo.weight" not in found


def test_an_encoder_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    """transformers continues with random numbers in their place."""
    broken = shutil.copytree(GOLDEN / "m_encoder", tmp_path / "broken")
    tensors = load_file(broken / "model.safetensors")
    name = next(name for name in tensors if "layer.0" in name)
    save_file({key: value for key, value in tensors.items() if key != name}, broken / "model.safetensors")
    with pytest.raises(MilcoError, match=rf"encoder='{broken}': .*{name}"):
        connect(str(broken), str(GOLDEN / "en_lsr"))


def test_a_finished_run_is_kept_and_other_options_are_refused(
    sap: Arguments, run: Path, capfd: pytest.CaptureFixture
) -> None:
    """The same command does nothing; another option is named; --overwrite replaces."""
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main(sap(run)) == 0
    assert "is up to date" in capfd.readouterr().err
    assert main(sap(run, "--steps", "3")) == 2
    assert "was begun with steps 8, not 3" in capfd.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert main(sap(run, "--steps", "1", "--overwrite")) == 0
    assert [path.name for path in run.glob("checkpoint*")] == ["checkpoint-1"]


def test_a_resumed_run_may_take_less_memory_and_disk(sap: Arguments, finished: Path, run: Path) -> None:
    """Options that do not change what is learned: the weights are those of the uninterrupted run."""
    for name in ("model", "checkpoint-8"):
        shutil.rmtree(run / name)
    more = ["--keep", "1", "--workers", "1", "--gradient-checkpointing"]
    assert main(sap(run, *more)) == 0
    assert [path.name for path in run.glob("checkpoint*")] == ["checkpoint-8"]
    torch.testing.assert_close(weights(run), weights(finished))


def test_a_run_does_not_resume_on_changed_data(sap: Arguments, bitext: Path, run: Path, refused: Refused) -> None:
    """Its examples would be others than those that it has not seen yet."""
    for name in ("model", "checkpoint-8"):
        shutil.rmtree(run / name)
    file = bitext / "de-en.tsv"
    before = file.read_bytes()
    try:
        file.write_bytes(before + b"Hund\tdog\n")
        assert "was begun with examples" in refused(sap(run))
        file.write_bytes(before.replace(b"river", b"stream"))
        assert f"was begun with digest of {file} " in refused(sap(run))
    finally:
        file.write_bytes(before)


def test_overwrite_removes_only_a_run_that_reads_nothing_of_itself(
    sap: Arguments, bitext: Path, run: Path, tmp_path: Path, refused: Refused
) -> None:
    """A directory with somebody's config.yaml is not a run; data and checkpoints in the run would be lost."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "config.yaml").write_text("site: theirs\n")
    for options in ([], ["--overwrite"]):
        error = refused(sap(tmp_path / "project", *options))
        assert f"{tmp_path / 'project'} was not written by this command" in error
    assert (tmp_path / "project" / "config.yaml").read_text() == "site: theirs\n"
    data = shutil.copytree(bitext, run / "data")
    for options in (["--bitext", str(data)], ["--model", str(run / "checkpoint-4")]):
        error = refused(sap(run, "--overwrite", *options))
        assert f"--overwrite would remove {options[1]}" in error
    assert (run / "checkpoint-4").is_dir()


@pytest.mark.parametrize("name", ["constant", "linear", "cosine"])
def test_every_schedule_begins_with_the_warm_up(name: str) -> None:
    """From 0 to the peak, in so many steps."""
    config = OptimizerOptions(schedule=name, warmup=10, learning_rate=1.0)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.learning_rate)
    schedule = make_schedule(optimizer, config, steps=100)
    rates = []
    for _ in range(11):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([step / 10 for step in range(11)])


def test_part_rates_are_those_of_the_smallest_module() -> None:
    """Whatever their order; a name is that of a module or parameter, not the beginning of one."""
    rates = OptimizerOptions(part_rates=("encoder=1", "encoder.layer.1=2", "encoder.layer.1.output.bias=3")).rates
    for name, rate in {
        "encoder.layer.0.weight": 1,
        "encoder.layer.11.weight": 1,
        "encoder.layer.1.output.weight": 2,
        "encoder.layer.1.output.bias": 3,
        "encoders.weight": 9,
    }.items():
        assert part_rate(rates, name, 9) == rate


def test_a_directory_in_which_another_process_trains_is_refused(
    sap: Arguments, run: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    """A job that was queued twice would mix the checkpoints of both."""
    monkeypatch.setattr("milco_pyserini.train.run._LOCK_LIMIT", 0.1)
    shutil.rmtree(run / "model")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with locked_file(run / ".lock"):
        for options in ([], ["--overwrite"]):
            assert f"{run / '.lock'} has been locked by another program" in refused(sap(run, *options))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert main(sap(run)) == 0


def test_a_run_without_checkpoints_accepts_other_options(sap: Arguments, run: Path) -> None:
    """Saved options bind only if a checkpoint or a model was made with them."""
    for name in ("model", "checkpoint-4", "checkpoint-8"):
        shutil.rmtree(run / name)
    assert main(sap(run, "--steps", "1")) == 0
    assert json.loads((run / "config.json").read_text())["steps"] == 1


def test_overwrite_removes_nothing_if_the_options_are_refused(sap: Arguments, run: Path, refused: Refused) -> None:
    """Every check comes first."""
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    for options in ("--accumulation 0", "--part-rates foo=1", "--probe nowhere", "--max-length 9000"):
        refused(sap(run, "--overwrite", *options.split()))
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_non_finite_loss_stops_the_run(sap: Arguments, tmp_path: Path, refused: Refused) -> None:
    """The error names the step and the last good checkpoint, which is kept."""
    options = ("--learning-rate", "1e18", "--max-grad-norm", "1e30", "--save-steps", "1")
    error = refused(sap(tmp_path / "run", *options))
    assert "step 2: the loss of a batch in de, en, fr is nan (text nan, english nan)" in error
    assert "nothing was saved since checkpoint-1" in error
    left = load_file(tmp_path / "run" / "checkpoint-1" / "model.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in left.values())
    assert not (tmp_path / "run" / "model").exists()


def test_non_finite_weights_are_never_written(sap: Arguments, tmp_path: Path, refused: Refused) -> None:
    """Even if no loss has shown them yet."""
    run = tmp_path / "run"
    # The first step of the warm-up changes nothing.
    options = ("--learning-rate", "1e39", "--warmup", "2", "--save-steps", "1", "--weight-decay", "0")
    error = refused(sap(run, *options))
    assert "step 2: weights are no longer finite (encoder.embeddings." in error
    assert "nothing was saved since checkpoint-1" in error
    assert [path.name for path in run.glob("*checkpoint*")] == ["checkpoint-1"]
    left = load_file(run / "checkpoint-1" / "model.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in left.values())
    assert "step 1: weights" in refused(sap(tmp_path / "short", *options[:2], "--steps", "1"))
    assert not [*tmp_path.glob("*/model"), *tmp_path.glob("short/checkpoint*")]


def test_the_advice_of_a_failed_run_works(
    sap: Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    """From the last checkpoint with a lower rate; that checkpoint replaces a configuration's encoder."""
    calls, made = [], losses.sparse_mean_squared_error

    def broken(*arguments: Any) -> Tensor:
        calls.append(1)
        # Two calls a step.
        return made(*arguments) * (torch.inf if len(calls) > 9 else 1)

    monkeypatch.setattr(losses, "sparse_mean_squared_error", broken)
    error = refused(sap(tmp_path / "run"))
    assert "step 5: the loss of a batch in de, en, fr is inf (text " in error
    monkeypatch.undo()
    advice = (
        error.rpartition(" start a new run with ")[2].replace("OTHER", str(tmp_path / "other")).replace("LOWER", "1e-5")
    )
    assert f"--model {tmp_path / 'run' / 'checkpoint-4'}" in advice
    again = [*sap(tmp_path / "run")[:3], "--steps", "1", *advice.split()]
    with_parts(tmp_path / "tiny-sap.json")
    assert main(again) == 0
    assert (tmp_path / "other" / "model").is_dir()


def test_a_full_disk_leaves_the_last_checkpoint(
    sap: Arguments, run: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    """The incomplete one is removed, and the same command resumes."""
    for name in ("model", "checkpoint-8"):
        shutil.rmtree(run / name)
    written = torch.save

    def save(value: object, path: str, *arguments: object) -> None:
        if "optimizer" in str(path) and ".saving/checkpoint-8" in str(path):
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 104912384 vs 104912272")
        written(value, path, *arguments)

    monkeypatch.setattr(torch, "save", save)
    error = refused(sap(run))
    assert f"the checkpoint of step 8 could not be written: the disk of {run} is full" in error
    assert "checkpoint-4 is complete" in error
    assert [path.name for path in run.glob("*checkpoint*")] == ["checkpoint-4"]
    assert not (run / ".saving").exists()
    monkeypatch.undo()
    assert main(sap(run)) == 0


def test_a_full_disk_at_the_log_is_reported_in_one_line(
    sap: Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    """And the run is not complete."""
    opened = Path.open

    def open_full(path: Path, mode: str = "r", *arguments: Any, **more: Any) -> Any:
        if (path.name, mode) == ("log.jsonl", "ab"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, mode, *arguments, **more)

    monkeypatch.setattr(Path, "open", open_full)
    error = refused(sap(tmp_path / "run"))
    assert f" could not be written: the disk of {tmp_path / 'run'} is full" in error
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_is_valid(name: str) -> None:
    """Its values are those of the help page."""
    stage = name.rpartition("-")[2]
    with pytest.raises(SystemExit) as ended:
        main([stage, "--preset", name, "--help"])
    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("mini-spa", "mini-spa mini-sap"),
        ("{tmp}/bad.json", "learning_rat learning_rate"),
        ("{tmp}/kind.json", "batch_size int 'many'"),
        ("{tmp}/earlier.yaml", "release JSON"),
        ("mini-sap --config mini-sap", "'--config' --preset"),
        ("mini-sap", "--bitext"),
        ("mini-sap --bitext {bitext} --teacher {golden}/en_lsr", "358 30,522"),
        ("mini-sap --bitext {tmp}/one/de-en.tsv", "de-en.tsv:2 column"),
        ("mini-sap --preset nope", "--preset twice"),
        ("mini-sap --model mini --english x", "--english --model exclude"),
        ("mini-sap --bitext {bitext} --encoder /x --english /x", "'/x'"),
        ("mini-sap --bitext {bitext} --part-rates decodr=0", "decodr decoder"),
        ("mini-sap --bitext {bitext} --part-rates decoder=nan", "--part-rates finite"),
        ("mini-sap --bitext {bitext} --part-rates encoder=0 connector=0 decoder=0", "--part-rates connector=0"),
        ("mini-sap --bitext {bitext} {bitext}/de-en.tsv", "de-en.tsv twice"),
        ("paper-sct", "paper-sct sct"),
        ("mini-sap --bitext {bitext} --languages xx", "xx de"),
        ("mini-sap --bitext {bitext} --max-length 9000", "9000 512"),
        ("mini-sap --bitext {bitext} --probe {tmp}/one/de-en.tsv", "de-en.tsv:2 column"),
    ],
)
def test_bad_input_is_reported_in_one_line(
    arguments: str, words: str, bitext: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """With the value and the fix, exit code 2, before training."""
    (tmp_path / "bad.json").write_text('{"learning_rat": 1}')
    (tmp_path / "kind.json").write_text('{"batch_size": "many"}')
    (tmp_path / "earlier.yaml").write_text("seed: 1\n")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "de-en.tsv").write_text("ein Satz\ta sentence\nallein\n")
    given = arguments.format(tmp=tmp_path, bitext=bitext, golden=GOLDEN).split()
    assert main(["sap", "--preset", *given, "--output", str(tmp_path / "run")]) == 2
    errors = capfd.readouterr().err
    for word in words.split():
        assert word in errors.strip().splitlines()[-1]
    assert "document frequencies" not in errors or "--teacher" in arguments
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("stage", "content", "words"),
    [
        ("sap", '{"bitext": ' + 2000 * "[" + 2000 * "]" + "}", "is not JSON: "),
        ("sap", '{"steps": true}', "steps expects int, got True"),
        ("sap", '{"bitext": [["a", "b"], "c"]}', "bitext expects str values, got [['a', 'b'], 'c']"),
        ("sap", '{"learning_rate": "1e-3"}', "learning_rate expects float, got '1e-3'"),
        ("sap", '{"seed": null}', "seed expects int, got None"),
        ("sap", '{"model": "a\\u0000b"}', "--model 'a\\x00b': names and paths may not contain"),
        # Ranges and choices are those of the options.
        ("sap", '{"bitext": ["nowhere"], "margin": -5}', "--margin -5: must be at least 0"),
        ("sct", '{"data": ["nowhere"], "group_size": 0}', "--group-size 0: must be at least 1"),
        ("sct", '{"data": ["nowhere"], "views": ["pivott"]}', "Did you mean pivot?"),
    ],
    ids=["brackets", "boolean", "list", "text", "null", "NUL", "range", "range of sct", "choice"],
)
def test_a_strange_preset_is_one_error(stage: str, content: str, words: str, tmp_path: Path, refused: Refused) -> None:
    """Whatever JSON can express and an option cannot be; no data is read."""
    (tmp_path / "strange.json").write_text(content)
    error = refused([stage, "--preset", str(tmp_path / "strange.json"), "--output", str(tmp_path / "run")])
    assert words in error


@pytest.mark.parametrize(("dtype", "precision"), [("bfloat16", "high"), ("float32", "highest")])
def test_products_outside_of_autocast_are_fast_on_a_gpu(
    dtype: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command sets it, not the library; float32 that the user asked for stays exact."""
    monkeypatch.setattr("milco_pyserini.train.run.run_stage", lambda config: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before = torch.get_float32_matmul_precision()
    try:
        train(replace_options(PAPER_SAP, dtype=dtype))
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
