"""A masked language model as an encoder: its own logits, pooled like SPLADE's, over its own pieces."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_set import GOLDEN
from torch import nn
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    PreTrainedModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import PIVOT, SOURCE

PIECES = 358
# The head is wider than the vocabulary, as that of some published models.
SIZES = {"vocab_size": 360, "initializer_range": 0.4, "max_position_embeddings": 48}
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": lambda: BertForMaskedLM(BertConfig(**SMALL, **SIZES)),
    "distilbert": lambda: DistilBertForMaskedLM(
        DistilBertConfig(dim=16, hidden_dim=32, n_layers=2, n_heads=2, **SIZES)
    ),
    "xlm-roberta": lambda: XLMRobertaForMaskedLM(XLMRobertaConfig(**SMALL, **SIZES, pad_token_id=0)),
}
LIMITS = {"bert": 48, "distilbert": 48, "xlm-roberta": 47}
TEXTS = ["the old harbour", "music", "a bridge over the river, and a book about it " * 9, "", "music [MASK] [SEP] book"]
KINDS = sorted(MODELS)


def save(model: PreTrainedModel, directory: Path) -> Path:
    """A checkpoint in the layout in which the hub has it, with the tokenizer of the golden set's English side."""
    model.save_pretrained(directory)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(GOLDEN / "en_lsr" / name, directory)
    return directory


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random checkpoint of each kind, with biases of both signs."""
    made = {}
    for kind in KINDS:
        torch.manual_seed(3)
        model = MODELS[kind]()
        nn.init.normal_(model.get_output_embeddings().bias, std=0.5)
        made[kind] = save(model, tmp_path_factory.mktemp(kind))
    return made


def load(directory: Path, dtype: str = "float32") -> MilcoEncoder:
    return load_encoder(directory, "cpu", dtype)


def straight(directory: Path, encoder: MilcoEncoder, text: str) -> np.ndarray:
    """log1p(relu(max over tokens of the logits)) of one text, special pieces left out, float32 [358]."""
    ids = encoder.tokenizer.tokenize([text], encoder.model.config.passage_max_length)[0].ids
    if not ids:
        return np.zeros(PIECES, np.float32)
    with torch.inference_mode():
        logits = AutoModelForMaskedLM.from_pretrained(directory).eval()(input_ids=torch.tensor([ids])).logits[0]
    weights = torch.log1p(torch.relu(logits.max(dim=0).values))[:PIECES].numpy()
    weights[encoder.tokenizer.special_ids] = 0
    return weights


def rows(encoder: MilcoEncoder, texts: list[str]) -> np.ndarray:
    """The vectors of documents as rows of float32 [B, 358]."""
    batch = encoder.encode_document(texts)
    dense = np.zeros((len(texts), PIECES), np.float32)
    dense[batch.row_numbers(), batch.columns] = batch.weights
    return dense


@pytest.mark.parametrize("kind", KINDS)
def test_weights_equal_the_models_own_logits(checkpoints: dict[str, Path], kind: str) -> None:
    """Texts of all lengths in one batch, truncated and blank ones, as the model scores them one by one."""
    encoder = load(checkpoints[kind])
    found = rows(encoder, TEXTS)
    expected = np.stack([straight(checkpoints[kind], encoder, text) for text in TEXTS])
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)
    assert (found[3] == 0).all()
    assert all(0 < np.count_nonzero(row) < PIECES for row in found[[0, 1, 2, 4]])


def test_special_tokens_are_never_terms(tmp_path: Path) -> None:
    """However high their logits, and even if the text spells them."""
    model = MODELS["bert"]()
    encoder = load(save(model, tmp_path / "plain"))
    special = encoder.tokenizer.special_ids
    assert [encoder.tokenizer.pieces[number] for number in special] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    nn.init.zeros_(model.get_output_embeddings().bias)
    model.get_output_embeddings().bias.data[special] = 50
    raised = load(save(model, tmp_path / "raised"))
    np.testing.assert_allclose(rows(raised, TEXTS), rows(encoder, TEXTS), atol=1e-5)
    assert not rows(raised, TEXTS)[:, special].any()


def test_terms_are_the_tokenizers_own(checkpoints: dict[str, Path]) -> None:
    """Only the pivot view; without source columns, a piece may begin with m_."""
    encoder = load_encoder(checkpoints["bert"], "cpu", "float32", english_prefix="e_")
    assert encoder.views == (PIVOT,)
    assert [encoder.vocabulary.text(term) for term in encoder.vocabulary.terms] == [
        f"e_{piece}" for piece in encoder.tokenizer.pieces
    ]
    with pytest.raises(MilcoError, match=r"has no LexEcho head, so no source view. Use views='pivot'"):
        encoder.network.resolve_views((SOURCE,))


@pytest.mark.parametrize("kind", KINDS)
def test_texts_may_fill_all_positions(checkpoints: dict[str, Path], kind: str) -> None:
    """RoBERTa counts from the padding id + 1, the others from 0; one token more is refused."""
    encoder, limit = load(checkpoints[kind]), LIMITS[kind]
    assert (encoder.model.config.query_max_length, encoder.model.config.passage_max_length) == (limit, limit)
    assert len(encoder.tokenizer.tokenize([TEXTS[2]], limit)[0].ids) == limit
    assert len(encoder.encode(TEXTS[2], max_length=limit)) == 1
    with pytest.raises(MilcoError, match=f"takes 3 to {limit} tokens"):
        encoder.network.validate_length(limit + 1)


def test_default_length_is_at_most_512(tmp_path: Path) -> None:
    """sentence-transformers' file may state less, never more."""
    model = BertForMaskedLM(BertConfig(**SMALL, **SIZES | {"max_position_embeddings": 600}))
    directory = save(model, tmp_path)
    for stated, length in ((None, 512), (128, 128), (8192, 512)):
        (directory / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": stated}))
        assert load(directory).model.config.query_max_length == length


def test_a_masked_language_model_is_not_saved_as_milco(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """MILCO's layout lacks its head, so nothing is written."""
    with pytest.raises(MilcoError, match="cannot be saved as a MILCO checkpoint"):
        load(checkpoints["bert"]).save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_checkpoint_without_its_head_is_refused(tmp_path: Path) -> None:
    """config.json does not make a masked language model: its weights would be random."""
    directory = save(BertModel(BertConfig(**SMALL, **SIZES)), tmp_path)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    with pytest.raises(MilcoError, match=r"lacks cls\.predictions.*needs a trained masked language model's head"):
        load(directory)


def test_a_damaged_checkpoint_is_refused(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """One line that names the directory."""
    directory = shutil.copytree(checkpoints["bert"], tmp_path / "damaged")
    (directory / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(MilcoError, match=r"damaged cannot be read as a masked language model: [^\n]*$"):
        load(directory)


def test_a_tokenizer_larger_than_the_head_is_refused(tmp_path: Path) -> None:
    """Every piece needs a row of the head."""
    directory = save(BertForMaskedLM(BertConfig(**SMALL, **SIZES | {"vocab_size": 300})), tmp_path)
    with pytest.raises(MilcoError, match="its tokenizer has 358 pieces, its head scores 300"):
        load(directory)


POOLING = "1_SpladePooling/config.json"


@pytest.mark.parametrize(
    ("file", "stated", "refused"),
    [
        (POOLING, {"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": 360}, None),
        (POOLING, {"pooling_strategy": "sum"}, "pooling_strategy 'sum' is not supported, only 'max'"),
        (POOLING, {"activation_function": "log1p_relu"}, "activation_function 'log1p_relu' is not supported, only"),
        # Queries encoded like documents would be wrong.
        ("router_config.json", {}, "encodes queries and documents differently"),
    ],
)
def test_other_poolings_and_routers_are_refused(
    checkpoints: dict[str, Path], tmp_path: Path, file: str, stated: dict, refused: str | None
) -> None:
    """Their weights would differ from sentence-transformers'."""
    directory = shutil.copytree(checkpoints["bert"], tmp_path / "checkpoint")
    (directory / file).parent.mkdir(exist_ok=True)
    (directory / file).write_text(json.dumps(stated))
    if refused is None:
        assert load(directory).views == (PIVOT,)
        return
    with pytest.raises(MilcoError, match=refused):
        load(directory)
