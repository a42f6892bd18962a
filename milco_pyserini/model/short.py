"""One text of at most 16 tokens through the network: the fast form of PackedForward for a query that comes alone.

Such a text's time is that of reading the weights. Here they lie in the order in which they are read, and the threads
that read them wait for nobody but each other (short_kernel.py); PackedForward wakes and waits for torch's threads at
every product. Both multiply bfloat16 and add float32; the shares of attention are rounded to bfloat16, as PackedForward
does in longer texts. What torch does here is too small for its own threads; were they to spin after it, as options.py
tells them not to for long (GOMP_SPINCOUNT), they would hold the helper's core.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from milco_pyserini.model.packed import NotPacked, PackedForward

if TYPE_CHECKING:
    from milco_pyserini.model.short_kernel import Plan, Work

LONGEST = 16
# Bytes of weights that a thread claims at a time.
_CHUNK = 1 << 16
_TURNS = 8


class ShortForward:
    """PackedForward for one text of at most LONGEST tokens, in bfloat16.

    Keeps a second copy of the weights in an order of its own, but for the embeddings (.65 GB at the published size).
    threads: as torch has by default. Calls from several Python threads do not disturb each other. Raises NotPacked,
    with the reason, where it cannot stand for PackedForward.
    """

    @torch.inference_mode()
    def __init__(self, packed: PackedForward, threads: int | None = None) -> None:
        reason = why_not_short(packed)
        if reason:
            raise NotPacked(reason)
        self._threads = threads or torch.get_num_threads()
        self._packed = packed
        self._plan = _planned(packed.model, self._threads)

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        """rows: one list of 1 to LONGEST token ids. Returns logits [1, V_e] and echo [T], as PackedForward does."""
        from milco_pyserini.model.short_kernel import run

        sums = self._packed.encoder.sums(rows)
        work = _work(self._plan, sums.numpy())
        _help(self._plan, work, len(sums), self._threads)
        run(self._plan, work, len(sums), 0)
        return self._output(work, len(sums))

    def _output(self, work: "Work", tokens: int) -> tuple[Tensor, Tensor | None]:
        model = self._packed.model
        logits = torch.from_numpy(work.best)[None, : model.config.english_vocab_size]
        if model.echo is None:
            return logits, None
        states = torch.from_numpy(work.kept).view(-1, LONGEST)[:, :tokens].T.contiguous()
        return logits, model.echo(states, torch.ones(tokens, dtype=torch.bool))


def short_forward(packed: PackedForward) -> ShortForward:
    """A ShortForward that says of a small text what packed says, and sooner. Raises NotPacked where there is none."""
    row = [list(range(min(LONGEST, packed.model.config.encoder.vocab_size)))]
    try:
        short = ShortForward(packed)
        ours, theirs = short(row)[0], packed(row)[0]
    except NotPacked:
        raise
    # LLVM may lack the instruction, numba a place to keep the code or what it kept there, torch the memory, ...
    except Exception as error:
        raise NotPacked(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}") from error
    if not float((ours - theirs).norm()) <= 0.1 * float(theirs.norm()):
        raise NotPacked("what numba compiled here computes something else")
    if not _is_faster(short, packed, row):
        raise NotPacked("it would be no faster here")
    return short


def why_not_short(packed: PackedForward) -> str | None:
    """The reason why ShortForward cannot stand for this PackedForward; None if it can."""
    model = packed.model
    widths = model.config.encoder.hidden_size, model.connector.dense.out_features
    if packed.dtype != torch.bfloat16:
        return f"the products are of {packed.dtype}, not of torch.bfloat16"
    if any(width % 4 for width in widths) or not model.config.english_vocab_size:
        return f"the widths {widths[0]} and {widths[1]} are no multiples of four, or there is no English vocabulary"
    # Before any of the processor's instructions is met: what it has is asked for, not tried.
    if sys.platform != "linux" or not torch.cpu._is_avx512_bf16_supported():
        return "the machine is no Linux with avx512_bf16"
    from milco_pyserini.model.short_kernel import compiles_for_bfloat16

    return None if compiles_for_bfloat16() else "numba compiles for a processor without avx512_bf16"


def _is_faster(short: Callable, packed: Callable, row: Sequence[Sequence[int]]) -> bool:
    """The shortest of a few turns of each: how many threads are a gain depends on the machine."""
    times = np.empty((_TURNS, 2))
    for turn in times:
        for place, forward in enumerate((short, packed)):
            began = perf_counter()
            forward(row)
            turn[place] = perf_counter() - began
    ours, theirs = times.min(axis=0)
    return bool(ours < theirs)


class _Pool:
    """Threads that end with the interpreter. No lock of Python's is in it, which Ctrl-C could leave locked."""

    def __init__(self, helpers: int) -> None:
        self._waiting: SimpleQueue = SimpleQueue()
        # Where there are no more threads, these are enough.
        with contextlib.suppress(RuntimeError):
            for _ in range(helpers):
                Thread(target=self._serve, name="short", daemon=True).start()

    def submit(self, function: Callable[..., object], *arguments: object) -> None:
        self._waiting.put((function, arguments))

    def _serve(self) -> None:
        while True:
            function, arguments = self._waiting.get()
            # No memory, say: a helper that has claimed nothing is missed by nobody.
            with contextlib.suppress(Exception):
                function(*arguments)
            del arguments


_pool = cache(_Pool)
# A fork has its parent's memory but none of its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def _help(plan: "Plan", work: "Work", tokens: int, threads: int) -> None:
    """Set the other threads to work. Without them it takes longer, and nothing else is different."""
    from milco_pyserini.model.short_kernel import run

    for me in range(1, threads):
        _pool(threads - 1).submit(run, plan, work, tokens, me)


def _work(plan: "Plan", sums: np.ndarray) -> "Work":
    """Memory for a call. sums: float32 [T, D_m]. A call's own, so that no thread of one before can be late for it."""
    from milco_pyserini.model.short_kernel import Work

    rows = -(-plan.norms.shape[2] // LONGEST) * LONGEST
    even = np.zeros((rows, LONGEST), np.float32)
    even[: sums.shape[1], : len(sums)] = sums.T
    phases, threads = plan.starts.shape
    tiles = np.diff(plan.phases[:, 5])
    pairs = max(int(plan.phases[:, 1].max()), plan.heads * plan.head_size // 2) + LONGEST // 2
    return Work(
        even=even.reshape(-1),
        odd=np.zeros(rows * LONGEST, np.float32),
        kept=np.zeros(int(plan.widths[plan.kept]) * LONGEST, np.float32),
        best=np.zeros(int(tiles[-1]) * LONGEST, np.float32),
        query_key_value=np.zeros(3 * plan.heads * plan.head_size // 2 * LONGEST, np.uint32),
        inner=np.zeros(pairs * LONGEST, np.uint32),
        claims=np.zeros(threads * (phases + 1), np.int64),
        ready=np.zeros(phases * plan.heads, np.int64),
        done=np.zeros(1, np.int64),
    )


class _Matrix(NamedTuple):
    """A linear layer and its place among the phases, fields as of Phase: weight [N, K], bias [N]."""

    kind: int
    weight: Tensor
    bias: Tensor
    norm: int
    inner: bool = False


def _planned(model: Any, threads: int) -> "Plan":
    from milco_pyserini.model.short_kernel import Plan

    config, layers = model.config.encoder, model.encoder.encoder.layer
    norms = [model.encoder.embeddings.LayerNorm]
    for layer in layers:
        norms += [layer.attention.output.LayerNorm, layer.output.LayerNorm]
    norms.append(model.connector.layer_norm)
    widths = [len(norm.weight) for norm in norms]
    tables = [torch.stack([norm.weight, norm.bias]).float() for norm in norms]
    phases, shares, starts = _laid_out(model, threads)
    of_connector = model.echo is not None and model.echo.variant == "paper"
    return Plan(
        weights=_weights(model, phases, shares, starts),
        biases=np.concatenate([_rows_of_tiles(matrix.bias.float()).numpy() for matrix in _matrices(model)]),
        phases=phases,
        starts=starts,
        shares=shares,
        norms=np.stack([functional.pad(table, (0, max(widths) - table.shape[1])).numpy() for table in tables]),
        widths=np.array(widths),
        eps=np.array([norm.eps for norm in norms], np.float32),
        heads=config.num_attention_heads,
        head_size=_head_size(config),
        kept=len(norms) - (1 if of_connector else 2),
    )


def _laid_out(model: Any, threads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Phases, shares and starts of a Plan: every thread's part of all phases in one piece."""
    from milco_pyserini.model.short_kernel import QUERY_KEY_VALUE, Phase

    phases, shares = [], []
    tiles = bias = 0
    for kind, weight, _, norm, inner in _matrices(model):
        count, steps = -(-len(weight) // LONGEST), -(-weight.shape[1] // 2)
        # A third of a head, or as much as is worth a claim.
        whole = _head_size(model.config.encoder) // LONGEST
        chunk = whole if kind == QUERY_KEY_VALUE else max(1, _CHUNK // (steps * LONGEST * 4))
        unit = whole if kind == QUERY_KEY_VALUE else 1
        phases.append(Phase(kind, steps, chunk, bias, norm, tiles, inner))
        shares.append([count // unit * thread // threads * unit for thread in range(threads + 1)])
        tiles, bias = tiles + count, bias + count * LONGEST
    phases.append(phases[-1]._replace(before=tiles))
    table, parts = np.array(phases, np.int64), np.array(shares)
    sizes = (np.diff(parts) * table[:-1, 1:2] * LONGEST).T
    return table, parts, (np.cumsum(sizes) - sizes.ravel()).reshape(sizes.shape).T.copy()


def _weights(model: Any, phases: np.ndarray, shares: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """All weights as a Plan has them, on a cache line."""
    # Of numpy, which asks for large pages; without them reading is slower by a twentieth.
    memory = np.empty(int((shares[:, -1] * phases[:-1, 1]).sum()) * LONGEST + LONGEST, np.int32)
    weights = memory[-memory.ctypes.data // memory.itemsize % LONGEST :]
    for phase, matrix in enumerate(_matrices(model)):
        rows = _rows_of_tiles(matrix.weight.to(torch.bfloat16))
        pairs = functional.pad(rows, (0, rows.shape[1] % 2)).view(torch.int32).numpy()
        tiles = pairs.reshape(-1, LONGEST, pairs.shape[1]).transpose(0, 2, 1)
        for thread, start in enumerate(starts[phase]):
            part = tiles[shares[phase, thread] : shares[phase, thread + 1]]
            np.copyto(weights[start : start + part.size].reshape(part.shape), part)
    return weights.view(np.uint32)


def _matrices(model: Any) -> Iterator[_Matrix]:
    from milco_pyserini.model.short_kernel import ADD, GELU, GELU_SUMS, HIGHEST, QUERY_KEY_VALUE

    config, layers = model.config.encoder, model.encoder.encoder.layer
    for number, layer in enumerate(layers):
        attention, norm = layer.attention, 2 * number
        yield _Matrix(QUERY_KEY_VALUE, *_heads(attention.self, config), norm)
        yield _Matrix(ADD, _of_context(attention.output.dense.weight, config), attention.output.dense.bias, norm, True)
        yield _Matrix(GELU, layer.intermediate.dense.weight, layer.intermediate.dense.bias, norm + 1)
        yield _Matrix(ADD, layer.output.dense.weight, layer.output.dense.bias, norm + 1, True)
    connector, norm = model.connector, 2 * len(layers)
    yield _Matrix(GELU, connector.projector.weight, connector.projector.bias, norm)
    yield _Matrix(GELU_SUMS, connector.dense.weight, connector.dense.bias, norm, True)
    yield _Matrix(HIGHEST, model.decoder.weight, model.decoder.bias, norm + 1)


def _heads(attention: Any, config: Any) -> tuple[Tensor, Tensor]:
    """Weight [N, D] and bias [N] of queries, keys and values, head by head; the queries' scale is in them."""
    size = config.hidden_size // config.num_attention_heads
    parts = attention.query, attention.key, attention.value
    scales = size**-0.5, 1, 1
    weight = torch.stack([part.weight * scale for part, scale in zip(parts, scales, strict=True)])
    bias = torch.stack([part.bias * scale for part, scale in zip(parts, scales, strict=True)])
    spare = _head_size(config) - size
    weight = functional.pad(weight.view(3, -1, size, config.hidden_size), (0, 0, 0, spare))
    bias = functional.pad(bias.view(3, -1, size), (0, spare))
    return weight.transpose(0, 1).reshape(-1, config.hidden_size), bias.transpose(0, 1).reshape(-1)


def _of_context(weight: Tensor, config: Any) -> Tensor:
    """The weight [D, D] of attention's output as one of heads that fill whole tiles."""
    size = config.hidden_size // config.num_attention_heads
    columns = functional.pad(weight.view(len(weight), -1, size), (0, _head_size(config) - size))
    return columns.reshape(len(weight), -1)


def _head_size(config: Any) -> int:
    """Of a head in whole tiles."""
    return -(-config.hidden_size // config.num_attention_heads // LONGEST) * LONGEST


def _rows_of_tiles(values: Tensor) -> Tensor:
    """values [N, ...] with rows of zeros up to a whole tile."""
    spare = -len(values) % LONGEST
    return torch.cat([values, values.new_zeros(spare, *values.shape[1:])]) if spare else values
