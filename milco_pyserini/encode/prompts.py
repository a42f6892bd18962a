"""Prompts of dense encoders, as sentence-transformers saves them: prefixes of queries and of documents."""

from pathlib import Path

from milco_pyserini.io.files import read_json

DOCUMENTS = "documents"
QUERIES = "queries"

_FILE = "config_sentence_transformers.json"
_NAMES = {QUERIES: ("query",), DOCUMENTS: ("document", "passage", "corpus")}


def read_prompts(directory: Path) -> dict[str, str]:
    """Return the prompts of QUERIES and of DOCUMENTS; empty if the checkpoint's directory states none."""
    path = directory / _FILE
    config = read_json(path) if path.is_file() else {}
    prompts = config.get("prompts") or {}
    default = prompts.get(config.get("default_prompt_name"), "")
    return {kind: next((prompts[name] for name in names if name in prompts), default) for kind, names in _NAMES.items()}
