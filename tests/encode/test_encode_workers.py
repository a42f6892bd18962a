"""Several processes fill one store: its bytes are those of one process, whichever of them die; names of devices."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from worker_encoders import BrokenPlan, WordLengthEncoder, WordLengthPlan

from milco_pyserini.cli.encode import main
from milco_pyserini.corpora import Document
from milco_pyserini.encode.corpus import encode_corpus
from milco_pyserini.encode.devices import choose_devices
from milco_pyserini.encode.launch import LocalWorker, encode_here, encode_in_workers
from milco_pyserini.encode.parts import EncodedPart, PartEncoder
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError

CHECKPOINT = Path(__file__).parents[1] / "data" / "golden" / "ckpt_distillation"
PLAN = {"max_length": 64, "views": ("pivot",), "format": "parquet"}


def jobs(count: int) -> Iterator[tuple[int, list[Document]]]:
    for number in range(count):
        yield number, [Document(f"d{number}", "", "harbour " * (number + 1))]


def encoded_by_workers(plan: EncodePlan, count: int, num_workers: int) -> list[EncodedPart]:
    """The parts that workers encode, in their order."""
    parts: list[EncodedPart] = []
    devices = ["cpu"] * num_workers
    start = partial(LocalWorker, plan, num_workers)
    encode_in_workers(jobs(count), start, devices, lambda *_: None, parts.append)
    return sorted(parts, key=lambda part: part.number)


def lives(tmp_path: Path, count: int) -> str:
    for number in range(count):
        (tmp_path / str(number)).touch()
    return str(tmp_path)


class SlowEncoder:
    """Stages of encoding that take a tenth of a second if they are the slow one."""

    def __init__(self, slow: str) -> None:
        self._slow = slow

    def __getattr__(self, stage: str) -> Callable[..., str]:
        return lambda *_: time.sleep(0.1 if stage == self._slow else 0) or stage


@pytest.mark.parametrize(
    ("slow", "limit"), [("tokenize", "reading and tokenizing"), ("encode", "the model"), ("serialize", "writing")]
)
def test_the_stage_that_the_others_wait_for_is_named(slow: str, limit: str) -> None:
    """The model is the limit unless it waits for texts or for a part to be written."""
    written: list[str] = []
    assert encode_here(jobs(4), SlowEncoder(slow), lambda *_: None, written.append) == limit
    assert written == ["serialize"] * 4


@pytest.mark.integration
def test_a_worker_that_dies_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Killed in the middle of a part, the parts of the worker are encoded again: each once, with the same bytes."""
    expected: list[EncodedPart] = []
    here = PartEncoder(WordLengthPlan(**PLAN), WordLengthEncoder())
    encode_here(jobs(6), here, lambda *_: None, expected.append)
    assert encoded_by_workers(WordLengthPlan(**PLAN, lives=lives(tmp_path, 1)), 6, 2) == expected
    assert capsys.readouterr().err == "the process on cpu has died (exit code -9): starting another\n"


@pytest.mark.integration
def test_an_error_of_a_worker_ends_the_run(tmp_path: Path) -> None:
    """A part that kills three workers is named; a bug has its traceback as a note; bad input is as in one process."""
    with pytest.raises(MilcoError, match=r"has died .*-9\), as 2 others have with part.* 0.*: .* the same command"):
        encoded_by_workers(WordLengthPlan(**PLAN, lives=lives(tmp_path, 9)), 3, 1)
    with pytest.raises(AttributeError, match="network") as raised:
        encoded_by_workers(BrokenPlan(**PLAN), 1, 1)
    assert "In the worker on cpu: Traceback" in raised.value.__notes__[0]
    with pytest.raises(MilcoError, match=r"^pruning 'top-k:0': top-k takes an integer of at least 1"):
        encoded_by_workers(WordLengthPlan(**PLAN, prune=("top-k:0",)), 1, 1)


@pytest.mark.integration
def test_two_processes_write_the_store_of_one(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """--device cpu,cpu is byte for byte --device cpu."""
    (tmp_path / "c.tsv").write_text("".join(f"d{number}\told harbour {number}\n" for number in range(12)))
    common = ["--corpus", str(tmp_path / "c.tsv"), "--encoder", str(CHECKPOINT), "--dtype", "float32"]
    common += ["--part-size", "5"]
    assert main([*common, "--device", "cpu", "--output", str(tmp_path / "one")]) == 0
    capsys.readouterr()
    assert main([*common, "--device", "cpu,cpu", "--output", str(tmp_path / "two")]) == 0
    assert "Encoding 12 documents on cpu, cpu in float32\n" in capsys.readouterr().err
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()}
        for name in ("one", "two")
    )
    assert one == two


@pytest.mark.parametrize(
    ("names", "gpus", "expected"),
    [
        ("auto", 0, ["cpu"]),
        ("auto", 1, ["cuda:0"]),
        ("auto", 3, ["cuda:0", "cuda:1", "cuda:2"]),
        ("cuda", 2, ["cuda:0", "cuda:1"]),
        ("cuda:1", 2, ["cuda:1"]),
        ("cuda:2,cuda:0", 3, ["cuda:2", "cuda:0"]),
        ("cpu", 2, ["cpu"]),
        ("cpu,cpu", 2, ["cpu", "cpu"]),
    ],
)
def test_names_stand_for_all_or_some_devices(
    names: str, gpus: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """auto and cuda are every GPU, a number is one; as many processes as devices."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert choose_devices(names) == expected


def test_devices_of_one_store_are_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU next to a GPU is refused, and so is a GPU that this machine does not have."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(MilcoError, match="device='cuda:0,cpu': the devices that fill one store must be of one type"):
        choose_devices("cuda:0,cpu")
    with pytest.raises(MilcoError, match="device='cuda:1': torch finds 1 of this type"):
        choose_devices("cuda:0,cuda:1")


def test_an_unknown_launcher_is_refused(tmp_path: Path) -> None:
    """By name, before the texts are read."""
    with pytest.raises(MilcoError, match="unknown launcher 'rays'"):
        encode_corpus(tmp_path / "missing", tmp_path / "v", launcher="rays")
