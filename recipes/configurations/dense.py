"""The paper's dense baselines: one vector per text, aligned with an English teacher's, and contrasted."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from milco_pyserini.corpora.bitext import BitextPair, open_bitext
from milco_pyserini.encode.encoder import choose_dtype
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.train.batches import AlignmentCollator, ContrastCollator, TextCollator
from milco_pyserini.train.config import ContrastOptions, SapConfig, SctConfig
from milco_pyserini.train.monitor import GroundingProbe
from milco_pyserini.train.objectives import Batch, ContrastiveLoss, freeze
from milco_pyserini.train.stages import bitext_stream, contrast_stream
from milco_pyserini.train.start import load_start
from milco_pyserini.train.trainer import TrainingTask, join_processes

from ..dense.encoder import DenseEncoder, pool

# BGE-M3 takes the first token's state. The compact encoder starts as an identity, whose first token knows nothing of
# the others.
POOLING = "mean"


class DenseAlignmentTeacher(nn.Module):
    """A frozen dense encoder: its vectors of the English sides are the targets of alignment."""

    def __init__(self, name: str, max_length: int) -> None:
        super().__init__()
        encoder = DenseEncoder(name, device="cpu", dtype="float32")
        self.model = encoder.model.requires_grad_(False)
        self._pooling = encoder.pooling
        self._prompt = encoder.document_prompt
        self._texts = TextCollator(encoder.tokenizer, self.model.config.pad_token_id or 0)
        self._max_length = min(max_length, encoder.passage_max_length)

    def prepare(self, pairs: Sequence[BitextPair]) -> Batch:
        """Return the tokens of the English sides."""
        return self._texts([self._prompt + pair.english for pair in pairs], self._max_length)

    @torch.no_grad()
    def targets(self, prepared: Batch) -> Tensor:
        """Return float32 [B, d], L2-normalized."""
        return functional.normalize(dense_vectors(self.model, prepared, self._pooling), dim=1)

    def train(self, mode: bool = True) -> "DenseAlignmentTeacher":
        """Stay in eval mode."""
        return super().train(False)


class DenseAlignmentLoss(nn.Module):
    """Fit the vectors of a text and of its English translation to the teacher's of the translation.

    (Reimers and Gurevych, 2020.) The teacher has the size of the encoder.
    """

    teacher: DenseAlignmentTeacher

    def __init__(self, model: MilcoModel, teacher: DenseAlignmentTeacher, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        # Not a submodule: it has no gradients and does not belong in checkpoints.
        object.__setattr__(self, "teacher", teacher)
        self.dtype = dtype
        freeze(model.connector, model.decoder, model.echo)

    def forward(self, text: Batch, english: Batch, teacher: Batch) -> dict:
        """Compute the squared distance, averaged over pairs; arguments and result as of AlignmentLoss.forward()."""
        parts = {}
        with torch.autocast(text["input_ids"].device.type, self.dtype, enabled=self.dtype != torch.float32):
            targets = self.teacher.targets(teacher)
            for name, side in (("text", text), ("english", english)):
                vectors = dense_vectors(self.model.encoder, side, POOLING)
                distance = functional.normalize(vectors.float(), dim=1) - targets
                parts[name] = distance.square().sum(dim=1).mean()
        return {"loss": parts["text"] + parts["english"], "parts": parts, "sides": {}, "grounded": None}


class DenseContrastiveLoss(ContrastiveLoss):
    """SCT with cosines in place of products of sparse vectors, without a regularizer."""

    def __init__(self, model: MilcoModel, config: ContrastOptions, dtype: torch.dtype) -> None:
        super().__init__(model, config, dtype)
        freeze(model.connector, model.decoder, model.echo)

    def contrast_passages(
        self,
        query: Batch,
        passage: Batch,
        scores: Tensor | None = None,
        texts: object = None,
        teacher: object = None,
        tokens: object = None,
    ) -> dict:
        """Compute the loss of a batch of groups, as ContrastiveLoss does."""
        with torch.autocast(query["input_ids"].device.type, self.dtype, enabled=self.dtype != torch.float32):
            sides = [dense_vectors(self.model.encoder, side, POOLING) for side in (query, passage)]
        loss = self.main_loss([[functional.normalize(side, dim=1) for side in sides]], passage["input_ids"], scores)
        return {"loss": loss, "parts": {self.config.loss: loss}, "sides": {}, "grounded": None}


def dense_vectors(encoder: Any, batch: Batch, pooling: str) -> Tensor:
    """Return float32 [B, d], pooled hidden states of input_ids and attention_mask, int64 [B, S]; not normalized."""
    states = encoder(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
    return pool(states.float(), batch["attention_mask"], pooling)


def prepare_alignment(config: SapConfig) -> TrainingTask:
    """Prepare the first stage of a dense baseline."""
    data = config.training_data
    sources = open_bitext(list(data.shares))
    encoder = load_start(config.start, config.loop.seed, [data.max_length])
    texts = TextCollator.of(encoder)
    stream = bitext_stream(data, sources, config.loop.seed)
    device = join_processes(config.loop.device)
    teacher = DenseAlignmentTeacher(config.objective.teacher, data.max_length).to(device)
    objective = DenseAlignmentLoss(encoder.model, teacher, choose_dtype(config.loop.dtype, device))
    digests = {f"digest of {source.name}": source.index.digest for source in sources}
    described = {"examples": sum(stream.sizes), **digests}
    collate = AlignmentCollator(texts, teacher, data.max_length)
    probe = GroundingProbe([], texts, encoder.english_tokenizer, data.max_length)
    return TrainingTask(encoder, objective, stream, described, collate, probe, device, data.group_by_length)


def prepare_contrast(config: SctConfig) -> TrainingTask:
    """Prepare the second stage of a dense baseline."""
    stream, described = contrast_stream(config, [])
    lengths = config.training_data.query_max_length, config.training_data.passage_max_length
    encoder = load_start(config.start, config.loop.seed, lengths)
    texts = TextCollator.of(encoder)
    device = join_processes(config.loop.device)
    objective = DenseContrastiveLoss(encoder.model, config.objective, choose_dtype(config.loop.dtype, device))
    probe = GroundingProbe([], texts, encoder.english_tokenizer, lengths[0])
    return TrainingTask(encoder, objective, stream, described, ContrastCollator(texts, *lengths), probe, device)
