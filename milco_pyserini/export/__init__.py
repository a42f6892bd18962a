"""Export a vector store to other search engines: their files, or their running server. One file per target."""

from typing import TYPE_CHECKING

from milco_pyserini.lazy import lazy

if TYPE_CHECKING:
    from milco_pyserini.export.directory import export_files as export_files
    from milco_pyserini.export.protocol import Export as Export
    from milco_pyserini.export.registry import find_target as find_target
    from milco_pyserini.export.registry import search_request as search_request

_LAZY = {
    "Export": "milco_pyserini.export.protocol",
    "export_files": "milco_pyserini.export.directory",
    "find_target": "milco_pyserini.export.registry",
    "search_request": "milco_pyserini.export.registry",
}

__all__ = sorted(_LAZY)
__getattr__, __dir__ = lazy(__name__, _LAZY)
