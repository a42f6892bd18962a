"""Training in two processes, as torchrun starts them: what each sees, writes and leaves, and how they end together."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from golden_set import GOLDEN, bent
from torch import Tensor
from torchrun_program import BROKEN_STEP, Report, record_texts
from training_set import WORDS, logged, weights, write_lines

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.train import losses, objectives, trainer
from milco_pyserini.train.checkpoints import newest_checkpoint
from milco_pyserini.train.cli import main

PROGRAM = Path(__file__).parents[1] / "torchrun_program.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
PATIENCE = 240
STEPS = 4
# More than the window in which examples of similar length are gathered: none comes twice.
EXAMPLES = 300

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.skipif(
        not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
        reason="this torch has no distributed training on processors (gloo)",
    ),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints with and without dropout and LexEcho head; bitext and retrieval data."""
    place = tmp_path_factory.mktemp("torchrun")
    for name in ("alignment", "distillation"):
        (place / name).mkdir()
        bent(place / name, name)
    still = MilcoEncoder.from_pretrained(place / "alignment" / "checkpoint", device="cpu", dtype="float32")
    still.model.config.encoder.hidden_dropout_prob = still.model.config.encoder.attention_probs_dropout_prob = 0.0
    still.save_pretrained(place / "still")
    draw = random.Random(1)

    def text(number: int) -> str:
        return f"{number} {' '.join(draw.choices(WORDS, k=draw.randint(2, 9)))}"

    pairs = [f"{text(number)}\t{text(number)}\n" for number in range(EXAMPLES)]
    (place / "de-en.tsv").write_text("".join(pairs), encoding="utf-8")
    lines = []
    for number in range(EXAMPLES):
        passages = [text(number) for _ in range(4)]
        scores = [draw.uniform(-3, 5) for _ in passages]
        lines.append({"query": text(number), "positives": passages[:1], "negatives": passages[1:], "scores": scores})
    write_lines(place / "pairs.de.jsonl", *lines)
    common = {"learning_rate": 1e-3, "log_steps": 1, "save_steps": 2, "steps": STEPS}
    common |= {"device": "cpu", "dtype": "float32", "batch_size": 4}
    sap = {"teacher": str(GOLDEN / "en_lsr"), "bitext": [str(place / "de-en.tsv")], "max_length": 32}
    sct = {"data": [str(place / "pairs.de.jsonl")], "group_size": 4, "query_max_length": 16, "passage_max_length": 32}
    (place / "sap.json").write_text(json.dumps(common | sap), encoding="utf-8")
    (place / "sct.json").write_text(json.dumps(common | sct), encoding="utf-8")
    return place


def arguments(place: Path, stage: str, name: str, model: str, *more: str) -> list[str]:
    """Return the arguments of a short run in the directory name."""
    start = place / model if model == "still" else place / model / "checkpoint"
    given = ["--preset", str(place / f"{stage}.json"), "--model", str(start), "--output", str(place / name)]
    return [stage, *given, *more]


def launch(place: Path, plan: Sequence[tuple[str, list[str], str | None]]) -> tuple[int, str]:
    """Run the program's plan in two processes; return exit code and stderr."""
    (place / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    command = [*TORCHRUN, str(PROGRAM), str(place / "plan.json"), str(place)]
    ended = subprocess.run(
        command, env=environment(), stderr=subprocess.PIPE, encoding="utf-8", timeout=PATIENCE, check=False
    )
    return ended.returncode, ended.stderr


def environment() -> dict[str, str]:
    """Return an environment with one thread per process."""
    return os.environ | {"OMP_NUM_THREADS": "1"}


def own_lines(errors: str) -> list[str]:
    """Return the lines of milco, not those of torchrun."""
    return [line for line in errors.splitlines() if line.startswith("milco train")]


def losses_of(run: Path) -> list[float]:
    """Return the loss of every step."""
    return [entry["loss"] for entry in logged(run) if "loss" in entry]


def reports(place: Path, name: str) -> tuple[Report, Report]:
    """Return what the two processes of a run read and wrote."""
    first, second = (json.loads((place / f"{name}.{process}.json").read_text()) for process in "01")
    return first, second


@pytest.fixture(scope="module")
def broken(place: Path) -> tuple[Path, int, str]:
    """A run whose second process has a non-finite loss in step 3; its directory is copied."""
    code, errors = launch(place, [("sap-parts", arguments(place, "sap", "sap-parts", "alignment"), "1")])
    shutil.copytree(place / "sap-parts", place / "left")
    return place / "left", code, errors


@pytest.fixture(scope="module")
def trained(place: Path, broken: tuple[Path, int, str]) -> Path:
    """All runs in two processes; the first one resumes."""
    runs = {
        "sap-parts": arguments(place, "sap", "sap-parts", "alignment"),
        "sap-whole": arguments(place, "sap", "sap-whole", "alignment"),
        "sap": arguments(place, "sap", "sap", "still"),
        "kd": arguments(place, "sct", "kd", "still", "--workers", "2"),
        "infonce": arguments(place, "sct", "infonce", "still", "--loss", "infonce"),
        "sap-with-echo": arguments(place, "sap", "sap-with-echo", "distillation", "--steps", "2"),
        "sct-with-echo": arguments(place, "sct", "sct-with-echo", "distillation", "--steps", "2", "--views", "pivot"),
        "source": arguments(place, "sct", "source", "distillation", "--steps", "2", "--views", "source"),
        "paper-echo": arguments(place, "sct", "paper-echo", "alignment", "--steps", "2", "--echo-variant", "paper"),
    }
    code, errors = launch(place, [(name, run, None) for name, run in runs.items()])
    assert code == 0, errors
    assert errors.count("4 examples on each of 2 devices") == len(runs)
    return place


def test_an_error_in_one_process_ends_both(broken: tuple[Path, int, str]) -> None:
    """With at most a line each, one of which has the reason; the last checkpoint is complete."""
    run, code, errors = broken
    assert code != 0
    assert "[rank" not in errors, errors
    reason = (
        f"error: step {BROKEN_STEP}: the loss of a batch in de, en is nan (text nan, english nan); nothing was saved"
    )
    assert sum(reason in line for line in own_lines(errors)) == 1
    assert all(reason in line or "another process of this run has ended" in line for line in own_lines(errors))
    newest = newest_checkpoint(run)
    assert newest is not None and newest.name == "checkpoint-2"
    assert MilcoEncoder.from_pretrained(newest, device="cpu").encode_query(["river"]).weights.size
    assert not (run / "model").exists()


def test_a_resumed_run_ends_with_the_same_bits(trained: Path) -> None:
    """Dropout, data order and alarms equal those of an uninterrupted run."""
    runs = trained / "sap-whole", trained / "sap-parts"
    whole, parts = (weights(run) for run in runs)
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())
    assert losses_of(runs[0]) == losses_of(runs[1])
    states = [torch.load(run / "checkpoint-4" / "alarms.pt") for run in runs]
    # The first process's texts: a pair has two.
    assert [state["seen"] for state in states] == [4 * STEPS * 2] * 2
    assert states[0]["reported"] == states[1]["reported"]


def test_another_number_of_processes_is_refused(
    place: Path, broken: tuple[Path, int, str], capfd: pytest.CaptureFixture
) -> None:
    """Data order and schedule are those of two devices; nothing is changed."""
    run, _, _ = broken
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main(arguments(place, "sap", run.name, "alignment")) == 2
    assert f"{run} was begun with devices 2, not 1" in capfd.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_machines_with_different_checkpoints_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The run directory is not shared."""
    monkeypatch.setattr(trainer, "gather_object", lambda steps: [*steps, 0])
    trainer.validate_same_step(tmp_path, 0)
    with pytest.raises(MilcoError, match=r"step 400.*directory that all machines share"):
        trainer.validate_same_step(tmp_path, 400)


@pytest.mark.parametrize("name", ["sap", "kd", "infonce"])
def test_two_processes_equal_one_with_twice_the_batch(
    trained: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read its examples, each once, with equal losses, computed by halves for SAP and InfoNCE.

    The squared error is divided by the active terms, and the negatives are those, of a process's own batch.
    """
    if name != "kd":
        by_halves(monkeypatch)
    report = Report(seen=[], written=[])
    stop = record_texts(report)
    stage, loss = ("sap", ()) if name == "sap" else ("sct", ("--loss", name))
    try:
        run = arguments(trained, stage, str(tmp_path / "one"), "still", *loss)
        assert main([*run, "--batch-size", "8"]) == 0
    finally:
        stop()
    assert losses_of(trained / name) == pytest.approx(losses_of(tmp_path / "one"), rel=1e-3)
    if name == "kd":
        return  # Its batches were made in the data loader's processes.
    first, second = (report["seen"] for report in reports(trained, name))
    calls = 2 * STEPS
    together = [texts + more for texts, more in zip(first[:calls], second[:calls], strict=True)]
    assert together == report["seen"][:calls]
    mine, others = ({text for texts in seen[:calls] for text in texts} for seen in (first, second))
    assert mine and others and not mine & others


def by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one process compute the losses of two, each over half of its batch."""
    error, forward = losses.sparse_mean_squared_error, objectives.ContrastiveLoss.main_loss

    def halved_error(student: Tensor, teacher: Tensor, *more: object) -> Tensor:
        halves = zip(student.chunk(2), teacher.chunk(2), strict=True)
        return sum(error(*half, *more) for half in halves) / 2  # type: ignore[arg-type, return-value]

    def halved_loss(
        self: objectives.ContrastiveLoss, views: list[list[Tensor]], passage_ids: Tensor, scores: Tensor | None
    ) -> Tensor:
        halves = [[[side.chunk(2)[half] for side in view] for view in views] for half in range(2)]
        ids = passage_ids.chunk(2)
        return sum(map(forward, [self] * 2, halves, ids, [scores] * 2)) / 2  # type: ignore[return-value]

    monkeypatch.setattr(losses, "sparse_mean_squared_error", halved_error)
    monkeypatch.setattr(objectives.ContrastiveLoss, "main_loss", halved_loss)


def test_only_the_first_process_writes(trained: Path) -> None:
    """The other one only adds its random state to a checkpoint."""
    for name in ("sap-whole", "kd", "infonce"):
        first, second = reports(trained, name)
        assert ["open", str(trained / name / "log.jsonl")] in first["written"]
        # Checking that a directory is writable leaves nothing in it.
        ours = [(done, Path(path)) for done, path in second["written"] if path.startswith(f"{trained}/")]
        assert all(done == "os.mkdir" and ".saving" in path.parts for done, path in ours), ours
        assert sorted(path.name for path in (trained / name / "checkpoint-4").glob("rng*")) == [
            "rng_state_0.pth",
            "rng_state_1.pth",
        ]


def test_a_head_without_a_loss_is_frozen(trained: Path, place: Path) -> None:
    """A LexEcho head in SAP, or in SCT of the pivot view; distributed training needs all other gradients."""
    before = MilcoEncoder.from_pretrained(place / "distillation" / "checkpoint", device="cpu").model.state_dict()
    for name in ("sap-with-echo", "sct-with-echo"):
        after = weights(trained / name)
        assert torch.equal(after["echo.weight"], before["echo.weight"])
        assert not torch.equal(after["decoder.bias"], before["decoder.bias"])


def test_ctrl_c_ends_both_processes(place: Path, tmp_path: Path) -> None:
    """With a line each; the newest checkpoint is complete."""
    run = tmp_path / "run"
    options = ("--steps", "1000000", "--log-steps", "100000", "--save-steps", "4")
    command = [*TORCHRUN, "-m", "milco_pyserini", "train", *arguments(place, "sap", str(run), "alignment", *options)]
    with (tmp_path / "stderr").open("w") as errors:
        running = subprocess.Popen(command, env=environment(), stderr=errors)
        try:
            deadline = time.monotonic() + PATIENCE
            while newest_checkpoint(run) is None and running.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            running.send_signal(signal.SIGINT)
            assert running.wait(PATIENCE) != 0
        finally:
            running.kill()
            running.wait()
    text = (tmp_path / "stderr").read_text()
    assert "[rank" not in text, text
    assert 1 <= len(own_lines(text)) <= 2
    assert "interrupted; the same command, without --overwrite, resumes" in text
    newest = newest_checkpoint(run)
    assert newest is not None
    assert MilcoEncoder.from_pretrained(newest, device="cpu").encode_query(["river"]).weights.size
    assert not (run / "model").exists()
