"""python -m recipes.budget: compare the lines of the package with those of the last release, which setup.cfg has."""

import sys
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.errors import MilcoError

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class LineBudget:
    """The lines of Python of a release, and how many more the next one may have."""

    release: str
    lines: int
    slack: int

    @classmethod
    def read(cls, path: Path = ROOT / "setup.cfg") -> "LineBudget":
        """Return section [budget] of a file. Raises MilcoError if it lacks an entry."""
        config = ConfigParser()
        config.read(path, encoding="utf-8")
        try:
            section = config["budget"]
            return cls(section["release"], int(section["lines"]), int(section["slack"]))
        except (KeyError, ValueError) as error:
            raise MilcoError(f"{path}: [budget] needs release, lines and slack, two integers: {error}") from None

    def excess(self, lines: int) -> str | None:
        """Return what is wrong with a number of lines and what to do, or None."""
        if lines <= self.lines + self.slack:
            return None
        return (
            f"milco_pyserini has {lines:,} lines, {lines - self.lines - self.slack:,} too many: release {self.release} "
            f"had {self.lines:,}, and the next one may have {self.slack:,} more. Remove as many lines as the change "
            "adds, and name what leaves in the commit."
        )

    def validate_release(self, version: str, lines: int) -> None:
        """Raise MilcoError unless the budget is of a version and its number of lines."""
        if (self.release, self.lines) != (version, lines):
            raise MilcoError(
                f"[budget] in setup.cfg has release = {self.release} and lines = {self.lines}: "
                f"set release = {version} and lines = {lines}"
            )


def count_lines(package: Path = ROOT / "milco_pyserini") -> int:
    """Return the number of lines of Python in a package."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.py"))


def main() -> int:
    """Print the number of lines, or what is wrong with it; return the exit code."""
    budget, lines = LineBudget.read(), count_lines()
    excess = budget.excess(lines)
    allowed = f"{budget.lines + budget.slack:,} are allowed after release {budget.release}"
    sys.stdout.write(f"{excess or f'{lines:,} lines, {allowed}'}\n")
    return 1 if excess else 0


if __name__ == "__main__":
    sys.exit(main())
