"""A small store whose docids and terms are hard to quote, and the same one with changes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from search_servers import TARGETS, Server, running_server
from synthetic_stores import synthetic_batch, write_store

from milco_pyserini.sparse import VectorStore


@pytest.fixture(scope="module", params=TARGETS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A target and the URL of a server for it."""
    yield from running_server(request.param, tmp_path_factory.mktemp(request.param), request)


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands write to a directory of the test where they are given none."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """160 documents whose terms and docids are hard to quote, some of them empty."""
    ids, batch = synthetic_batch(160)
    keep = [place for place, docid in enumerate(ids) if "\x00" not in docid]
    return write_store(tmp_path_factory.mktemp("store") / "v", [ids[place] for place in keep], batch.take(keep))


@pytest.fixture(scope="session")
def changed(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store with two documents less, one more, and one that changed."""
    ids, batch = VectorStore.open(store).load()
    order = np.r_[2 : len(ids), 5]
    # The one that changed has the vector of another.
    order[8] = order[0]
    return write_store(tmp_path_factory.mktemp("changed") / "v", [*ids[2:], "new"], batch.take(order))
