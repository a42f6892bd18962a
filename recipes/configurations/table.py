"""Tables of the results next to the paper's, and how far they reproduce the paper's order."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from milco_pyserini.eval import ReportTable

from .catalogue import Configuration
from .data import CROSS_LANGUAGE
from .evaluation import COLLAPSE_FIGURES

SAME, CROSS = "same language", "cross language"


@dataclass(frozen=True)
class Outcome:
    """Results of a configuration. retrieval: nDCG@10 by set. collapse: of collapse_figures(), or None."""

    configuration: Configuration
    retrieval: Mapping[str, float]
    collapse: Mapping[str, float] | None

    @property
    def same_language(self) -> float:
        """Mean over the monolingual sets, a proxy of MIRACL."""
        return _mean([value for name, value in self.retrieval.items() if not name.startswith(CROSS_LANGUAGE)])

    @property
    def cross_language(self) -> float:
        """Mean over the sets with queries in one language and passages in another."""
        return _mean([value for name, value in self.retrieval.items() if name.startswith(CROSS_LANGUAGE)])


def retrieval_table(outcomes: Sequence[Outcome]) -> ReportTable:
    """Return nDCG@10 of every set, both means, the paper's average on MIRACL, and ranks among the outcomes."""
    ours, theirs = ranks([o.same_language for o in outcomes]), ranks([o.configuration.paper for o in outcomes])
    names = list(outcomes[0].retrieval)
    rows = [
        (
            *(str(outcome.configuration.number), outcome.configuration.name, str(rank), str(their_rank)),
            *(outcome.configuration.paper, outcome.same_language, outcome.cross_language),
            *(outcome.retrieval[name] for name in names),
        )
        for outcome, rank, their_rank in zip(outcomes, ours, theirs, strict=True)
    ]
    labels = ("", "configuration", "rank", "paper's rank")
    return ReportTable(labels, ("paper: MIRACL", SAME, CROSS, *names), rows, notes=notes(outcomes))


def collapse_table(outcomes: Sequence[Outcome]) -> ReportTable:
    """Return the figures of the collapse alarms for the sparse configurations."""
    rows = [
        (
            *(str(outcome.configuration.number), outcome.configuration.name),
            *(outcome.collapse[name] for name in COLLAPSE_FIGURES),
        )
        for outcome in outcomes
        if outcome.collapse is not None
    ]
    return ReportTable(("", "configuration"), ("grounded", "terms per text", "dead", "always on"), rows)


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """Describe how many pairs of configurations are in the paper's order, and which are not."""
    pairs = list(itertools.combinations(sorted(outcomes, key=lambda o: -o.configuration.paper), 2))
    reversed_pairs = [(better, worse) for better, worse in pairs if better.same_language <= worse.same_language]
    found = [f"{len(pairs) - len(reversed_pairs)} of {len(pairs)} pairs of configurations are in the paper's order."]
    found += [
        f"Reversed: ({better.configuration.number}) {better.same_language:.4f} is not above "
        f"({worse.configuration.number}) {worse.same_language:.4f}; the paper has {better.configuration.paper:.3f} "
        f"and {worse.configuration.paper:.3f}."
        for better, worse in reversed_pairs
    ]
    return found


def ranks(values: Sequence[float]) -> list[int]:
    """Return the rank of every value, 1 for the highest; ties share the better rank."""
    return [1 + sum(other > value for other in values) for value in values]


def as_json(outcomes: Sequence[Outcome]) -> dict:
    """Return the content of the tables as JSON values."""
    ours, theirs = ranks([o.same_language for o in outcomes]), ranks([o.configuration.paper for o in outcomes])
    return {
        "configurations": [
            {
                "number": outcome.configuration.number,
                "name": outcome.configuration.name,
                "paper": outcome.configuration.paper,
                SAME: outcome.same_language,
                CROSS: outcome.cross_language,
                "rank": rank,
                "paper's rank": their_rank,
                "retrieval": dict(outcome.retrieval),
                "collapse": None if outcome.collapse is None else dict(outcome.collapse),
            }
            for outcome, rank, their_rank in zip(outcomes, ours, theirs, strict=True)
        ],
        "notes": notes(outcomes),
    }


def _mean(values: Sequence[float]) -> float:
    return mean(values) if values else float("nan")
