"""BGE-M3 as an encoder: the weights of a text's own pieces equal those of its linear layer."""

import json
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from golden_set import GOLDEN
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import XLMRobertaModel

from milco_pyserini.cli.encode import main
from milco_pyserini.encode.contract import MilcoDocumentEncoder, MilcoQueryEncoder, open_query_encoder
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import HEAD, Checkpoint
from milco_pyserini.model.forward import PaddedForward
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.model.packed import PackedForward
from milco_pyserini.sparse import PIVOT, SOURCE, SparseBatch, open_store

SIZE = json.loads((GOLDEN / "m_encoder" / "config.json").read_text())["hidden_size"]
TEXTS = ["sept heures, sept heures 陌陌 zzz", "book", "", "the bridge over the river <mask> " * 200, "خريطة"]


def layer(seed: int = 5) -> nn.Linear:
    """A head that gives about half the tokens a weight."""
    torch.manual_seed(seed)
    made = nn.Linear(SIZE, 1)
    nn.init.normal_(made.weight, std=0.5)
    return made


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The golden set's encoder with a head next to it, in BGE-M3's layout."""
    directory = shutil.copytree(GOLDEN / "m_encoder", tmp_path / "m3")
    torch.save(layer().state_dict(), directory / HEAD)
    return directory


def load(directory: Path, dtype: str = "float32") -> MilcoEncoder:
    return load_encoder(directory, "cpu", dtype)


@torch.inference_mode()
def straight(directory: Path, encoder: MilcoEncoder, text: str) -> dict[str, float]:
    """relu(w H + b) of each token, the highest of a repeated piece, special pieces left out."""
    ids = encoder.tokenizer.tokenize([text], 512)[0].ids
    weights: dict[str, float] = defaultdict(float)
    if ids:
        hidden = XLMRobertaModel.from_pretrained(directory).eval()(input_ids=torch.tensor([ids])).last_hidden_state
        for number, weight in zip(ids, layer()(hidden)[0, :, 0].relu().tolist(), strict=True):
            if number not in encoder.tokenizer.special_ids:
                piece = f"m_{encoder.tokenizer.pieces[number]}"
                weights[piece] = max(weights[piece], weight)
    return {piece: weight for piece, weight in weights.items() if weight > 0}


def spelled(encoder: MilcoEncoder, batch: SparseBatch) -> list[dict[str, float]]:
    return [
        {encoder.vocabulary.text(term): weight for term, weight in vector.items()}
        for vector in batch.to_dicts(encoder.vocabulary)
    ]


@pytest.mark.parametrize("form", [PackedForward, PaddedForward])
def test_weights_equal_the_layers(checkpoint: Path, form: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed, as on the CPU, and padded: every text of a batch equals encoder and layer applied to it."""
    if form is PaddedForward:
        monkeypatch.setattr(
            "milco_pyserini.encode.network.choose_forward",
            lambda network, device, dtype: PaddedForward(MilcoModel.from_weights(network), device, dtype),
        )
    encoder = load(checkpoint)
    found = spelled(encoder, encoder.encode_document(TEXTS))
    assert isinstance(encoder.network.runner.forward, form)
    expected = [straight(checkpoint, encoder, text) for text in TEXTS]
    assert found == [pytest.approx(weights, abs=1e-5, rel=1e-5) for weights in expected]
    assert found[0] and found[3] and not found[2]


def test_terms_are_the_texts_own_pieces(checkpoint: Path) -> None:
    """Only the source view, without special tokens; there is no English vocabulary."""
    encoder = load(checkpoint)
    assert encoder.views == (SOURCE,)
    assert len(encoder.vocabulary) == len(encoder.tokenizer.pieces)
    terms = {term for vector in spelled(encoder, encoder.encode_document(TEXTS)) for term in vector}
    assert all(term.startswith("m_") for term in terms)
    assert not terms & {"m_<s>", "m_</s>", "m_<unk>", "m_<mask>", "m_<pad>"}
    with pytest.raises(MilcoError, match=r"has no English vocabulary, so no pivot view. Use views='source'"):
        encoder.network.resolve_views((PIVOT,))


def test_default_length_is_512(checkpoint: Path) -> None:
    """Not the 8,192 that the checkpoint supports; --max-length changes it."""
    (checkpoint / "sentence_bert_config.json").write_text('{"max_seq_length": 8192}')
    encoder = load(checkpoint)
    assert (encoder.config.query_max_length, encoder.config.passage_max_length) == (512, 512)
    queries, documents = MilcoQueryEncoder(str(checkpoint)), MilcoDocumentEncoder(str(checkpoint))
    assert queries.encode(TEXTS[0]) == documents.encode([TEXTS[0]])[0] != {}


def test_hashes_are_of_encoder_and_layer(checkpoint: Path) -> None:
    """Two loadings have one hash; another layer has another."""
    first = load(checkpoint).hashes
    assert load(checkpoint).hashes == first
    torch.save(layer(6).state_dict(), checkpoint / HEAD)
    assert load(checkpoint).hashes != first


def test_the_command_writes_a_store_that_names_its_encoder(checkpoint: Path, tmp_path: Path) -> None:
    """encode --encoder accepts such a checkpoint; the manifest leads to the query encoder, with the same terms."""
    (tmp_path / "c.tsv").write_text(f"d1\tbook\nd2\t{TEXTS[0]}\n", encoding="utf-8")
    places = ["--corpus", str(tmp_path / "c.tsv"), "--output", str(tmp_path / "v")]
    assert main([*places, "--encoder", str(checkpoint), "--device", "cpu", "--dtype", "float32"]) == 0
    store = open_store(tmp_path / "v")
    assert store.manifest.views == [SOURCE]
    queries = open_query_encoder(store.manifest, device="cpu", dtype="float32")
    assert dict(store.vectors())["d2"] == queries.encode(TEXTS[0]) != {}


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_bge_m3_can_be_saved_as_milco(checkpoint: Path, tmp_path: Path) -> None:
    """MILCO's layout has the source view with an empty English vocabulary: same vectors, same hash."""
    encoder = load(checkpoint)
    encoder.save_pretrained(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.hashes == encoder.hashes
    assert spelled(again, again.encode_document(TEXTS)) == spelled(encoder, encoder.encode_document(TEXTS))


@pytest.mark.parametrize("prefix", ["roberta.", "model.", "module.roberta."])
def test_prefixed_tensor_names_are_read(checkpoint: Path, prefix: str) -> None:
    """Fine-tuning saves the encoder as part of a larger module; config.json's precision is ignored."""
    expected = load(checkpoint).hashes
    tensors = load_file(checkpoint / "model.safetensors")
    save_file({prefix + name: tensor for name, tensor in tensors.items()}, checkpoint / "model.safetensors")
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"dtype": "float16", "torch_dtype": "float16"}))
    assert load(checkpoint).hashes == expected


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (layer(), r"cannot be read as a linear layer with weight and bias: [^\n]+$"),
        ({"weight": torch.ones(1, SIZE)}, "cannot be read as a linear layer"),
        (nn.Linear(SIZE, 2).state_dict(), rf"is a layer of shape \(2, {SIZE}\), not one weight for each token"),
        (nn.Linear(SIZE + 1, 1).state_dict(), r"echo\.weight \(1, 33\) instead of \(1, 32\)"),
    ],
    ids=["an object", "no bias", "two outputs", "another size"],
)
def test_an_invalid_layer_is_refused(checkpoint: Path, saved: object, message: str) -> None:
    """Only tensors are loaded, never objects, which could contain code."""
    torch.save(saved, checkpoint / HEAD)
    with pytest.raises(MilcoError, match=message):
        load(checkpoint)


def test_another_encoder_type_is_refused(checkpoint: Path) -> None:
    """The layer was trained on the states of an XLM-R."""
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"model_type": "distilbert"}))
    with pytest.raises(MilcoError, match=r"sparse_linear\.pt is next to a distilbert encoder: BGE-M3's is of type xlm"):
        load(checkpoint)


def test_a_missing_layer_is_fetched_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head has the same revision; if the hub has none, there is none."""
    snapshot = tmp_path / "0123abc"
    snapshot.mkdir()
    (snapshot / "tokenizer.json").touch()
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **options: str(snapshot))
    asked = []

    def download(name: str, file: str, revision: str, local_files_only: bool = False, **_: object) -> str:
        if local_files_only:
            raise LocalEntryNotFoundError("not in the cache")
        asked.append((name, file, revision))
        if name == "some/encoder":
            raise LocalEntryNotFoundError("not there, and no network")
        return str(snapshot / file)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    assert Checkpoint.open("BAAI/bge-m3").head == snapshot / HEAD
    assert Checkpoint.open("some/encoder").head is None
    assert asked == [("BAAI/bge-m3", HEAD, "0123abc"), ("some/encoder", HEAD, "0123abc")]
    assert Checkpoint.open(tmp_path).head is None
    (snapshot / HEAD).touch()
    assert Checkpoint.open("BAAI/bge-m3").head == snapshot / HEAD
    assert len(asked) == 2
