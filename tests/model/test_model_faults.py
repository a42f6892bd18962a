"""A broken checkpoint is refused in one line, before it encodes anything."""

import shutil
from pathlib import Path

import pytest
from broken_checkpoints import CHECKPOINTS, met, tiny_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint without a fault."""
    directory = tmp_path_factory.mktemp("checkpoint") / "tiny"
    tiny_checkpoint(directory)
    return directory


def test_the_checkpoint_is_valid_before_it_is_damaged(checkpoint: Path) -> None:
    """The faults are those of the table."""
    assert met(checkpoint) == ("silent", "")


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_a_broken_checkpoint_is_refused_in_one_line(case: str, checkpoint: Path, tmp_path: Path) -> None:
    """The line names the checkpoint; no damaged value, tensor or file passes, and none ends in a traceback."""
    broken = shutil.copytree(checkpoint, tmp_path / "tiny")
    CHECKPOINTS[case](broken)
    kind, text = met(broken)
    assert (kind, str(broken) in text) == ("clean", True), text
