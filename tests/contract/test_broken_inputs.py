"""The broken inputs of benchmarks/faults.py, read in this process."""

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
def test_broken_inputs_are_refused_by_name(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One MilcoError each, which names the file or the directory; nothing hangs, nothing is accepted."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    from broken_inputs import broken_inputs

    index = build_index(
        open_store(write_store(tmp_path / "vectors", *synthetic_batch(20))), find_engine("exact"), tmp_path / "index"
    )
    readers: dict[str, Callable[[str], object]] = {
        "corpus": lambda name: open_corpus(name).check(),
        "topics": lambda name: read_topics(name, index),
        "qrels": open_qrels,
        "run": lambda name: read_run(Path(name)),
    }
    (tmp_path / "given").mkdir()
    for broken in broken_inputs():
        # FileNotFoundError is one line of the command line, too.
        if broken.kind == kind and "100 MB" not in broken.name:
            path = broken.make(tmp_path / "given")
            with pytest.raises((MilcoError, FileNotFoundError, IsADirectoryError)) as caught:
                readers[kind](str(path))
            assert broken.name in str(caught.value), broken.name
