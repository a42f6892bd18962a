"""Explain why a document matches: the terms it shares with the query, and where in the texts they come from."""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.explain.explainer import Explainer as Explainer
    from milco_pyserini.explain.explainer import explain_texts as explain_texts
    from milco_pyserini.explain.explanation import Comparison as Comparison
    from milco_pyserini.explain.explanation import Explanation as Explanation
    from milco_pyserini.explain.explanation import compare as compare

_LAZY = {
    "Comparison": "milco_pyserini.explain.explanation",
    "Explainer": "milco_pyserini.explain.explainer",
    "Explanation": "milco_pyserini.explain.explanation",
    "compare": "milco_pyserini.explain.explanation",
    "explain_texts": "milco_pyserini.explain.explainer",
}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy(__name__, _LAZY)
