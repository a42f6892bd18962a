"""int8 is compared with the usual precision before a corpus is encoded, and refused where it is slower."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from golden_set import GOLDEN

from milco_pyserini.cli.encode import main
from milco_pyserini.defaults import ENCODER_DTYPES
from milco_pyserini.encode import MilcoEncoder, int8
from milco_pyserini.encode.devices import choose_dtype
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.packed import int8_is_exact
from milco_pyserini.sparse.store import open_store

CHECKPOINT = GOLDEN / "ckpt_distillation"
needs_int8 = pytest.mark.skipif(not int8_is_exact(), reason="needs exact int8 products (VNNI or AMX)")


@pytest.fixture
def ratio(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Replace the clock: int8 takes as many seconds as the fixture's number, everything else one."""
    numbers = [0.5]
    monkeypatch.setattr(int8, "_seconds", lambda encoder, *_: numbers[0] if encoder.dtype == torch.int8 else 1.0)
    yield numbers


def arguments(root: Path, *more: str) -> list[str]:
    """Return the options of a store of 80 short documents, or of queries."""
    lines = "".join(f"d{number}\tThe old harbour town, number {number}.\n" for number in range(80))
    (root / "texts.tsv").write_text(lines, encoding="utf-8")
    options = ["--encoder", str(CHECKPOINT), "--device", "cpu", "--dtype", "int8", "--output", str(root / "vectors")]
    return [*(more or ("--corpus", str(root / "texts.tsv"))), *options]


@needs_int8
@pytest.mark.parametrize("kind", ["--corpus", "--topics"])
def test_int8_is_reported_and_used(
    kind: str, tmp_path: Path, ratio: list[float], capsys: pytest.CaptureFixture
) -> None:
    """One line reports what it gains and loses; a complete store is not compared again."""
    argv = arguments(tmp_path, kind, str(tmp_path / "texts.tsv"))
    assert main(argv) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("int8 "))
    assert "on 64 texts of" in line and "2.00 times the texts/s" in line
    share, change = (float(part.split("%")[0].split()[-1]) for part in line.split("times the texts/s, ")[1].split("),"))
    assert 80 <= share <= 100 and 0 <= change < 5
    assert open_store(tmp_path / "vectors").manifest["dtype"] == "int8"
    assert main(argv) == 0
    assert "int8 compared" not in capsys.readouterr().err


@needs_int8
def test_a_run_that_resumes_is_not_timed_again(
    tmp_path: Path, ratio: list[float], capsys: pytest.CaptureFixture
) -> None:
    """Noise must not stop a store that has begun; the shards of a store are its parts."""
    shards = [[*arguments(tmp_path), "--part-size", "40", "--shard-num", "2", "--shard-id", shard] for shard in "01"]
    assert main(shards[0]) == 0
    assert "int8 compared" in capsys.readouterr().err
    ratio[0] = 1.25
    assert main(shards[1]) == 0
    assert "int8 compared" not in capsys.readouterr().err
    assert len(open_store(tmp_path / "vectors")) == 80


@needs_int8
def test_int8_is_refused_where_it_is_slower(tmp_path: Path, ratio: list[float], capsys: pytest.CaptureFixture) -> None:
    """Nothing is written, and a store that was to be overwritten is still there."""
    ratio[0] = 1.25
    assert main(arguments(tmp_path)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "--dtype int8 is slower than" in error and "0.80 times the texts/s" in error and "Use --dtype" in error
    assert not (tmp_path / "vectors").exists()
    ratio[0] = 0.5
    assert main(arguments(tmp_path)) == 0
    manifest = (tmp_path / "vectors" / "manifest.json").read_bytes()
    ratio[0] = 1.25
    assert main([*arguments(tmp_path), "--overwrite"]) == 2
    assert (tmp_path / "vectors" / "manifest.json").read_bytes() == manifest


@needs_int8
def test_an_encoder_changes_its_dtype() -> None:
    """The other encoder has the same weights and vectors of nearly the same weights."""
    encoder = MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="float32")
    other = encoder.with_dtype("int8")
    assert (encoder.dtype, other.dtype) == (torch.float32, torch.int8)
    one, two = (each.encode_document("The old harbour town") for each in (encoder, other))
    assert float(two.dot(two)[0, 0]) == pytest.approx(float(one.dot(one)[0, 0]), rel=0.05)
    assert float(two.dot(two)[0, 0]) != float(one.dot(one)[0, 0])


def test_where_int8_cannot_be_had_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, on a processor without it, in training, and for encoders of other kinds."""
    with pytest.raises(MilcoError, match="dtype int8 is for the CPU, not for cuda:1: use bfloat16"):
        choose_dtype("int8", torch.device("cuda:1"), ENCODER_DTYPES)
    with pytest.raises(MilcoError, match="unknown dtype 'int8': valid are auto, bfloat16, float32"):
        choose_dtype("int8", torch.device("cpu"))
    monkeypatch.setattr("milco_pyserini.model.packed.int8_is_exact", lambda: False)
    with pytest.raises(MilcoError, match="does not multiply 8-bit integers exactly"):
        MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="int8")


def test_an_encoder_that_cannot_be_packed_has_no_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with another activation, for example."""
    monkeypatch.setattr("milco_pyserini.model.packed.int8_is_exact", lambda: True)
    encoder = MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="int8")
    monkeypatch.setattr(encoder.config.encoder, "hidden_act", "gelu_new")
    with pytest.raises(MilcoError, match=r"dtype int8 is not for this encoder .*hidden_act 'gelu_new'.*: use auto"):
        encoder.encode_document("The old harbour town")
