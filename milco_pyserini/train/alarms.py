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

from milco_pyserini.sparse import PIVOT, SOURCE

WINDOW = 4096
# Which terms are in use is told of this many texts of a language and more: fewer leave most of a vocabulary out,
# however sound the model is.
COUNTED = 500
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
        "share of dead pivot terms, English pieces that no text uses,",
        # Five hundred sentences of a language use a tenth (short ones of a textbook) to a half of the pieces.
        high=0.95,
        above="the model says everything with a few terms",
    ),
    Range(
        "pivot/always_on",
        "share of always-on pivot terms, English pieces that more than half of the texts use,",
        # Half of all texts share some dozens of function words, and no other terms.
        high=0.005,
        above="terms that are in every text say nothing about any",
    ),
    Range(
        "source/dead",
        "share of dead source terms, pieces that have no weight wherever they stand,",
        # A sound echo drops a few function words, and nothing that stands in one text of many.
        high=0.5,
        above="the echo knows few pieces; lower its regularisation or the learning rate",
    ),
    Range(
        "source/always_on",
        "share of always-on source terms, pieces that more than half of the texts use,",
        # Passages of five hundred in one language share some dozens of several thousand pieces.
        high=0.02,
        above="the echo tells function words from no others; raise its regularisation or train it longer",
    ),
)


@dataclass(frozen=True)
class _Batch:
    """Per-text numbers [B] of texts of one kind, on their device until somebody asks. grounded: NaN without terms."""

    kind: str
    languages: tuple[str, ...]
    numbers: dict[str, Tensor]


class Source(NamedTuple):
    """The source view of B texts, over the pieces that they hold.

    pieces: int64 [U], each once. held, active: bool [B, U], which of them a text holds, and gives a weight. size: of
    the whole vocabulary.
    """

    pieces: Tensor
    held: Tensor
    active: Tensor
    size: int


@dataclass
class _Usage:
    """active: int32 [V], how many of the texts use each term. held: bool [V], the terms that any of them could use."""

    active: Tensor
    held: Tensor
    texts: int = 0

    def __add__(self, other: "_Usage") -> "_Usage":
        return _Usage(self.active + other.active, self.held | other.held, self.texts + other.texts)

    def shares(self) -> dict[str, float]:
        """Of the terms that could be used, those that no text uses and those that more than half of the texts use."""
        possible = int(self.held.sum())
        if not possible:
            return {}
        dead = self.held & (self.active == 0)
        return {
            "dead": int(dead.sum()) / possible,
            "always_on": int((self.active * 2 > self.texts).sum()) / possible,
        }

    def state(self) -> dict[str, Any]:
        """What of_state() takes: the terms that could be used, which are few of a source vocabulary."""
        terms = self.held.nonzero().squeeze(1)
        return {"terms": terms.int(), "active": self.active[terms], "size": len(self.held), "texts": self.texts}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "_Usage":
        """Usage from another one's state()."""
        usage = cls.none(state["size"], state["active"].device)
        usage.active[state["terms"].long()] = state["active"]
        usage.held[state["terms"].long()] = True
        usage.texts = state["texts"]
        return usage

    @classmethod
    def none(cls, size: int, device: torch.device) -> "_Usage":
        """Usage of a vocabulary by no text."""
        return cls(
            torch.zeros(size, dtype=torch.int32, device=device), torch.zeros(size, dtype=torch.bool, device=device)
        )


@dataclass
class _Block:
    """Consecutive batches."""

    texts: int = 0
    batches: list[_Batch] = field(default_factory=list)


class CollapseMonitor:
    """Figures and warnings about the vectors of the last texts of training.

    window: how many texts; a sixteenth more may be looked at. warm_up: texts before the first warning. counted: which
    terms are in use is told of the last texts of each kind and language, so many and up to twice as many, because it
    depends on their number. It holds a few numbers a text, and for each kind and language two counts of every term.
    update() waits for no device, figures() and warnings() do.
    """

    def __init__(self, window: int = WINDOW, warm_up: int = WARM_UP, counted: int = COUNTED) -> None:
        self.window = window
        self.warm_up = warm_up
        self.counted = counted
        self.seen = 0
        self._blocks: deque[_Block] = deque()
        # By view, kind and language: the texts since the last full count, and behind them that count.
        self._usage: dict[tuple[str, str, str], list[_Usage]] = {}
        self._watch = _Watch()

    @property
    def texts(self) -> int:
        """How many of the last texts the means are about."""
        return sum(block.texts for block in self._blocks)

    @torch.no_grad()
    def update(
        self,
        kind: str,
        languages: Sequence[str],
        pivot: Tensor,
        grounded: Tensor | None = None,
        source: Source | None = None,
        repeated: bool = False,
    ) -> None:
        """Take in B texts. kind: what they are, such as "text", "english", "query", "passage"; languages: one each.

        pivot: float [B, V_e], active above 0. grounded: bool [B, V_e], dense or sparse, the terms that are expected
        (the teacher's, or the English pieces of the text itself), or None. repeated: the same texts come again and
        again, and which terms a few texts use is not counted. Raises ValueError if the sizes differ.
        """
        if len(languages) != len(pivot) or (grounded is not None and grounded.shape != pivot.shape):
            mask = None if grounded is None else tuple(grounded.shape)
            raise ValueError(f"{len(languages)} languages, pivot {tuple(pivot.shape)}, grounded {mask} do not fit")
        active = pivot > 0
        numbers = {"pivot/terms": active.sum(dim=1)}
        if grounded is not None:
            expected = grounded.to_dense() if grounded.is_sparse else grounded
            numbers[GROUNDED.figure] = (active & expected).sum(dim=1) / numbers["pivot/terms"]
        if source is not None:
            numbers["source/terms"] = source.active.sum(dim=1)
        block = self._open_block()
        block.texts += len(pivot)
        block.batches.append(_Batch(kind, tuple(languages), numbers))
        self.seen += len(pivot)
        while self.texts - self._blocks[0].texts >= self.window:
            self._blocks.popleft()
        if not repeated:
            self._count(kind, languages, active, source)

    def figures(self) -> dict[str, float]:
        """The figures by flat names; nothing before the first update().

        pivot/terms, pivot/grounded (share of a text's active terms) and source/terms are means over the texts of a
        kind (pivot/terms/query) and over those in each language (pivot/terms/query/ar).

        pivot/dead and pivot/always_on are shares of the English vocabulary: the pieces that are active in no text, and
        in more than half of the texts. source/dead and source/always_on are shares of the pieces that stand in one of
        the texts at least: no text can use others. All four are of a kind (source/dead/query), all its languages
        together, and of each language (source/dead/query/ar) that has had enough texts, which is `counted`.
        """
        return self._figures(least_texts=1, least_counted=1)

    def warnings(self) -> list[str]:
        """A sentence for every figure that has left its range since the last call; again only after it recovered.

        Where a kind as a whole is out, its languages are not listed. Nothing before the warm-up and a full window.
        """
        ready = self.seen >= self.warm_up and self.texts >= self.window
        return self._watch.sentences(self._figures(LEAST_TEXTS, self.counted), ready)

    def state(self) -> dict[str, Any]:
        """All that it knows, in tensors and plain values: what load_state() takes."""
        return {
            "seen": self.seen,
            "blocks": [
                {"texts": block.texts, "batches": [vars(batch) for batch in block.batches]} for block in self._blocks
            ],
            "usage": [(key, [part.state() for part in parts]) for key, parts in self._usage.items()],
            "watch": self._watch.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from another monitor's state(), the tensors of which are on the device of the texts to come."""
        self.seen = state["seen"]
        blocks = state["blocks"]
        self._blocks = deque(
            _Block(block["texts"], [_Batch(**batch) for batch in block["batches"]]) for block in blocks
        )
        self._usage = {tuple(key): [_Usage.of_state(part) for part in parts] for key, parts in state["usage"]}
        self._watch.load_state(state["watch"])

    def _open_block(self) -> _Block:
        if not self._blocks or self._blocks[-1].texts * _BLOCKS >= self.window:
            self._blocks.append(_Block())
        return self._blocks[-1]

    def _count(self, kind: str, languages: Sequence[str], active: Tensor, source: Source | None) -> None:
        for language in dict.fromkeys(languages):
            rows = [row for row, name in enumerate(languages) if name == language]
            usage = self._open_usage((PIVOT, kind, language), active.shape[1], active.device)
            usage.active += active[rows].sum(dim=0)
            usage.held[:] = True
            usage.texts += len(rows)
            if source is not None:
                usage = self._open_usage((SOURCE, kind, language), source.size, active.device)
                usage.active[source.pieces] += source.active[rows].sum(dim=0, dtype=torch.int32)
                usage.held[source.pieces] |= source.held[rows].any(dim=0)
                usage.texts += len(rows)

    def _open_usage(self, key: tuple[str, str, str], size: int, device: torch.device) -> _Usage:
        parts = self._usage.setdefault(key, [])
        if not parts or parts[-1].texts >= self.counted:
            parts[:-1] = []
            parts.append(_Usage.none(size, device))
        return parts[-1]

    def _figures(self, least_texts: int, least_counted: int) -> dict[str, float]:
        found = {name: sum(values) / len(values) for name, values in self._by_name() if len(values) >= least_texts}
        whole: dict[str, _Usage] = {}
        for (view, kind, language), parts in sorted(self._usage.items()):
            usage = sum(parts[1:], parts[0])
            if usage.texts >= self.counted:
                found |= {f"{view}/{share}/{kind}/{language}": value for share, value in usage.shares().items()}
            name = f"{view}/{{}}/{kind}"
            whole[name] = whole[name] + usage if name in whole else usage
        for name, usage in whole.items():
            if usage.texts >= least_counted:
                found |= {name.format(share): value for share, value in usage.shares().items()}
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
            names = [name for name in figures if name.startswith(f"{limits.figure}/")]
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
    """The values and what they are of: a kind, or a kind's languages."""
    limits, _, kind, values = finding
    (first, value), *_ = values.items()
    if first == f"{limits.figure}/{kind}":
        return f" of {kind} {value:.3g}"
    languages = [f"{name.rpartition('/')[2]} {value:.3g}" for name, value in values.items()]
    more = f" and {len(languages) - _NAMED} more" if len(languages) > _NAMED else ""
    return f" of {kind} in {', '.join(languages[:_NAMED])}{more}"


def _kind(limits: Range, name: str) -> str:
    """The kind of texts that a figure is about: "query" of "pivot/terms/query/ar"."""
    return name.removeprefix(limits.figure).strip("/").partition("/")[0]
