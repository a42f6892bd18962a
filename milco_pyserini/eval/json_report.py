"""A comparison for programs: JSON with every digit, intervals and p-values."""

from typing import Any

import orjson

from milco_pyserini import __version__
from milco_pyserini.eval.comparison import Comparison
from milco_pyserini.eval.evaluation import CONFIDENCE
from milco_pyserini.eval.significance import ALPHA


def report(comparison: Comparison, per_query: bool = False) -> str:
    """Everything a comparison knows, as indented JSON.

    results has an object for each collection and system; mean has the systems' means over the collections,
    where there are several. per_query: each query's values too.
    """
    tested = bool(comparison.differences)
    value = {
        "version": __version__,
        "measures": comparison.measures,
        "comparison": {
            "baseline": comparison.baseline,
            "test": comparison.test,
            "correction": comparison.correction,
            "alpha": ALPHA,
        }
        if tested
        else None,
        "confidence": CONFIDENCE,
        "results": [
            _result(comparison, system, name, per_query)
            for name in comparison.collections
            for system in comparison.systems
        ],
    }
    if len(comparison.collections) > 1:
        value["mean"] = {
            system: {measure: comparison.average(system, measure) for measure in comparison.measures}
            for system in comparison.systems
        }
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"


def _result(comparison: Comparison, system: str, name: str, per_query: bool) -> dict[str, Any]:
    evaluation = comparison.results[system][name]
    result = {
        "run": system,
        "collection": name,
        "queries": len(evaluation.queries),
        "queries_without_results": len(evaluation.unanswered),
        "queries_not_judged": evaluation.unjudged,
        "measures": {measure: _measure(comparison, system, name, measure) for measure in comparison.measures},
    }
    if per_query:
        result["per_query"] = evaluation.per_query
    return result


def _measure(comparison: Comparison, system: str, name: str, measure: str) -> dict[str, Any]:
    evaluation = comparison.results[system][name]
    figures: dict[str, Any] = {"mean": evaluation.mean[measure], "interval": evaluation.interval(measure)}
    difference = comparison.differences.get((system, name, measure))
    if difference is not None:
        figures |= {
            "difference": difference.mean,
            "p": difference.p,
            "p_corrected": difference.corrected,
            "significant": difference.significant,
        }
    return figures
