"""Training objectives: a batch of token ids to a loss (MILCO, ICLR 2026: SAP, SCT)."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from milco_pyserini.model import MilcoModel
from milco_pyserini.model.pooling import log_saturation
from milco_pyserini.sparse import PIVOT, SOURCE
from milco_pyserini.train import losses
from milco_pyserini.train.config import SapConfig, SctConfig
from milco_pyserini.train.monitor import SourceActivity
from milco_pyserini.train.teachers import AlignmentTeacher

Batch = dict[str, Tensor]


class Alignment(nn.Module):
    """SAP: fit the pivot views of a text and of its English translation to the teacher's view of the translation.

    Args:
        model: what is trained.
        teacher: gives the targets.
        config: of the loss: padding, english_weight, margin, mean. With padding "zero", as in the authors' loss, padded
            positions have logit 0, so no text shorter than the longest of its batch has a negative logit.
        dtype: of matrix products.
    """

    teacher: AlignmentTeacher

    def __init__(
        self, model: MilcoModel, teacher: AlignmentTeacher, config: SapConfig, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.model = model
        # Not a submodule: it has no gradients and does not belong in checkpoints.
        object.__setattr__(self, "teacher", teacher)
        # The Trainer would take `config` for a model's.
        self.options = config
        self.dtype = dtype

    def forward(self, text: Batch, english: Batch, teacher: Batch) -> dict:
        """Compute the loss of a batch of pairs.

        Args:
            text, english: "input_ids" and "attention_mask", int64 [B, S].
            teacher: from AlignmentTeacher.prepare().

        Returns:
            "loss"; "parts", its terms by name; "sides", for the alarms, pivot views without gradient, float [B, V_e],
            and SourceActivity or None, by kind of text; "grounded", bool [B, V_e], the teacher's terms.
        """
        targets = self.teacher.targets(teacher)
        with torch.autocast(targets.device.type, self.dtype, enabled=self.dtype != torch.float32):
            outputs = {"text": self.model(**text), "english": self.model(**english)}
        parts, sides = {}, {}
        for name, output in outputs.items():
            logits = output.logits
            if self.options.padding == "zero":
                mask = (text if name == "text" else english)["attention_mask"]
                logits = torch.where((mask == 0).any(dim=1, keepdim=True), logits.clamp(min=0), logits)
            parts[name] = losses.sparse_mean_squared_error(logits, targets, self.options.margin, self.options.mean)
            sides[name] = log_saturation(output.logits.detach()), None
        loss = parts["text"] + self.options.english_weight * parts["english"]
        return {"loss": loss, "parts": parts, "sides": sides, "grounded": targets > 0}


class Contrast(nn.Module):
    """SCT: fit scores of a query's passages to a teacher's (KL), or contrast them with the batch's (InfoNCE).

    Args:
        model: what is trained.
        config: of the loss: loss, direction, views, score_temperature, and the regularizer.
        dtype: of matrix products.
        dropped_ids: token ids that the source view leaves out.
    """

    def __init__(
        self, model: MilcoModel, config: SctConfig, dtype: torch.dtype = torch.float32, dropped_ids: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.model = model
        self.options = config
        self.dtype = dtype
        self.register_buffer("dropped_ids", torch.tensor(list(dropped_ids), dtype=torch.int64), persistent=False)

    def forward(self, query: Batch, passage: Batch, scores: Tensor | None = None) -> dict:
        """Compute the loss of a batch of groups.

        Args:
            query: "input_ids" and "attention_mask", int64 [B, S].
            passage: the same, [B x G, S'], each query's group in consecutive rows, its positive first.
            scores: a teacher's, float [B, G], for "kd".

        Returns:
            As Alignment.forward(); "grounded" is None.
        """
        with torch.autocast(query["input_ids"].device.type, self.dtype, enabled=self.dtype != torch.float32):
            outputs = self.model(**query), self.model(**passage)
        pivots = [output.pivot for output in outputs]
        views = {PIVOT: pivots}
        activity: list[SourceActivity] | list[None] = [None, None]
        if self.model.echo is not None:
            dropped = cast(Tensor, self.dropped_ids)
            ids = [query["input_ids"], passage["input_ids"]]
            tokens = torch.cat([side.flatten() for side in ids]).unique()
            echoes = [cast(Tensor, output.echo) for output in outputs]
            views[SOURCE] = source_views(tokens, ids, echoes, self.model.config.source_pool, dropped)
            masks = [query["attention_mask"], passage["attention_mask"]]
            held = source_views(tokens, ids, masks, "max", dropped)
            size = self.model.config.encoder.vocab_size
            activity = [
                SourceActivity(tokens, there > 0, view.detach() > 0, size)
                for there, view in zip(held, views[SOURCE], strict=True)
            ]
        config = self.options
        parts = {config.loss: self.main_loss([views[name] for name in config.views], passage["input_ids"], scores)}
        regularize = {"l1": losses.l1, "flops": losses.flops}[config.regularizer]
        regularized = list(views.values()) if config.regularize_source else [pivots]
        for place, side in enumerate(("query", "passage")):
            parts[f"{side}_length"] = torch.stack([regularize(view[place]) for view in regularized]).sum()
        loss = parts[config.loss] + config.lambda_query * parts["query_length"]
        loss = loss + config.lambda_passage * parts["passage_length"]
        monitored = zip(("query", "passage"), pivots, activity, strict=True)
        sides = {name: (pivot.detach(), source) for name, pivot, source in monitored}
        return {"loss": loss, "parts": parts, "sides": sides, "grounded": None}

    def main_loss(self, views: list[list[Tensor]], passage_ids: Tensor, scores: Tensor | None) -> Tensor:
        """Compute the loss without the regularizer.

        Args:
            views: for each view, queries [B, V] and passages [B x G, V].
            passage_ids: int64 [B x G, S'].
            scores: a teacher's, float [B, G], or None.
        """
        queries, passages = views[0]
        group = len(passages) // len(queries)
        if self.options.loss == "kd":
            found = torch.stack([torch.einsum("bv,bgv->bg", q, p.unflatten(0, (-1, group))) for q, p in views])
            teacher = cast(Tensor, scores)
            return losses.kl_distillation(
                found.sum(dim=0) / self.options.score_temperature, teacher, self.options.direction
            )
        found = torch.stack([q @ p.T for q, p in views]).sum(dim=0)
        rows = torch.arange(len(queries), device=found.device)
        # Two queries of a batch may have the same positive: it is not a negative of either.
        copies = (passage_ids[rows * group].unsqueeze(1) == passage_ids).all(dim=2)
        copies[rows, rows * group] = False
        return losses.info_nce((found / self.options.score_temperature).masked_fill(copies, -torch.inf), rows * group)


def source_views(tokens: Tensor, ids: list[Tensor], echoes: list[Tensor], pool: str, dropped: Tensor) -> list[Tensor]:
    """Return source views over the tokens that occur in a batch; products are those of the full vocabulary.

    Args:
        tokens: int64 [U], ascending.
        ids: int64 [B, S], one tensor for each side.
        echoes: weights [B, S] for each side, 0 where masked.
        pool: "sum" or "max" over the occurrences of a token.
        dropped: token ids that the view leaves out.

    Returns:
        Float32 [B, U] for each side.
    """
    views = []
    for side, echo in zip(ids, echoes, strict=True):
        place = torch.searchsorted(tokens, side)
        weights = torch.where(torch.isin(side, dropped), 0.0, echo.float())
        view = weights.new_zeros(len(side), len(tokens))
        reduce = "sum" if pool == "sum" else "amax"
        views.append(view.scatter_reduce(1, place, weights, reduce))
    return views
