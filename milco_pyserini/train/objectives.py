"""What one training step computes: a batch of token ids to a loss (MILCO, ICLR 2026: SAP, SCT)."""

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from milco_pyserini.model import MilcoModel
from milco_pyserini.model.pooling import log_saturation
from milco_pyserini.sparse import PIVOT, SOURCE, VIEWS
from milco_pyserini.train import losses
from milco_pyserini.train.alarms import Source
from milco_pyserini.train.teachers import Teacher

Batch = dict[str, Tensor]


class Side(NamedTuple):
    """One side of a batch, for the alarms: pivot float [B, V_e] and the source view or None, without gradient."""

    pivot: Tensor
    source: Source | None


class Alignment(nn.Module):
    """SAP: the English view of a sentence and of its translation, both against the teacher's view of the latter.

    padding: "-inf", or "zero" for the authors' loss, where a padded position has logits 0 and a row that is not its
    batch's longest has no negative logit. english_weight: of the English side's loss. margin, mean: see
    sparse_mean_squared_error().
    """

    teacher: Teacher

    def __init__(
        self,
        model: MilcoModel,
        teacher: Teacher,
        dtype: torch.dtype = torch.float32,
        padding: str = "-inf",
        english_weight: float = 1.0,
        margin: float = 0.0,
        mean: str = "active",
    ) -> None:
        super().__init__()
        self.model = model
        # Not a sub-module: it has no gradient, and no place in a checkpoint.
        object.__setattr__(self, "teacher", teacher)
        self.dtype = dtype
        self.padding, self.english_weight, self.margin, self.mean = padding, english_weight, margin, mean

    def forward(self, text: Batch, english: Batch, teacher: Batch) -> dict:
        """text, english: "input_ids" and "attention_mask", int64 [B, S]. teacher: of Teacher.prepare().

        Returns the "loss", its parts by name in "parts", and in "sides" what the alarms look at; "grounded" is bool
        [B, V_e], the teacher's terms.
        """
        targets = self.teacher.targets(teacher)
        with torch.autocast(targets.device.type, self.dtype, enabled=self.dtype != torch.float32):
            outputs = {"text": self.model(**text), "english": self.model(**english)}
        parts, sides = {}, {}
        for name, output in outputs.items():
            mask = (text if name == "text" else english)["attention_mask"]
            logits = _padded(output.logits, mask) if self.padding == "zero" else output.logits
            parts[name] = losses.sparse_mean_squared_error(logits, targets, self.margin, self.mean)
            sides[name] = Side(log_saturation(output.logits.detach()), None)
        loss = parts["text"] + self.english_weight * parts["english"]
        return {"loss": loss, "parts": parts, "sides": sides, "grounded": targets > 0}


def _padded(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits as if every padded position had logits 0: in a padded row none is below."""
    return torch.where((mask == 0).any(dim=1, keepdim=True), logits.clamp(min=0), logits)


class Contrast(nn.Module):
    """SCT: scores of a query's passages against a cross-encoder's (KL) or against the batch's passages (InfoNCE).

    views: of which the score is the sum. loss: "kd" or "infonce". temperature divides the student's scores.
    regularizer: "l1" or "flops", on the pivot view, or on every view with regularize_source.
    """

    def __init__(
        self,
        model: MilcoModel,
        dtype: torch.dtype = torch.float32,
        loss: str = "kd",
        direction: str = losses.DIRECTIONS[0],
        views: tuple[str, ...] = VIEWS,
        temperature: float = 1.0,
        regularizer: str = "l1",
        query_weight: float = 0.0,
        passage_weight: float = 0.0,
        regularize_source: bool = False,
        dropped_ids: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype
        self.loss, self.direction, self.views, self.temperature = loss, direction, views, temperature
        self.regularizer = {"l1": losses.l1, "flops": losses.flops}[regularizer]
        self.query_weight, self.passage_weight = query_weight, passage_weight
        self.regularize_source = regularize_source
        self.register_buffer("dropped_ids", torch.tensor(dropped_ids, dtype=torch.int64), persistent=False)

    def forward(self, query: Batch, passage: Batch, scores: Tensor | None = None) -> dict:
        """query: int64 [B, S]. passage: [B x G, S'], each query's group in a row, its positive first.

        scores: the teacher's, float [B, G], for "kd". Returns as Alignment.forward().
        """
        with torch.autocast(query["input_ids"].device.type, self.dtype, enabled=self.dtype != torch.float32):
            outputs = self.model(**query), self.model(**passage)
        pivots = [output.pivot for output in outputs]
        views = {PIVOT: pivots}
        sources: list[Source] | list[None] = [None, None]
        if self.model.echo is not None:
            echoes = [cast(Tensor, output.echo) for output in outputs]
            views[SOURCE], sources = self._source_views([query, passage], echoes)
        parts = {self.loss: self._main_loss([views[name] for name in self.views], passage["input_ids"], scores)}
        regularized = list(views.values()) if self.regularize_source else [pivots]
        for place, side in enumerate(("query", "passage")):
            parts[f"{side}_length"] = torch.stack([self.regularizer(view[place]) for view in regularized]).sum()
        loss = parts[self.loss] + self.query_weight * parts["query_length"]
        loss = loss + self.passage_weight * parts["passage_length"]
        sides = {
            name: Side(pivot.detach(), source)
            for name, pivot, source in zip(("query", "passage"), pivots, sources, strict=True)
        }
        return {"loss": loss, "parts": parts, "sides": sides, "grounded": None}

    def _source_views(self, sides: list[Batch], echoes: list[Tensor]) -> tuple[list[Tensor], list[Source]]:
        """Each side's source view, and what the alarms look at of it. echoes: float [B, S], one a side."""
        ids = [side["input_ids"] for side in sides]
        pieces = torch.cat([side.flatten() for side in ids]).unique()
        dropped = cast(Tensor, self.dropped_ids)
        views = source_views(pieces, ids, echoes, self.model.config.source_pool, dropped)
        held = source_views(pieces, ids, [side["attention_mask"] for side in sides], "max", dropped)
        size = self.model.config.encoder.vocab_size
        return views, [
            Source(pieces, there > 0, view.detach() > 0, size) for there, view in zip(held, views, strict=True)
        ]

    def _main_loss(self, views: list[list[Tensor]], passage_ids: Tensor, scores: Tensor | None) -> Tensor:
        """views: of each, queries [B, V] and passages [B x G, V]. passage_ids: int64 [B x G, S']."""
        queries, passages = views[0]
        group = len(passages) // len(queries)
        if self.loss == "kd":
            found = torch.stack([torch.einsum("bv,bgv->bg", q, p.unflatten(0, (-1, group))) for q, p in views])
            teacher = cast(Tensor, scores)
            return losses.kl_distillation(found.sum(dim=0) / self.temperature, teacher, self.direction)
        found = torch.stack([q @ p.T for q, p in views]).sum(dim=0)
        rows = torch.arange(len(queries), device=found.device)
        # Questions about one passage may meet in a batch: what answers a question is no negative of it.
        copies = (passage_ids[rows * group].unsqueeze(1) == passage_ids).all(dim=2)
        copies[rows, rows * group] = False
        return losses.info_nce((found / self.temperature).masked_fill(copies, -torch.inf), rows * group)


def source_views(pieces: Tensor, ids: list[Tensor], echoes: list[Tensor], pool: str, dropped: Tensor) -> list[Tensor]:
    """Source views over the pieces that occur in a batch at all: their products are those of the whole vocabulary.

    pieces: int64 [U], ascending. ids: int64 [B, S], one tensor a side. echoes: [B, S], 0 where masked. pool: of a
    repeated piece's weights, "sum" or "max". dropped: ids without a place in the view. Returns float32 [B, U] for each
    side.
    """
    views = []
    for side, echo in zip(ids, echoes, strict=True):
        place = torch.searchsorted(pieces, side)
        weights = torch.where(torch.isin(side, dropped), 0.0, echo.float())
        view = weights.new_zeros(len(side), len(pieces))
        reduce = "sum" if pool == "sum" else "amax"
        views.append(view.scatter_reduce(1, place, weights, reduce))
    return views
