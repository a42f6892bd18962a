"""Does memory stay flat? The peak of the encode command on many short documents against few.

python benchmarks/encode_memory.py --documents 100000 --encoder mini

The command runs in a process of its own for each size; its peak is VmHWM, as Linux keeps it. Documents are 8 to 12
consecutive words of the embedded sample, drawn with a fixed seed; where a language writes no spaces, as many pairs
of characters. The project promises at most 300 MB more for 100,000 documents than for 1,000.
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
# The peak is the process's own affair: what wait4() would say counts the parent's pages from before exec() too.
_CHILD = """
import sys
from pathlib import Path
from milco_pyserini.cli.encode import main
code = main(sys.argv[1:])
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
sys.exit(code)
"""


@dataclass(frozen=True)
class Options:
    """Measure the peak memory of milco_pyserini.encode on many short documents against few."""

    documents: int = option(100_000, help="the many")
    few: int = option(1_000, help="the few")
    encoder: str = option(MINI, help="checkpoint: hub name, directory, or mini (embedded)")
    corpus: str = option("sample", help="where the words come from: a name or a path")
    output_format: str = option("jsonl", choices=("jsonl", "parquet"), help="--format of the encode command")
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16")


def command(options: Options) -> None:
    """Encode both sizes and print their peaks. Raises MilcoError if the command fails."""
    if min(options.few, options.documents) < 1:
        raise MilcoError("--few and --documents must be at least 1")
    peaks = []
    for count in (options.few, options.documents):
        peak, seconds = measure(count, options)
        peaks.append(peak)
        sys.stdout.write(f"{count:>9,} documents: peak {peak:7,.0f} MB, {seconds:6,.1f} s\n")
        sys.stdout.flush()
    sys.stdout.write(f"difference: {peaks[1] - peaks[0]:,.0f} MB (encoder {options.encoder}, seed {SEED})\n")


def measure(count: int, options: Options) -> tuple[float, float]:
    """Peak memory in MB (10**6 bytes) and seconds of encoding count documents."""
    with tempfile.TemporaryDirectory() as directory:
        return encode(Path(directory), count, options)


def encode(directory: Path, count: int, options: Options) -> tuple[float, float]:
    """The same, with the vectors left in directory/store. Raises MilcoError if the command fails."""
    corpus = directory / "corpus.jsonl"
    with corpus.open("wb") as handle:
        for number, text in enumerate(short_texts(options.corpus, count)):
            handle.write(orjson.dumps({"id": f"d{number}", "contents": text}) + b"\n")
    arguments = ["--corpus", str(corpus), "--output", f"{directory}/store", "--encoder", options.encoder]
    arguments += ["--format", options.output_format, "--device", options.device, "--dtype", options.dtype]
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", _CHILD, *arguments], check=False, capture_output=True)
    said = done.stderr.decode(errors="replace").strip().splitlines() or [""]
    if done.returncode:
        raise MilcoError(f"encoding {count:,} documents failed: {said[-1]}")
    log(said[-1])
    return int(done.stdout.split()[-1]) * 1024 / 1e6, time.monotonic() - started


def short_texts(corpus: str, count: int) -> Iterator[str]:
    """Yield count texts of 8 to 12 words; the same ones every time."""
    draw = random.Random(SEED)
    passages = [words for document in open_corpus(corpus) if (words := split_words(document.text))]
    for _ in range(count):
        words = draw.choice(passages)
        length = draw.randint(*WORDS)
        start = draw.randint(0, max(len(words) - length, 0))
        yield "".join(words[start : start + length]).strip()


def split_words(text: str) -> list[str]:
    """The words of a text, each with the space that follows; pairs of characters where there are no spaces."""
    words = text.split()
    if len(text) > _SPACELESS * len(words):
        return [text[start : start + 2] for start in range(0, len(text), 2)]
    return [f"{word} " for word in words]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("benchmarks/encode_memory.py", Options, command, argv)


if __name__ == "__main__":
    sys.exit(main())
