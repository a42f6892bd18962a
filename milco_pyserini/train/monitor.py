"""Collapse alarms: figures of the vectors that a model makes while it trains, and a warning if one is not healthy.

Contrastive training without alignment drifts to terms that are unrelated to the text (MILCO, ICLR 2026, semantic
collapse). These figures show it long before an evaluation does. All are made of one thing, the number of texts that use
each term.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from milco_pyserini.errors import MilcoError
from milco_pyserini.model.forward import to_device
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.sparse import PIVOT, SOURCE
from milco_pyserini.train.batches import TextCollator
from milco_pyserini.train.data.bitext import BitextSource

# Texts of a language in a count, after which the next one begins. Dead and always-on terms are not reported for fewer:
# these leave most of a vocabulary unused, however healthy the model is.
COUNTED = 500
# A mean over fewer texts of a language is noise.
LEAST_TEXTS = 20
# An untrained model is outside every range: the first texts raise no alarm.
WARM_UP = 20_000
# The kind of the probe's texts, which are the same few every time.
PROBE = "probe"

_PROBE_PAIRS = 32
# The kind of translations in contrast across languages.
_TEXT = "text"
_GROUNDED, _HELD = "grounded", "held"
# A figure has recovered when it is inside its range by a tenth; otherwise alarms would come and go at the limit.
_MARGIN = 0.1
_LISTED = 4
_DRIFT = "terms drift away from the text; align (SAP) before contrast, or lower the learning rate"


@dataclass(frozen=True)
class HealthyRange:
    """The healthy range of a figure, and what leaving it means. Shares are from 0 to 1, terms are means per text."""

    figure: str
    label: str
    low: float = -inf
    high: float = inf
    below: str = ""
    above: str = ""


HEALTHY_RANGES = (
    HealthyRange(
        "pivot/grounded",
        "share of grounded pivot terms",
        # Random terms have less than .01. A healthy model has .1 to .2 if the teacher has only the text's own words
        # (milco-mini with a lexical teacher), and more if the teacher expands.
        low=0.05,
        below=_DRIFT,
    ),
    HealthyRange(
        "pivot/grounded_of_best",
        "share of grounded pivot terms, relative to its best,",
        # Half of the best is drifting, whatever the teacher's number of terms.
        low=0.5,
        below=_DRIFT,
    ),
    HealthyRange(
        "pivot/terms",
        "pivot terms per text",
        # SPLADE has 20 to 300 terms per text; above 500 an index costs more than it gains, below 3 recall is gone.
        low=3,
        high=500,
        below="texts lose their terms; lower the regularization or the learning rate",
        above="vectors are no longer sparse; raise the regularization or lower the learning rate",
    ),
    HealthyRange(
        "source/terms",
        "source terms per text",
        # A source view with less than one term per text adds nothing.
        low=1,
        below="LexEcho is dying; lower its regularization or the learning rate",
    ),
    HealthyRange(
        "pivot/dead",
        "share of dead pivot terms (active in no text)",
        # Five hundred sentences of a language use a tenth (short textbook ones) to a half of the vocabulary.
        high=0.95,
        above="the model uses only a few terms",
    ),
    HealthyRange(
        "pivot/always_on",
        "share of always-on pivot terms (active in more than half of the texts)",
        # Half of all texts share some dozens of function words and no other terms.
        high=0.005,
        above="terms of every text do not discriminate",
    ),
    HealthyRange(
        "source/dead",
        "share of dead source terms (tokens that never get a weight)",
        # A healthy LexEcho drops a few function words and no token that is rare.
        high=0.5,
        above="LexEcho weights few tokens; lower its regularization or the learning rate",
    ),
    HealthyRange(
        "source/always_on",
        "share of always-on source terms (tokens with a weight in more than half of the texts)",
        # Five hundred passages in one language share some dozens of several thousand tokens.
        high=0.02,
        above="LexEcho does not drop function words; raise its regularization or train longer",
    ),
    HealthyRange(
        "nearest/own",
        "texts in a query's own language that come before its translations, relative to chance,",
        # A model that was aligned language by language has 5 to 6, a fair one 1.
        high=4,
        above="the model prefers texts in the query's language; train longer across languages",
    ),
    HealthyRange(
        "nearest/wins",
        "texts of a language that come before a query's translations, relative to chance,",
        high=3,
        above="its weights are too high next to those of other languages; add pairs in it, or raise `temperature`",
    ),
)


class SourceActivity(NamedTuple):
    """The source view of B texts, over the tokens that they contain.

    tokens: int64 [U], distinct. held, active: bool [B, U], the tokens that a text contains and that it weights.
    size: of the full vocabulary.
    """

    tokens: Tensor
    held: Tensor
    active: Tensor
    size: int


@dataclass
class TermCounts:
    """Numbers of texts that use each term, int32 [V], by name: pivot, grounded, source.

    held: numbers of texts that contain each token of the source vocabulary.
    """

    texts: int = 0
    counts: dict[str, Tensor] = field(default_factory=dict)

    def __add__(self, other: "TermCounts") -> "TermCounts":
        counts = dict(self.counts)
        for name, count in other.counts.items():
            counts[name] = counts[name] + count if name in counts else count
        return TermCounts(self.texts + other.texts, counts)

    def figures(self, shares: bool) -> dict[str, float]:
        """Return the figures of these texts, as in CollapseMonitor.figures(). shares: report dead and always-on terms.

        A figure whose denominator is 0 is left out.
        """
        figures = {}
        for view in (view for view in (PIVOT, SOURCE) if view in self.counts):
            active = self.counts[view]
            total = int(active.sum())
            figures[f"{view}/terms"] = total / self.texts
            if view == PIVOT and _GROUNDED in self.counts and total:
                figures["pivot/grounded"] = int(self.counts[_GROUNDED].sum()) / total
            possible = self.counts[_HELD] > 0 if view == SOURCE else torch.ones_like(active, dtype=torch.bool)
            if shares and (size := int(possible.sum())):
                figures[f"{view}/dead"] = int((possible & (active == 0)).sum()) / size
                figures[f"{view}/always_on"] = int((active * 2 > self.texts).sum()) / size
        return figures


class CollapseMonitor:
    """Figures and warnings about the vectors of the latest texts of training.

    Memory is two counts of every term for each kind and language. update() does not synchronize with the device;
    figures() and warnings() do.

    Args:
        warm_up: texts before the first warning.
        counted: texts of each kind and language, up to twice as many, that figures cover.
    """

    def __init__(self, warm_up: int = WARM_UP, counted: int = COUNTED) -> None:
        self.warm_up = warm_up
        self.counted = counted
        self.seen = 0
        # By kind and language: the count that is being filled, preceded by the last full one.
        self._counts: dict[tuple[str, str], list[TermCounts]] = {}
        self._best: dict[str, float] = {}
        # By language: times that its texts were a query's nearest, and times that they would be by chance; then the
        # same for queries in the language itself.
        self._nearest: dict[str, list[float]] = {}
        self._unread: list[tuple[Sequence[str], Tensor, Tensor]] = []
        self._reported: set[tuple[str, str]] = set()

    @torch.no_grad()
    def update(
        self,
        kind: str,
        languages: Sequence[str],
        pivot: Tensor,
        grounded: Tensor | None = None,
        source: SourceActivity | None = None,
    ) -> None:
        """Add a batch of B texts.

        Args:
            kind: of the texts, such as "text", "english", "query", "passage".
            languages: one for each text.
            pivot: float [B, V_e], active above 0.
            grounded: bool [B, V_e], the expected terms (the teacher's, or the tokens of an English translation), or
                None.
            source: the source view, or None.

        Raises:
            ValueError: sizes differ.
        """
        if len(languages) != len(pivot) or (grounded is not None and grounded.shape != pivot.shape):
            mask = None if grounded is None else tuple(grounded.shape)
            raise ValueError(f"sizes differ: {len(languages)} languages, pivot {tuple(pivot.shape)}, grounded {mask}")
        self.seen += len(languages)
        used = {PIVOT: pivot > 0}
        if grounded is not None:
            used[_GROUNDED] = used[PIVOT] & grounded
        if source is not None:
            used |= {SOURCE: source.active, _HELD: source.held}
        texts = Counter(languages)
        numbers = {language: number for number, language in enumerate(texts)}
        rows = to_device(np.array([numbers[language] for language in languages]), pivot.device)
        counts = {
            name: torch.zeros(len(texts), mask.shape[1], dtype=torch.int32, device=mask.device).index_add_(
                0, rows, mask.int()
            )
            for name, mask in used.items()
        }
        if source is not None:
            for name in (SOURCE, _HELD):
                held = counts[name]
                counts[name] = held.new_zeros(len(texts), source.size).index_copy_(1, source.tokens, held)
        for language, number in numbers.items():
            parts = self._counts.setdefault((kind, language), [TermCounts()])
            if parts[-1].texts >= self.counted:
                parts[:] = [parts[-1], TermCounts()]
            parts[-1] += TermCounts(texts[language], {name: count[number].clone() for name, count in counts.items()})

    def update_nearest(self, languages: Sequence[str], meaning: Tensor, nearest: Tensor) -> None:
        """Add what the queries of a batch of N texts take for a translation.

        Args:
            languages: of the texts.
            meaning: int64 [N], equal for translations.
            nearest: int64 [N], the number of the nearest text of another meaning; -1 for a text that is no query.
        """
        self._unread.append((tuple(languages), meaning, nearest))

    def forget(self, kind: str) -> None:
        """Drop all texts of a kind."""
        self._counts = {key: parts for key, parts in self._counts.items() if key[0] != kind}

    def figures(self) -> dict[str, float]:
        """Return the figures as FIGURE/KIND and FIGURE/KIND/LANGUAGE; empty before the first update().

        pivot/terms and source/terms are means over texts. pivot/grounded is the share of grounded terms among active
        ones, pivot/grounded_of_best that of a kind divided by its best so far. pivot/dead and pivot/always_on are
        shares of the English vocabulary: terms active in no text, and in more than half of the texts; source/dead and
        source/always_on are the same shares of the tokens that occur in the texts. These four need `counted` texts, and
        are not reported for PROBE; a language needs LEAST_TEXTS for the others.

        nearest/own is how often a query takes a text in its own language for a translation, and nearest/wins how often
        texts in a language are taken by any query, both relative to chance: 1 is fair.
        """
        figures: dict[str, float] = {}
        kinds: dict[str, TermCounts] = {}
        for (kind, language), parts in sorted(self._counts.items()):
            counts = sum(parts[1:], parts[0])
            kinds[kind] = kinds[kind] + counts if kind in kinds else counts
            if counts.texts >= LEAST_TEXTS:
                figures |= {f"{name}/{kind}/{language}": value for name, value in self._figures(kind, counts).items()}
        for kind, counts in kinds.items():
            overall = self._figures(kind, counts)
            if grounded := overall.get("pivot/grounded"):
                self._best[kind] = max(grounded, self._best.get(kind, 0.0))
                overall["pivot/grounded_of_best"] = grounded / self._best[kind]
            figures |= {f"{name}/{kind}": value for name, value in overall.items()}
        return figures | self._nearest_figures()

    def warnings(self) -> list[str]:
        """Return a sentence for every figure that has left its healthy range, once until it has recovered.

        Languages are not listed if all texts of their kind together are out of range. Empty until the warm-up is over.
        """
        figures = self.figures()
        if self.seen < self.warm_up:
            return []
        sentences, reported = [], set()
        for limits, kind in itertools.product(HEALTHY_RANGES, dict.fromkeys(kind for kind, _ in self._counts)):
            overall = f"{limits.figure}/{kind}"
            for side, sign, limit in (("below", -1, limits.low), ("above", 1, limits.high)):
                out = {}
                for name, value in figures.items():
                    if name == overall or name.startswith(f"{overall}/"):
                        margin = _MARGIN if (side, name) in self._reported else 0
                        if sign * value > sign * limit * (1 - sign * margin):
                            out[name] = value
                if overall in out:
                    out = {overall: out[overall]}
                new = {name: value for name, value in out.items() if (side, name) not in self._reported}
                reported |= {(side, name) for name in out}
                if new:
                    languages = [name.removeprefix(overall).replace("/", " in ") for name in new]
                    values = [f"{value:.3g}{where}" for value, where in zip(new.values(), languages, strict=True)]
                    listed = ", ".join(values[:_LISTED])
                    more = f" and {len(new) - _LISTED} more languages" if len(new) > _LISTED else ""
                    advice = limits.below if side == "below" else limits.above
                    sentences.append(
                        f"collapse alarm ({kind}): {limits.label} {listed}{more}, {side} {limit:g}: {advice}"
                    )
        self._reported = reported
        return sentences

    def state(self) -> dict[str, Any]:
        """Return tensors and plain values for load_state()."""
        counts = [
            (*key, [(part.texts, {name: count.to_sparse() for name, count in part.counts.items()}) for part in parts])
            for key, parts in self._counts.items()
        ]
        self._count_nearest()
        return {
            "seen": self.seen,
            "counts": counts,
            "best": self._best,
            "nearest": self._nearest,
            "reported": sorted(self._reported),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state() of another monitor, whose tensors are on the training device."""
        self.seen, self._best, self._reported = state["seen"], dict(state["best"]), set(state["reported"])
        self._nearest = dict(state["nearest"])
        self._counts = {
            (kind, language): [
                TermCounts(texts, {name: count.to_dense() for name, count in counts.items()}) for texts, counts in parts
            ]
            for kind, language, parts in state["counts"]
        }

    def _count_nearest(self) -> None:
        for languages, meaning, nearest in self._unread:
            names, meanings, taken = np.array(languages), meaning.cpu().numpy(), nearest.cpu().numpy()
            queries = taken >= 0
            others = meanings[queries, None] != meanings
            chances = others / others.sum(axis=1, keepdims=True)
            for name in sorted(set(languages)):
                won, chance = names[taken[queries]] == name, chances[:, names == name].sum(axis=1)
                own = names[queries] == name
                sums = won.sum(), chance.sum(), won[own].sum(), chance[own].sum()
                before = self._nearest.get(name, [0.0] * len(sums))
                # Older batches fade, as other figures forget older texts.
                fading = 0.5 if before[1] > self.counted else 1.0
                self._nearest[name] = [fading * old + float(new) for old, new in zip(before, sums, strict=True)]
        self._unread = []

    def _nearest_figures(self) -> dict[str, float]:
        self._count_nearest()
        if not self._nearest:
            return {}
        taken, expected = (sum(sums[place] for sums in self._nearest.values()) for place in (2, 3))
        figures = {f"nearest/own/{_TEXT}": taken / expected} if expected else {}
        for language, (wins, expected, _, _) in sorted(self._nearest.items()):
            if expected >= LEAST_TEXTS:
                figures[f"nearest/wins/{_TEXT}/{language}"] = wins / expected
        return figures

    def _figures(self, kind: str, counts: TermCounts) -> dict[str, float]:
        return counts.figures(shares=counts.texts >= self.counted and kind != PROBE)


class GroundingProbe:
    """Held-out sentence pairs, encoded at every log entry: are terms grounded in the translation?

    Contrastive training has no teacher of terms. A term of a text is grounded if it is a token of its translation.

    Args:
        sources: the first pairs of each are used.
        texts: tokenizes the texts.
        english: tokenizer whose tokens are the pivot's columns.
        max_length: tokens per text.

    Raises:
        MilcoError: a source has no pairs, or a broken line.
    """

    def __init__(
        self, sources: Sequence[BitextSource], texts: TextCollator, english: Tokenizer, max_length: int
    ) -> None:
        self.batches = []
        for source in sources:
            pairs = list(itertools.islice(source.pairs(), _PROBE_PAIRS))
            if not pairs:
                raise MilcoError(f"`probe`: {source.name} has no pairs")
            grounded = torch.zeros(len(pairs), english.get_vocab_size(), dtype=torch.bool)
            encodings = english.encode_batch([pair.english for pair in pairs], add_special_tokens=False)
            for row, encoding in enumerate(encodings):
                grounded[row, encoding.ids] = True
            inputs = texts([pair.text for pair in pairs], max_length)
            self.batches.append((inputs, grounded, [pair.language for pair in pairs]))

    @torch.no_grad()
    def update(self, model: MilcoModel, monitor: CollapseMonitor) -> None:
        """Encode the texts without dropout; they replace those of the kind PROBE in the monitor."""
        device = model.decoder.weight.device
        monitor.forget(PROBE)
        was_training = model.training
        model.eval()
        for inputs, grounded, languages in self.batches:
            output = model(**{name: tensor.to(device) for name, tensor in inputs.items()})
            monitor.update(PROBE, languages, output.pivot, grounded.to(device))
        model.train(was_training)
