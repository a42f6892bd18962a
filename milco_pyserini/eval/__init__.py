"""Runs to figures: measures as trec_eval computes them, tables, and tests of significance.

from milco_pyserini.eval import compare, evaluate, read_run, render, table

evaluation = evaluate(read_run(Path("runs/ar.txt")), open_qrels("miracl-ar-dev"))
print(render(table(compare({"milco": {"miracl-ar-dev": evaluation}})), "markdown"))
"""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.eval.comparison import Comparison as Comparison
    from milco_pyserini.eval.comparison import compare as compare
    from milco_pyserini.eval.evaluation import Evaluation as Evaluation
    from milco_pyserini.eval.evaluation import evaluate as evaluate
    from milco_pyserini.eval.formats import render as render
    from milco_pyserini.eval.json_report import report as report
    from milco_pyserini.eval.tables import Table as Table
    from milco_pyserini.eval.tables import table as table
    from milco_pyserini.io.runs import read_run as read_run

# No function has its module's name: a module, once loaded, would stand in its place.
_LAZY = {
    "Comparison": "milco_pyserini.eval.comparison",
    "Evaluation": "milco_pyserini.eval.evaluation",
    "Table": "milco_pyserini.eval.tables",
    "compare": "milco_pyserini.eval.comparison",
    "evaluate": "milco_pyserini.eval.evaluation",
    "read_run": "milco_pyserini.io.runs",
    "render": "milco_pyserini.eval.formats",
    "report": "milco_pyserini.eval.json_report",
    "table": "milco_pyserini.eval.tables",
}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy(__name__, _LAZY)
