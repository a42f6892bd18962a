"""Recipes: trainings that make a model or compare configurations, each `python -m recipes.NAME`."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.artifact import Artifact
from milco_pyserini.io.files import read_json, write_json
from milco_pyserini.options import option


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """Options of every recipe. A stage leaves its files in work and is skipped if they exist."""

    work: Path = option(metavar="DIR", help="directory for the files of the stages")
    threads: int = option(2, minimum=1, help="CPU threads")
    seed: int = option(1, minimum=0, help="random seed")

    def begin(self, free: Collection[str]) -> None:
        """Record the options in work. Raises MilcoError if it has files of other options, which would be used.

        free: options that do not change the content of the files, besides work and threads.
        """
        fixed = vars(self).keys() - {"work", "threads", *free}
        given = {name: value for name, value in vars(self).items() if name in fixed}
        values = {name: str(one.resolve() if isinstance(one, Path) else one) for name, one in given.items()}
        manifest = self.work / "manifest.json"
        if manifest.is_file():
            if difference := Artifact(self.work, Path.is_dir, read_json(manifest)).difference(values):
                raise MilcoError(f"{self.work} was begun {difference}: choose another --work")
        elif self.work.is_dir() and any(self.work.iterdir()):
            raise MilcoError(f"{self.work} was not created by this command: choose another --work")
        else:
            write_json(manifest, values)
