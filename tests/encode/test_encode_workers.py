"""Several processes encode one store: what one process writes, whichever of them die; devices and their names."""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from milco_pyserini.cli.encode import main
from milco_pyserini.corpora import Document
from milco_pyserini.encode.devices import choose_devices
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.kinds import TermWork
from milco_pyserini.encode.parts import PartFile, Work, encode_parts
from milco_pyserini.encode.workers import Recipe, encode_in_processes
from milco_pyserini.errors import MilcoError

CHECKPOINT = Path(__file__).parents[1] / "data" / "golden" / "ckpt_distillation"


def work() -> TermWork:
    encoder = MilcoEncoder.from_pretrained(CHECKPOINT, "cpu", "float32")
    return TermWork(encoder, 64, False, False, 32, False, views=("pivot",), pruning=(), scale=100.0, format="jsonl")


def unheard(number: int, texts: int, tokens: int) -> None:
    """Counts that nobody wants."""


def jobs(count: int) -> Iterator[tuple[int, list[Document]]]:
    for number in range(count):
        yield number, [Document(f"d{number}", "", "old harbour " * (number + 1))]


@dataclasses.dataclass(frozen=True)
class Deadly(Recipe):
    """A recipe whose worker is killed at the text of two words, as long as there is a life in the directory."""

    lives: str = ""

    def open(self, device: str) -> Work:
        """As Recipe, with an encoder that kills."""
        opened = super().open(device)
        return dataclasses.replace(opened, encoder=Killer(opened.encoder, Path(self.lives)))  # type: ignore[arg-type]


class Killer:
    def __init__(self, encoder: MilcoEncoder, lives: Path) -> None:
        self.encoder, self.lives = encoder, lives
        self.tokenizer, self.vocabulary = encoder.tokenizer, encoder.vocabulary

    def encode_rows(self, rows: list[list[int]], *given: Any) -> Any:
        """As the encoder, if it lives."""
        shortest = min(map(len, rows)) == len(self.tokenizer.ids(["old harbour"])[0])
        for life in [*self.lives.iterdir()] if shortest else []:
            with contextlib.suppress(FileNotFoundError):
                life.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.encoder.encode_rows(rows, *given)


def deadly(tmp_path: Path, lives: int) -> Deadly:
    (tmp_path / "lives").mkdir()
    for number in range(lives):
        (tmp_path / "lives" / str(number)).touch()
    return Deadly(**vars(Recipe.of(work())), lives=str(tmp_path / "lives"))


@pytest.mark.integration
def test_a_worker_that_dies_is_replaced_by_the_others(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Killed in the middle of a part, its parts are done by the other process: each once, and the same bytes."""
    parts: list[PartFile] = list(encode_in_processes(jobs(6), unheard, deadly(tmp_path, 1), ["cpu", "cpu"]))
    assert sorted(parts, key=lambda part: part.number) == list(encode_parts(jobs(6), work(), unheard))
    said = capsys.readouterr().err
    assert said == "the process that encoded on cpu has died (exit code -9): the others go on with its work\n"


@pytest.mark.integration
def test_a_part_that_kills_its_workers_is_named(tmp_path: Path) -> None:
    """The second death at one part ends the run with the part's number, and with how to go on."""
    with pytest.raises(MilcoError, match=r"has died \(exit code -9\), as another did .* part 0: .* the same command"):
        list(encode_in_processes(jobs(3), unheard, deadly(tmp_path, 9), ["cpu", "cpu", "cpu"]))


@dataclasses.dataclass(frozen=True)
class Broken(Recipe):
    """A recipe whose worker fails at its first text in a way that nobody thought of."""

    def open(self, device: str) -> Work:
        """As Recipe, without an encoder behind the tokenizer."""
        opened = super().open(device)
        return dataclasses.replace(opened, encoder=Tokenizing(opened.encoder.tokenizer))  # type: ignore[arg-type]


class Tokenizing:
    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer


@pytest.mark.integration
def test_a_worker_that_fails_ends_the_run(tmp_path: Path) -> None:
    """An error that is nobody's MilcoError ends its process and is told, while that process waits for its next part."""
    broken = Broken(**vars(Recipe.of(work())))
    with pytest.raises(MilcoError, match=r"has died .*, and no other is left: .* the same command"):
        list(encode_in_processes(jobs(1), unheard, broken, ["cpu"]))


@pytest.mark.integration
def test_two_processes_write_the_store_of_one(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """--device cpu,cpu is byte for byte --device cpu; an error of a worker is one line and the whole parts stay."""
    (tmp_path / "c.tsv").write_text("".join(f"d{number}\told harbour {number}\n" for number in range(12)))
    common = ["--corpus", str(tmp_path / "c.tsv"), "--encoder", str(CHECKPOINT), "--dtype", "float32"]
    common += ["--part-size", "5"]
    assert main([*common, "--device", "cpu", "--output", str(tmp_path / "one")]) == 0
    capsys.readouterr()
    assert main([*common, "--device", "cpu,cpu", "--output", str(tmp_path / "two")]) == 0
    assert "encoding with 2 processes: cpu, cpu\n" in capsys.readouterr().err
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()}
        for name in ("one", "two")
    )
    assert one == two
    assert main([*common, "--device", "cpu,cpu", "--scale", "2e9", "--output", str(tmp_path / "big")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "error: weight" in line and "above 2,147,483,647" in line] == said[-1:]


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


def test_devices_of_one_store_are_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU beside a GPU is refused, and so is a GPU that is not here."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(MilcoError, match="--device cuda:0,cpu: the devices of one store are of one kind"):
        choose_devices("cuda:0,cpu")
    with pytest.raises(MilcoError, match="device cuda:1 is not here: torch sees 1 GPUs"):
        choose_devices("cuda:0,cuda:1")
