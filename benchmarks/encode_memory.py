"""Measure the peak memory of `milco encode` on many short documents against few.

python benchmarks/encode_memory.py --documents 100000 --encoder mini

The command runs in its own process for each size; its peak is VmHWM of /proc/self/status (Linux). Documents are 8 to
12 consecutive words of the embedded sample, drawn with a fixed seed, or as many pairs of characters for languages
without spaces. The goal is at most 300 MB more for 100,000 documents than for 1,000.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.corpora import open_corpus
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

SEED = 20260
WORDS = (8, 12)
_SPACELESS = 20
# The process reports its own peak: wait4() would include the parent's pages from before exec().
_CHILD = """
import sys
from pathlib import Path
from milco_pyserini.cli.encode import main
code = main(sys.argv[1:])
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
sys.exit(code)
"""


@dataclass(frozen=True)
class EncodeMemoryOptions:
    """Measure the peak memory of milco encode on many short documents against few."""

    documents: int = option(100_000, minimum=1, metavar="N", help="documents of the large corpus")
    few: int = option(1_000, minimum=1, metavar="N", help="documents of the small corpus")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    corpus: str = option("sample", metavar="NAME|PATH", help="corpus from which words are drawn")
    format: str = option("jsonl", choices=("jsonl", "parquet"), help="--format of the encode command")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32 or bfloat16")


def command(options: EncodeMemoryOptions) -> None:
    """Encode both sizes and print their peaks. Raises MilcoError if the command fails."""
    peaks = []
    for count in (options.few, options.documents):
        with tempfile.TemporaryDirectory() as directory:
            peak, seconds = encode(Path(directory), count, options)
        peaks.append(peak)
        sys.stdout.write(f"{count:>9,} documents: peak {peak:7,.0f} MB, {seconds:6,.1f} s\n")
        sys.stdout.flush()
    sys.stdout.write(f"difference: {peaks[1] - peaks[0]:,.0f} MB (encoder {options.encoder}, seed {SEED})\n")


def encode(directory: Path, count: int, options: EncodeMemoryOptions) -> tuple[float, float]:
    """Encode documents into directory/store; return the peak in MB (10**6 bytes) and the seconds.

    Raises:
        MilcoError: the command fails.
    """
    corpus = directory / "corpus.jsonl"
    with corpus.open("wb") as handle:
        for number, text in enumerate(short_texts(options.corpus, count)):
            handle.write(orjson.dumps({"id": f"d{number}", "contents": text}) + b"\n")
    arguments = ["--corpus", str(corpus), "--output", f"{directory}/store", "--encoder", options.encoder]
    arguments += ["--format", options.format, "--device", options.device, "--dtype", options.dtype]
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", _CHILD, *arguments], check=False, capture_output=True)
    lines = done.stderr.decode(errors="replace").strip().splitlines() or [""]
    if done.returncode:
        raise MilcoError(f"encoding {count:,} documents failed: {lines[-1]}")
    log(lines[-1])
    return int(done.stdout.split()[-1]) * 1024 / 1e6, time.monotonic() - started


def short_texts(corpus: str, count: int) -> Iterator[str]:
    """Yield texts of 8 to 12 words, the same ones in every run."""
    draw = random.Random(SEED)
    passages = [words for document in open_corpus(corpus) if (words := split_words(document.text))]
    for _ in range(count):
        words = draw.choice(passages)
        length = draw.randint(*WORDS)
        start = draw.randint(0, max(len(words) - length, 0))
        yield "".join(words[start : start + length]).strip()


def split_words(text: str) -> list[str]:
    """Return the words of a text, each with the space that follows, or pairs of characters if it has no spaces."""
    words = text.split()
    if len(text) > _SPACELESS * len(words):
        return [text[start : start + 2] for start in range(0, len(text), 2)]
    return [f"{word} " for word in words]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/encode_memory.py", EncodeMemoryOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
