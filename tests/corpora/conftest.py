"""Fixtures of the tests of corpora."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """ir_datasets creates directories when it is imported, which must not be in the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR_DATASETS_HOME", str(tmp_path_factory.mktemp("empty")))
        yield
