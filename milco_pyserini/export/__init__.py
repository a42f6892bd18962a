"""Export a vector store to other search engines: their files, or their running server. One file per target."""

from milco_pyserini.export.access import Access
from milco_pyserini.export.directory import export_files
from milco_pyserini.export.protocol import ExportJob, ExportTarget, ImpactDocument, ImpactStore, Server
from milco_pyserini.export.registry import find_target, search_request

__all__ = [
    "Access",
    "ExportJob",
    "ExportTarget",
    "ImpactDocument",
    "ImpactStore",
    "Server",
    "export_files",
    "find_target",
    "search_request",
]
