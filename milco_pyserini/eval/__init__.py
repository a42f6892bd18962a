"""Evaluate runs with trec_eval's measures, and compare them with tests of significance.

>>> from milco_pyserini.eval import compare, evaluate
>>> evaluate({"q1": {"d1": 2.0}}, {"q1": {"d1": 1}}, ["nDCG@10"]).mean
{'nDCG@10': 1.0}
"""

from milco_pyserini.eval.evaluation import Evaluation, evaluate
from milco_pyserini.eval.measures import parse_measures
from milco_pyserini.eval.report import ReportTable, render
from milco_pyserini.eval.significance import compare, compare_evaluations

__all__ = ["Evaluation", "ReportTable", "compare", "compare_evaluations", "evaluate", "parse_measures", "render"]
