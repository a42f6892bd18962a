"""ShortForward's network over 16 tokens, compiled by numba: one call in every thread, which share the work as they go.

A matrix of states [D, 16] is flat, the 16 tokens of a row side by side as one register holds them; its bfloat16 form
has two rows in a uint32, "pairs" [D / 2, 16]. Nobody is handed work: a thread claims the next chunk of a phase from an
atomic counter and counts what is done in another, so that a thread that is late, or never comes, only leaves more to
the others. After its claim a thread neither allocates nor raises.
"""

import math
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from llvmlite.binding import llvm_version_info
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, register_model

TOKENS = 16
TILE = TOKENS * TOKENS
# What is done with the products of a phase.
QUERY_KEY_VALUE, ADD, GELU, GELU_SUMS, HIGHEST = range(5)
# uint32 that are fetched ahead of a product, and for the next phase while a thread waits: 8 KB and 256 KB.
_AHEAD = 2048
_WARM = 65536
# A wait is a few microseconds where all threads run; after some hundred of them the other one does not.
_SPINS = 4000
_DOZE_MICROSECONDS = 20
F = np.float32


class Plan(NamedTuple):
    """What no call changes: P phases, each a matrix of tiles of 16 columns, on up to S threads.

    weights: uint32, tiles [K / 2, 16 columns] in the order in which a thread of its own would read them. biases:
    float32. phases: int64 [P + 1, 7], columns as in Phase; of the last row only `before` counts. starts: int64 [P, S],
    where in weights a thread's part begins. shares: int64 [P, S + 1], and with which tile. norms: float32
    [N, 2, width], scale and shift. widths: int64 [N]. eps: float32 [N]. kept: the norm whose result is returned.
    """

    weights: Any
    biases: Any
    phases: Any
    starts: Any
    shares: Any
    norms: Any
    widths: Any
    eps: Any
    heads: int
    head_size: int
    kept: int


class Phase(NamedTuple):
    """kind: one of the above. steps: K / 2. chunk: tiles in a claim. bias: where it begins. norm: that of its states.

    before: tiles of all phases before it. inner: whether its states are what attention or GELU made, not the norm's.
    """

    kind: int
    steps: int
    chunk: int
    bias: int
    norm: int
    before: int
    inner: bool


class Work(NamedTuple):
    """A call's own memory. even, odd: float32 [D, 16], what norms 0, 2, ... and 1, 3, ... are of; even at
    first holds the embeddings' sums.

    kept: float32 [D, 16], the states that are returned. best: float32 [V_e], highest logits. query_key_value, inner:
    pairs. claims: int64 [S, P], ready: int64 [P, heads], done: int64 [1], all zeros.
    """

    even: Any
    odd: Any
    kept: Any
    best: Any
    query_key_value: Any
    inner: Any
    claims: Any
    ready: Any
    done: Any


class Own(NamedTuple):
    """A thread's own memory: the normalised states, and tiles."""

    hidden: Any
    pairs: Any
    tile: Any
    scores: Any
    shares: Any
    ends: Any


def compiles_for_bfloat16() -> bool:
    """Whether numba's code here has the processor's products of bfloat16, in the form that LLVM has from 16 on."""
    config: Any = numba.config
    features = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    return not config.DISABLE_JIT and "+avx512bf16" in features and llvm_version_info >= (16,)


class _BFloat(ir.types.Type):
    def _to_string(self) -> str:
        return "bfloat"


_I32, _I64, _VOID, _BYTE = ir.IntType(32), ir.IntType(64), ir.VoidType(), ir.IntType(8).as_pointer()
_LANES, _WORDS = ir.VectorType(ir.FloatType(), TOKENS), ir.VectorType(_I32, TOKENS)
_PAIRS, _HALVES = ir.VectorType(_BFloat(), 2 * TOKENS), ir.VectorType(_BFloat(), TOKENS)


def _emitted(function: Any) -> Any:
    """What numba code calls and LLVM is told: its inner function writes the instructions."""
    return intrinsic(function)


def _pointer(context: Any, builder: Any, signature: Any, args: Any, array: int) -> Any:
    """To the element of an array argument at the place that the next argument says."""
    data = context.make_array(signature.args[array])(context, builder, args[array]).data
    return builder.gep(data, [args[array + 1]])


def _function(builder: Any, name: str, result: Any, arguments: list) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


def _prefetch(builder: Any, pointer: Any, locality: int) -> None:
    call = _function(builder, "llvm.prefetch.p0", _VOID, [_BYTE, _I32, _I32, _I32])
    builder.call(call, [builder.bitcast(pointer, _BYTE), *(ir.Constant(_I32, n) for n in (0, locality, 1))])


def _row(builder: Any, pointer: Any, kind: Any) -> Any:
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)


def _everywhere(builder: Any, value: Any, kind: Any) -> Any:
    """A vector with the value in all lanes."""
    none = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(none, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(one, none, ir.Constant(_WORDS, [0] * TOKENS))


def _product(bias_of_lanes: bool) -> Any:
    @_emitted
    def product(
        typing: Any, ones: Any, ones_at: Any, rows: Any, rows_at: Any, steps: Any, bias: Any, bias_at: Any, out: Any
    ) -> Any:
        """out[n, lane] = bias + sum over steps k of ones[k, n] * rows[k, lane], pairs by pairs; out float32 [16, 16].

        The bias is that of n, or of the lane, as is the weight, whose following lines are fetched meanwhile.
        """

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            one_pairs, row_pairs, first = (_pointer(context, builder, signature, args, n) for n in (0, 2, 5))
            out_data = context.make_array(signature.args[7])(context, builder, args[7]).data
            dot = _function(builder, "llvm.x86.avx512bf16.dpbf16ps.512", _LANES, [_LANES, _PAIRS, _PAIRS])
            sums = [cgutils.alloca_once(builder, _LANES) for _ in range(TOKENS)]
            for n, one in enumerate(sums):
                value = _row(builder, first, _LANES) if bias_of_lanes else None
                if value is None:
                    value = _everywhere(builder, builder.load(builder.gep(first, [ir.Constant(_I64, n)])), _LANES)
                builder.store(value, one)
            with cgutils.for_range(builder, args[4], intp=_I64) as loop:
                place = builder.mul(loop.index, ir.Constant(_I64, TOKENS))
                ahead = builder.add(place, ir.Constant(_I64, _AHEAD))
                _prefetch(builder, builder.gep(row_pairs if bias_of_lanes else one_pairs, [ahead]), 3)
                row = builder.bitcast(_row(builder, builder.gep(row_pairs, [place]), _WORDS), _PAIRS)
                here = builder.gep(one_pairs, [place])
                for n, one in enumerate(sums):
                    pair = builder.load(builder.gep(here, [ir.Constant(_I64, n)]))
                    pair = builder.bitcast(_everywhere(builder, pair, _WORDS), _PAIRS)
                    builder.store(builder.call(dot, [builder.load(one), row, pair]), one)
            for n, one in enumerate(sums):
                there = builder.bitcast(builder.gep(out_data, [ir.Constant(_I64, n * TOKENS)]), _LANES.as_pointer())
                builder.store(builder.load(one), there, align=4)
            return context.get_dummy_value()

        return types.void(ones, types.int64, rows, types.int64, types.int64, bias, types.int64, out), generate

    return product


_multiply, _multiply_across = _product(False), _product(True)


@_emitted
def _round_two(typing: Any, values: Any, at: Any, pairs: Any, there: Any) -> Any:
    """Rows [2, 16] of float32 at a place to a row of pairs."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        low, target = (_pointer(context, builder, signature, args, n) for n in (0, 2))
        call = _function(builder, "llvm.x86.avx512bf16.cvtneps2bf16.512", _HALVES, [_LANES])
        shorts = ir.VectorType(ir.IntType(16), TOKENS)
        halves = [
            builder.zext(builder.bitcast(builder.call(call, [_row(builder, row, _LANES)]), shorts), _WORDS)
            for row in (low, builder.gep(low, [ir.Constant(_I64, TOKENS)]))
        ]
        both = builder.or_(halves[0], builder.shl(halves[1], ir.Constant(_WORDS, [16] * TOKENS)))
        builder.store(both, builder.bitcast(target, _WORDS.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(values, types.int64, pairs, types.int64), generate


class _Vector(types.Type):
    """16 float32 in a register: what LLVM does not find by itself in a loop over lanes that are added up."""

    def __init__(self) -> None:
        super().__init__("Vector")


_VECTOR = _Vector()


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _LANES)


@_emitted
def _load(typing: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _row(builder, _pointer(context, builder, signature, args, 0), _LANES)

    return _VECTOR(array, types.int64), generate


@_emitted
def _store(typing: Any, array: Any, at: Any, vector: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.bitcast(_pointer(context, builder, signature, args, 0), _LANES.as_pointer())
        builder.store(args[2], pointer, align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, _VECTOR), generate


@_emitted
def _splat(typing: Any, value: Any) -> Any:
    """A float32 in all lanes."""
    return _VECTOR(types.float32), lambda context, builder, signature, args: _everywhere(builder, args[0], _LANES)


def _operation(instruction: str) -> Any:
    @_emitted
    def operation(typing: Any, one: Any, other: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, instruction)(*args, flags=("fast",))

        return _VECTOR(_VECTOR, _VECTOR), generate

    return operation


_add, _subtract, _times, _over = map(_operation, ("fadd", "fsub", "fmul", "fdiv"))


def _library(name: str, count: int) -> Any:
    """A function of LLVM's of so many vectors."""
    body = ir.FunctionType(_LANES, [_LANES] * count)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(cgutils.get_or_insert_function(builder.module, body, name), args, fastmath=("fast",))

    return generate


@_emitted
def _root(typing: Any, one: Any) -> Any:
    return _VECTOR(_VECTOR), _library("llvm.sqrt.v16f32", 1)


@_emitted
def _larger(typing: Any, one: Any, other: Any) -> Any:
    return _VECTOR(_VECTOR, _VECTOR), _library("llvm.maxnum.v16f32", 2)


@_emitted
def _claim(typing: Any, counters: Any, place: Any, count: Any) -> Any:
    """Add to a counter; returns what it was."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(context, builder, signature, args, 0), args[2], "seq_cst")

    return types.int64(counters, types.int64, types.int64), generate


@_emitted
def _peek(typing: Any, counters: Any, place: Any) -> Any:
    """A counter, and all that was written before it was counted up."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(context, builder, signature, args, 0), "acquire", 8)

    return types.int64(counters, types.int64), generate


@_emitted
def _fetch(typing: Any, weights: Any, place: Any) -> Any:
    """Have the cache line of a place brought near; also past the end."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _prefetch(builder, _pointer(context, builder, signature, args, 0), 2)
        return context.get_dummy_value()

    return types.void(weights, types.int64), generate


@_emitted
def _pause(typing: Any) -> Any:
    """A spinning thread's courtesy to the processor."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.call(_function(builder, "llvm.x86.sse2.pause", _VOID, []), [])
        return context.get_dummy_value()

    return types.void(), generate


@_emitted
def _doze(typing: Any) -> Any:
    """Leave the processor to others for a moment."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.call(_function(builder, "usleep", _I32, [_I32]), [ir.Constant(_I32, _DOZE_MICROSECONDS)])
        return context.get_dummy_value()

    return types.void(), generate


def _compiled(function: Any, inline: Literal["never", "always"] = "never") -> Any:
    return njit(nogil=True, fastmath=True, error_model="numpy", cache=True, inline=inline)(function)


def _inlined(function: Any) -> Any:
    """For what every tile calls: to hand over so many arrays takes as long as a tile."""
    return _compiled(function, "always")


@_compiled
def _wait(done: Any, target: Any, weights: Any, coming: Any) -> None:
    """Until so many tiles are done; meanwhile the weights that come next are fetched."""
    warmed, spins = 0, 0
    while _peek(done, 0) < target:
        if warmed < _WARM:
            for _ in range(4):
                _fetch(weights, coming + warmed)
                warmed += 16
        else:
            spins += 1
            _pause()
            if spins > _SPINS:
                _doze()


@_compiled
def _to_pairs(values: Any, count: Any, pairs: Any, there: Any) -> None:
    for n in range(0, count, 2 * TOKENS):
        _round_two(values, n, pairs, there + n // 2)


# erf(x / sqrt(2)) = z p(2 z z - 1), z = x / 5.5 cut to [-1, 1], within 2e-7.
_EDGE = 5.5
_GRID = np.linspace(1e-4, 1, 4000)
_FIT = np.polynomial.Polynomial.fit(
    2 * _GRID - 1, [math.erf(_EDGE * math.sqrt(u / 2)) / math.sqrt(u) for u in _GRID], 15, domain=[-1, 1]
)
_ERF = tuple(F(c) for c in _FIT.coef[::-1])


@_compiled
def _gelu(tile: Any) -> None:
    """Exact (erf) GELU."""
    for n in range(TILE):
        z = min(max(tile[n] * F(1 / _EDGE), F(-1)), F(1))
        v = F(2) * z * z - F(1)
        p = _ERF[0] * v + _ERF[1]
        p = (p * v + _ERF[2]) * v + _ERF[3]
        p = (p * v + _ERF[4]) * v + _ERF[5]
        p = (p * v + _ERF[6]) * v + _ERF[7]
        p = (p * v + _ERF[8]) * v + _ERF[9]
        p = (p * v + _ERF[10]) * v + _ERF[11]
        p = (p * v + _ERF[12]) * v + _ERF[13]
        p = (p * v + _ERF[14]) * v + _ERF[15]
        tile[n] = F(0.5) * tile[n] * (F(1) + z * p)


@_compiled
def _exponentials(scores: Any, count: Any, top: Any) -> None:
    """scores [count, 16] to exp(scores - top), relative error 2e-7: a Taylor polynomial times a power of two."""
    bits = scores.view(np.int32)
    for n in range(0, count, TOKENS):
        for lane in range(TOKENS):
            t = max((scores[n + lane] - top[lane]) * F(1.4426950408889634), F(-125))
            whole = np.int32(t - F(0.5))
            r = t - F(whole)
            p = F(1.5403530e-4) * r + F(1.3333558e-3)
            p = p * r + F(9.6181291e-3)
            p = p * r + F(5.5504109e-2)
            p = p * r + F(2.4022651e-1)
            p = p * r + F(6.9314718e-1)
            scores[n + lane] = p * r + F(1)
            bits[n + lane] += whole << np.int32(23)


@_compiled
def _softmax(scores: Any, tokens: Any, ends: Any) -> None:
    """scores [key, query] to shares of the real keys; ends: [2, 16] for the highest and the total."""
    count, top, total = tokens * TOKENS, ends[0], ends[1]
    for lane in range(TOKENS):
        top[lane], total[lane] = scores[lane], F(0)
    for n in range(TOKENS, count, TOKENS):
        for lane in range(TOKENS):
            top[lane] = max(top[lane], scores[n + lane])
    _exponentials(scores, count, top)
    for n in range(0, count, TOKENS):
        for lane in range(TOKENS):
            total[lane] += scores[n + lane]
    for lane in range(TOKENS):
        total[lane] = F(1) / total[lane]
    for n in range(0, count, TOKENS):
        for lane in range(TOKENS):
            scores[n + lane] *= total[lane]
    for n in range(count, TILE):
        scores[n] = F(0)


@_compiled
def _attend(plan: Any, work: Any, own: Any, head: Any, tokens: Any) -> None:
    """One head: pairs of queries, of keys [size / 2, 16], of values [size / 16, 8, 16] to those of its context."""
    size, pairs = plan.head_size, work.query_key_value
    first, zeros = head * 3 * size * 8, own.ends[2]
    _multiply(pairs, first + size * 8, pairs, first, size // 2, zeros, 0, own.scores)
    _softmax(own.scores, tokens, own.ends)
    _to_pairs(own.scores, TILE, own.shares, 0)
    for tile in range(0, size * 8, TILE // 2):
        _multiply(pairs, first + size * 16 + tile, own.shares, 0, TOKENS // 2, zeros, 0, own.tile)
        _to_pairs(own.tile, TILE, work.inner, head * size * 8 + tile)


@_compiled
def _mean(values: Any, width: Any, middle: Any, squared: Any) -> Any:
    """Mean over rows [width, 16] of their distance from the middle, or of its square; four sums at a time."""
    sums = (_splat(F(0)), _splat(F(0)), _splat(F(0)), _splat(F(0)))
    for n in range(0, width * TOKENS, 4 * TOKENS):
        a, b = _subtract(_load(values, n), middle), _subtract(_load(values, n + 16), middle)
        c, d = _subtract(_load(values, n + 32), middle), _subtract(_load(values, n + 48), middle)
        if squared:
            a, b, c, d = _times(a, a), _times(b, b), _times(c, c), _times(d, d)
        sums = (_add(sums[0], a), _add(sums[1], b), _add(sums[2], c), _add(sums[3], d))
    return _times(_add(_add(sums[0], sums[1]), _add(sums[2], sums[3])), _splat(F(1) / F(width)))


@_compiled
def _normalise(sums: Any, norm: Any, width: Any, eps: Any, own: Any) -> None:
    """LayerNorm of every token of rows [width, 16], into own.hidden and own.pairs."""
    mean = _mean(sums, width, _splat(F(0)), False)
    spread = _root(_add(_mean(sums, width, mean, True), _splat(eps)))
    for row in range(width):
        value = _over(_subtract(_load(sums, row * TOKENS), mean), spread)
        value = _add(_times(value, _splat(norm[0, row])), _splat(norm[1, row]))
        _store(own.hidden, row * TOKENS, value)
    _to_pairs(own.hidden, width * TOKENS, own.pairs, 0)


@_inlined
def _finish(kind: Any, tile: Any, hidden: Any, sums: Any, after: Any, best: Any, at: Any, tokens: Any) -> None:
    """Take the products of a tile to where the next phase looks for them: sums, pairs after them, or the best."""
    if kind == QUERY_KEY_VALUE:
        _to_pairs(tile, TILE, after, at // 2)
    elif kind == HIGHEST:
        highest = _load(tile, 0)
        for n in range(TOKENS, tokens * TOKENS, TOKENS):
            highest = _larger(highest, _load(tile, n))
        _store(best, at // TOKENS, highest)
    elif kind == ADD:
        for n in range(0, TILE, TOKENS):
            _store(sums, at + n, _add(_load(hidden, at + n), _load(tile, n)))
    else:
        _gelu(tile)
        if kind == GELU:
            _to_pairs(tile, TILE, after, at // 2)
        else:
            for n in range(0, TILE, TOKENS):
                _store(sums, at + n, _load(tile, n))


@_compiled
def _claimed(plan: Any, work: Any, own: Any, phase: Any, tokens: Any, me: Any) -> None:
    """All chunks of a phase that nobody else claims, first of this thread's share, then of the others'."""
    # Looked up once: a field of a tuple, asked for at every tile, is counted as one more user of it and one less.
    phases, shares, starts, weights, biases = plan.phases, plan.shares, plan.starts, plan.weights, plan.biases
    claims, ready, done, best, tile, hidden = work.claims, work.ready, work.done, work.best, own.tile, own.hidden
    kind, steps, chunk, bias = phases[phase, 0], phases[phase, 1], phases[phase, 2], phases[phase, 3]
    sums = work.even if phases[phase, 4] % 2 else work.odd
    states = work.inner if phases[phase, 6] else own.pairs
    after = work.query_key_value if kind == QUERY_KEY_VALUE else work.inner
    threads, parts = starts.shape[1], plan.head_size // TOKENS
    for turn in range(threads):
        thread = (me + turn) % threads
        begin, end, counter = shares[phase, thread], shares[phase, thread + 1], thread * len(phases) + phase
        first = begin + _claim(claims, counter, chunk)
        while first < end:
            stop = min(first + chunk, end)
            place = starts[phase, thread] + (first - begin) * steps * TOKENS
            # Of values, and of the highest logits, the columns lie side by side; of all else the tokens.
            across = kind == HIGHEST or (kind == QUERY_KEY_VALUE and first // parts % 3 == 2)
            for number in range(first, stop):
                if across:
                    _multiply_across(states, 0, weights, place, steps, biases, bias + number * TOKENS, tile)
                else:
                    _multiply(weights, place, states, 0, steps, biases, bias + number * TOKENS, tile)
                _finish(kind, tile, hidden, sums, after, best, number * TILE, tokens)
                place += steps * TOKENS
            # Whoever has the last of a head's three parts attends.
            if kind == QUERY_KEY_VALUE and _claim(ready, phase * plan.heads + first // parts // 3, 1) == 2:
                _attend(plan, work, own, first // parts // 3, tokens)
            _claim(done, 0, stop - first)
            first = begin + _claim(claims, counter, chunk)


@_compiled
def run(plan: Any, work: Any, tokens: Any, me: Any) -> None:
    """The network over work.even, the embeddings' sums; threads 1, 2, ... may call it, too, with the same arguments.

    tokens: how many of the 16 are real. me: the thread's number. Returns when all is done, by whomever.
    """
    states = np.empty((2, len(work.even)), np.float32)
    tiles = np.zeros((2, TILE), np.float32)
    own = Own(
        states[0],
        states[1].view(np.uint32),
        tiles[0],
        tiles[1],
        np.zeros(TILE // 2, np.uint32),
        np.zeros((3, TOKENS), np.float32),
    )
    last, have = len(plan.phases) - 1, -1
    for phase in range(last):
        norm = plan.phases[phase, 4]
        if _peek(work.done, 0) >= plan.phases[phase + 1, 5]:
            continue
        _wait(work.done, plan.phases[phase, 5], plan.weights, plan.starts[phase, me])
        if have != norm:
            have = norm
            sums = work.odd if norm % 2 else work.even
            _normalise(sums, plan.norms[norm], plan.widths[norm], plan.eps[norm], own)
            if norm == plan.kept:
                for n in range(len(work.kept)):
                    work.kept[n] = own.hidden[n]
        _claimed(plan, work, own, phase, tokens, me)
    _wait(work.done, plan.phases[last, 5], plan.weights, 0)
