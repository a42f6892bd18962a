"""Measure CPU encoding: the packed forward pass against padded batches and against the machine's limit.

python benchmarks/encoding.py --layers 24 --documents 32 --repeats 3

The weights are random, of the published size (XLM-R large, 30,522 English pieces), except that the word embedding has
4,000 rows instead of 250,002, because rows are looked up and not multiplied. Lengths are log-normal, drawn with a fixed
seed. Each round times, in turn: plain matrix products (the limit); the packed pass over documents sorted by length, in
batches of 4,096 tokens; the same in int8; and batches of 32 in file order, padded to a multiple of 32 tokens as in the
authors' code, under autocast, with all logits in memory. Then eight single queries of 16 tokens (32 when padded), by
the three passes in turn. Results are medians of wall times and of the rounds' ratios. Only matrix products for real
tokens are counted as work, attention included.

The head's memory is the highest resident memory of the process while it runs, sampled every millisecond, minus the
memory before, result included, for 32 texts of 512 tokens, from the encoder's states.
"""

import ctypes
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from table_rows import with_highest

from milco_pyserini.cli.parser import run_command
from milco_pyserini.encode.devices import DTYPES, choose_dtype
from milco_pyserini.options import option

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from milco_pyserini.model.modeling import MilcoModel
    from milco_pyserini.model.packed import PackedForward

    Result = tuple[Tensor, Tensor]

SEED = 20260
EMBEDDING_ROWS = 4000
TOKEN_BUDGET = 4096
PADDED_BATCH = 32
PADDED_MULTIPLE = 32
_SPREAD = 0.6
_PRODUCT = (2048, 1024, 4096)
_PRODUCTS = 5
_QUERIES = 8
PRODUCTS_FLOP = _PRODUCTS * 2 * _PRODUCT[0] * _PRODUCT[1] * _PRODUCT[2]
_STATM = Path("/proc/self/statm")
Rows = list[list[int]]


@dataclass(frozen=True)
class EncodingOptions:
    """Compare documents per second of the packed forward pass on the CPU with padded batches and the limit."""

    layers: int = option(24, minimum=1, metavar="N", help="layers of the encoder; 24 is the published size")
    documents: int = option(32, minimum=1, metavar="N", help="texts per round")
    median: int = option(110, minimum=3, maximum=8192, metavar="N", help="median length in tokens")
    longest: int = option(256, minimum=3, maximum=8192, metavar="N", help="highest length in tokens")
    query: int = option(16, minimum=3, maximum=8192, metavar="N", help="tokens of the query")
    repeats: int = option(3, minimum=1, metavar="N", help="rounds; medians are printed")
    threads: int | None = option(None, minimum=1, metavar="N", help="threads of torch (default: its choice)")
    head_texts: int = option(32, minimum=1, metavar="N", help="texts of 512 tokens for the head's memory")
    dtype: str = option("auto", choices=DTYPES, help="dtype of the products; auto is bfloat16 where it is native")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with the options together."""
        if self.median > self.longest:
            yield f"--median {self.median} is above --longest {self.longest}"


@dataclass(frozen=True)
class Round:
    """Seconds of one round: a matrix product, all documents and each query packed, packed in int8, and padded.

    int8 is NaN on processors that cannot multiply it.
    """

    product: float
    packed: float
    int8: float
    padded: float
    queries: list[tuple[float, float, float]]


def command(options: EncodingOptions) -> None:
    """Time the rounds and print rates, ratios and the head's memory."""
    import torch

    from milco_pyserini.model.packed import PackedForward, int8_is_exact, linear_kind

    if options.threads:
        torch.set_num_threads(options.threads)
    dtype = choose_dtype(options.dtype, torch.device("cpu"))
    model: Any = random_network(options.layers)
    packed = PackedForward(model, dtype)
    int8 = PackedForward(model, torch.int8) if int8_is_exact() else None
    rows = random_rows(random_lengths(options.documents, options.median, options.longest))
    query = random_rows([options.query])
    rounds = [
        Round(
            seconds(matrix_product(dtype)) / _PRODUCTS,
            seconds(lambda: packed_pass(packed, rows)),
            seconds(lambda: packed_pass(int8, rows)) if int8 else nan,
            seconds(lambda: padded_pass(model, rows, dtype)),
            [
                (
                    seconds(lambda: packed(query)),
                    seconds(lambda: int8(query)) if int8 else nan,
                    seconds(lambda: padded_pass(model, query, dtype)),
                )
                for _ in range(_QUERIES)
            ],
        )
        for _ in range(options.repeats + 1)
    ][1:]
    kind = f"{str(dtype).removeprefix('torch.')}, {linear_kind(dtype).__name__}"
    lines = [
        f"{options.layers} layers, {options.documents} texts, {sum(map(len, rows)):,} tokens, {kind}, "
        f"{torch.get_num_threads()} threads, median of {options.repeats}",
        *rate_lines(rounds, rows, options.layers),
        *query_lines(rounds, options.query),
        f"mean difference of weights {difference(packed, model, rows, dtype):.1e}",
        *memory_lines(packed, model, options.head_texts, dtype),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def rate_lines(rounds: Sequence[Round], rows: Rows, layers: int) -> Iterator[str]:
    """Yield the limit, the passes and their ratios."""
    work = flop([len(row) for row in rows], layers) / 1e9
    tokens = sum(map(len, rows))
    product = PRODUCTS_FLOP / _PRODUCTS / 1e9
    yield f"limit   {product / statistics.median(one.product for one in rounds):8.1f} GFLOP/s of plain matrix products"
    padding = {"packed": 0.0, "padded": 1 - tokens / padded_tokens(rows)}
    for name in ("packed", "padded"):
        share = statistics.median(work / getattr(one, name) / (product / one.product) for one in rounds)
        median = statistics.median(getattr(one, name) for one in rounds)
        yield (
            f"{name}  {work / median:8.1f} GFLOP/s {len(rows) / median:8.2f} documents/s "
            f"{tokens / median:8.1f} tokens/s {padding[name]:5.1%} padding {share:6.1%} of the limit"
        )
    yield f"ratio   {statistics.median(one.padded / one.packed for one in rounds):8.2f} times the documents/s"
    faster = statistics.median(one.packed / one.int8 for one in rounds)
    if isnan(faster):
        yield "int8    not measured: this processor does not multiply 8-bit integers exactly"
    else:
        rate = len(rows) / statistics.median(one.int8 for one in rounds)
        yield f"int8    {rate:8.2f} documents/s, {faster:.2f} times packed"


def query_lines(rounds: Sequence[Round], tokens: int) -> Iterator[str]:
    """Yield the time of one query in each pass, and how many times as fast as padded packed is."""
    times = [each for one in rounds for each in one.queries]
    packed_ms, int8_ms, padded_ms = (statistics.median(each) * 1e3 for each in zip(*times, strict=True))
    ratio = statistics.median(padded / packed for packed, _, padded in times)
    int8 = "" if isnan(int8_ms) else f"{int8_ms:.1f} ms in int8, "
    yield (
        f"one query of {tokens} tokens: {packed_ms:.1f} ms packed, {int8}{padded_ms:.1f} ms padded, {ratio:.2f} times"
    )


def memory_lines(packed: "PackedForward", model: "MilcoModel", texts: int, dtype: "torch.dtype") -> Iterator[str]:
    """Yield the extra peak memory of both heads."""
    import torch

    if not _STATM.exists():
        yield "memory of the head: measured on Linux only"
        return
    rows = [[0] * 512] * texts
    hidden = torch.randn(texts * 512, model.config.encoder.hidden_size)
    mask = torch.ones(texts, 512, dtype=torch.bool)
    chunked = extra_peak(lambda: packed.head(hidden, rows))
    materialized = extra_peak(lambda: all_logits_head(model, mask.long(), hidden.view(texts, 512, -1), mask, dtype))
    yield f"memory of the head at {texts} x 512 tokens: {chunked:,.0f} MB packed, {materialized:,.0f} with all logits"


def packed_pass(packed: "PackedForward", rows: Rows) -> "Result":
    """Encode texts in the packed pass, sorted by length, in batches of TOKEN_BUDGET tokens.

    Returns:
        Pivot weights [N, V_e] and the echo weights of all tokens, both in the order of `rows`.
    """
    import torch

    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    done = [packed([rows[number] for number in batch]) for batch in _batches(order, rows)]
    logits = torch.cat([logits for logits, _ in done])
    weights = torch.cat([echo for _, echo in done if echo is not None]).split([len(rows[number]) for number in order])
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return torch.log1p(torch.relu(logits[inverse])), torch.cat([weights[number] for number in inverse])


def padded_pass(model: "MilcoModel", rows: Rows, dtype: "torch.dtype") -> "Result":
    """Encode texts in batches of PADDED_BATCH, padded to padded_length(), on the model's device.

    Returns what packed_pass() returns, on the CPU.
    """
    import torch

    pivots, echoes = [], []
    for start in range(0, len(rows), PADDED_BATCH):
        batch = rows[start : start + PADDED_BATCH]
        ids = np.full((len(batch), padded_length(batch)), model.config.encoder.pad_token_id)
        for number, row in enumerate(batch):
            ids[number, : len(row)] = row
        mask = torch.from_numpy(np.arange(ids.shape[1]) < np.array([[len(row)] for row in batch])).to(model.device)
        inputs = torch.from_numpy(ids).to(model.device)
        with torch.inference_mode(), torch.autocast(mask.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            hidden = model.encoder(input_ids=inputs, attention_mask=mask.long()).last_hidden_state
        pivot, echo = all_logits_head(model, inputs, hidden, mask, dtype)
        pivots.append(pivot.cpu())
        echoes.append(echo[mask].cpu())
    return torch.cat(pivots), torch.cat(echoes)


def all_logits_head(
    model: "MilcoModel", ids: "Tensor", hidden: "Tensor", mask: "Tensor", dtype: "torch.dtype"
) -> "Result":
    """Return pivot weights [B, V_e] and echo weights [B, S] from all logits [B, S, V_e], masked by a product."""
    import torch

    with torch.inference_mode(), torch.autocast(mask.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        projected = model.connector(hidden)
        logits = model.decoder(projected)
        highest = (logits * mask.unsqueeze(-1).long()).max(dim=1).values
        assert model.echo is not None
        return torch.log1p(torch.relu(highest)).float(), model.echo(ids, hidden, projected, mask)


def difference(packed: "PackedForward", model: "MilcoModel", rows: Rows, dtype: "torch.dtype") -> float:
    """Return the mean difference between the pivot weights of both passes."""
    return float((packed_pass(packed, rows)[0] - padded_pass(model, rows, dtype)[0]).abs().mean())


def flop(lengths: Sequence[int], layers: int) -> float:
    """Return the floating point operations of the matrix products for texts of these lengths at the published width."""
    tokens, squares = sum(lengths), sum(length**2 for length in lengths)
    layer = 2 * tokens * 12 * 1024**2 + 4 * 1024 * squares
    return layers * layer + 2 * tokens * (1024 * 768 + 768 * 768 + 768 * 30522)


def padded_tokens(rows: Rows) -> int:
    """Return the number of tokens that padded_pass() computes."""
    starts = range(0, len(rows), PADDED_BATCH)
    batches = [rows[start : start + PADDED_BATCH] for start in starts]
    return sum(len(batch) * padded_length(batch) for batch in batches)


def padded_length(batch: Rows) -> int:
    """Return the padded length of a batch: its longest text, rounded up to a multiple of PADDED_MULTIPLE."""
    return -(-max(map(len, batch)) // PADDED_MULTIPLE) * PADDED_MULTIPLE


def random_network(layers: int) -> "MilcoModel":
    """Return a network of the published widths with random weights and EMBEDDING_ROWS rows in the word embedding."""
    import torch
    from transformers import XLMRobertaConfig

    from milco_pyserini.model.modeling import MilcoConfig, MilcoModel

    torch.manual_seed(SEED)
    encoder = XLMRobertaConfig(
        vocab_size=EMBEDDING_ROWS,
        hidden_size=1024,
        num_hidden_layers=layers,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=8194,
        type_vocab_size=1,
    )
    return MilcoModel(MilcoConfig(encoder=encoder)).eval()


def random_lengths(documents: int, median: int, longest: int) -> list[int]:
    """Return log-normal lengths in tokens, <s> and </s> included, from 3 to longest; the same ones in every run."""
    draw = np.random.default_rng(SEED).lognormal(np.log(median), _SPREAD, documents)
    return np.clip(draw.round().astype(int), 3, longest).tolist()


def random_rows(lengths: Sequence[int]) -> Rows:
    """Return random token ids of texts of these lengths."""
    draw = np.random.default_rng(SEED)
    return [[0, *draw.integers(3, EMBEDDING_ROWS, length - 2).tolist(), 2] for length in lengths]


def matrix_product(dtype: "torch.dtype") -> Callable[[], None]:
    """Return a function that computes _PRODUCTS matrix products of a size at which the machine reaches its limit."""
    import torch

    rows, inner, columns = _PRODUCT
    left, right = torch.randn(rows, inner).to(dtype), torch.randn(inner, columns).to(dtype)

    def multiply() -> None:
        for _ in range(_PRODUCTS):
            torch.mm(left, right)

    return multiply


def seconds(action: Callable[[], object]) -> float:
    """Return the wall time of a call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def extra_peak(action: Callable[[], object]) -> float:
    """Return peak_of() a second call, which leaves out what only the first call allocates."""
    action()
    return peak_of(action)


def peak_of(action: Callable[[], object]) -> float:
    """Return the highest resident memory during a call minus that before it, in MB (10**6 bytes); NaN without /proc."""
    if not _STATM.exists():
        action()
        return nan
    # Freed blocks that the allocator keeps would hide what the call allocates.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    before = resident()
    _, highest = with_highest(resident, 0.001, action)
    return (highest - before) / 1e6


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _batches(order: Sequence[int], rows: Rows) -> Iterator[list[int]]:
    batch: list[int] = []
    tokens = 0
    for number in order:
        if batch and tokens + len(rows[number]) > TOKEN_BUDGET:
            yield batch
            batch, tokens = [], 0
        batch.append(number)
        tokens += len(rows[number])
    yield batch


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/encoding.py", EncodingOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
