"""int8 gives nearly the same vectors, and is refused where it cannot be had."""

from pathlib import Path

import pytest
import torch
from golden_set import GOLDEN

from milco_pyserini.cli.encode import main
from milco_pyserini.defaults import ENCODER_DTYPES
from milco_pyserini.encode.devices import choose_dtype
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.packed import int8_is_exact
from milco_pyserini.sparse.store import open_store

CHECKPOINT = GOLDEN / "ckpt_distillation"
needs_int8 = pytest.mark.skipif(not int8_is_exact(), reason="needs exact int8 products (VNNI or AMX)")


@needs_int8
def test_a_store_in_int8_records_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the dtype in its manifest; a small network gains nothing, which a warning states."""
    (tmp_path / "texts.tsv").write_text("d\tThe old harbour town.\n", encoding="utf-8")
    output = tmp_path / "vectors"
    options = ["--encoder", str(CHECKPOINT), "--device", "cpu", "--dtype", "int8", "--output", str(output)]
    assert main(["--corpus", str(tmp_path / "texts.tsv"), *options]) == 0
    assert open_store(output).manifest.dtype == "int8"
    assert "warning: dtype int8 gains nothing" in capsys.readouterr().err


@needs_int8
def test_int8_changes_the_weights_little() -> None:
    """The scores are within 5 % of float32's, and not the same."""
    encoder = MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="float32")
    other = MilcoEncoder.from_pretrained(CHECKPOINT, device="cpu", dtype="int8")
    assert (encoder.network.dtype, other.network.dtype) == (torch.float32, torch.int8)
    one, two = (each.encode_document("The old harbour town") for each in (encoder, other))
    assert float(two.dot(two)[0, 0]) == pytest.approx(float(one.dot(one)[0, 0]), rel=0.05)
    assert float(two.dot(two)[0, 0]) != float(one.dot(one)[0, 0])


def test_where_int8_cannot_be_had_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, on a processor without it, in training, and for encoders of other kinds."""
    with pytest.raises(MilcoError, match="dtype int8 is for the CPU, not for cuda:1: use bfloat16"):
        choose_dtype("int8", torch.device("cuda:1"), ENCODER_DTYPES)
    with pytest.raises(MilcoError, match="unknown dtype 'int8': valid are auto, bfloat16, fast, float32"):
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
