"""The lifecycle of an output directory: absent, partial or complete, and begun with the wanted parameters or others."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from milco_pyserini.console import log
from milco_pyserini.errors import Message, MilcoError
from milco_pyserini.io.files import is_taken, recover_directory, validate_replaceable, validate_writable
from milco_pyserini.io.records import Record, described, differences


class Action(Enum):
    """A command's decision about its output directory."""

    # The path is free.
    CREATE = auto()
    # It was begun with the same parameters, and is not complete.
    RESUME = auto()
    # It is complete, with the same parameters: there is nothing to do.
    KEEP = auto()
    # Start over, because the user asked for it.
    REPLACE = auto()


@dataclass(frozen=True)
class Artifact:
    """An output directory as it is on disk.

    Args:
        is_owned: returns whether a directory was written by this command. Any other is never replaced.
        recorded: what it was begun with; None if that is not known.
        is_complete: whether the command has finished.
        ignored: fields of recorded that may differ, such as versions of packages.
        in_place: the command writes into the directory, and does not replace it by a complete one.
    """

    path: Path
    is_owned: Callable[[Path], bool]
    recorded: Record | Mapping[str, Any] | None = None
    is_complete: bool = True
    ignored: Collection[str] = ()
    in_place: bool = False

    def difference(self, wanted: Record | Mapping[str, Any]) -> str:
        """Return the first parameter that differs, such as "with max_length 512, not 9"; "" if there is none."""
        found = differences({} if self.recorded is None else self.recorded, wanted, self.ignored)
        # A name is clearer than a hash of what it names.
        for name, old, new in sorted(found, key=lambda field: field[0].endswith("_hash")):
            return described(name, old, new)
        return ""

    def action(self, wanted: Record | Mapping[str, Any], overwrite: bool = False) -> Action:
        """Return what to do to have a complete directory with these parameters. Writes nothing.

        Args:
            wanted: all parameters, or those that are known so far.

        Raises:
            MilcoError: something else is at path, it cannot be written, or, without overwrite, it was begun with other
                parameters.
        """
        difference = self.difference(wanted)
        is_same = self.recorded is not None and not difference
        if is_same and self.is_complete and not overwrite and is_taken(self.path):
            return Action.KEEP
        validate_replaceable(self.path, True, self.is_owned)
        if not is_taken(self.path, but_partial=self.in_place):
            action = Action.CREATE
        elif is_same and not self.is_complete:
            action = Action.RESUME
        elif overwrite:
            action = Action.REPLACE
        else:
            what = "was begun " + difference
            if self.recorded is None:
                what = "has no manifest of what it was made from, or one that is damaged or has no checksum"
            fix = Message("Choose another {output}, or start over with {overwrite}.", overwrite=True)
            raise MilcoError(f"{self.path} " + what, fix)
        if action is Action.CREATE or (action is Action.REPLACE and not self.in_place):
            validate_writable(self.path, inside=self.in_place)
        return action

    def keep(self) -> None:
        """Report that there is nothing to do, and remove what killed runs left."""
        recover_directory(self.path)
        log(f"{self.path} is up to date")
