"""Evaluate runs with trec_eval's measures, and compare them with tests of significance.

>>> from milco_pyserini.eval import compare, evaluate
>>> evaluate({"q1": {"d1": 2.0}}, {"q1": {"d1": 1}}, ["nDCG@10"]).mean
{'nDCG@10': 1.0}
"""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.eval.evaluation import Evaluation as Evaluation
    from milco_pyserini.eval.evaluation import evaluate as evaluate
    from milco_pyserini.eval.measures import parse_measures as parse_measures
    from milco_pyserini.eval.report import ReportTable as ReportTable
    from milco_pyserini.eval.report import render as render
    from milco_pyserini.eval.significance import RunComparison as RunComparison
    from milco_pyserini.eval.significance import compare as compare
    from milco_pyserini.eval.significance import compare_evaluations as compare_evaluations
    from milco_pyserini.io.runs import read_run as read_run

_LAZY = {
    "RunComparison": "milco_pyserini.eval.significance",
    "Evaluation": "milco_pyserini.eval.evaluation",
    "ReportTable": "milco_pyserini.eval.report",
    "compare": "milco_pyserini.eval.significance",
    "compare_evaluations": "milco_pyserini.eval.significance",
    "evaluate": "milco_pyserini.eval.evaluation",
    "parse_measures": "milco_pyserini.eval.measures",
    "read_run": "milco_pyserini.io.runs",
    "render": "milco_pyserini.eval.report",
}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy(__name__, _LAZY)
