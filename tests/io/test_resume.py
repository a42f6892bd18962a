"""Comparing the plan of an interrupted run with that of the run that would continue it."""

from pathlib import Path

import pytest

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.resume import plan_difference, validate_resume

RECORDED = {"encoder": "mini", "max_length": 512, "versions": {"torch": "2.6"}, "documents": 50}


@pytest.mark.parametrize(
    ("asked", "difference"),
    [
        ({"encoder": "mini"}, ""),
        ({"encoder": "mini", "max_length": 9}, "max_length 512, not 9"),
        ({"scale": 100.0}, "scale None, not 100.0"),
        ({"versions": {"torch": "2.7"}}, ""),
    ],
)
def test_the_first_difference_is_reported_with_both_values(asked: dict, difference: str) -> None:
    """Only the fields that are asked for count, and none that are ignored."""
    assert plan_difference(RECORDED, asked, ignored=("versions",)) == difference


def test_a_directory_of_another_plan_is_refused_with_the_fix() -> None:
    """One message for every command that resumes."""
    validate_resume(Path("out"), RECORDED, {"max_length": 512})
    with pytest.raises(MilcoError, match=r"out was begun with encoder mini, not base: choose .* with --overwrite"):
        validate_resume(Path("out"), RECORDED, {"encoder": "base"})
