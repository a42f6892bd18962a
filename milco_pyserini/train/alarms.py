"""Collapse alarms: does the model, while it trains, still say things in English words about the text?

Contrastive training without alignment drifts to terms that have nothing to do with the text (MILCO, ICLR 2026,
semantic collapse). Figures over a window of the last texts show it long before an evaluation does.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

WINDOW = 4096
# An untrained model is out of every range: nothing is said about the first texts.
WARM_UP = 20_000
# A mean over fewer texts than this is noise.
LEAST_TEXTS = 20
# A share of grounded terms that is half of what it has been is drifting, however many terms the teacher has.
GROUNDED_FALL = 0.5
# A figure has recovered when it is back inside its range by a tenth: at the very edge it would come and go.
MARGIN = 0.1

_BLOCKS = 16
_NAMED = 4
_BELOW, _ABOVE, _FALLEN = "below", "above", "fallen"


@dataclass(frozen=True)
class Range:
    """Where a figure is healthy, and what it means when it is not. Shares are from 0 to 1, terms are means per text."""

    figure: str
    words: str
    low: float = 0.0
    high: float = inf
    below: str = ""
    above: str = ""


GROUNDED = Range(
    "pivot/grounded",
    "share of grounded pivot terms",
    # Terms drawn by chance have less than .01. A sound model has .1 to .2 where the teacher names a text's own words
    # alone (milco-mini against a lexical teacher), and more where the teacher expands.
    low=0.05,
    below="terms drift away from what the text says; align (SAP) before contrast, or lower the learning rate",
)
RANGES = (
    GROUNDED,
    Range(
        "pivot/terms",
        "pivot terms per text",
        # SPLADE has 20 to 300 terms a text; from 500 on an index costs more than it finds, below 3 nothing is found.
        low=3,
        high=500,
        below="texts lose their terms; lower the regularisation or the learning rate",
        above="vectors are no longer sparse; raise the regularisation or lower the learning rate",
    ),
    Range(
        "source/terms",
        "source terms per text",
        # Without one term of its own in each text, the source view adds nothing.
        low=1,
        below="the echo is dying; lower its regularisation or the learning rate",
    ),
    Range(
        "pivot/dead",
        "share of the English pieces that no text uses",
        # Four thousand sentences use a fifth of the pieces or more.
        high=0.9,
        above="the model says everything with a few terms",
    ),
    Range(
        "pivot/always_on",
        "share of the English pieces that more than half of the texts use",
        # Half of all texts share some dozens of function words, and no other terms.
        high=0.002,
        above="terms that are in every text say nothing about any",
    ),
)


@dataclass(frozen=True)
class _Batch:
    """Per-text numbers [B] of texts of one kind, on their device until somebody asks. grounded: NaN without terms."""

    kind: str
    languages: tuple[str, ...]
    numbers: dict[str, Tensor]


@dataclass
class _Block:
    """Consecutive batches. active: int64 [V_e], in how many of their texts each term is active."""

    active: Tensor
    texts: int = 0
    batches: list[_Batch] = field(default_factory=list)


class CollapseMonitor:
    """Figures and warnings about the vectors of the last texts of training.

    window: how many texts; a sixteenth more may be looked at. warm_up: texts before the first warning. It holds a
    few numbers a text and about 16 numbers a term. update() waits for no device, figures() and warnings() do.
    """

    def __init__(self, window: int = WINDOW, warm_up: int = WARM_UP) -> None:
        self.window = window
        self.warm_up = warm_up
        self.seen = 0
        self._blocks: deque[_Block] = deque()
        self._watch = _Watch()

    @property
    def texts(self) -> int:
        """How many of the last texts the figures are about."""
        return sum(block.texts for block in self._blocks)

    @torch.no_grad()
    def update(
        self,
        kind: str,
        languages: Sequence[str],
        pivot: Tensor,
        grounded: Tensor | None = None,
        source_terms: Tensor | None = None,
    ) -> None:
        """Take in B texts. kind: what they are, such as "text", "english", "query", "passage"; languages: one each.

        pivot: float [B, V_e], active above 0. grounded: bool [B, V_e], dense or sparse, the terms that are expected
        (the teacher's, or the English pieces of the text itself), or None. source_terms: int [B], active terms of the
        source view, or None. Raises ValueError if the sizes differ.
        """
        if len(languages) != len(pivot) or (grounded is not None and grounded.shape != pivot.shape):
            mask = None if grounded is None else tuple(grounded.shape)
            raise ValueError(f"{len(languages)} languages, pivot {tuple(pivot.shape)}, grounded {mask} do not fit")
        active = pivot > 0
        numbers = {"pivot/terms": active.sum(dim=1)}
        if grounded is not None:
            expected = grounded.to_dense() if grounded.is_sparse else grounded
            numbers[GROUNDED.figure] = (active & expected).sum(dim=1) / numbers["pivot/terms"]
        if source_terms is not None:
            numbers["source/terms"] = source_terms
        block = self._open_block(pivot)
        block.active += active.sum(dim=0)
        block.texts += len(pivot)
        block.batches.append(_Batch(kind, tuple(languages), numbers))
        self.seen += len(pivot)
        while self.texts - self._blocks[0].texts >= self.window:
            self._blocks.popleft()

    def figures(self) -> dict[str, float]:
        """The figures by flat names; nothing before the first update().

        pivot/terms, pivot/grounded (share of a text's active terms) and source/terms are means over the texts of a
        kind (pivot/terms/query) and over those in each language (pivot/terms/query/ar). pivot/dead is the share of
        the vocabulary that is active in no text, pivot/always_on of that active in more than half of them.
        """
        return self._figures(least_texts=1)

    def warnings(self) -> list[str]:
        """A sentence for every figure that has left its range since the last call; again only after it recovered.

        Where a kind as a whole is out, its languages are not listed. Nothing before the warm-up and a full window.
        """
        ready = self.seen >= self.warm_up and self.texts >= self.window
        return self._watch.sentences(self._figures(LEAST_TEXTS), ready)

    def state(self) -> dict[str, Any]:
        """All that it knows, in tensors and plain values: what load_state() takes."""
        return {
            "seen": self.seen,
            "blocks": [
                {"active": block.active, "texts": block.texts, "batches": [vars(batch) for batch in block.batches]}
                for block in self._blocks
            ],
            "watch": self._watch.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from another monitor's state(), the tensors of which are on the device of the texts to come."""
        self.seen = state["seen"]
        blocks = state["blocks"]
        self._blocks = deque(
            _Block(block["active"], block["texts"], [_Batch(**batch) for batch in block["batches"]]) for block in blocks
        )
        self._watch.load_state(state["watch"])

    def _open_block(self, pivot: Tensor) -> _Block:
        if not self._blocks or self._blocks[-1].texts * _BLOCKS >= self.window:
            self._blocks.append(_Block(torch.zeros(pivot.shape[1], dtype=torch.int64, device=pivot.device)))
        return self._blocks[-1]

    def _figures(self, least_texts: int) -> dict[str, float]:
        if not self.texts:
            return {}
        found = {name: sum(values) / len(values) for name, values in self._by_name() if len(values) >= least_texts}
        active = torch.stack([block.active for block in self._blocks]).sum(dim=0)
        found["pivot/dead"] = (active == 0).float().mean().item()
        found["pivot/always_on"] = (active > self.texts / 2).float().mean().item()
        return found

    def _by_name(self) -> list[tuple[str, list[float]]]:
        """The values of every figure that is a mean over texts, a text without a value left out."""
        values: dict[str, list[float]] = {}
        for batch in (batch for block in self._blocks for batch in block.batches):
            for figure, numbers in batch.numbers.items():
                for language, number in zip(batch.languages, numbers.tolist(), strict=True):
                    if number == number:
                        values.setdefault(f"{figure}/{batch.kind}", []).append(number)
                        values.setdefault(f"{figure}/{batch.kind}/{language}", []).append(number)
        return sorted(values.items())


class _Finding(NamedTuple):
    """Figures of one kind that are beyond the same limit: values by name, those of the kind or of its languages."""

    limits: Range
    side: str
    kind: str
    values: dict[str, float]


class _Watch:
    """Figures to sentences; remembers what it has said, and the best share of grounded terms of every kind."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()
        self._best: dict[str, float] = {}

    def state(self) -> dict[str, Any]:
        """What it remembers, in plain values."""
        return {"said": sorted(self._said), "best": self._best}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Remember what another one's state() tells."""
        self._said, self._best = set(state["said"]), dict(state["best"])

    def sentences(self, figures: Mapping[str, float], ready: bool) -> list[str]:
        """What to say of figures as CollapseMonitor.figures() names them; nothing while not ready."""
        findings = [*self._fallen(figures), *self._out_of_range(figures)]
        if not ready:
            return []
        sentences = []
        for finding in findings:
            fresh = {name: v for name, v in finding.values.items() if (finding.side, name) not in self._said}
            if fresh:
                sentences.append(self._sentence(finding._replace(values=fresh)))
        self._said = {(finding.side, name) for finding in findings for name in finding.values}
        return sentences

    def _out_of_range(self, figures: Mapping[str, float]) -> Iterator[_Finding]:
        for limits in RANGES:
            names = [name for name in figures if name == limits.figure or name.startswith(f"{limits.figure}/")]
            for kind in dict.fromkeys(_kind(limits, name) for name in names):
                for side in (_BELOW, _ABOVE):
                    out = {
                        name: figures[name]
                        for name in names
                        if _kind(limits, name) == kind and self._is_out(limits, side, name, figures[name])
                    }
                    whole = f"{limits.figure}/{kind}"
                    if out:
                        yield _Finding(limits, side, kind, {whole: out[whole]} if whole in out else out)

    def _is_out(self, limits: Range, side: str, name: str, value: float) -> bool:
        margin = MARGIN if (side, name) in self._said else 0
        return value < limits.low * (1 + margin) if side == _BELOW else value > limits.high * (1 - margin)

    def _fallen(self, figures: Mapping[str, float]) -> Iterator[_Finding]:
        """Kinds whose share of grounded terms is in its range, but half of its best or less."""
        for name, value in figures.items():
            figure, _, kind = name.rpartition("/")
            if figure == GROUNDED.figure:
                self._best[name] = max(value, self._best.get(name, 0.0))
                margin = MARGIN if (_FALLEN, name) in self._said else 0
                if GROUNDED.low <= value < GROUNDED_FALL * self._best[name] * (1 + margin):
                    yield _Finding(GROUNDED, _FALLEN, kind, {name: value})

    def _sentence(self, finding: _Finding) -> str:
        limits, side, kind, values = finding
        (first, value), *_ = values.items()
        if side == _FALLEN:
            where, what = f" of {kind}", f" fell from {self._best[first]:.3g} to {value:.3g}: {limits.below}"
        else:
            where = _where(finding)
            what = f", below {limits.low:g}: {limits.below}"
            if side == _ABOVE:
                what = f", above {limits.high:g}: {limits.above}"
        return f"collapse alarm: {limits.words}{where}{what}"


def _where(finding: _Finding) -> str:
    """The values and what they are of: the vocabulary, a kind, or a kind's languages."""
    limits, _, kind, values = finding
    (first, value), *_ = values.items()
    if not kind:
        return f" {value:.3g}"
    if first == f"{limits.figure}/{kind}":
        return f" of {kind} {value:.3g}"
    languages = [f"{name.rpartition('/')[2]} {value:.3g}" for name, value in values.items()]
    more = f" and {len(languages) - _NAMED} more" if len(languages) > _NAMED else ""
    return f" of {kind} in {', '.join(languages[:_NAMED])}{more}"


def _kind(limits: Range, name: str) -> str:
    """The kind of texts that a figure is about: "query" of "pivot/terms/query/ar", "" of "pivot/dead"."""
    return name.removeprefix(limits.figure).strip("/").partition("/")[0]
