"""A server for an index: a REST API, a search page with explanations, and tools for agents."""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.serve.server import serve as serve
    from milco_pyserini.serve.server import serve_stdio as serve_stdio

_LAZY = {"serve": "milco_pyserini.serve.server", "serve_stdio": "milco_pyserini.serve.server"}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy(__name__, _LAZY)
