"""Why did this document match: the terms that a query and a document share, and where in the texts they came from."""

from milco_pyserini.lazy import loader

_LAZY = {
    "Comparison": "milco_pyserini.explain.parts",
    "Explanation": "milco_pyserini.explain.parts",
    "IndexExplainer": "milco_pyserini.explain.explainer",
    "compare": "milco_pyserini.explain.parts",
    "explain_texts": "milco_pyserini.explain.explainer",
}

__all__ = sorted(_LAZY)
__getattr__ = loader(__name__, _LAZY)
