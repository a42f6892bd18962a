"""Measure what SAP's batches contain: repeated English passages, neighbors in a file, and the share of each source.

python benchmarks/training_batches.py --batches 64 512 8192

The paper's data is simulated, with the classes that training reads it with: MS MARCO's 8.84 million passages in several
languages, whose lines have the same English side, next to other sources with 240 million sentences. A passage has about
300 characters and in each language its own number of bytes, a sentence 40. For each size of a batch the table has the
share of passages whose English side is in the batch again, how often the most frequent one is, the share of passages
that have a neighbor in the batch (a passage of the same language whose number differs by at most 9: ten in a row are
the results of one query), and the lowest and highest share of passages in a batch. Below it: how far the share of any
source is from its probability, over all that was read; the memory that reading takes; and the time to the first batch
of a run that continues after 500 million pairs. In a full shuffle, .0003 of the passages of a batch of 8,192 would be
in it again, and .0004 have a neighbor.
"""

import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from milco_pyserini.cli.parser import run_command
from milco_pyserini.corpora.bitext import BitextPair, BitextSource
from milco_pyserini.corpora.pair_index import BLOCK, PairIndex, Row
from milco_pyserini.options import option
from milco_pyserini.train.batches import ProcessBatches
from milco_pyserini.train.data.streams import BitextStream

PASSAGES = 8_841_823
OTHERS, OTHER_SOURCES = 240_000_000, 60
PASSAGE_LENGTH, SENTENCE_LENGTH = 300, 40
_RESUMED = 500_000_000
_MMARCO = "mmarco"
# Passages of one query of MS MARCO have numbers in a row.
_QUERY = 10


@dataclass(frozen=True)
class BatchesOptions:
    """Measure repeated passages and the shares of sources in simulated batches of SAP."""

    batches: tuple[int, ...] = option((64, 512, 8192), minimum=1, metavar="N", help="pairs of a batch, over all GPUs")
    languages: int = option(14, minimum=1, metavar="N", help="languages of the passages")
    count: int = option(200_000, minimum=1, metavar="N", help="pairs that are read for each size")
    scale: float = option(1.0, above=0, metavar="X", help="size of the data, 1 for the paper's")
    temperature: float = option(1.0, minimum=1, metavar="T", help="as in milco train sap")
    seed: int = option(1, minimum=0, help="random seed")


class SimulatedSource(BitextSource):
    """Pairs of one language: passages or sentences of random lengths, numbered on the English side."""

    def __init__(self, collection: str, language: str, count: int, length: float) -> None:
        super().__init__(collection, f"{collection} ({language})", language)
        self.count = count
        self.length = length

    @cached_property
    def index(self) -> PairIndex:
        """The number of pairs."""
        return PairIndex(self.count, 0, "", (), np.zeros((-(-self.count // BLOCK) + 1, 0), np.int64))

    def rows(self, block: int) -> list[Row]:
        """Return the pairs of a block."""
        rows: list[Row] = []
        for number in range(self.count)[block * BLOCK : (block + 1) * BLOCK]:
            # The same for every language.
            passage = random.Random(number).gauss(1, 0.4)
            english = max(10, int(passage * (PASSAGE_LENGTH if self.collection == _MMARCO else SENTENCE_LENGTH)))
            noise = 0.9 + 0.2 * ((number * 2_654_435_761 + len(self.name) * 97) % 1000) / 1000
            rows.append((b"x" * int(english * self.length * noise), b"%d %s" % (number, b"x" * english)))
        return rows

    def parse(self, row: Row) -> BitextPair:
        """Return the pair of a row."""
        return BitextPair(self.language, row[0].decode(), row[1].decode())


class Batches(NamedTuple):
    """Contents of batches of one size; see the program's description."""

    repeated: float
    copies: int
    neighbors: float
    lowest: float
    highest: float


def simulated_sources(languages: int, scale: float) -> list[SimulatedSource]:
    """Return the sources: one per language of the passages, and the others."""
    lengths = [0.95 + 1.35 * place / max(1, languages - 1) for place in range(languages)]
    passages = [
        SimulatedSource(_MMARCO, f"m{place}", max(1, int(PASSAGES * scale)), length)
        for place, length in enumerate(lengths)
    ]
    # Sizes between a thousandth and a tenth of all.
    weights = [1.1**place for place in range(OTHER_SOURCES)]
    others = [
        SimulatedSource("other", f"o{place}", max(1, int(OTHERS * scale * weight / sum(weights))), 1.1)
        for place, weight in enumerate(weights)
    ]
    return passages + others


def measure(batches: Iterator[list[BitextPair]], count: int, drawn: Counter[str]) -> Batches:
    """Read batches; add the pairs of each language to drawn."""
    repeated, neighbors, shares, copies = [], [], [], 0
    for batch in itertools.islice(batches, count):
        drawn.update(pair.language for pair in batch)
        numbers = sorted(
            (pair.language, int(pair.english.partition(" ")[0])) for pair in batch if pair.language.startswith("m")
        )
        passages = Counter(number for _, number in numbers)
        shares.append(passages.total() / len(batch))
        if passages:
            repeated.append(sum(times for times in passages.values() if times > 1) / passages.total())
            copies = max(copies, *passages.values())
            near = [a == b and n - m < _QUERY for (a, m), (b, n) in itertools.pairwise(numbers)]
            neighbors.append(sum(map(max, [False, *near], [*near, False])) / passages.total())
    return Batches(fmean(repeated or [0.0]), copies, fmean(neighbors or [0.0]), min(shares), max(shares))


def command(options: BatchesOptions) -> None:
    """Print the table, and the figures below it."""
    sources = simulated_sources(options.languages, options.scale)
    before = peak_memory()
    stream = BitextStream(sources, options.temperature, options.seed)
    drawn: Counter[str] = Counter()
    lines = ["batch  passages that are repeated  copies  with a neighbor  passages in a batch"]
    for size in options.batches:
        batches = iter(ProcessBatches(stream, 0, size))
        found = measure(batches, max(1, options.count // size), drawn)
        share = f"{found.lowest:.2f} to {found.highest:.2f}"
        lines.append(f"{size:5,}  {found.repeated:26.4f}  {found.copies:6}  {found.neighbors:15.4f}  {share}")
    differences = {
        source.name: abs(drawn[source.language] / drawn.total() / probability - 1)
        for source, probability in zip(sources, stream.probabilities, strict=True)
    }
    worst = max(differences, key=lambda name: differences[name])
    lines.append(f"share of a source: at most {differences[worst]:.1%} from its probability ({worst})")
    lines.append(f"memory: {(peak_memory() - before) / 1e6:.0f} MB")
    started = time.perf_counter()
    size = options.batches[-1]
    next(iter(ProcessBatches(stream, _RESUMED // size, size)))
    lines.append(f"first batch after {_RESUMED:,} pairs: {time.perf_counter() - started:.1f} s")
    sys.stdout.write("\n".join(lines) + "\n")


def peak_memory() -> int:
    """Return the peak of this process's memory in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/training_batches.py", BatchesOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
