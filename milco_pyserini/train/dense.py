"""The paper's dense baselines: one vector per text, aligned with an English teacher's, and contrasted."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from milco_pyserini.encode.dense import DenseEncoder, pool
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.model.tokenization import TextTokenizer
from milco_pyserini.train.batches import TextCollator
from milco_pyserini.train.config import SapConfig, SctConfig
from milco_pyserini.train.data.bitext import BitextPair
from milco_pyserini.train.dense_teacher import Texts
from milco_pyserini.train.objectives import Batch, Contrast, freeze


class DenseAlignmentTeacher(nn.Module):
    """A frozen dense encoder: its vectors of the English sides are the targets of alignment.

    Args:
        name: a directory or a hub name, such as thenlper/gte-base.
        max_length: tokens read per text, at most the encoder's own limit.
    """

    def __init__(self, name: str, max_length: int) -> None:
        super().__init__()
        encoder = DenseEncoder(name, device="cpu", dtype="float32")
        self.name = name
        self.dimensions = encoder.dimensions
        self.model = encoder.model.requires_grad_(False)
        self._pooling = encoder.pooling
        self._prompt = encoder.document_prompt
        tokenizer: TextTokenizer = encoder.tokenizer
        self._texts = TextCollator(tokenizer, self.model.config.pad_token_id or 0)
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


class DenseAlignment(nn.Module):
    """Fit the vectors of a text and of its English translation to the teacher's of the translation.

    (Reimers and Gurevych, 2020.) A teacher of another size is compared with the vectors' image under the connector's
    first layer, as the paper's gte-base, with 768 dimensions next to 1,024, has to be; the paper does not state how.

    Args:
        model: what is trained: its encoder, and the layer if it is used.
        teacher: gives the targets.
        config: dense, the pooling, and english_weight.
        dtype: of matrix products.

    Raises:
        MilcoError: the teacher has the size of neither.
    """

    teacher: DenseAlignmentTeacher

    def __init__(
        self, model: MilcoModel, teacher: DenseAlignmentTeacher, config: SapConfig, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        sizes = model.config.encoder.hidden_size, model.config.english_hidden_size
        if teacher.dimensions not in sizes:
            raise MilcoError(
                f"`teacher={teacher.name}` has {teacher.dimensions} dimensions, the encoder {sizes[0]} and its "
                f"connector {sizes[1]}: choose a teacher with one of these sizes"
            )
        self.is_projected = teacher.dimensions != sizes[0]
        self.model = model
        # Not a submodule: it has no gradients and does not belong in checkpoints.
        object.__setattr__(self, "teacher", teacher)
        self.config = config
        self.dtype = dtype
        connector = model.connector
        freeze(connector.dense, connector.layer_norm, model.decoder, model.echo)
        if not self.is_projected:
            freeze(connector.projector)

    def forward(self, text: Batch, english: Batch, teacher: Batch) -> dict:
        """Compute the loss of a batch of pairs: the squared distance, averaged over pairs; as Alignment.forward()."""
        sides = {"text": text, "english": english} if self.config.english_weight else {"text": text}
        parts = {}
        with torch.autocast(text["input_ids"].device.type, self.dtype, enabled=self.dtype != torch.float32):
            targets = self.teacher.targets(teacher)
            for name, side in sides.items():
                vectors = dense_vectors(self.model.encoder, side, self.config.dense or "")
                vectors = self.model.connector.projector(vectors) if self.is_projected else vectors
                distance = functional.normalize(vectors.float(), dim=1) - targets
                parts[name] = distance.square().sum(dim=1).mean()
        loss = parts["text"] + self.config.english_weight * parts.get("english", 0.0)
        return {"loss": loss, "parts": parts, "sides": {}, "grounded": None}


class DenseContrast(Contrast):
    """SCT with cosines in place of products of sparse vectors; config.dense is the pooling, the rest as in Contrast."""

    def __init__(self, model: MilcoModel, config: SctConfig, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(model, config, dtype)
        freeze(model.connector, model.decoder, model.echo)

    def contrast_passages(
        self,
        query: Batch,
        passage: Batch,
        scores: Tensor | None = None,
        texts: dict[str, Texts] | None = None,
    ) -> dict:
        """Compute the loss of a batch of groups, as Contrast does, without a regularizer."""
        with torch.autocast(query["input_ids"].device.type, self.dtype, enabled=self.dtype != torch.float32):
            sides = [dense_vectors(self.model.encoder, side, self.config.dense or "") for side in (query, passage)]
        loss = self.main_loss([[functional.normalize(side, dim=1) for side in sides]], passage["input_ids"], scores)
        return {"loss": loss, "parts": {self.config.loss: loss}, "sides": {}, "grounded": None}


def dense_vectors(encoder: Any, batch: Batch, pooling: str) -> Tensor:
    """Return float32 [B, d], pooled hidden states of input_ids and attention_mask, int64 [B, S]; not normalized."""
    return pool(encoder(**batch).last_hidden_state.float(), batch["attention_mask"], pooling)
