"""Export a vector store to other search engines: their files, or their running server. One file per target."""

from milco_pyserini.export.directory import export_files
from milco_pyserini.export.protocol import ExportJob
from milco_pyserini.export.registry import find_target, search_request

__all__ = ["ExportJob", "export_files", "find_target", "search_request"]
