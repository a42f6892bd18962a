"""Recipes: trainings that make a model or compare configurations, each `python -m recipes.NAME`."""

from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.options import option


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """Options of every recipe. A stage leaves its files in work and is skipped if they exist."""

    work: Path = option(metavar="DIR", help="directory for the files of the stages")
    threads: int = option(2, minimum=1, help="CPU threads")
    seed: int = option(1, minimum=0, help="random seed")
