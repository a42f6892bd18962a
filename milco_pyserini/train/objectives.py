"""Training objectives: a batch of token ids to a loss (MILCO, ICLR 2026: SAP, SCT)."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from milco_pyserini.model.configuration import term_limit
from milco_pyserini.model.forward import to_device
from milco_pyserini.model.modeling import MilcoModel, MilcoOutput
from milco_pyserini.model.pooling import log_saturation
from milco_pyserini.sparse import PIVOT, SOURCE
from milco_pyserini.train import losses
from milco_pyserini.train.config import AlignmentOptions, ContrastOptions
from milco_pyserini.train.teachers import AlignmentTeacher, SimilarityTeacher, Texts

Batch = dict[str, Any]
# Score of a text with itself, which distillation leaves out.
_OWN = -1e4
# Parts of a batch that are padded on their own, and their least number of texts.
_LENGTHS, _LEAST_PART = 4, 16
# Texts of at most this length have unfused attention on the CPU in bfloat16: its backward pass is faster.
_UNFUSED_LENGTH = 128


def freeze(*modules: nn.Module | None) -> None:
    """Train no parameter of modules that a loss does not reach: distributed training fails without a gradient."""
    for module in modules:
        if module is not None:
            module.requires_grad_(False)


class AlignmentLoss(nn.Module):
    """SAP: fit the pivot views of a text and of its English translation to the teacher's view of the translation.

    Args:
        model: what is trained.
        teacher: gives the targets.
        config: of the loss: padding, english_weight, margin, mean. An english_weight of 0 leaves the English side out.
            With padding "zero", as in the authors' loss, padded positions have logit 0, so no text shorter than the
            longest of its batch has a negative logit.
        dtype: of matrix products.
    """

    teacher: AlignmentTeacher

    def __init__(
        self, model: MilcoModel, teacher: AlignmentTeacher, config: AlignmentOptions, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.model, self.config, self.dtype = model, config, dtype
        # Not a submodule: it has no gradients and does not belong in checkpoints.
        object.__setattr__(self, "teacher", teacher)

    def forward(self, text: Batch, english: Batch, teacher: Batch) -> dict:
        """Compute the loss of a batch of pairs.

        Args:
            text, english: "input_ids" and "attention_mask", int64 [B, S].
            teacher: from AlignmentTeacher.prepare().

        Returns:
            "loss"; "parts", its terms by name; "sides", for the alarms, pivot views without gradient, float [B, V_e],
            and numbers of source terms, int64 [B], or None, by kind of text; "grounded", bool [B, V_e], the teacher's
            terms.
        """
        with torch.autocast(text["input_ids"].device.type, self.dtype, enabled=self.dtype != torch.float32):
            targets = self.teacher.targets(teacher)
            outputs = {"text": forward_pass(self.model, **text)}
            if self.config.english_weight:
                outputs["english"] = forward_pass(self.model, **english)
        parts, sides = {}, {}
        for name, output in outputs.items():
            logits = output.logits
            if self.config.padding == "zero":
                mask = (text if name == "text" else english)["attention_mask"]
                logits = torch.where((mask == 0).any(dim=1, keepdim=True), logits.clamp(min=0), logits)
            parts[name] = losses.sparse_mean_squared_error(logits, targets, self.config.margin, self.config.mean)
            sides[name] = log_saturation(output.logits.detach()), None
        loss = parts["text"] + self.config.english_weight * parts.get("english", 0.0)
        return {"loss": loss, "parts": parts, "sides": sides, "grounded": targets > 0}


class ContrastiveLoss(nn.Module):
    """SCT: fit scores of a query's passages to a teacher's, or contrast them with those of the batch (LOSSES).

    Translations are contrasted with all other texts of their batch, in every language.

    Args:
        model: what is trained.
        config: of the loss: loss, direction, views, score_temperature, and the regularizer.
        dtype: of matrix products.
        dropped_ids: token ids that the source view leaves out.
        teacher: scores the texts of a batch; their scores are distilled in addition to the loss.
        aligner: gives the English terms of texts, that their pivot views are fitted to in addition.
    """

    aligner: AlignmentTeacher | None

    def __init__(
        self,
        model: MilcoModel,
        config: ContrastOptions,
        dtype: torch.dtype = torch.float32,
        dropped_ids: Sequence[int] = (),
        teacher: SimilarityTeacher | None = None,
        aligner: AlignmentTeacher | None = None,
    ) -> None:
        super().__init__()
        if PIVOT not in config.views and aligner is None:
            freeze(model.decoder)
            if model.config.echo_variant != "paper":
                freeze(model.connector)
        self.model, self.config, self.dtype, self.teacher = model, config, dtype, teacher
        # Not a submodule, as in AlignmentLoss.
        object.__setattr__(self, "aligner", aligner)
        self.register_buffer("dropped_ids", torch.tensor(list(dropped_ids), dtype=torch.int64), persistent=False)

    def forward(self, **batch: Any) -> dict:
        """Compute the loss of a batch of groups of passages, or of one of translations."""
        return self.contrast_translations(**batch) if "meaning" in batch else self.contrast_passages(**batch)

    def contrast_passages(
        self,
        query: Batch,
        passage: Batch,
        scores: Tensor | None = None,
        texts: dict[str, Texts] | None = None,
        teacher: Batch | None = None,
        tokens: Tensor | None = None,
    ) -> dict:
        """Compute the loss of a batch of groups.

        Args:
            query: "input_ids" and "attention_mask", int64 [B, S].
            passage: the same, [B x G, S'], each query's group in consecutive rows, its positive first.
            scores: a teacher's, float [B, G], for a loss that needs them.
            texts: of queries and passages, for a SimilarityTeacher.
            teacher: from AlignmentTeacher.prepare(), of the queries, then of their positives.
            tokens: as for encode_views().

        Returns:
            As AlignmentLoss.forward(); "grounded" is None.
        """
        views, sides, logits = self.encode_views({"query": query, "passage": passage}, tokens)
        config = self.config
        trained = [views[name] for name in config.views]
        parts = {config.loss: self.main_loss(trained, passage["input_ids"], scores)}
        if self.teacher is not None and texts is not None:
            student = torch.stack([q @ p.T for q, p in trained]).sum(dim=0) / config.score_temperature
            goal = self.teacher.scores(texts["query"], texts["passage"]).to(student.device)
            parts["distillation"] = losses.kl_distillation(student, goal)
        regularizers = self.regularizers(views, ("query", "passage"))
        loss = cast(Tensor, sum(parts.values()))
        for weight, value in zip((config.lambda_query, config.lambda_passage), regularizers.values(), strict=True):
            loss = loss + weight * value
        parts |= regularizers
        if self.aligner is not None and teacher is not None:
            group = len(logits[1]) // len(logits[0])
            parts["alignment"], _ = self.alignment(torch.cat([logits[0], logits[1][::group]]), teacher)
            loss = loss + config.alignment_weight * parts["alignment"]
        return {"loss": loss, "parts": parts, "sides": sides, "grounded": None}

    def contrast_translations(
        self,
        text: Batch,
        meaning: Tensor,
        is_query: Tensor,
        texts: dict[str, Texts] | None = None,
        teacher: Batch | None = None,
        tokens: Tensor | None = None,
    ) -> dict:
        """Compute the loss of a batch of texts, some of which are translations of each other.

        Args:
            text: "input_ids" and "attention_mask", int64 [N, S].
            meaning: int64 [N], equal for translations.
            is_query: bool [N], the texts whose translations are searched; all are searched among.
            texts: the texts themselves, for a SimilarityTeacher.
            teacher: from AlignmentTeacher.prepare(), of the texts' English translations.
            tokens: as for encode_views().

        Returns:
            As AlignmentLoss.forward().
        """
        views, sides, (logits,) = self.encode_views({"text": text}, tokens)
        config = self.config
        trained = [views[name][0] for name in config.views]
        scores = torch.stack([view @ view.T for view in trained]).sum(dim=0) / config.score_temperature
        # A row without a positive does not count, so that no rows are selected, which a GPU would be waited for.
        own, asks = torch.arange(len(meaning), device=meaning.device), is_query.unsqueeze(1)
        parts = {"parallel": losses.info_nce_of_many(scores, (meaning.unsqueeze(1) == meaning) & asks, own)}
        if self.teacher is not None and texts is not None:
            goal = self.teacher.scores(texts["text"], texts["text"]).to(scores.device)
            others, goal = (matrix.clone().fill_diagonal_(_OWN).masked_fill(~asks, 0.0) for matrix in (scores, goal))
            share = is_query.float().mean().clamp(min=1 / len(meaning))
            parts["distillation"] = losses.kl_distillation(others, goal) / share
        regularizers = self.regularizers(views, ("text",))
        loss = cast(Tensor, sum(parts.values())) + config.lambda_passage * sum(regularizers.values())
        parts |= regularizers
        grounded = None
        if self.aligner is not None and teacher is not None:
            parts["alignment"], grounded = self.alignment(logits, teacher)
            loss = loss + config.alignment_weight * parts["alignment"]
        return {"loss": loss, "parts": parts, "sides": sides, "grounded": grounded}

    def alignment(self, logits: Tensor, teacher: Batch) -> tuple[Tensor, Tensor]:
        """Return SAP's loss of logits [B, V_e], and the teacher's terms, bool [B, V_e]."""
        with torch.autocast(logits.device.type, self.dtype, enabled=self.dtype != torch.float32):
            targets = cast(AlignmentTeacher, self.aligner).targets(teacher)
        return losses.sparse_mean_squared_error(logits, targets, mean="teacher"), targets > 0

    def encode_views(
        self, batches: dict[str, Batch], tokens: Tensor | None = None
    ) -> tuple[dict[str, list[Tensor]], dict, list[Tensor]]:
        """Return views by name, a matrix [B, V] for each batch; "sides"; and logits, float [B, V_e], for each batch.

        batches: by name. tokens: int64 [U], ascending, all that occur; without them, a GPU is waited for.
        """
        device = next(iter(batches.values()))["input_ids"].device.type
        with torch.autocast(device, self.dtype, enabled=self.dtype != torch.float32):
            outputs = [encode_by_length(self.model, **batch) for batch in batches.values()]
        logits = [side for side, _ in outputs]
        pivots = [log_saturation(side) for side in logits]
        views = {PIVOT: pivots}
        source_terms: list[Tensor] | list[None] = [None] * len(outputs)
        if self.model.echo is not None:
            dropped = cast(Tensor, self.dropped_ids)
            ids = [batch["input_ids"] for batch in batches.values()]
            tokens = torch.cat([side.flatten() for side in ids]).unique() if tokens is None else tokens
            echoes = [cast(Tensor, echo) for _, echo in outputs]
            views[SOURCE] = source_views(tokens, ids, echoes, self.model.config.source_pool, dropped)
            source_terms = [(view.detach() > 0).sum(dim=1) for view in views[SOURCE]]
        if self.config.within_limits:
            for view, sides in views.items():
                views[view] = [
                    strongest(side, term_limit(self.model.config, view, name == "query"))
                    for name, side in zip(batches, sides, strict=True)
                ]
        monitored = zip(batches, pivots, source_terms, strict=True)
        return views, {name: (pivot.detach(), source) for name, pivot, source in monitored}, logits

    def regularizers(self, views: dict[str, list[Tensor]], sides: Sequence[str]) -> dict[str, Tensor]:
        """Return the regularizer of each side over the views that are trained, by name: query_l1."""
        regularize = {"l1": losses.l1, "flops": losses.flops}[self.config.regularizer]
        trained = [name for name in self.config.views if name == PIVOT or self.config.regularize_source]
        zero = views[PIVOT][0].new_zeros(())
        return {
            f"{side}_{self.config.regularizer}": sum((regularize(views[name][place]) for name in trained), zero)
            for place, side in enumerate(sides)
        }

    def main_loss(self, views: list[list[Tensor]], passage_ids: Tensor, scores: Tensor | None) -> Tensor:
        """Compute the loss without the regularizer.

        Args:
            views: for each view, queries [B, V] and passages [B x G, V].
            passage_ids: int64 [B x G, S'].
            scores: a teacher's, float [B, G], or None.
        """
        queries, passages = views[0]
        group = len(passages) // len(queries)
        loss = losses.LOSSES[self.config.loss]
        options = {name: getattr(self.config, name) for name in loss.options}
        if loss.needs_scores:
            student = torch.stack([torch.einsum("bv,bgv->bg", q, p.unflatten(0, (-1, group))) for q, p in views])
            return loss.function(student.sum(dim=0) / self.config.score_temperature, scores, **options)
        student = torch.stack([q @ p.T for q, p in views]).sum(dim=0)
        rows = torch.arange(len(queries), device=student.device)
        # Two queries of a batch may have the same positive: it is not a negative of either.
        copies = (passage_ids[rows * group].unsqueeze(1) == passage_ids).all(dim=2)
        copies[rows, rows * group] = False
        scores = (student / self.config.score_temperature).masked_fill(copies, -torch.inf)
        return loss.function(scores, rows * group, **options)


def strongest(view: Tensor, limit: int | None) -> Tensor:
    """Return a view, float [B, V], with 0 for all but the limit's number of its strongest terms."""
    if limit is None or limit >= view.shape[1]:
        return view
    return torch.where(view >= view.topk(limit, dim=1).values[:, -1:], view, 0.0)


def forward_pass(model: MilcoModel, input_ids: Tensor, attention_mask: Tensor) -> MilcoOutput:
    """Return the model's output for padded texts, int64 [B, S], with the attention kernel that trains fastest."""
    device = input_ids.device.type
    is_short_in_bfloat16 = torch.is_autocast_enabled(device) and input_ids.shape[1] <= _UNFUSED_LENGTH
    # Gradient checkpointing repeats the pass outside of this context, and must repeat its kernels.
    is_unfused = device == "cpu" and is_short_in_bfloat16 and not model.encoder.is_gradient_checkpointing
    with sdpa_kernel(SDPBackend.MATH) if is_unfused else nullcontext():
        return model(input_ids, attention_mask)


def encode_by_length(
    model: MilcoModel, input_ids: Tensor, attention_mask: Tensor, lengths: Sequence[int] | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return logits, float32 [B, V_e], and LexEcho weights, [B, S] or None, as the model computes them.

    Texts of similar length are encoded together, because translations are sentences and passages.

    Args:
        model: in training.
        input_ids, attention_mask: int64 [B, S], padded at the end.
        lengths: of the texts in tokens; without them, a GPU is waited for.
    """
    lengths = attention_mask.sum(dim=1).tolist() if lengths is None else lengths
    order = to_device(np.argsort(lengths, kind="stable"), input_ids.device)
    size = max(_LEAST_PART, -(-len(order) // _LENGTHS))
    ascending = sorted(lengths)
    ends = [ascending[start : start + size][-1] for start in range(0, len(order), size)]
    outputs = [
        forward_pass(model, input_ids[rows, :end], attention_mask[rows, :end])
        for rows, end in zip(order.split(size), ends, strict=True)
    ]
    back, size = order.argsort(), input_ids.shape[1]
    logits = torch.cat([output.logits for output in outputs])[back]
    if model.echo is None:
        return logits, None
    echoes = [cast(Tensor, output.echo) for output in outputs]
    return logits, torch.cat([functional.pad(echo, (0, size - echo.shape[1])) for echo in echoes])[back]


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
