"""Dense encoders: vectors by checkpoints of many layouts."""

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_set import GOLDEN
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from milco_pyserini.errors import MilcoError
from recipes.dense.encoder import POOLINGS, DenseEncoder, pool, pool_packed

TEXTS = ["music", "", "the river Nile is the longest of Africa", "music", "two words"]
WORDS = ["old", "harbour", "river", "music", "the", "two", "words", "query:", "passage:"]
ENCODER = GOLDEN / "m_encoder"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of a tiny XLM-R, to which files may be added."""
    place = tmp_path / "checkpoint"
    place.mkdir()
    for file in ENCODER.iterdir():
        (place / file.name).symlink_to(file)
    return place


def word_tokenizer(path: Path, before: bool) -> None:
    """WORDS as a tokenizer of transformers, with a special token after every text and, if before, one before it."""
    pieces = {piece: number for number, piece in enumerate(["<pad>", "<s>", "</s>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(pieces, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    single = "<s> $A </s>" if before else "$A </s>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(mark, pieces[mark]) for mark in ("<s>", "</s>")]
    )
    tokenizer.save(str(path / "tokenizer.json"))
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))


def bert(path: Path) -> Path:
    """A tiny BERT with 16 positions and a pooler."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=13, max_position_embeddings=16, **sizes)).save_pretrained(path)
    word_tokenizer(path, before=True)
    return path


def causal(path: Path) -> Path:
    """A tiny decoder whose tokenizer adds only an end token, like Qwen3's embedding models."""
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    Qwen3Model(Qwen3Config(vocab_size=13, intermediate_size=64, head_dim=16, **sizes)).save_pretrained(path)
    word_tokenizer(path, before=False)
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true, "pooling_mode_cls_token": false}')
    return path


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "XLM-R": lambda _: ENCODER,
    "MILCO": lambda _: GOLDEN / "ckpt_alignment",
    "BERT": bert,
    "decoder": causal,
}


def test_poolings_equal_their_definitions() -> None:
    """First, last and mean of the tokens; padding is ignored."""
    states = torch.tensor([[[1.0, 0], [2, 0], [6, 0]], [[1.0, 1], [3, 3], [99, 99]]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert pool(states, mask, "cls").tolist() == [[1, 0], [1, 1]]
    assert pool(states, mask, "last").tolist() == [[6, 0], [3, 3]]
    assert pool(states, mask, "mean").tolist() == [[3, 0], [2, 2]]
    together = torch.cat([states[0], states[1]])
    for pooling in POOLINGS:
        assert pool_packed(together, [3, 2], pooling).tolist() == pool(states, mask, pooling).tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dense_vectors_do_not_depend_on_batch_composition(layout: str, tmp_path: Path) -> None:
    """L2-normalized, in the order of the texts; a blank text is zero."""
    encoder = DenseEncoder(str(LAYOUTS[layout](tmp_path)), device="cpu", dtype="float32")
    vectors = encoder.encode_document(TEXTS)
    assert vectors.dtype == np.float32 and vectors.shape == (5, encoder.dimensions)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 0, 1, 1, 1], abs=1e-5)
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert encoder.encode_document(text)[0] == pytest.approx(vector, abs=1e-5)
    assert encoder.encode_document([]).shape == (0, encoder.dimensions)


def test_one_text_is_a_batch_of_one() -> None:
    """And not its letters."""
    encoder = DenseEncoder(str(ENCODER), device="cpu", dtype="float32")
    assert np.array_equal(encoder.encode_query("music"), encoder.encode_query(["music"]))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("layout", ["XLM-R", "BERT", "decoder"])
def test_vectors_equal_transformers(layout: str, pooling: str, tmp_path: Path) -> None:
    """One text at a time through AutoModel, pooled and normalized by hand."""
    from transformers import AutoModel, AutoTokenizer

    path = LAYOUTS[layout](tmp_path)
    model, tokenizer = AutoModel.from_pretrained(path).eval(), AutoTokenizer.from_pretrained(path)
    texts = ["two words", "old harbour the river", "music " * 30]
    expected = []
    for text in texts:
        # A decoder's tokens that are left out are before its mark, too.
        ids = tokenizer(text)["input_ids"]
        ids = ids if len(ids) <= 14 else [*ids[:13], ids[-1]]
        with torch.inference_mode():
            states = model(torch.tensor([ids])).last_hidden_state[0]
        vector = {"cls": states[0], "last": states[-1], "mean": states.mean(dim=0)}[pooling]
        expected.append((vector / vector.norm()).numpy())
    encoder = DenseEncoder(str(path), pooling, device="cpu", dtype="float32")
    assert encoder.encode_document(texts, max_length=14) == pytest.approx(np.stack(expected), abs=1e-5)


def test_vectors_equal_sentence_transformers(tmp_path: Path) -> None:
    """A model that sentence-transformers saved, with its prompts, pooling and length."""
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    model = library.SentenceTransformer(str(ENCODER), device="cpu")
    model.max_seq_length = 9
    model.prompts = {"query": "music ", "document": "two "}
    model.save(str(tmp_path / "saved"))
    encoder = DenseEncoder(str(tmp_path / "saved"), device="cpu", dtype="float32")
    texts = ["old harbour", "the longest river of Africa " * 3]
    for name in ("encode_query", "encode_document"):
        wanted = getattr(model, name)(texts, normalize_embeddings=True)
        assert getattr(encoder, name)(texts) == pytest.approx(wanted, abs=1e-5)


def test_pooling_and_prompts_come_from_the_checkpoint(checkpoint: Path) -> None:
    """sentence-transformers' files are read, old and new; arguments take precedence."""
    (checkpoint / "1_Pooling").mkdir()
    (checkpoint / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (checkpoint / "config_sentence_transformers.json").write_text('{"prompts": {"query": "two "}}')
    encoder = DenseEncoder(str(checkpoint), device="cpu")
    assert encoder.pooling == "cls"
    assert DenseEncoder(str(checkpoint), "mean", device="cpu").pooling == "mean"
    assert (encoder.encode_query(["words"]) == encoder.encode_document(["two words"])).all()
    (checkpoint / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    asked = DenseEncoder(str(checkpoint), device="cpu", query_prompt="")
    assert (asked.pooling, asked.query_prompt, asked.document_prompt) == ("last", "", "")


def damaged(path: Path) -> Path:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForMaskedLM(BertConfig(vocab_size=13, num_hidden_layers=1, **sizes))
    weights = {name: tensor for name, tensor in model.state_dict().items() if "query" not in name}
    model.save_pretrained(path, state_dict=weights)
    word_tokenizer(path, before=True)
    return path


def test_an_unsupported_checkpoint_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    """A module or a pooling that is not supported, missing weights, or no model: one line that names it."""
    (checkpoint / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')
    with pytest.raises(MilcoError, match=r"modules.json names a module Dense: supported are Transformer, Pooling"):
        DenseEncoder(str(checkpoint), device="cpu")
    (checkpoint / "modules.json").write_text('["Dense"]')
    with pytest.raises(MilcoError, match=r"modules.json is not a list of modules"):
        DenseEncoder(str(checkpoint), device="cpu")
    (checkpoint / "modules.json").unlink()
    (checkpoint / "1_Pooling").mkdir()
    for stderr in ('{"pooling_mode_max_tokens": true}', '{"pooling_mode": ["cls", "mean"]}', "{}"):
        (checkpoint / "1_Pooling" / "config.json").write_text(stderr)
        with pytest.raises(MilcoError, match=r"does not state one pooling of cls, mean, last.* pooling"):
            DenseEncoder(str(checkpoint), device="cpu")
    with pytest.raises(MilcoError, match=r"lacks the weights encoder.layer.0.attention.self.query.bias, enc"):
        DenseEncoder(str(damaged(tmp_path / "damaged")), device="cpu")
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(MilcoError, match=r"cannot be read as a dense encoder: .*unheard-of"):
        DenseEncoder(str(tmp_path), device="cpu")
    with pytest.raises(MilcoError, match=r"maximum length 600: encoder .* takes 3 to 512 tokens"):
        DenseEncoder(str(ENCODER), device="cpu").encode_query("music", max_length=600)


def test_a_missing_pooler_is_not_reported(tmp_path: Path) -> None:
    """transformers advises to train it; dense vectors do not depend on it."""
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    BertForMaskedLM(BertConfig(vocab_size=13, num_hidden_layers=1, **sizes)).save_pretrained(tmp_path)
    word_tokenizer(tmp_path, before=True)
    logger, stderr = logging.getLogger("transformers"), io.StringIO()
    level, handler = logger.level, logging.StreamHandler(stderr)
    logger.addHandler(handler)
    try:
        DenseEncoder(str(tmp_path), device="cpu")
    finally:
        logger.removeHandler(handler)
    assert stderr.getvalue() == "" and logger.level == level
