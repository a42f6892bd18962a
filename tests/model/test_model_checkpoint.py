"""Every layout of a checkpoint gives one set of tensors; each that cannot be read is one line."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_set import CHECKPOINTS, GOLDEN, TEXTS, Tensors, bent, dense, encoder, save_safetensors, tensors

from milco_pyserini.encode.corpus import encode_corpus
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import write_json
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.layouts import read_tensors, rename_tensors
from milco_pyserini.model.modeling import MilcoConfig, MilcoModel

pytestmark = pytest.mark.golden
SAMPLE = [TEXTS[0], TEXTS[6], TEXTS[-1]]
BIASES = ("mlm_head.predictions.bias", "mlm_head.predictions.decoder.bias")


def read(directory: Path, **variants: object) -> MilcoEncoder:
    """The encoder of a directory, on the CPU in float32."""
    return MilcoEncoder.from_pretrained(directory, device="cpu", dtype="float32", **variants)


def assert_same_vectors(directory: Path, checkpoint: str) -> None:
    """Assert that a changed copy encodes like the checkpoint that it was made from."""
    actual = read(directory).encode(SAMPLE, max_length=512)
    np.testing.assert_array_equal(dense(actual), dense(encoder(checkpoint).encode(SAMPLE, max_length=512)))


def shard(directory: Path, suffix: str) -> None:
    """Replace the checkpoint's one file by three shards and their index, as transformers names them."""
    stem = {"bin": "pytorch_model", "safetensors": "model"}[suffix]
    values = torch.load(directory / "pytorch_model.bin", weights_only=True)
    (directory / "pytorch_model.bin").unlink()
    weight_map = {}
    for number in range(3):
        name = f"{stem}-0000{number + 1}-of-00003.{suffix}"
        part = dict(list(values.items())[number::3])
        weight_map |= dict.fromkeys(part, name)
        (save_safetensors if suffix == "safetensors" else lambda path, part: torch.save(part, path))(
            directory / name, part
        )
    write_json(directory / f"{stem}.{suffix}.index.json", {"metadata": {}, "weight_map": weight_map})


def renamed(values: Tensors, *pairs: tuple[str, str]) -> Tensors:
    """The tensors with the beginnings of their names replaced."""
    for old, new in pairs:
        values = {new + name.removeprefix(old) if name.startswith(old) else name: v for name, v in values.items()}
    return values


def without(*endings: str) -> Callable[[Tensors], Tensors]:
    """Return a change that drops the tensors whose names end so."""
    return lambda values: {name: tensor for name, tensor in values.items() if not name.endswith(endings)}


@pytest.mark.parametrize("suffix", ["bin", "safetensors"])
def test_shards_are_one_model(tmp_path: Path, suffix: str) -> None:
    """Three shards and an index give the same vectors as one file; a missing shard is named."""
    directory = bent(tmp_path, "distillation")
    shard(directory, suffix)
    assert_same_vectors(directory, "distillation")
    absent = next(directory.glob(f"*-00002-of-00003.{suffix}"))
    absent.unlink()
    with pytest.raises(MilcoError, match=f"lacks the shards {absent.name}"):
        read(directory)


@pytest.mark.parametrize(
    "change",
    [
        without("en_lsr.nothing"),
        lambda values: {name: tensor for name, tensor in values.items() if not name.startswith("en_lsr.")},
        without(BIASES[0]),
        without(BIASES[1]),
        without("mlm_head.predictions.decoder.weight"),
        without("position_ids"),
        lambda values: {f"module.{name}": tensor for name, tensor in values.items()},
        lambda values: {f"module.milco.{name}": tensor for name, tensor in values.items()},
        lambda values: renamed(
            values,
            ("mlm_head.predictions.transform.dense.", "mlm_head.dense."),
            ("mlm_head.predictions.transform.LayerNorm.", "mlm_head.layer_norm."),
            ("mlm_head.predictions.", "mlm_head."),
        ),
        lambda values: {
            f"module.{name}": tensor for name, tensor in without("decoder.weight", BIASES[1])(values).items()
        },
    ],
    ids=[
        "as it is",
        "no teacher",
        "bias in the decoder",
        "bias next to the decoder",
        "decoder tied to the teacher",
        "no position ids",
        "module.",
        "module.milco.",
        "RoBERTa's head",
        "module. and tied",
    ],
)
def test_every_spelling_of_a_checkpoint_is_read(tmp_path: Path, change: Callable[[Tensors], Tensors]) -> None:
    """Prefixes, RoBERTa's names, the bias in either place, the decoder tied or not: the same vectors."""
    values = tensors("alignment")
    # A tied decoder is the teacher's embedding matrix only until training unties them.
    tied = "en_lsr.bert.embeddings.word_embeddings.weight"
    values[tied] = values["mlm_head.predictions.decoder.weight"].clone()
    assert_same_vectors(bent(tmp_path, "alignment", lambda _: change(values)), "alignment")


def test_two_tensors_of_one_name_are_refused() -> None:
    """Unless they are equal, as a bias in both of its places is."""
    values = {"module.decoder.weight": torch.ones(2, 2), "decoder.weight": torch.zeros(2, 2)}
    with pytest.raises(MilcoError, match=r"decoder\.weight"):
        rename_tensors(values)
    assert list(rename_tensors(values | {"decoder.weight": torch.ones(2, 2)})) == ["decoder.weight"]


@pytest.mark.parametrize("stated", ["512", -3, True, 1.5])
def test_a_length_that_is_no_number_of_tokens_is_refused(stated: object, tmp_path: Path) -> None:
    """In sentence-transformers' file."""
    write_json(tmp_path / "sentence_bert_config.json", {"max_seq_length": stated})
    with pytest.raises(MilcoError, match="max_seq_length"):
        Checkpoint.open(tmp_path).text_length(512)


def test_a_missing_bias_is_named(tmp_path: Path) -> None:
    """A decoder without a bias under either name is an error, not a bias of zero."""
    with pytest.raises(MilcoError, match=r"lacks decoder\.bias"):
        MilcoModel.from_pretrained(bent(tmp_path, "distillation", without(*BIASES)))


def test_unused_tensors_are_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A tensor that the network lacks is named on stderr, and the others are loaded."""
    extra = {"encoder.adapter.weight": torch.ones(2)}
    MilcoModel.from_pretrained(bent(tmp_path, "distillation", lambda values: values | extra))
    assert "ignored encoder.adapter.weight" in capsys.readouterr().err
    MilcoModel.from_pretrained(GOLDEN / "ckpt_alignment")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_own_layout_round_trips(tmp_path: Path, checkpoint: str) -> None:
    """save_pretrained and from_pretrained keep every tensor, every vector and the configuration, bit for bit."""
    before = encoder(checkpoint)
    before.save_pretrained(tmp_path / "own")
    after = read(tmp_path / "own")
    old, new = before.model.state_dict(), after.model.state_dict()
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)
    assert before.hashes == after.hashes
    assert before.vocabulary.terms.tolist() == after.vocabulary.terms.tolist()
    np.testing.assert_array_equal(
        dense(before.encode(TEXTS, max_length=512)), dense(after.encode(TEXTS, max_length=512))
    )
    for field in MilcoConfig.__init__.__annotations__.keys() - {"encoder", "others", "return"}:
        assert getattr(after.config, field) == getattr(before.config, field), field
    actual = MilcoConfig(**json.loads((tmp_path / "own" / "config.json").read_text()))
    assert actual.encoder.to_dict() == after.model.config.encoder.to_dict()


def test_saved_checkpoints_keep_their_variants(tmp_path: Path) -> None:
    """A variant chosen at loading is saved with the checkpoint."""
    chosen = {"source_pool": "max", "source_drop_special": True, "query_max_length": 9}
    read(GOLDEN / "ckpt_distillation", **chosen).save_pretrained(tmp_path / "own")
    config = read(tmp_path / "own").config
    assert {name: getattr(config, name) for name in chosen} == chosen


def quantized(matrix: torch.Tensor, largest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers from -largest to largest, and the scale of every row."""
    scale = matrix.abs().amax(dim=1) / largest
    return torch.round(matrix / scale[:, None]).to(torch.int8), scale


@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_matrices_are_dequantized(tmp_path: Path, bits: int) -> None:
    """int8 rows, and two 4-bit values a byte (low first, value + 8), times their row's scale."""
    encoder("distillation").save_pretrained(tmp_path / "own")
    path = tmp_path / "own" / "model.safetensors"
    values = read_tensors(Checkpoint.open(tmp_path / "own"))
    wanted = dict(values)
    for name in ("encoder.embeddings.word_embeddings.weight", "decoder.weight"):
        integers, scale = quantized(values[name], 127 if bits == 8 else 7)
        wanted[name] = torch.stack([row * factor for row, factor in zip(integers.float(), scale, strict=True)])
        if bits == 4:
            shifted = (integers + 8).to(torch.uint8)
            integers = shifted[:, 0::2] | (shifted[:, 1::2] << 4)
        values |= {name: integers, f"{name}_scale": scale.half() if bits == 8 else scale}
        if bits == 8:
            wanted[name] = integers.float() * scale.half().float()[:, None]
    save_safetensors(path, values)
    assert path.stat().st_size < (GOLDEN / "ckpt_distillation" / "pytorch_model.bin").stat().st_size
    after = MilcoModel.from_pretrained(tmp_path / "own").state_dict()
    assert all(torch.equal(after[name], wanted[name]) for name in wanted)


def test_blocks_of_a_row_may_have_scales_of_their_own(tmp_path: Path) -> None:
    """[R, G] scales of G equal blocks; a number of blocks that does not divide the row is refused."""
    encoder("distillation").save_pretrained(tmp_path / "own")
    path = tmp_path / "own" / "model.safetensors"
    values = read_tensors(Checkpoint.open(tmp_path / "own"))
    name = "decoder.weight"
    rows, columns = values[name].shape
    integers, scale = quantized(values[name].reshape(-1, columns // 4), 7)
    shifted = (integers.reshape(rows, columns) + 8).to(torch.uint8)
    parts = {name: shifted[:, 0::2] | (shifted[:, 1::2] << 4), f"{name}_scale": scale.reshape(rows, 4)}
    save_safetensors(path, values | parts)
    matrix = read_tensors(Checkpoint.open(tmp_path / "own"))[name]
    wanted = (integers * scale[:, None]).reshape(rows, columns)
    assert torch.equal(matrix.float(), wanted)
    assert torch.equal(matrix[torch.tensor([3, 0, 3])], wanted[[3, 0, 3]])
    assert torch.equal(matrix[2:5], wanted[2:5])
    for blocks in (0, 5):
        save_safetensors(path, values | parts | {f"{name}_scale": torch.ones(rows, blocks)})
        with pytest.raises(MilcoError, match="needs the scale of each row, or of blocks of each row"):
            read_tensors(Checkpoint.open(tmp_path / "own"))


def as_safetensors(directory: Path) -> None:
    """Replace the file of the tensors."""
    (directory / "pytorch_model.bin").unlink()
    shutil.copy(GOLDEN / "ckpt_distillation" / "model.safetensors.alt", directory / "model.safetensors")


def move_sub_models(directory: Path) -> None:
    """Put the sub-models into the checkpoint's directory, instead of next to it."""
    for name in ("m_encoder", "en_lsr"):
        (directory.parent / name).rename(directory / name)


def rename_type(directory: Path) -> None:
    """Give config.json another model_type: it names the encoder and the English model."""
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"model_type": "mlsr"}))


def without_tokenizer_json(directory: Path) -> None:
    """Leave vocab.txt of the English model only."""
    (directory.parent / "en_lsr" / "tokenizer.json").unlink()


@pytest.mark.parametrize("change", [as_safetensors, move_sub_models, rename_type, without_tokenizer_json])
def test_every_layout_is_one_model(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """The same vectors and the same terms."""
    directory = bent(tmp_path, "distillation")
    change(directory)
    assert_same_vectors(directory, "distillation")
    loaded = load_encoder(directory, device="cpu", dtype="float32")
    assert isinstance(loaded.model, MilcoModel)
    assert loaded.vocabulary.terms.tolist() == encoder("distillation").vocabulary.terms.tolist()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("m_encoder", r"number of attention heads .*\. Put the config\.json"),
        ("en_lsr", r"expected tokenizer\.json in "),
    ],
)
def test_a_missing_sub_model_is_named(tmp_path: Path, name: str, wanted: str) -> None:
    """Heads are in no tensor's shape and a vocabulary in no tensor: neither is guessed, the error names the place."""
    directory = bent(tmp_path, "distillation")
    shutil.rmtree(tmp_path / name)
    with pytest.raises(MilcoError, match=wanted):
        read(directory)


def test_a_tokenizer_of_another_size_is_refused(tmp_path: Path) -> None:
    """It must fit the embedding; the English one: test_model_faults.py."""
    name = "m_model.embeddings.word_embeddings.weight"
    small = bent(tmp_path, "distillation", lambda values: values | {name: values[name][:500]})
    with pytest.raises(MilcoError, match=r"577 .* 500"):
        read(small)


def test_a_directory_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    """A missing path, an empty directory, another model: each error states what was expected."""
    with pytest.raises(MilcoError, match="'/nowhere/at/all'"):
        Checkpoint.open("/nowhere/at/all")
    with pytest.raises(MilcoError, match="no weights"):
        MilcoModel.from_pretrained(tmp_path)
    with pytest.raises(MilcoError, match="'bert'"):
        MilcoModel.from_pretrained(GOLDEN / "en_lsr")


def test_unknown_variants_are_refused() -> None:
    """A misspelled field is answered with the nearest valid one, never ignored; values: test_model_faults.py."""
    with pytest.raises(MilcoError, match="did you mean 'source_pool'"):
        MilcoModel.from_pretrained(GOLDEN / "ckpt_distillation", source_pol="max")


def test_an_offline_hub_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline by choice (HF_HUB_OFFLINE), the error names the embedded encoder and a local path."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(MilcoError, match=r"encoder 'no-one/no-milco' .*[^\n]Pass the path .*'mini', which needs no"):
        MilcoEncoder.from_pretrained("no-one/no-milco")


def test_an_unreachable_hub_is_one_line(tmp_path: Path) -> None:
    """A hub that does not answer gives the same error as one that is not asked; without torch, which takes seconds."""
    surroundings = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    surroundings |= {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", "from milco_pyserini.io.hub import fetch_snapshot; fetch_snapshot('no/none', ['*'])"],
        env={**surroundings, "PYTHONPATH": str(GOLDEN.parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    message = "Unreachable: no/none is not in the local cache and the hub cannot be reached. Run the same command"
    assert message in done.stderr.splitlines()[-1]


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The snapshot directory of someone/small-milco in an otherwise empty hub cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--someone--small-milco"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("a" * 40)
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    return snapshot


def test_a_cached_checkpoint_needs_no_network(hub_cache: Path) -> None:
    """A complete cached snapshot is used without the network, by the model's hub name."""
    shutil.copytree(bent(hub_cache.parents[4] / "parts", "distillation"), hub_cache, dirs_exist_ok=True)
    for name in ("m_encoder", "en_lsr"):
        shutil.copytree(GOLDEN / name, hub_cache / name)
    assert Checkpoint.open("someone/small-milco").fetch().directory == hub_cache
    assert_same_vectors(Path("someone/small-milco"), "distillation")


def test_an_interrupted_download_is_resumed(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached snapshot without its weights is fetched again, not read as an empty checkpoint."""
    (hub_cache / "config.json").write_text("{}")
    asked = []

    def fetch(name: str, local_files_only: bool = False, **_: object) -> str:
        asked.append(local_files_only)
        if not local_files_only:
            (hub_cache / "model.safetensors").write_bytes(b"integers")
        return str(hub_cache)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert Checkpoint.open("someone/small-milco").fetch().directory == hub_cache
    assert asked == [True, False]
    assert Checkpoint.open("someone/small-milco").fetch().directory == hub_cache
    assert asked == [True, False, True]


def test_a_tokenizer_is_fetched_without_weights(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the weights is fetched, once; the weights are fetched when they are needed."""
    fetched: list[str] = []

    def fetch(name: str, allow_patterns: Sequence[str] = (), **_: object) -> str:
        for file in ("config.json", "tokenizer.json", "model.safetensors"):
            if any(fnmatch(file, pattern) for pattern in allow_patterns):
                fetched.append(file)
                shutil.copy(GOLDEN / "en_lsr" / file, hub_cache)
        return str(hub_cache)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    for _ in range(2):
        assert len(Checkpoint.open("someone/small-milco").tokenizer.pieces) == 358
        assert fetched == ["config.json", "tokenizer.json"]
    assert Checkpoint.open("someone/small-milco").fetch().directory == hub_cache
    assert fetched[2:] == ["config.json", "tokenizer.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("files", "fetched"),
    [
        (("model.safetensors", "pytorch_model.bin"), ["model.safetensors"]),
        (("pytorch_model.bin",), ["pytorch_model.bin"]),
    ],
)
def test_weights_are_fetched_in_one_form(
    hub_cache: Path, monkeypatch: pytest.MonkeyPatch, files: Sequence[str], fetched: list[str]
) -> None:
    """A repository with the same weights as .safetensors and .bin costs one download."""
    monkeypatch.setattr("milco_pyserini.model.checkpoint.cached_snapshot", lambda *_, **options: None)

    def fetch(name: str, allow_patterns: Sequence[str], **_: object) -> str:
        for file in files:
            if any(fnmatch(file, pattern) for pattern in allow_patterns):
                (hub_cache / file).touch()
        return str(hub_cache)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert Checkpoint.open("someone/small-milco").fetch().directory == hub_cache
    assert [file.name for file in hub_cache.iterdir()] == fetched


def test_a_cached_checkpoint_may_lack_a_tokenizer(
    hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The authors' checkpoints name another's tokenizer: with the weights cached, the hub is not asked again."""
    shutil.copytree(bent(tmp_path / "parts", "distillation"), hub_cache, dirs_exist_ok=True)
    shutil.copytree(GOLDEN / "m_encoder", hub_cache / "m_encoder")

    def cached(name: str, local_files_only: bool = False, **_: object) -> str:
        assert local_files_only
        return str(hub_cache)

    monkeypatch.setattr("huggingface_hub.snapshot_download", cached)
    assert Checkpoint.open("someone/small-milco").tokenizer.pieces == encoder("distillation").tokenizer.pieces


def test_heads_are_those_of_the_encoder_on_the_hub(
    hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """config.json of an encoder that is only named is fetched; if it cannot be, the error names where to put it."""
    directory = bent(tmp_path, "distillation")
    config = json.loads((directory / "config.json").read_text())
    config["multilingual_encoder_checkpoint"] = "someone/small-milco"
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(MilcoError, match="attention heads") as error:
        MilcoModel.from_pretrained(directory)
    assert str(directory / "someone/small-milco") in str(error.value)
    shutil.copy(GOLDEN / "m_encoder" / "config.json", hub_cache)
    assert MilcoModel.from_pretrained(directory).config.encoder.num_attention_heads == 4


def test_a_revision_of_a_checkpoint_is_pinned(hub_cache: Path, tmp_path: Path) -> None:
    """NAME@REVISION reads that snapshot, whatever main is, and its commit can be recorded."""
    other = hub_cache.with_name("b" * 40)
    shutil.copytree(GOLDEN / "en_lsr", other)
    shutil.copytree(GOLDEN / "en_lsr", hub_cache, dirs_exist_ok=True)
    (hub_cache.parents[1] / "refs" / "v1").write_text("b" * 40)
    assert Checkpoint.open("someone/small-milco").fetch().directory == hub_cache
    for revision in ("v1", "b" * 40):
        assert Checkpoint.open(f"someone/small-milco@{revision}").fetch().directory == other
        assert Checkpoint.open(f"someone/small-milco@{revision}").commit == "b" * 40
        assert load_encoder("someone/small-milco", revision=revision).name == f"someone/small-milco@{revision}"
    assert Checkpoint.open("mini").commit is None
    with pytest.raises(MilcoError, match="'mini' is not on the hub"):
        load_encoder("mini", revision="v1")
    with pytest.raises(MilcoError, match="small-milco@v2'"):
        Checkpoint.open("someone/small-milco@v2").fetch()


def test_the_commit_of_a_checkpoint_is_recorded(hub_cache: Path, tmp_path: Path) -> None:
    """A store's manifest has the encoder with its revision, and the commit that it was."""
    shutil.copytree(GOLDEN / "en_lsr", hub_cache, dirs_exist_ok=True)
    (tmp_path / "texts.jsonl").write_text('{"id": "1", "text": "bridge"}\n')
    plan = EncodePlan(encoder="someone/small-milco@main")
    manifest = encode_corpus(tmp_path / "texts.jsonl", tmp_path / "store", plan, device="cpu")
    assert manifest is not None and manifest.encoder == "someone/small-milco@main"
    assert manifest.versions["checkpoint"] == "a" * 40


def test_a_saved_card_explains_what_trust_remote_code_runs(tmp_path: Path) -> None:
    """sentence-transformers needs the option; a reader learns that it runs the checkpoint's Python file."""
    encoder("distillation").save_pretrained(tmp_path)
    card = " ".join((tmp_path / "README.md").read_text(encoding="utf-8").split())
    assert '`SparseEncoder("PATH", trust_remote_code=True)`, which runs the Python file in this directory' in card
    assert [file.name for file in tmp_path.glob("*.py")] == ["milco_sentence_transformers.py"]
