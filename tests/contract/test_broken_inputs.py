"""Invalid inputs are rejected in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from broken_inputs import KINDS, invalid_inputs
from synthetic_stores import synthetic_batch, write_store

from milco_pyserini.corpora import open_corpus, open_qrels
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import build_index, find_engine
from milco_pyserini.io.runs import read_run
from milco_pyserini.search.topics import read_topics
from milco_pyserini.sparse import open_store


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_inputs_are_rejected_by_name(kind: str, tmp_path: Path) -> None:
    """Each raises an error that names the file or directory."""
    index = build_index(
        open_store(write_store(tmp_path / "vectors", *synthetic_batch(20))), find_engine("exact"), tmp_path / "index"
    )
    readers: dict[str, Callable[[str], object]] = {
        "corpus": lambda name: open_corpus(name).check(),
        "topics": lambda name: read_topics(name, index),
        "qrels": open_qrels,
        "run": lambda name: read_run(Path(name)),
    }
    (tmp_path / "inputs").mkdir()
    for broken in invalid_inputs():
        # Commands print a FileNotFoundError in one line.
        if broken.kind == kind:
            path = broken.write(tmp_path / "inputs")
            with pytest.raises((MilcoError, FileNotFoundError, IsADirectoryError)) as caught:
                readers[kind](str(path))
            assert broken.name in str(caught.value), broken.name
