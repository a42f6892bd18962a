"""Evaluate a run, with the values of `trec_eval -c` to the last digit.

ir_measures computes; this module passes it documents in trec_eval's order. The measures of ir_measures come from
several programs that break ties in different ways, and scores without ties leave them no choice. trec_eval's order
is: score, as a 32-bit float, descending; equal scores by docid, as bytes, descending. The rank column is ignored.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import nan
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from milco_pyserini.console import counted
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.eval.measures import parse_measures
from milco_pyserini.io.qrels import MAX_GRADE
from milco_pyserini.io.runs import option_text

if TYPE_CHECKING:
    import ir_measures

DEFAULT_MEASURES = ("nDCG@10", "R@100")
# Share of the documents of a collection that topics are made of.
HELD_OUT = 0.1
# The grade that ir_datasets gives documents that BRIGHT excludes, such as the post of the query itself.
EXCLUDED = -100
# Options in which runs of one system with several seeds may differ.
_OF_SEEDS = {"encoder", "query_encoder", "device", "dtype", "threads", "batch_size"}
Run = Mapping[str, Mapping[str, float]]
QrelsMapping = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Evaluation:
    """Values of measures over all judged queries; a query without results counts 0.

    Args:
        mean: measure -> mean over the queries.
        per_query: measure -> query id -> value, sorted by query id. The first measure has all queries.
        unanswered: judged queries without results.
        unjudged: number of queries of the run that have no qrels; they are ignored.
        reordered: number of queries whose documents were listed in another order than trec_eval's.
        options: how the run was made, as its record states; empty without one.
        seeds: measure -> mean of each run, if the other fields are means of several runs; empty for one run.
        costs: mean terms and FLOPs, see search_costs(); empty if they were not computed.
    """

    mean: dict[str, float]
    per_query: dict[str, dict[str, float]]
    unanswered: tuple[str, ...] = ()
    unjudged: int = 0
    reordered: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    seeds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def queries(self) -> tuple[str, ...]:
        """The judged queries, sorted."""
        return tuple(next(iter(self.per_query.values()), ()))


def differing_options(runs: Sequence[Evaluation]) -> list[str]:
    """Return the options in which runs differ, of those that have a record."""
    names = dict.fromkeys(name for run in runs for name in run.options)
    return [name for name in names if len({option_text(run.options[name]) for run in runs if name in run.options}) > 1]


def mean_of_seeds(runs: Sequence[Evaluation]) -> Evaluation:
    """Return means over runs of one system with several seeds. Raises MilcoError if they were searched differently."""
    if differing := [name for name in differing_options(runs) if name not in _OF_SEEDS]:
        raise MilcoError(f"runs that differ in {', '.join(differing)} are not seeds of a system: give them other names")
    first, seeds = runs[0], {measure: tuple(run.mean[measure] for run in runs) for measure in runs[0].mean}
    return Evaluation(
        mean={measure: fmean(values) for measure, values in seeds.items()},
        per_query={
            measure: {query: fmean(run.per_query[measure][query] for run in runs) for query in values}
            for measure, values in first.per_query.items()
        },
        unanswered=tuple(sorted(set().union(*(run.unanswered for run in runs)))),
        unjudged=max(run.unjudged for run in runs),
        options={name: value for name, value in first.options.items() if name not in _OF_SEEDS},
        seeds=seeds,
        costs={name: fmean(run.costs.get(name, nan) for run in runs) for name in first.costs},
    )


def evaluate(
    run: Run | str | Path, qrels: QrelsMapping | str | Path, measures: Iterable[str] = DEFAULT_MEASURES
) -> Evaluation:
    """Evaluate a run as `trec_eval -c` does.

    Args:
        run: query id -> docid -> score, or the path of a TREC or MS MARCO run.
        qrels: query id -> docid -> grade, or a name (miracl-ar-dev) or path. Documents of grade 1 or more are relevant;
            those of grade -100 are left out of the run, as BRIGHT does.
        measures: names of measures, see parse_measures().

    Raises:
        MilcoError: no query of the run is judged, a measure is unknown, a grade is out of range, or a score is not
            finite in 32 bits.

    Example:
        >>> run = {"q1": {"d1": 2.0, "d2": 1.5}, "q2": {"d3": 3.1}}
        >>> evaluate(run, {"q1": {"d2": 1}, "q2": {"d3": 1}}, ["RR@10", "R@100"]).mean
        {'RR@10': 0.75, 'R@100': 1.0}
    """
    parsed = parse_measures(measures)
    options: Mapping[str, Any] = {}
    if isinstance(run, str | Path):
        from milco_pyserini.io.runs import read_run, read_run_record

        path = Path(run)
        run, options = read_run(path), read_run_record(path).options
    if isinstance(qrels, str | Path):
        from milco_pyserini.corpora import open_qrels

        qrels = open_qrels(str(qrels))
    judged = {query: _evaluable(query, left) for query, grades in qrels.items() if (left := _included(grades, grades))}
    answered = {query: kept for query, scores in run.items() if (kept := _included(scores, qrels.get(query, {})))}
    rankings = {query: ranking(answered[query]) for query in answered.keys() & judged.keys()}
    if not judged or not answered:
        raise MilcoError(f"the {'qrels have' if answered else 'run has'} no queries: there is nothing to evaluate")
    if not rankings:
        raise MilcoError(
            f"no query of the run is judged: the run has {counted(len(answered), 'query', 'queries')}, such as "
            f"{shown(min(answered))}, the qrels have {len(judged):,}, such as {shown(min(judged))}",
            "Check that the run and the qrels are of the same dataset.",
        )
    per_query = _compute(rankings, judged, parsed)
    return Evaluation(
        # Added one by one in query order, as trec_eval adds: sum() compensates from Python 3.12 on, and would differ
        # where the fourth decimal depends on the last bit.
        mean={name: reduce(operator.add, values.values(), 0.0) / len(values) for name, values in per_query.items()},
        per_query=per_query,
        unanswered=tuple(sorted(judged.keys() - rankings.keys())),
        unjudged=len(answered.keys() - judged.keys()),
        reordered=sum(order != list(answered[query]) for query, order in rankings.items()),
        options=options,
    )


def ranking(scores: Mapping[str, float]) -> list[str]:
    """Return docids in trec_eval's order, which has 32 bits for a score: 35000.002 and 35000.001 are a tie."""
    import numpy as np

    single = np.fromiter(scores.values(), float, len(scores))
    with np.errstate(over="ignore"):
        single = single.astype(np.float32)
    if not np.isfinite(single).all():
        docid = next(docid for docid, score in zip(scores, single, strict=True) if not np.isfinite(score))
        raise MilcoError(f"document {shown(docid)} has the score {scores[docid]}: scores are finite, up to 3.4e38")
    single = single.tolist()
    return [docid for _, docid in sorted(zip(single, scores, strict=True), reverse=True)]


def _included(values: Mapping[str, Any], grades: Mapping[str, int]) -> Mapping[str, Any]:
    """Return the values of documents that are not excluded from the evaluation of a query."""
    if EXCLUDED not in grades.values():
        return values
    return {docid: value for docid, value in values.items() if grades.get(docid) != EXCLUDED}


def _evaluable(query: str, grades: Mapping[str, int]) -> dict[str, int]:
    """Return grades that pytrec_eval can evaluate."""
    for docid, grade in grades.items():
        if not isinstance(grade, int):
            raise MilcoError(f"query {shown(query)}, document {shown(docid)}: the grade {grade!r} is not an integer")
        if abs(grade) > MAX_GRADE:
            rule = f"grades are from {-MAX_GRADE:,} to {MAX_GRADE:,}"
            raise MilcoError(f"query {shown(query)} has a grade of {grade}: {rule}")
    # pytrec_eval never returns from nDCG, and trec_eval refuses Bpref, if all grades of a query are negative. A
    # non-relevant document that no run can contain helps both: the values are 0, as they must be.
    return {**grades, "": 0} if max(grades.values()) < 0 else dict(grades)


def _compute(
    rankings: dict[str, list[str]], qrels: dict[str, dict[str, int]], measures: "list[ir_measures.Measure]"
) -> dict[str, dict[str, float]]:
    """Return measure -> query id -> value, 0 for queries without a ranking."""
    from ir_measures import providers

    provider = providers.FallbackProvider([providers.registry[name] for name in ("pytrec_eval", "judged", "msmarco")])
    longest = max(map(len, rankings.values()))
    # The floats are shared: a ranking then costs a dict, not a float for each document. All are exact in 32 bits.
    descending = [float(longest - rank) for rank in range(longest)]
    run = {query: dict(zip(docids, descending, strict=False)) for query, docids in rankings.items()}
    values: dict[str, dict[str, float]] = {str(measure): dict.fromkeys(sorted(qrels), 0.0) for measure in measures}
    for metric in provider.evaluator(measures, qrels).iter_calc(run):
        values[str(metric.measure)][metric.query_id] = float(metric.value)
    return values
