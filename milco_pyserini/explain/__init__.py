"""Why did this document match: the terms that a query and a document share, and where in the texts they came from."""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.explain.explainer import Explainer as Explainer
    from milco_pyserini.explain.explainer import explain as explain
    from milco_pyserini.explain.explainer import explain_texts as explain_texts
    from milco_pyserini.explain.parts import Comparison as Comparison
    from milco_pyserini.explain.parts import Explanation as Explanation
    from milco_pyserini.explain.parts import compare as compare

_LAZY = {
    "Comparison": "milco_pyserini.explain.parts",
    "Explanation": "milco_pyserini.explain.parts",
    "Explainer": "milco_pyserini.explain.explainer",
    "compare": "milco_pyserini.explain.parts",
    "explain": "milco_pyserini.explain.explainer",
    "explain_texts": "milco_pyserini.explain.explainer",
}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy(__name__, _LAZY)
