"""python -m recipes.budget: compare the lines of each subpackage with its budget in setup.cfg.

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
    found: dict[str, int] = {}
    for path in package.rglob("*.py"):
        folders = path.relative_to(package).parts[:-1]
        name = folders[0] if folders else "root"
        found[name] = found.get(name, 0) + len(path.read_text(encoding="utf-8").splitlines())
    return found


def over_budget(found: dict[str, int], budgets: dict[str, int]) -> list[str]:
    """Return a line for each subpackage that has more lines than its budget, or no budget."""
    return [
        f"{name} has {lines:,} lines, its budget is {budgets.get(name, 0):,}"
        for name, lines in sorted(found.items())
        if lines > budgets.get(name, 0)
    ]


def main() -> int:
    """Print subpackages over their budget; return the exit code."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    if "budget" not in config:
        raise MilcoError("setup.cfg has no section [budget]")
    found = count_lines()
    over = over_budget(found, {name: int(lines) for name, lines in config["budget"].items()})
    sys.stdout.write("".join(f"{line}\n" for line in over) or f"{sum(found.values()):,} lines, within the budgets\n")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
