"""A checkpoint is found once, states its kind, and is what everything after it takes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from golden_set import GOLDEN

from milco_pyserini.encode.contract import as_encoder
from milco_pyserini.encode.corpus import encode_corpus
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import HEAD, Checkpoint, Kind

pytestmark = pytest.mark.golden
MILCO, MASKED = GOLDEN / "ckpt_distillation", GOLDEN / "en_lsr"


def m3(directory: Path) -> Path:
    """BGE-M3's layout."""
    shutil.copytree(GOLDEN / "m_encoder", directory)
    torch.save({}, directory / HEAD)
    return directory


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (lambda _: "mini", Kind.MILCO),
        (lambda _: MILCO, Kind.MILCO),
        (lambda _: MASKED, Kind.MASKED_LANGUAGE_MODEL),
        (lambda _: f"st:{MASKED}", Kind.SENTENCE_TRANSFORMERS),
        (lambda _: GOLDEN / "m_encoder", Kind.OTHER),
        (lambda path: m3(path / "m3"), Kind.M3),
    ],
)
def test_a_checkpoint_states_its_kind(name: Callable[[Path], str | Path], kind: Kind, tmp_path: Path) -> None:
    """By its files, without torch."""
    assert Checkpoint.open(name(tmp_path)).kind is kind


@pytest.mark.parametrize("name", ["", "/nowhere", "./x", "~/x", "one", "a/b/c", "st:mini"])
def test_an_impossible_name_is_refused_before_anything_is_read(name: str) -> None:
    """The message has the name, an example, and what needs no hub."""
    with pytest.raises(MilcoError, match=r"no encoder at '.*': give a checkpoint directory.*'mini'"):
        Checkpoint.open(name)


def test_a_checkpoint_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often its files are asked for, the hub's cache is asked once; config.json is read once."""
    shutil.copytree(MASKED, tmp_path / "snapshot")
    asked = []

    def cached(name: str, **_: object) -> str:
        asked.append(name)
        return str(tmp_path / "snapshot")

    monkeypatch.setattr("huggingface_hub.snapshot_download", cached)
    checkpoint = Checkpoint.open("someone/splade")
    assert not asked
    encoder = as_encoder(checkpoint.fetch(), "cpu", "float32")
    assert Checkpoint.open(checkpoint) is checkpoint.fetch() and checkpoint.config is checkpoint.config
    assert encoder.name == "someone/splade" and encoder.tokenizer is checkpoint.tokenizer
    assert asked == ["someone/splade"]


def test_an_opened_checkpoint_is_an_encoder() -> None:
    """MilcoEncoder takes it where it takes a name; tokenizers are not read again."""
    checkpoint = Checkpoint.open(MILCO)
    encoder = MilcoEncoder.from_pretrained(checkpoint, device="cpu", dtype="float32", source_pool="max")
    assert encoder.english_tokenizer is checkpoint.english_tokenizer
    assert encoder.config.source_pool == "max"


def test_an_address_is_valid_in_every_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories become absolute, with st: before them if it was; other names stay as they are."""
    monkeypatch.chdir(GOLDEN)
    addresses = [Checkpoint.open(name).address for name in ("en_lsr", "st:en_lsr", "mini", "a/b@v1")]
    assert addresses == [str(MASKED.resolve()), f"st:{MASKED.resolve()}", "mini", "a/b@v1"]
    monkeypatch.chdir(tmp_path)
    assert Checkpoint.open(addresses[0]).kind is Kind.MASKED_LANGUAGE_MODEL


def test_workers_open_a_relative_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest has its name as it was given."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "splade").symlink_to(MASKED)
    monkeypatch.chdir(tmp_path)
    plan = EncodePlan(encoder="checkpoints/splade", dtype="float32")
    manifest = encode_corpus(["a bridge", "a river"], "store", plan, device="cpu,cpu")
    assert manifest is not None and manifest.encoder == "checkpoints/splade"


def test_weights_are_those_of_the_commit_that_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the repository gets another commit between configuration and weights."""
    snapshot = shutil.copytree(MASKED, tmp_path / "snapshots" / ("a" * 40))
    asked = []

    def cached(name: str, revision: str | None, **_: object) -> str:
        asked.append(revision)
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", cached)
    checkpoint = Checkpoint.open("someone/splade")
    checkpoint.validate_length(64)
    assert checkpoint.fetch().commit == "a" * 40
    assert asked == [None, "a" * 40]
