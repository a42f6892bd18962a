"""Compare plans: a plan is everything that determines the content of an output directory, written before the content.

Interrupted work is resumed, and finished work reused, only by a run with the same plan.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from milco_pyserini.errors import MilcoError


def plan_difference(recorded: Mapping[str, Any], asked: Mapping[str, Any], ignored: Collection[str] = ()) -> str:
    """Return the first difference between two plans, such as "max_length 512, not 9"; "" if there is none.

    Args:
        recorded: the plan in the directory. It may have more fields: results, and what is only known later.
        asked: the plan of this run, or the part of it that is known so far.
        ignored: fields that may differ, such as versions of packages.
    """
    for name, value in asked.items():
        if name not in ignored and recorded.get(name) != value:
            return f"{name} {recorded.get(name)}, not {value}"
    return ""


def validate_resume(
    path: Path, recorded: Mapping[str, Any], asked: Mapping[str, Any], ignored: Collection[str] = ()
) -> None:
    """Raise MilcoError, with the first difference, if a directory was begun with another plan (see plan_difference)."""
    if difference := plan_difference(recorded, asked, ignored):
        raise MilcoError(
            f"{path} was begun with {difference}: choose another `output`, or start over with `overwrite=True`"
        )
