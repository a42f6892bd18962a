"""Running statistics of the vectors that a model makes while it trains, for the collapse alarms."""

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from milco_pyserini.errors import MilcoError
from milco_pyserini.model import MilcoModel
from milco_pyserini.sparse import PIVOT, SOURCE
from milco_pyserini.train.alarms import GROUNDED, AlarmWatch
from milco_pyserini.train.batches import TextCollator
from milco_pyserini.train.data.bitext import BitextSource

WINDOW = 4096
# Texts of a language from which dead and always-on terms are counted: fewer leave most of a vocabulary unused,
# however healthy the model is.
COUNTED = 500
# An untrained model is outside every range: the first texts raise no alarm.
WARM_UP = 20_000
# A mean over fewer texts is noise.
LEAST_TEXTS = 20

_BLOCKS = 16
_PROBE_PAIRS = 32


class SourceActivity(NamedTuple):
    """The source view of B texts, over the tokens that they contain.

    tokens: int64 [U], distinct. held, active: bool [B, U], the tokens that a text contains and that it weights.
    size: of the full vocabulary.
    """

    tokens: Tensor
    held: Tensor
    active: Tensor
    size: int


@dataclass(frozen=True)
class _BatchFigures:
    """Values [B] per text of one kind, left on their device until figures are asked for. NaN: no value."""

    kind: str
    languages: tuple[str, ...]
    numbers: dict[str, Tensor]


@dataclass
class _TermUsage:
    """active: int32 [V], number of texts that use each term. held: bool [V], terms that any of them could use."""

    active: Tensor
    held: Tensor
    texts: int = 0

    @classmethod
    def empty(cls, size: int, device: torch.device) -> "_TermUsage":
        """Return the usage of a vocabulary by no text."""
        return cls(
            torch.zeros(size, dtype=torch.int32, device=device), torch.zeros(size, dtype=torch.bool, device=device)
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "_TermUsage":
        """Restore a state()."""
        usage = cls.empty(state["size"], state["active"].device)
        usage.active[state["terms"].long()] = state["active"]
        usage.held[state["terms"].long()] = True
        usage.texts = state["texts"]
        return usage

    def state(self) -> dict[str, Any]:
        """Return the counts of held terms only, which are few of a source vocabulary."""
        terms = self.held.nonzero().squeeze(1)
        return {"terms": terms.int(), "active": self.active[terms], "size": len(self.held), "texts": self.texts}

    def __add__(self, other: "_TermUsage") -> "_TermUsage":
        return _TermUsage(self.active + other.active, self.held | other.held, self.texts + other.texts)

    def shares(self) -> dict[str, float]:
        """Return shares of the held terms: active in no text, and in more than half of the texts."""
        possible = int(self.held.sum())
        if not possible:
            return {}
        dead = self.held & (self.active == 0)
        return {
            "dead": int(dead.sum()) / possible,
            "always_on": int((self.active * 2 > self.texts).sum()) / possible,
        }


class CollapseMonitor:
    """Figures and warnings about the vectors of the latest texts of training.

    Memory is a few numbers per text, and two counts of every term for each kind and language. update() does not
    synchronize with the device; figures() and warnings() do.

    Args:
        window: texts that means cover, up to a sixteenth more.
        warm_up: texts before the first warning.
        counted: texts of each kind and language, up to twice as many, from which dead and always-on terms are counted:
            these shares depend on the number of texts.
    """

    def __init__(self, window: int = WINDOW, warm_up: int = WARM_UP, counted: int = COUNTED) -> None:
        self.window = window
        self.warm_up = warm_up
        self.counted = counted
        self.seen = 0
        self._blocks: deque[list[_BatchFigures]] = deque()
        # By view, kind and language: the count that is being filled, preceded by the last full one.
        self._usage: dict[tuple[str, str, str], list[_TermUsage]] = {}
        self._watch = AlarmWatch()

    @property
    def texts(self) -> int:
        """Number of latest texts that means cover."""
        return sum(map(_num_texts, self._blocks))

    @torch.no_grad()
    def update(
        self,
        kind: str,
        languages: Sequence[str],
        pivot: Tensor,
        grounded: Tensor | None = None,
        source: SourceActivity | None = None,
        repeated: bool = False,
    ) -> None:
        """Add a batch of B texts.

        Args:
            kind: of the texts, such as "text", "english", "query", "passage".
            languages: one for each text.
            pivot: float [B, V_e], active above 0.
            grounded: bool [B, V_e], dense or sparse: the expected terms (the teacher's, or the tokens of an English
                translation), or None.
            source: the source view, or None.
            repeated: the same texts come again and again, so dead and always-on terms are not counted.

        Raises:
            ValueError: sizes differ.
        """
        if len(languages) != len(pivot) or (grounded is not None and grounded.shape != pivot.shape):
            mask = None if grounded is None else tuple(grounded.shape)
            raise ValueError(f"sizes differ: {len(languages)} languages, pivot {tuple(pivot.shape)}, grounded {mask}")
        active = pivot > 0
        numbers = {"pivot/terms": active.sum(dim=1)}
        if grounded is not None:
            expected = grounded.to_dense() if grounded.is_sparse else grounded
            numbers[GROUNDED.figure] = (active & expected).sum(dim=1) / numbers["pivot/terms"]
        if source is not None:
            numbers["source/terms"] = source.active.sum(dim=1)
        if not self._blocks or _num_texts(self._blocks[-1]) * _BLOCKS >= self.window:
            self._blocks.append([])
        self._blocks[-1].append(_BatchFigures(kind, tuple(languages), numbers))
        self.seen += len(pivot)
        while self.texts - _num_texts(self._blocks[0]) >= self.window:
            self._blocks.popleft()
        for language in () if repeated else dict.fromkeys(languages):
            rows = [row for row, name in enumerate(languages) if name == language]
            usage = self._open_usage((PIVOT, kind, language), active.shape[1], active.device)
            usage.active += active[rows].sum(dim=0)
            usage.held[:] = True
            usage.texts += len(rows)
            if source is not None:
                usage = self._open_usage((SOURCE, kind, language), source.size, active.device)
                usage.active[source.tokens] += source.active[rows].sum(dim=0, dtype=torch.int32)
                usage.held[source.tokens] |= source.held[rows].any(dim=0)
                usage.texts += len(rows)

    def figures(self) -> dict[str, float]:
        """Return the figures as FIGURE/KIND and FIGURE/KIND/LANGUAGE; empty before the first update().

        pivot/terms, pivot/grounded (share of a text's active terms) and source/terms are means over texts.
        pivot/dead and pivot/always_on are shares of the English vocabulary: terms active in no text, and in more than
        half of the texts. source/dead and source/always_on are the same shares of the tokens that occur in the texts.
        A language has these four only after `counted` texts.
        """
        return self._figures(least_texts=1, least_counted=1)

    def warnings(self) -> list[str]:
        """Return a sentence for every figure that has left its healthy range, once until it has recovered.

        Languages are not listed if all texts of their kind together are out of range. Empty until warm-up and window
        are full.
        """
        ready = self.seen >= self.warm_up and self.texts >= self.window
        return self._watch.sentences(self._figures(LEAST_TEXTS, self.counted), ready)

    def state(self) -> dict[str, Any]:
        """Return tensors and plain values for load_state()."""
        return {
            "seen": self.seen,
            "blocks": [
                {"texts": _num_texts(block), "batches": [vars(batch) for batch in block]} for block in self._blocks
            ],
            "usage": [(key, [part.state() for part in parts]) for key, parts in self._usage.items()],
            "watch": self._watch.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state() of another monitor, whose tensors are on the training device."""
        self.seen = state["seen"]
        self._blocks = deque([_BatchFigures(**batch) for batch in block["batches"]] for block in state["blocks"])
        self._usage = {tuple(key): [_TermUsage.from_state(part) for part in parts] for key, parts in state["usage"]}
        self._watch.load_state(state["watch"])

    def _open_usage(self, key: tuple[str, str, str], size: int, device: torch.device) -> _TermUsage:
        parts = self._usage.setdefault(key, [])
        if not parts or parts[-1].texts >= self.counted:
            parts[:-1] = []
            parts.append(_TermUsage.empty(size, device))
        return parts[-1]

    def _figures(self, least_texts: int, least_counted: int) -> dict[str, float]:
        values: dict[str, list[float]] = {}
        for batch in itertools.chain.from_iterable(self._blocks):
            for figure, numbers in batch.numbers.items():
                for language, number in zip(batch.languages, numbers.tolist(), strict=True):
                    if number == number:
                        values.setdefault(f"{figure}/{batch.kind}", []).append(number)
                        values.setdefault(f"{figure}/{batch.kind}/{language}", []).append(number)
        found = {name: sum(some) / len(some) for name, some in sorted(values.items()) if len(some) >= least_texts}
        totals: dict[tuple[str, str], _TermUsage] = {}
        for (view, kind, language), parts in sorted(self._usage.items()):
            usage = sum(parts[1:], parts[0])
            if usage.texts >= self.counted:
                found |= {f"{view}/{share}/{kind}/{language}": value for share, value in usage.shares().items()}
            totals[view, kind] = totals[view, kind] + usage if (view, kind) in totals else usage
        for (view, kind), usage in totals.items():
            if usage.texts >= least_counted:
                found |= {f"{view}/{share}/{kind}": value for share, value in usage.shares().items()}
        return found


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
                raise MilcoError(f"--probe: {source.name} has no pairs")
            grounded = torch.zeros(len(pairs), english.get_vocab_size(), dtype=torch.bool)
            encodings = english.encode_batch([pair.english for pair in pairs], add_special_tokens=False)
            for row, encoding in enumerate(encodings):
                grounded[row, encoding.ids] = True
            inputs = texts([pair.text for pair in pairs], max_length)
            self.batches.append((inputs, grounded, [pair.language for pair in pairs]))

    @torch.no_grad()
    def update(self, model: MilcoModel, monitor: CollapseMonitor) -> None:
        """Encode the texts and add them to the monitor as kind "probe"."""
        device = model.decoder.weight.device
        for inputs, grounded, languages in self.batches:
            output = model(**{name: tensor.to(device) for name, tensor in inputs.items()})
            monitor.update("probe", languages, output.pivot, grounded.to(device), repeated=True)


def _num_texts(block: list[_BatchFigures]) -> int:
    return sum(len(batch.languages) for batch in block)
