"""Balanced search of a filled server: the sum of the vectors of each language, kept in the index directory.

A server finds the best documents of each language; their mean score is a product with these sums.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.export.protocol import ImpactDocument
from milco_pyserini.index.documents import filter_text
from milco_pyserini.index.storage import map_array
from milco_pyserini.io.files import atomic_file

FIELD = "lang"
_FILE = "lang.sums.npy"
# Maximum of distinct values of the field lang; with more, the field does not hold languages.
_MOST = 250


class LanguageSums:
    """The number of documents of each language, and the sum of their impacts: int64 [columns]."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._sums: dict[str, NDArray[np.int64]] = {}
        self.sizes: dict[str, int] = {}

    def add(self, vector: ImpactDocument) -> None:
        """Add a document; one without a language counts as the language ""."""
        language = filter_text((vector.document or {}).get(FIELD, ""))
        self.sizes[language] = self.sizes.get(language, 0) + 1
        if len(self.sizes) <= _MOST:
            sums = self._sums.setdefault(language, np.zeros(self._columns, np.int64))
            sums[vector.columns] += vector.impacts

    @property
    def balances(self) -> bool:
        """True if searches can be balanced: a server cannot find documents without a language."""
        return 0 < len(self.sizes) <= _MOST and "" not in self.sizes

    def write(self, directory: Path) -> Path:
        """Write the sums in the order of sizes; return the name of the file."""
        with atomic_file(directory / _FILE) as handle:
            np.save(handle, np.concatenate([self._sums[language] for language in self.sizes]))
        return Path(_FILE)


def read_sums(directory: Path, sizes: Mapping[str, int], columns: int) -> dict[str, NDArray[Any]]:
    """Return the sums that LanguageSums.write() wrote, by language. Raises DamagedError if the file does not fit."""
    sums = map_array(directory, _FILE, np.int64, len(sizes) * columns).reshape(-1, columns)
    return dict(zip(sizes, sums, strict=True))
