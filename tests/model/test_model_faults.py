"""Invalid checkpoints are rejected in one line, before they encode."""

import shutil
from pathlib import Path

import pytest
from broken_checkpoints import CHECKPOINTS, load_checkpoint, write_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid tiny checkpoint."""
    directory = tmp_path_factory.mktemp("checkpoint") / "tiny"
    write_checkpoint(directory)
    return directory


def test_the_checkpoint_is_valid_before_the_change(checkpoint: Path) -> None:
    """It encodes, so that each rejection is due to the change."""
    assert load_checkpoint(checkpoint) == ("accepted", "")


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_an_invalid_checkpoint_is_rejected_in_one_line(case: str, checkpoint: Path, tmp_path: Path) -> None:
    """The line names the checkpoint; no damaged value, tensor or file is accepted or causes a traceback."""
    invalid = shutil.copytree(checkpoint, tmp_path / "tiny")
    CHECKPOINTS[case](invalid)
    outcome, text = load_checkpoint(invalid)
    assert (outcome, str(invalid) in text) == ("rejected", True), text
