"""Data and runs of training: texts, files of JSON lines, and what a run has written."""

import gzip
from pathlib import Path
from typing import Any

import orjson
from safetensors.torch import load_file
from torch import Tensor

from milco_pyserini.train.data.retrieval import RetrievalExample, open_retrieval

WORDS = "river bridge book harbour town market train library letter map water doctor north morning story".split()
# Words of several scripts.
MANY_SCRIPTS = "old harbour 小さな 市場 первая книга Brücke خريطة train river bridge marché".split()


def write_lines(path: Path, *lines: dict) -> Path:
    """Write JSON lines, compressed if the name ends in .gz, and the directories above them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def examples(path: Path) -> list[RetrievalExample]:
    """Return every example of a file or directory."""
    return [example for source in open_retrieval([path]) for example in source.examples()]


def weights(run: Path) -> dict[str, Tensor]:
    """Return the final weights of a run."""
    return load_file(run / "model" / "model.safetensors")


def logged(run: Path) -> list[dict[str, Any]]:
    """Return the entries of a run's log."""
    return [orjson.loads(line) for line in (run / "log.jsonl").read_bytes().splitlines()]
