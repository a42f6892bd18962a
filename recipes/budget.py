"""python -m recipes.budget: compare the lines of each room of the package with its budget in setup.cfg.

A change that raises a budget names in its message what it removes.
"""

import sys
from configparser import ConfigParser
from pathlib import Path

from milco_pyserini.errors import MilcoError

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "milco_pyserini"


def count_lines(package: Path = PACKAGE) -> dict[str, int]:
    """Return the number of lines of Python of each subpackage, and of the modules next to them as "root"."""
    rooms: dict[str, int] = {}
    for path in package.rglob("*.py"):
        folders = path.relative_to(package).parts[:-1]
        room = folders[0] if folders else "root"
        rooms[room] = rooms.get(room, 0) + len(path.read_text(encoding="utf-8").splitlines())
    return rooms


def over_budget(rooms: dict[str, int], budgets: dict[str, int]) -> list[str]:
    """Return a line for each room that has more lines than its budget, or no budget."""
    return [
        f"{room} has {lines:,} lines, its budget is {budgets.get(room, 0):,}"
        for room, lines in sorted(rooms.items())
        if lines > budgets.get(room, 0)
    ]


def main() -> int:
    """Print rooms over their budget; return the exit code."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    if "budget" not in config:
        raise MilcoError("setup.cfg has no section [budget]")
    rooms = count_lines()
    found = over_budget(rooms, {room: int(lines) for room, lines in config["budget"].items()})
    sys.stdout.write("".join(f"{line}\n" for line in found) or f"{sum(rooms.values()):,} lines, within the budgets\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
