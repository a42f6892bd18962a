"""The invalid inputs of benchmarks/faults.py, read in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic_stores import synthetic_batch, write_store

from milco_pyserini.corpora import open_corpus, open_qrels
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import build_index, find_engine
from milco_pyserini.io.runs import read_run
from milco_pyserini.search.topics import read_topics
from milco_pyserini.sparse import open_store

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")


@pytest.mark.parametrize("kind", ["corpus", "topics", "qrels", "run"])
def test_invalid_inputs_are_rejected_by_name(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each raises an error that names the file or directory."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    from broken_inputs import invalid_inputs

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
        if broken.kind == kind and "100 MB" not in broken.name:
            path = broken.write(tmp_path / "inputs")
            with pytest.raises((MilcoError, FileNotFoundError, IsADirectoryError)) as caught:
                readers[kind](str(path))
            assert broken.name in str(caught.value), broken.name
