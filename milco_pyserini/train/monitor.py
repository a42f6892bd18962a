"""Collapse alarms: figures of the vectors that a model makes while it trains, and a warning if one is not healthy.

Contrastive training without alignment drifts to terms that are unrelated to the text (MILCO, ICLR 2026, semantic
collapse). These figures show it long before an evaluation does. All are made of one thing, the number of texts that use
each term.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from milco_pyserini.corpora.bitext import BitextSource
from milco_pyserini.errors import ParameterError
from milco_pyserini.model.forward import to_device
from milco_pyserini.model.modeling import MilcoModel
from milco_pyserini.train.batches import TextCollator

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
# A figure has recovered when it is inside its range by a tenth; otherwise alarms would come and go at the limit.
_MARGIN = 0.1
_LISTED = 4
_LOWER = "lower the regularization or the learning rate"
_RAISE = "raise the regularization or lower the learning rate"
_DRIFT = "terms drift away from the text; align (SAP) before contrast, or lower the learning rate"


# A figure, the side of a limit on which it is not healthy, the limit, the figure's name in a message, and what to do.
# Shares are from 0 to 1.
HEALTHY_LIMITS: tuple[tuple[str, str, float, str, str], ...] = (
    # Random terms have less than .01. A healthy model has .1 to .2 if the teacher has only the text's own words
    # (milco-mini with a lexical teacher), and more if the teacher expands.
    ("pivot/grounded", "below", 0.05, "share of grounded pivot terms", _DRIFT),
    # Half of the best is drifting, whatever the teacher's number of terms.
    ("pivot/grounded_of_best", "below", 0.5, "share of grounded pivot terms relative to its best", _DRIFT),
    # SPLADE has 20 to 300 terms per text; above 500 an index costs more than it gains, below 3 recall is gone.
    ("pivot/terms", "below", 3, "pivot terms per text", f"texts lose their terms; {_LOWER}"),
    ("pivot/terms", "above", 500, "pivot terms per text", f"vectors are no longer sparse; {_RAISE}"),
    # A source view with less than one term per text adds nothing.
    ("source/terms", "below", 1, "source terms per text", f"LexEcho is dying; {_LOWER}"),
    # Five hundred sentences of a language use a tenth (short textbook ones) to a half of the vocabulary.
    ("pivot/dead", "above", 0.95, "share of dead pivot terms (active in no text)", "few terms are used"),
    # Half of all texts share some dozens of function words and no other terms.
    (
        *("pivot/always_on", "above", 0.005),
        "share of always-on pivot terms (active in more than half of the texts)",
        "terms of every text do not discriminate",
    ),
)


@dataclass(frozen=True)
class TermCounts:
    """Counts of the terms of some texts. terms: int32 [V_e], the texts that use each pivot term; 0 without texts.

    grounded, source: sums over the texts, of their grounded pivot terms and of their source terms: int64 scalars, None
    where they are not known.
    """

    texts: int = 0
    terms: Tensor | int = 0
    grounded: Tensor | None = None
    source: Tensor | None = None

    def __add__(self, other: "TermCounts") -> "TermCounts":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return TermCounts(*(old if new is None else new if old is None else old + new for old, new in pairs))

    def figures(self, shares: bool) -> dict[str, float]:
        """Return the figures of these texts, as in CollapseMonitor.figures(). shares: report dead and always-on terms.

        A figure whose denominator is 0 is left out.
        """
        terms = torch.as_tensor(self.terms)
        total = int(terms.sum())
        figures = {"pivot/terms": total / self.texts}
        if self.grounded is not None and total:
            figures["pivot/grounded"] = int(self.grounded) / total
        if self.source is not None:
            figures["source/terms"] = int(self.source) / self.texts
        if shares:
            figures["pivot/dead"] = int((terms == 0).sum()) / len(terms)
            figures["pivot/always_on"] = int((terms * 2 > self.texts).sum()) / len(terms)
        return figures


class CollapseMonitor:
    """Figures and warnings about the vectors of the latest texts of training.

    Memory is two counts of every English term for each kind and language. update() does not synchronize with the
    device; figures() and warnings() do.

    Args:
        warm_up: texts before the first warning.
        counted: texts of each kind and language, up to twice as many, that figures cover.
    """

    def __init__(self, warm_up: int = WARM_UP, counted: int = COUNTED) -> None:
        self.warm_up, self.counted, self.seen = warm_up, counted, 0
        # By kind and language: the count that is being filled, preceded by the last full one.
        self._counts: dict[tuple[str, str], list[TermCounts]] = {}
        self._best: dict[str, float] = {}
        self._reported: set[tuple[str, str]] = set()

    @torch.no_grad()
    def update(
        self,
        kind: str,
        languages: Sequence[str],
        pivot: Tensor,
        grounded: Tensor | None = None,
        source_terms: Tensor | None = None,
    ) -> None:
        """Add a batch of B texts.

        Args:
            kind: of the texts, such as "text", "english", "query", "passage".
            languages: one for each text.
            pivot: float [B, V_e], active above 0.
            grounded: bool [B, V_e], the expected terms (the teacher's, or the tokens of an English translation), or
                None.
            source_terms: int64 [B], numbers of terms in the source view, or None.

        Raises:
            ValueError: sizes differ.
        """
        if len(languages) != len(pivot) or (grounded is not None and grounded.shape != pivot.shape):
            mask = None if grounded is None else tuple(grounded.shape)
            raise ValueError(f"sizes differ: {len(languages)} languages, pivot {tuple(pivot.shape)}, grounded {mask}")
        self.seen += len(languages)
        texts = Counter(languages)
        numbers = {language: number for number, language in enumerate(texts)}
        rows = to_device(np.array([numbers[language] for language in languages]), pivot.device)

        def by_language(values: Tensor, dtype: torch.dtype) -> Tensor:
            zeros = torch.zeros(len(texts), *values.shape[1:], dtype=dtype, device=values.device)
            return zeros.index_add_(0, rows, values.to(dtype))

        active = pivot > 0
        terms = by_language(active, torch.int32)
        grounded_terms = None if grounded is None else by_language((active & grounded).sum(dim=1), torch.int64)
        source = None if source_terms is None else by_language(source_terms, torch.int64)
        for language, number in numbers.items():
            parts = self._counts.setdefault((kind, language), [TermCounts()])
            if parts[-1].texts >= self.counted:
                parts[:] = [parts[-1], TermCounts()]
            sums = (None if sums is None else sums[number].clone() for sums in (grounded_terms, source))
            parts[-1] += TermCounts(texts[language], terms[number].clone(), *sums)

    def forget(self, kind: str) -> None:
        """Drop all texts of a kind."""
        self._counts = {key: parts for key, parts in self._counts.items() if key[0] != kind}

    def figures(self) -> dict[str, float]:
        """Return the figures as FIGURE/KIND and FIGURE/KIND/LANGUAGE; empty before the first update().

        pivot/terms and source/terms are means over texts. pivot/grounded is the share of grounded terms among active
        ones, pivot/grounded_of_best that of a kind divided by its best so far. pivot/dead and pivot/always_on are
        shares of the English vocabulary: terms active in no text, and in more than half of the texts. These two need
        `counted` texts, and are not reported for PROBE; a language needs LEAST_TEXTS for the others.
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
        return figures

    def warnings(self) -> list[str]:
        """Return a sentence for every figure that has left its healthy range, once until it has recovered.

        Languages are not listed if all texts of their kind together are out of range. Empty until the warm-up is over.
        """
        figures = self.figures()
        if self.seen < self.warm_up:
            return []
        sentences, reported = [], set()
        for limits, kind in itertools.product(HEALTHY_LIMITS, dict.fromkeys(kind for kind, _ in self._counts)):
            figure, side, limit, label, advice = limits
            overall = f"{figure}/{kind}"
            out = {
                name: value
                for name, value in figures.items()
                if (name == overall or name.startswith(f"{overall}/"))
                and _is_passed(side, limit, value, _MARGIN if (side, name) in self._reported else 0)
            }
            if overall in out:
                out = {overall: out[overall]}
            reported |= {(side, name) for name in out}
            new = [name for name in out if (side, name) not in self._reported]
            if new:
                places = [name.removeprefix(overall).replace("/", " in ") for name in new[:_LISTED]]
                listed = ", ".join(f"{out[name]:.3g}{place}" for name, place in zip(new, places, strict=False))
                more = f" and {len(new) - _LISTED} more languages" if len(new) > _LISTED else ""
                sentences.append(f"collapse alarm ({kind}): {label} {listed}{more}, {side} {limit:g}: {advice}")
        self._reported = reported
        return sentences

    def state(self) -> dict[str, Any]:
        """Return tensors and plain values for load_state()."""
        counts = [(*key, [vars(part) for part in parts]) for key, parts in self._counts.items()]
        return {"seen": self.seen, "counts": counts, "best": self._best, "reported": sorted(self._reported)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state() of another monitor, whose tensors are on the training device."""
        self.seen, self._best, self._reported = state["seen"], dict(state["best"]), set(state["reported"])
        self._counts = {
            (kind, language): [TermCounts(**part) for part in parts] for kind, language, parts in state["counts"]
        }

    def _figures(self, kind: str, counts: TermCounts) -> dict[str, float]:
        return counts.figures(shares=counts.texts >= self.counted and kind != PROBE)


def _is_passed(side: str, limit: float, value: float, margin: float) -> bool:
    """Return whether a value is not healthy; with a margin, or not yet healthy again."""
    return value > limit * (1 - margin) if side == "above" else value < limit * (1 + margin)


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
                raise ParameterError("probe", source.name, "it has no pairs")
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
