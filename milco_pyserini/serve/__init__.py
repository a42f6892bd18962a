"""A server for an index: a search page with explanations."""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.serve.app import serve as serve

_LAZY = {"serve": "milco_pyserini.serve.app"}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy(__name__, _LAZY)
