"""Alarms for semantic collapse: healthy ranges of training figures, and a sentence when one is left.

Contrastive training without alignment drifts to terms that are unrelated to the text (MILCO, ICLR 2026, semantic
collapse). The figures of monitor.py show it long before an evaluation does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

# A share of grounded terms at half of its best is drifting, whatever the teacher's number of terms.
GROUNDED_DROP = 0.5
# A figure has recovered when it is inside its range by a tenth; otherwise alarms would come and go at the limit.
MARGIN = 0.1

_LISTED = 4
_BELOW, _ABOVE, _FALLEN = "below", "above", "fallen"


@dataclass(frozen=True)
class HealthyRange:
    """The healthy range of a figure, and what leaving it means. Shares are from 0 to 1, terms are means per text."""

    figure: str
    label: str
    low: float = 0.0
    high: float = inf
    below: str = ""
    above: str = ""


GROUNDED = HealthyRange(
    "pivot/grounded",
    "share of grounded pivot terms",
    # Random terms have less than .01. A healthy model has .1 to .2 if the teacher has only the text's own words
    # (milco-mini with a lexical teacher), and more if the teacher expands.
    low=0.05,
    below="terms drift away from the text; align (SAP) before contrast, or lower the learning rate",
)
HEALTHY_RANGES = (
    GROUNDED,
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
)


class Alarm(NamedTuple):
    """Figures of one kind of text beyond the same limit: values by name, of the kind or of its languages."""

    limits: HealthyRange
    side: str
    kind: str
    values: dict[str, float]
    best: float = 0.0

    def sentence(self) -> str:
        """Describe the alarm, with values, limit and advice."""
        name, value = next(iter(self.values.items()))
        start = f"collapse alarm ({self.kind}): {self.limits.label}"
        if self.side == _FALLEN:
            return f"{start} fell from {self.best:.3g} to {value:.3g}: {self.limits.below}"
        found = f"{value:.3g}"
        if name != f"{self.limits.figure}/{self.kind}":
            languages = [f"{value:.3g} in {name.rpartition('/')[2]}" for name, value in self.values.items()]
            more = f" and {len(languages) - _LISTED} more languages" if len(languages) > _LISTED else ""
            found = ", ".join(languages[:_LISTED]) + more
        if self.side == _BELOW:
            return f"{start} {found}, below {self.limits.low:g}: {self.limits.below}"
        return f"{start} {found}, above {self.limits.high:g}: {self.limits.above}"


class AlarmWatch:
    """Reports each alarm once until the figure has recovered; remembers the best share of grounded terms."""

    def __init__(self) -> None:
        self._reported: set[tuple[str, str]] = set()
        self._best: dict[str, float] = {}

    def sentences(self, figures: Mapping[str, float], ready: bool) -> list[str]:
        """Return a sentence for every new alarm. figures: as CollapseMonitor.figures(). ready: False reports none."""
        alarms = [*self._fallen(figures), *self._out_of_range(figures)]
        if not ready:
            return []
        sentences = []
        for alarm in alarms:
            new = {name: value for name, value in alarm.values.items() if (alarm.side, name) not in self._reported}
            if new:
                sentences.append(alarm._replace(values=new).sentence())
        self._reported = {(alarm.side, name) for alarm in alarms for name in alarm.values}
        return sentences

    def state(self) -> dict[str, Any]:
        """Return plain values for load_state()."""
        return {"said": sorted(self._reported), "best": self._best}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state() of another watch."""
        self._reported, self._best = set(state["said"]), dict(state["best"])

    def _out_of_range(self, figures: Mapping[str, float]) -> Iterator[Alarm]:
        for limits in HEALTHY_RANGES:
            kinds: dict[str, dict[str, float]] = {}
            for name, value in figures.items():
                if name.startswith(f"{limits.figure}/"):
                    kind = name.removeprefix(f"{limits.figure}/").partition("/")[0]
                    kinds.setdefault(kind, {})[name] = value
            for kind, values in kinds.items():
                for side in (_BELOW, _ABOVE):
                    out = {}
                    for name, value in values.items():
                        margin = MARGIN if (side, name) in self._reported else 0
                        low, high = limits.low * (1 + margin), limits.high * (1 - margin)
                        if value < low if side == _BELOW else value > high:
                            out[name] = value
                    overall = f"{limits.figure}/{kind}"
                    if out:
                        yield Alarm(limits, side, kind, {overall: out[overall]} if overall in out else out)

    def _fallen(self, figures: Mapping[str, float]) -> Iterator[Alarm]:
        """Yield kinds whose share of grounded terms is in its range, but half of its best or less."""
        for name, value in figures.items():
            figure, _, kind = name.rpartition("/")
            if figure == GROUNDED.figure:
                best = self._best[name] = max(value, self._best.get(name, 0.0))
                margin = MARGIN if (_FALLEN, name) in self._reported else 0
                if GROUNDED.low <= value < GROUNDED_DROP * best * (1 + margin):
                    yield Alarm(GROUNDED, _FALLEN, kind, {name: value}, best)
