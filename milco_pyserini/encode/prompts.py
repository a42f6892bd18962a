"""What stands before a text for a dense encoder, by the kind of the text, as sentence-transformers keep it."""

from pathlib import Path

from milco_pyserini.io.files import read_json

DOCUMENTS = "documents"
QUERIES = "queries"

_FILE = "config_sentence_transformers.json"
_NAMES = {QUERIES: ("query",), DOCUMENTS: ("document", "passage", "corpus")}


def read_prompts(directory: Path) -> dict[str, str]:
    """The prompt of QUERIES and of DOCUMENTS; empty where a checkpoint's directory says nothing."""
    path = directory / _FILE
    said = read_json(path) if path.is_file() else {}
    prompts = said.get("prompts") or {}
    default = prompts.get(said.get("default_prompt_name"), "")
    return {kind: next((prompts[name] for name in names if name in prompts), default) for kind, names in _NAMES.items()}
