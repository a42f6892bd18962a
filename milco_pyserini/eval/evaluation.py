"""One run against one set of judgements, with trec_eval's figures to the last digit.

ir_measures computes; this module decides what it gets: the documents in trec_eval's order. The measures of
ir_measures come from several programs that break ties each in its own way; scores without ties leave them no
choice. trec_eval's order is: score, as a 32-bit float, from high to low; equal scores by document id, as
bytes, from high to low. The rank column is not looked at.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milco_pyserini.console import counted
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.eval.measures import KINDS, Cutoff, Measure, parse_measures
from milco_pyserini.io.qrels import MAX_GRADE

if TYPE_CHECKING:
    import ir_measures

DEFAULT_MEASURES = ("nDCG@10", "R@100")
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Evaluation:
    """What a run reaches: every figure is over all judged queries, those without results counting 0.

    mean: measure -> mean over the queries. per_query: measure -> query id -> value, by query id.
    unanswered: judged queries without results. unjudged: queries of the run without judgements, left out.
    reordered: queries whose documents were given in another order than trec_eval's.
    """

    mean: dict[str, float]
    per_query: dict[str, dict[str, float]]
    unanswered: tuple[str, ...] = ()
    unjudged: int = 0
    reordered: int = 0

    @property
    def queries(self) -> tuple[str, ...]:
        """The judged queries, in order."""
        return tuple(next(iter(self.per_query.values()), ()))

    def interval(self, measure: str) -> tuple[float, float] | None:
        """Student's 95 % confidence interval of a mean; None for fewer than two queries."""
        import numpy as np
        from scipy.special import stdtrit

        values = np.fromiter(self.per_query[measure].values(), float)
        if len(values) < 2:
            return None
        quantile = stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)
        half = float(quantile * values.std(ddof=1) / len(values) ** 0.5)
        return self.mean[measure] - half, self.mean[measure] + half


def evaluate(
    run: Mapping[str, Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, int]],
    measures: Iterable[str] = DEFAULT_MEASURES,
) -> Evaluation:
    """Evaluate a run (query id -> document id -> score) as `trec_eval -c` does.

    qrels: query id -> document id -> grade; a grade from 1 on is relevant. measures: names as parse_measures
    reads them. Raises MilcoError if none of the run's queries is judged, a measure is not offered, or a grade is out
    of range (MAX_GRADE).
    """
    wanted = parse_measures(measures)
    judged = {query: _with_a_grade_from_zero(query, grades) for query, grades in qrels.items() if grades}
    answered = {query: scores for query, scores in run.items() if scores}
    rankings = {query: ranking(answered[query]) for query in answered.keys() & judged.keys()}
    if not rankings:
        raise MilcoError(_nothing_judged(answered, judged))
    per_query = _calculate(rankings, judged, wanted)
    return Evaluation(
        mean={name: _mean(values) for name, values in per_query.items()},
        per_query=per_query,
        unanswered=tuple(sorted(judged.keys() - rankings.keys())),
        unjudged=len(answered.keys() - judged.keys()),
        reordered=sum(order != list(answered[query]) for query, order in rankings.items()),
    )


def ranking(scores: Mapping[str, float]) -> list[str]:
    """The documents in trec_eval's order, which has 32 bits for a score: 35000.002 and 35000.001 are a tie."""
    import numpy as np

    single = np.fromiter(scores.values(), np.float32, len(scores)).tolist()
    return [document for _, document in sorted(zip(single, scores, strict=True), reverse=True)]


def _with_a_grade_from_zero(query: str, grades: Mapping[str, int]) -> dict[str, int]:
    highest, lowest = max(grades.values()), min(grades.values())
    if highest > MAX_GRADE or lowest < -MAX_GRADE:
        grade = highest if highest > MAX_GRADE else lowest
        raise MilcoError(
            f"query {shown(query)} has a grade of {grade}: grades are from {-MAX_GRADE:,} to {MAX_GRADE:,}"
        )
    # pytrec_eval never returns from nDCG, and trec_eval refuses Bpref, where all grades of a query are below
    # zero. A document that no run can hold, judged not relevant, helps both: the figures are 0, as they must be.
    return {**grades, "": 0} if highest < 0 else dict(grades)


def _calculate(
    rankings: dict[str, list[str]], qrels: dict[str, dict[str, int]], measures: list[Measure]
) -> dict[str, dict[str, float]]:
    from ir_measures import providers

    registry = providers.registry
    offered = providers.FallbackProvider([registry[name] for name in ("pytrec_eval", "judged", "msmarco")])
    named = {_ir_measure(measure): str(measure) for measure in measures}
    deepest = max(map(len, rankings.values()))
    # Shared numbers: a ranking then costs a dictionary, not a float for each document. All are exact in 32 bits.
    descending = [float(deepest - place) for place in range(deepest)]
    run = {query: dict(zip(documents, descending, strict=False)) for query, documents in rankings.items()}
    values: dict[str, dict[str, float]] = {str(measure): dict.fromkeys(sorted(qrels), 0.0) for measure in measures}
    for metric in offered.evaluator(named, qrels).iter_calc(run):
        values[named[metric.measure]][metric.query_id] = float(metric.value)
    return values


def _ir_measure(measure: Measure) -> "ir_measures.Measure":
    import ir_measures

    arguments: dict[str, Any] = dict(measure.parameters)
    if measure.cutoff is not None:
        arguments["recall" if KINDS[measure.kind].cutoff is Cutoff.RECALL else "cutoff"] = measure.cutoff
    return getattr(ir_measures, measure.kind)(**arguments)


def _mean(values: dict[str, float]) -> float:
    # Added one by one in query order, as trec_eval adds: sum() compensates from Python 3.12 on, and would
    # differ where the fourth decimal hangs on the last bit.
    total = 0.0
    for value in values.values():
        total += value
    return total / len(values)


def _nothing_judged(answered: Mapping[str, Any], judged: Mapping[str, Any]) -> str:
    if not judged or not answered:
        return f"the {'judgements hold' if answered else 'run holds'} nothing to evaluate"
    return (
        f"no query of the run is judged: the run has {counted(len(answered), 'query', 'queries')}, such as "
        f"{shown(min(answered))}, the judgements have {len(judged):,}, such as {shown(min(judged))}; "
        "do they belong together?"
    )
