"""Fixtures of the contracts."""

import pytest
from built import Built


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Stores and indexes of every kind; tests that change one copy it first."""
    return Built(tmp_path_factory.mktemp("built"))
