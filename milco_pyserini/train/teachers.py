"""Teachers of sparse alignment pretraining (SAP): the English terms and weights of a sentence pair.

A teacher is a masked language model of SPLADE's type, or a LexicalTeacher, which is fitted on the English side of the
bitext before training. The model that contrastive training starts from is a teacher of what it knows.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from milco_pyserini.corpora.bitext import BitextPair
from milco_pyserini.encode.splade import load_masked_language_model, take_off_decoder
from milco_pyserini.errors import Message, MilcoError, unknown_name
from milco_pyserini.model.checkpoint import Checkpoint, loading
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.model.pooling import max_logits
from milco_pyserini.train.config import LEXICAL

# Padded positions count for nothing, or have logit 0 as in the authors' code, which hides negative maxima.
PADDINGS = ("-inf", "zero")

_EXAMPLE = "naver/splade-v3"


class AlignmentTeacher(Protocol):
    """Turns sentence pairs into targets.

    prepare() may run in a data loader process, targets() runs on the training device. Every tensor of prepare() has B
    rows, so a batch can be split and moved like any other.
    """

    def prepare(self, pairs: Sequence[BitextPair]) -> dict[str, Tensor]:
        """Return what targets() needs, for B pairs, on the CPU."""

    def targets(self, prepared: dict[str, Tensor]) -> Tensor:
        """Return float32 [B, V_e], without gradient: logits before LogSat, the maximum over a text's tokens."""


@dataclass(frozen=True)
class Texts:
    """Texts of a batch on one side, and their languages."""

    texts: list[str]
    languages: list[str]
    are_queries: bool


class SimilarityTeacher(Protocol):
    """Scores the texts of a batch, for the contrast's students to be distilled from."""

    def scores(self, rows: Texts, columns: Texts) -> Tensor:
        """Return float32 [R, C], on the CPU."""


def validate_vocabulary(teacher: Sequence[str], model: Sequence[str]) -> None:
    """Raise MilcoError, with both sizes and the first difference, unless the English vocabularies are equal."""
    if list(teacher) == list(model):
        return
    shared = min(len(teacher), len(model))
    place = next((i for i in range(shared) if teacher[i] != model[i]), shared)
    first = f"the first {shared:,} are equal"
    if place < shared:
        first = f"token {place} is {teacher[place]!r} in the teacher and {model[place]!r} in the model"
    fix = Message("Choose a teacher with the model's English tokenizer, or {teacher}.", teacher=LEXICAL)
    raise MilcoError(f"the teacher has {len(teacher):,} English tokens and the model {len(model):,}; {first}", fix)


class MaskedLanguageModelTeacher(nn.Module):
    """A frozen masked language model: the maximum logit of every token over a text's positions.

    Special tokens take part, as in SPLADE. Always in eval mode.

    Args:
        model: any AutoModelForMaskedLM.
        tokenizer: of the model.
        padding: one of PADDINGS.
        max_length: tokens read per text.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, padding: str = "-inf", max_length: int = 256
    ) -> None:
        super().__init__()
        if padding not in PADDINGS:
            raise unknown_name("padding", padding, PADDINGS)
        self.tokenizer, self.padding = tokenizer, padding
        self.max_length = min(max_length, tokenizer.model_max_length)
        self.model = model.requires_grad_(False).eval()
        rows = model.get_output_embeddings().weight.shape[0]
        # A decoder may be wider than its vocabulary, for alignment in hardware.
        self.vocabulary: list[str] = tokenizer.convert_ids_to_tokens(range(min(rows, len(tokenizer))))
        decoder = take_off_decoder(model)
        if decoder is None:
            name = type(model).__name__
            raise MilcoError(f"the logits of a {name} are not one matrix product of its states, which a teacher needs")
        self.decoder = decoder

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, padding: str = "-inf", max_length: int = 256
    ) -> "MaskedLanguageModelTeacher":
        """Load a float32 teacher from a directory, the hub's cache or the hub. Raises MilcoError."""
        return cls(*open_english_model(name_or_path), padding, max_length)

    def train(self, mode: bool = True) -> "MaskedLanguageModelTeacher":
        """Stay in eval mode."""
        return super().train(False)

    def prepare(self, pairs: Sequence[BitextPair]) -> dict[str, Tensor]:
        """Tokenize B English sides: input_ids and attention_mask, int64 [B, S], padded to the longest."""
        # Type ids are 0 for a single text, and not every model accepts them.
        options = {"padding": True, "truncation": True, "max_length": self.max_length, "return_token_type_ids": False}
        return dict(self.tokenizer([pair.english for pair in pairs], return_tensors="pt", **options))

    @torch.no_grad()
    def targets(self, prepared: dict[str, Tensor]) -> Tensor:
        """Return float32 [B, V_e]: logits before LogSat, the maximum over positions, negative ones kept."""
        inputs = {name: tensor.to(self.model.device) for name, tensor in prepared.items()}
        mask = inputs["attention_mask"].bool()
        # Without its decoder the model returns hidden states: [B, S, V_e] is never built.
        highest = max_logits(self.model(**inputs).logits, mask, self.decoder.weight, self.decoder.bias)
        highest = highest[:, : len(self.vocabulary)]
        if self.padding == "zero":
            padded = ~mask.all(dim=1, keepdim=True)
            highest = torch.where(padded, highest.clamp(min=0), highest)
        return highest


class StartTeacher(nn.Module):
    """The network that a run starts from, frozen: its logits of a text keep the terms of training from drifting.

    Args:
        model: MILCO's network; copied.
        collate: tokenizes texts, to "input_ids" and "attention_mask".
        max_length: tokens read per text.
        vocabulary: the model's English tokens.
    """

    def __init__(
        self,
        model: MilcoModel,
        collate: Callable[[Sequence[str], int], dict[str, Tensor]],
        max_length: int,
        vocabulary: Sequence[str],
    ) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).requires_grad_(False).eval()
        self.collate, self.max_length, self.vocabulary = collate, max_length, vocabulary

    def train(self, mode: bool = True) -> "StartTeacher":
        """Stay in eval mode."""
        return super().train(False)

    def prepare(self, pairs: Sequence[BitextPair]) -> dict[str, Tensor]:
        """Tokenize B English sides, which may be in any language: input_ids and attention_mask, int64 [B, S]."""
        return self.collate([pair.english for pair in pairs], self.max_length)

    @torch.no_grad()
    def targets(self, prepared: dict[str, Tensor]) -> Tensor:
        """Return float32 [B, V_e]: logits before LogSat, negative ones kept."""
        return self.model(**prepared).logits


def open_english_model(name_or_path: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a float32 English masked language model and its tokenizer from a directory, the hub's cache or the hub.

    Raises MilcoError if it cannot be found, or has no masked language model's head.
    """
    checkpoint = Checkpoint.open(name_or_path, noun="teacher", example=_EXAMPLE, embedded=LEXICAL).fetch()
    directory = checkpoint.directory
    if not (directory / "config.json").is_file():
        raise MilcoError(f"teacher {directory} is not a checkpoint: it has no config.json")
    model = load_masked_language_model(checkpoint)
    with loading(directory, "a tokenizer"):
        return model, AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
