"""Measure encoding on a GPU: documents per second, the share of the card's limit, and a padded loop for comparison.

python benchmarks/gpu.py
python benchmarks/gpu.py --encoder mini --documents 20000
python benchmarks/gpu.py --all
python benchmarks/gpu.py --device cpu --small
python benchmarks/gpu.py --device cpu --small --all

Without --encoder, the weights are random and of the published size, as in encoding.py, with a bias under which a text
has about 150 English terms. Lengths are log-normal, drawn with a fixed seed. After a pass that compiles the layers,
each round times, in turn: plain matrix products (the limit); encoding as `milco encode` does, from token ids to sparse
vectors on the CPU; and a loop over batches of 32 in file order, padded to a multiple of 32 tokens as in the authors'
code, under autocast, with all logits in memory and dense vectors on the CPU. Then single queries are timed. Results
are medians. Only matrix products for real tokens are counted as work, attention included. "batches" are
padded batches of texts of similar length, as on GPUs without variable-length attention.

--all runs, one after the other, so that a failure does not stop the rest: both encoders, `milco encode` with milco-mini
as JSONL and Parquet, SAP, SCT, and the tests of a GPU. --small replaces sizes, so that all of it runs on a processor.

docs/encoding.md has the figures of an NVIDIA H100.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from encoding import SEED, padded_pass, random_lengths, random_network

from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import BATCH_SIZE, VIEWS
from milco_pyserini.encode.devices import DTYPES, choose_device, choose_dtype
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

if TYPE_CHECKING:
    import torch

    from milco_pyserini.encode.batches import BatchRunner
    from milco_pyserini.model.modeling import MilcoModel
    from milco_pyserini.sparse import SparseBatch

_TERMS = 150
_PRODUCTS = 8
_QUERIES = 20
_SAMPLE = 16
# The corpus of `milco encode` is so many copies of the sample: 260,000 passages.
_COPIES = 400
_ROOT = Path(__file__).parents[1]
# The sizes of --small replace those of the options.
_SMALL: dict[str, Any] = {"layers": 1, "documents": 32, "repeats": 1, "median": 10, "longest": 20}
Rows = list[list[int]]


@dataclass(frozen=True)
class GpuOptions:
    """Compare documents per second on a GPU with the card's limit and with a padded loop."""

    encoder: str = option("", metavar="NAME|DIR", help="MILCO checkpoint (default: random weights of published size)")
    layers: int = option(24, minimum=1, metavar="N", help="layers of the encoder with random weights")
    documents: int = option(8192, minimum=1, metavar="N", help="texts per round")
    median: int = option(110, minimum=3, maximum=8192, metavar="N", help="median length in tokens")
    longest: int = option(256, minimum=3, maximum=8192, metavar="N", help="highest length in tokens")
    query: int = option(16, minimum=3, maximum=8192, metavar="N", help="tokens of a query")
    repeats: int = option(3, minimum=1, metavar="N", help="rounds; medians are printed")
    device: str = option("auto", metavar="DEVICE", help="cuda, cuda:N, mps, xpu or cpu; auto is the first CUDA GPU")
    dtype: str = option("auto", choices=DTYPES, help="dtype of the products; auto is bfloat16 where it is native")

    all: bool = option(False, help="both encoders, milco encode, SAP, SCT and the tests of a GPU, in about ten minutes")
    small: bool = option(False, help="sizes with which it runs on a processor in a minute")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with the options together."""
        if self.median > self.longest:
            yield f"--median {self.median} is above --longest {self.longest}"


def command(options: GpuOptions) -> None:
    """Time the rounds and print rates, ratios, latency and memory."""
    import torch

    if options.all:
        return run_all(options)
    if options.small:
        options = replace(options, **_SMALL)
    device = choose_device(options.device)
    if options.device == "auto" and device.type == "cpu":
        raise MilcoError("torch finds no CUDA GPU: name another --device, or --device cpu with fewer --documents")
    dtype = choose_dtype(options.dtype, device)
    model: Any = load_model(options)
    model.to(device)
    rows = random_rows(model, random_lengths(options.documents, options.median, options.longest))
    runner = make_runner(model, device, dtype)
    if not options.encoder:
        highest = runner.forward(sorted(rows, key=len)[-_SAMPLE:])[0]
        model.decoder.bias.data -= highest.flatten().quantile(1 - _TERMS / highest.shape[1])
        runner = make_runner(model, device, dtype)
    before = peak = 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    first = seconds(lambda: encode(runner, rows), device)
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device) - before
    actions: dict[str, Callable[[], object]] = {
        "limit": products(model, runner.token_budget, dtype),
        "encoded": lambda: encode(runner, rows),
        "padded": lambda: padded_pass(model, rows, dtype),
    }
    batched = make_padded_runner(model, device, dtype)
    actions["batches"] = lambda: encode(batched, rows)
    actions["batches"]()
    rounds = [{name: seconds(action, device) for name, action in actions.items()} for _ in range(options.repeats)]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    lines = [
        f"{name}, torch {torch.__version__}, {str(dtype).removeprefix('torch.')}, "
        f"{model.config.encoder.num_hidden_layers} layers, {len(rows):,} texts, {sum(map(len, rows)):,} tokens, "
        f"median of {options.repeats}",
        *rate_lines(rounds, model, rows, runner.token_budget),
        query_line(runner, random_rows(model, [options.query] * _QUERIES), device),
        f"first pass, compilation included: {first:.1f} s",
        memory_line(peak),
        f"mean difference of pivot weights: {difference(runner, model, rows[:_SAMPLE], dtype):.1e}",
        f"padding of padded batches: {padding(batched, rows):.1%} of tokens",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def rate_lines(rounds: Sequence[dict[str, float]], model: "MilcoModel", rows: Rows, budget: int) -> Iterator[str]:
    """Yield the limit, both ways of encoding and their ratio. rounds: seconds by name."""
    work, product = flop(model, [len(row) for row in rows]), product_flop(model, budget)
    limit = statistics.median(one["limit"] for one in rounds)
    yield f"limit    {product / limit / 1e12:8.2f} TFLOP/s of plain matrix products"
    for name in [name for name in rounds[0] if name != "limit"]:
        taken = statistics.median(one[name] for one in rounds)
        share = statistics.median(work / one[name] / (product / one["limit"]) for one in rounds)
        yield (
            f"{name:<8} {work / taken / 1e12:8.2f} TFLOP/s {len(rows) / taken:10,.1f} documents/s "
            f"{sum(map(len, rows)) / taken:12,.0f} tokens/s {share:6.1%} of the limit"
        )
    yield f"ratio    {statistics.median(one['padded'] / one['encoded'] for one in rounds):8.2f} times the documents/s"


def query_line(runner: "BatchRunner", queries: Rows, device: "torch.device") -> str:
    """Return the median time of one query."""
    taken = [seconds(partial(list, runner.run([row], VIEWS, 1)), device) for row in queries]
    return f"one query of {len(queries[0])} tokens: {statistics.median(taken) * 1e3:.1f} ms"


def memory_line(peak: int) -> str:
    """Return the peak of the first pass, in bytes above the weights."""
    return f"memory of the batches: {peak / 1e9:.2f} GB" if peak else "memory of the batches: measured on CUDA only"


def load_model(options: GpuOptions) -> "MilcoModel":
    """Return the checkpoint's network, or one with random weights. Raises MilcoError if it has no LexEcho head."""
    from milco_pyserini.model.modeling import MilcoModel

    if not options.encoder:
        return random_network(options.layers)
    model = MilcoModel.from_pretrained(options.encoder)
    if model.echo is None:
        raise MilcoError(f"--encoder {options.encoder} has no LexEcho head: name a checkpoint with both views")
    return model


def random_rows(model: "MilcoModel", lengths: Sequence[int]) -> Rows:
    """Return random token ids of texts of these lengths, <s> and </s> included."""
    draw = np.random.default_rng(SEED)
    size = model.config.encoder.vocab_size
    return [[0, *draw.integers(3, size, length - 2).tolist(), 2] for length in lengths]


def make_runner(model: "MilcoModel", device: "torch.device", dtype: "torch.dtype") -> "BatchRunner":
    """Return what encodes tokenized texts on the device, as MilcoEncoder does."""
    from milco_pyserini.encode.batches import BatchRunner
    from milco_pyserini.model.forward import choose_forward

    config = model.config
    sizes = config.english_vocab_size, config.encoder.vocab_size
    return BatchRunner(choose_forward(model, device, dtype), device, *sizes, config.source_pool, [])


def make_padded_runner(model: "MilcoModel", device: "torch.device", dtype: "torch.dtype") -> "BatchRunner":
    """Return the same with padded batches, as on GPUs without variable-length attention."""
    from milco_pyserini.encode.batches import BatchRunner
    from milco_pyserini.model.forward import PaddedForward

    sizes = model.config.english_vocab_size, model.config.encoder.vocab_size
    return BatchRunner(PaddedForward(model, device, dtype), device, *sizes, model.config.source_pool, [])


def padding(runner: "BatchRunner", rows: Rows) -> float:
    """Return the share of padding among the tokens of the batches, if lengths are rounded up to a multiple of 8."""
    lengths, start, padded = sorted(map(len, rows)), 0, 0
    while start < len(lengths):
        end = runner.batch_end(lengths, start, BATCH_SIZE)
        padded += (end - start) * (-(-lengths[end - 1] // 8) * 8)
        start = end
    return 1 - sum(lengths) / padded


def run_all(options: GpuOptions) -> None:
    """Run every measurement as a process of its own, with its name and exit code. Raises MilcoError if one fails."""
    failed = []
    with tempfile.TemporaryDirectory() as directory:
        device = ["--device", options.device]
        own = [sys.executable, "benchmarks/gpu.py", *device, *(["--small"] if options.small else [])]
        corpus = write_corpus(Path(directory), 1 if options.small else _COPIES)
        encode = [sys.executable, "-m", "milco_pyserini", "encode", "--corpus", corpus, "--encoder", "mini", *device]
        train = [sys.executable, "benchmarks/training_throughput.py", *device]
        if options.small:
            train += ["--batch", "8", "--tokens", "8", "--repeats", "1"]
        commands = {
            "published size": own,
            "milco-mini": [*own, "--encoder", "mini"],
            "milco encode, JSONL": [*encode, "--output", f"{directory}/jsonl"],
            "milco encode, Parquet": [*encode, "--format", "parquet", "--output", f"{directory}/parquet"],
            "SAP": train,
            "SCT": [*train, "--stage", "sct"],
            "correctness": [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "tests/test_gpu.py",
                "tests/model/test_model_varlen.py",
            ],
        }
        for name, arguments in commands.items():
            sys.stdout.write(f"== {name}\n")
            sys.stdout.flush()
            started = time.perf_counter()
            code = subprocess.run(arguments, cwd=_ROOT, check=False).returncode
            sys.stdout.write(f"== {name}: exit code {code}, {time.perf_counter() - started:.1f} s\n")
            failed += [name] * (code != 0)
    if failed:
        raise MilcoError(f"these measurements failed: {', '.join(failed)}")


def write_corpus(directory: Path, copies: int) -> str:
    """Write a corpus of copies of the sample's passages, with ids of their own; return its path."""
    import json

    from milco_pyserini.corpora import open_corpus

    path = directory / "corpus.jsonl"
    documents = list(open_corpus("sample"))
    lines = (
        json.dumps({"id": str(number), "contents": document.text}) + "\n"
        for number, document in enumerate(chain.from_iterable([documents] * copies))
    )
    with path.open("w", encoding="utf-8") as file:
        file.writelines(lines)
    return str(path)


def encode(runner: "BatchRunner", rows: Rows) -> "list[SparseBatch]":
    """Return the sparse vectors of texts, on the CPU, shortest first."""
    return list(runner.run(sorted(rows, key=len), VIEWS, BATCH_SIZE))


def difference(runner: "BatchRunner", model: "MilcoModel", rows: Rows, dtype: "torch.dtype") -> float:
    """Return the mean difference between the pivot weights of both ways of encoding."""
    import torch

    encoded = torch.log1p(torch.relu(runner.forward(rows)[0]))
    return float((encoded - padded_pass(model, rows, dtype)[0].to(encoded.device)).abs().mean())


def products(model: "MilcoModel", tokens: int, dtype: "torch.dtype") -> Callable[[], None]:
    """Return a function that computes matrix products of the feed-forward layers' size for so many tokens."""
    import torch

    config = model.config.encoder
    left = torch.randn(tokens, config.hidden_size, device=model.device).to(dtype)
    right = torch.randn(config.hidden_size, config.intermediate_size, device=model.device).to(dtype)

    def multiply() -> None:
        for _ in range(_PRODUCTS):
            torch.mm(left, right)

    return multiply


def product_flop(model: "MilcoModel", tokens: int) -> float:
    """Return the floating point operations of products()."""
    return _PRODUCTS * 2 * tokens * model.config.encoder.hidden_size * model.config.encoder.intermediate_size


def flop(model: "MilcoModel", lengths: Sequence[int]) -> float:
    """Return the floating point operations of the matrix products for texts of these lengths."""
    config, english = model.config.encoder, model.config.english_hidden_size
    tokens, squares, width = sum(lengths), sum(length**2 for length in lengths), config.hidden_size
    layer = 4 * tokens * width * (2 * width + config.intermediate_size) + 4 * width * squares
    head = 2 * tokens * english * (width + english + model.config.english_vocab_size)
    return config.num_hidden_layers * layer + head


def seconds(action: Callable[[], object], device: "torch.device") -> float:
    """Return the wall time of a call until the device has computed everything."""
    import torch

    wait = getattr(torch, device.type).synchronize
    wait()
    started = time.perf_counter()
    action()
    wait()
    return time.perf_counter() - started


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/gpu.py", GpuOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
