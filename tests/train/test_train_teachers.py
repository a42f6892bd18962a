"""Teachers of SAP: lexical, and masked language models."""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from math import expm1, log
from pathlib import Path

import huggingface_hub
import pytest
import torch
from golden_set import GOLDEN, expected
from huggingface_hub.errors import GatedRepoError
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    AutoTokenizer,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    PreTrainedModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from milco_pyserini.corpora.bitext import BitextPair
from milco_pyserini.errors import MilcoError
from milco_pyserini.train import lexical_teacher, teachers
from milco_pyserini.train.lexical_teacher import LexicalTeacher
from milco_pyserini.train.teachers import MaskedLanguageModelTeacher, validate_vocabulary

CHECKPOINT = GOLDEN / "en_lsr"
# The English side of the golden bitext.
ENGLISH = [
    "Who wrote the first book about the river bridge?",
    "The old harbour town opens a small market.",
    "A train leaves at seven.",
]
# Ten pieces of the golden vocabulary in different numbers of texts, so that their idf differs.
COUNTED = [f"the {' '.join(words)}." for words in (["book"], ["book", "river"], ["river", "book"], ["train"])] * 5
COUNTED += ["the market"] * 30


def tokenizer() -> Tokenizer:
    """The golden set's lowercasing WordPiece tokenizer."""
    return Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))


def lexical(**options: object) -> LexicalTeacher:
    """A teacher fitted on COUNTED."""
    return LexicalTeacher.fit(COUNTED, tokenizer(), **options)


def paired(texts: Sequence[str]) -> list[BitextPair]:
    """Return pairs with these English sides."""
    return [BitextPair("und", "", text) for text in texts]


def targets(teacher: LexicalTeacher | MaskedLanguageModelTeacher, *texts: str) -> Tensor:
    """Return the targets of texts, float32 [B, V_e]."""
    return teacher.targets(teacher.prepare(paired(texts)))


def held(teacher: LexicalTeacher, text: str) -> dict[str, float]:
    """Return the tokens with a logit above 0."""
    row = targets(teacher, text)[0]
    return {teacher.vocabulary[column]: row[column].item() for column in row.nonzero().flatten().tolist()}


def wanted_logits(texts: list[str], text: str) -> dict[str, float]:
    """Compute the target by definition: expm1 of 1.1 (idf / 9)^.7 (1 + .3 log tf)."""
    documents = Counter(word for t in texts for word in set(t.replace(".", "").split()))
    counts = Counter(text.replace(".", "").split())
    idf = {word: log((len(texts) + 1) / (documents[word] + 3)) for word in counts}
    return {w: expm1(1.1 * (idf[w] / 9) ** 0.7 * (1 + 0.3 * log(n))) for w, n in counts.items() if w != "the"}


@pytest.mark.parametrize("text", ["the book.", "the book river book book", "train river"])
def test_lexical_targets_follow_the_formula(text: str) -> None:
    """Rare and repeated tokens weigh more, function words and punctuation nothing."""
    assert held(lexical(), text) == pytest.approx(wanted_logits(COUNTED, text), rel=1e-4)


def test_lexical_targets_do_not_depend_on_the_batch() -> None:
    """For short, long and empty texts."""
    teacher = lexical()
    texts = ["book", "", "the book of the river, the river and a train", "..."]
    together = targets(teacher, *texts)
    assert together.shape == (4, len(teacher.vocabulary))
    assert together.dtype == torch.float32
    for row, text in zip(together, texts, strict=True):
        assert torch.equal(row, targets(teacher, text)[0])
    assert (together > 0).sum(dim=1).tolist() == [1, 0, 3, 0]


def test_prepared_batches_can_be_split_by_rows() -> None:
    """Half a batch gives half of the targets, for both teachers."""
    for teacher in (lexical(), MaskedLanguageModelTeacher.from_pretrained(CHECKPOINT)):
        prepared = teacher.prepare(paired(ENGLISH))
        part = teacher.targets({name: tensor[1:] for name, tensor in prepared.items()})
        torch.testing.assert_close(part, teacher.targets(prepared)[1:])


def test_targets_are_truncated_to_max_length() -> None:
    """The student does not see the rest either."""
    assert held(lexical(max_length=2), "the book river").keys() == {"book"}
    long = MaskedLanguageModelTeacher.from_pretrained(CHECKPOINT, max_length=4)
    torch.testing.assert_close(targets(long, "book river train"), targets(long, "book river"))


def test_fitting_reads_a_limited_number_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """MAX_TEXTS of an endless stream."""
    monkeypatch.setattr(lexical_teacher, "MAX_TEXTS", len(COUNTED))

    def stream() -> Iterator[str]:
        yield from COUNTED
        raise AssertionError("read too far")

    teacher = LexicalTeacher.fit(stream(), tokenizer())
    assert torch.equal(targets(teacher, *COUNTED), targets(lexical(), *COUNTED))


@pytest.mark.parametrize("texts", [[], ["book"]])
def test_too_few_texts_are_refused(texts: list[str]) -> None:
    """Before training, rather than with a loss of zero."""
    with pytest.raises(MilcoError, match=f"needs thousands of English texts, not {len(texts)}"):
        LexicalTeacher.fit(texts, tokenizer())


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (["a", "b", "c"], r"the teacher has 3 English tokens and the model 2; the first 2 are equal"),
        (["a", "x"], r"the teacher has 2 .* the model 2; token 1 is 'x' in the teacher and 'b' in the model"),
    ],
)
def test_a_different_vocabulary_is_refused(pieces: list[str], message: str) -> None:
    """The error has both sizes and the first difference."""
    validate_vocabulary(["a", "b"], ["a", "b"])
    with pytest.raises(MilcoError, match=message):
        validate_vocabulary(pieces, ["a", "b"])


SIZES = {"vocab_size": 358, "initializer_range": 0.5}
DISTILBERT = DistilBertConfig(dim=8, hidden_dim=16, n_layers=1, n_heads=2, **SIZES)
ROBERTA = XLMRobertaConfig(
    hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, pad_token_id=0, **SIZES
)


class Squared(BertForMaskedLM):
    """A model that transforms its logits: the decoder is not the last step."""

    def forward(self, **inputs: Tensor) -> object:
        """Square and negate the logits."""
        output = super().forward(**inputs)
        output.logits = 1 - output.logits.square()
        return output


def model(kind: str) -> PreTrainedModel:
    """Return a small masked language model with large weights."""
    torch.manual_seed(0)
    if kind == "distilbert":
        return DistilBertForMaskedLM(DISTILBERT).eval()
    if kind == "xlm-roberta":
        return XLMRobertaForMaskedLM(ROBERTA).eval()
    if kind == "no bias":
        bare = BertForMaskedLM.from_pretrained(CHECKPOINT).eval()
        bare.get_output_embeddings().bias = None
        return bare
    return {"bert": BertForMaskedLM, "squared": Squared}[kind].from_pretrained(CHECKPOINT).eval()


@pytest.mark.parametrize("padding", ["-inf", "zero"])
@pytest.mark.parametrize("kind", ["bert", "no bias", "distilbert", "xlm-roberta"])
def test_targets_are_maximum_logits(kind: str, padding: str) -> None:
    """Over the positions of the model's own logits."""
    pieces = AutoTokenizer.from_pretrained(CHECKPOINT)
    inputs = {k: v for k, v in pieces(ENGLISH, padding=True, return_tensors="pt").items() if k != "token_type_ids"}
    mask = inputs["attention_mask"].unsqueeze(-1)
    with torch.no_grad():
        logits = model(kind)(**inputs).logits
    masked = logits * mask if padding == "zero" else logits.masked_fill(mask == 0, -torch.inf)
    teacher = MaskedLanguageModelTeacher(model(kind), pieces, padding)
    torch.testing.assert_close(teacher.targets(inputs), masked.max(dim=1).values, atol=1e-5, rtol=1e-5)
    assert (masked.max(dim=1).values < 0).any()


def test_a_model_that_changes_its_logits_is_refused() -> None:
    """Its decoder is not the last step."""
    with pytest.raises(MilcoError, match="the logits of a Squared are not one matrix product of its states"):
        MaskedLanguageModelTeacher(model("squared"), AutoTokenizer.from_pretrained(CHECKPOINT))


@pytest.mark.golden
def test_the_golden_teacher_has_as_many_terms_as_the_authors() -> None:
    """The mean over the English golden sentences, with both paddings."""
    for padding in teachers.PADDINGS:
        teacher = MaskedLanguageModelTeacher.from_pretrained(CHECKPOINT, padding)
        terms = (targets(teacher, *ENGLISH) > 0).sum(dim=1).float().mean().item()
        assert terms == pytest.approx(float(expected()["alignment.loss.teacher_length"]))


def test_only_zero_padding_depends_on_the_batch() -> None:
    """The authors' way raises negative targets to 0 in padded rows."""
    default, zero = (MaskedLanguageModelTeacher.from_pretrained(CHECKPOINT, p) for p in ("-inf", "zero"))
    alone, padded = targets(default, ENGLISH[2])[0], targets(default, *ENGLISH)[2]
    torch.testing.assert_close(alone, padded)
    assert (alone < 0).any()
    torch.testing.assert_close(targets(zero, ENGLISH[2])[0], alone)
    torch.testing.assert_close(targets(zero, *ENGLISH)[2], alone.clamp(min=0))


def test_a_teacher_is_frozen() -> None:
    """No dropout and no gradient, even in training mode."""
    teacher = MaskedLanguageModelTeacher.from_pretrained(CHECKPOINT)
    torch.nn.ModuleList([teacher]).train()
    assert not any(module.training for module in teacher.modules())
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert not targets(teacher, *ENGLISH).requires_grad
    assert teacher.vocabulary == [tokenizer().id_to_token(column) for column in range(358)]


def test_a_checkpoint_without_a_head_is_refused(tmp_path: Path) -> None:
    """So are damaged checkpoints and other directories."""
    with pytest.raises(
        MilcoError, match=r"m_encoder lacks lm_head\.bias.*needs a trained masked language model's head"
    ):
        MaskedLanguageModelTeacher.from_pretrained(GOLDEN / "m_encoder")
    with pytest.raises(MilcoError, match=r"it has no config\.json"):
        MaskedLanguageModelTeacher.from_pretrained(tmp_path)
    shutil.copy(CHECKPOINT / "config.json", tmp_path)
    with pytest.raises(MilcoError, match="cannot be read as a masked language model"):
        MaskedLanguageModelTeacher.from_pretrained(tmp_path)
    shutil.copy(CHECKPOINT / "model.safetensors", tmp_path)
    (tmp_path / "tokenizer.json").write_text("no tokenizer")
    with pytest.raises(MilcoError, match="cannot be read as a tokenizer"):
        MaskedLanguageModelTeacher.from_pretrained(tmp_path)


def test_a_failed_download_is_reported_with_an_alternative(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lexical teacher needs no download; a name is a directory's or the hub's."""

    def download(name: str, **options: object) -> str:
        raise FileNotFoundError if options.get("local_files_only") else GatedRepoError.__new__(GatedRepoError)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    for name, message in (
        ("naver/splade-v3", r"'naver/splade-v3' .*accepted its terms.*lexical"),
        ("./splade", "a hub name such as naver/splade-v3, or 'lexical'"),
    ):
        with pytest.raises(MilcoError, match=message):
            MaskedLanguageModelTeacher.from_pretrained(name)
