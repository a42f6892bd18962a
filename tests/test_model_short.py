"""One short text by numba against PackedForward and the readable network in float32."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Thread
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from milco_pyserini.encode.forward import LoneForward, for_lone_texts
from milco_pyserini.model import MilcoModel, short, short_kernel
from milco_pyserini.model.packed import NotPacked, PackedForward
from milco_pyserini.model.short import LONGEST, ShortForward, short_forward
from tests.golden_set import CHECKPOINTS, TEXTS, dense, encoder
from tests.test_model_packed import PADDING, network, padded

needs_bfloat16 = pytest.mark.skipif(
    sys.platform != "linux" or not torch.cpu._is_avx512_bf16_supported(),
    reason="needs Linux on a processor with avx512_bf16",
)
LENGTHS = range(1, LONGEST + 1)
Rows = list[list[int]]


def text(length: int, seed: int = 0) -> Rows:
    """One text of random ids."""
    draw = np.random.default_rng([length, seed])
    return [[0, *draw.integers(3, 300, LONGEST).tolist()][-length:]]


def bfloat16(model: MilcoModel) -> PackedForward:
    return PackedForward(model, torch.bfloat16)


@pytest.fixture(scope="module")
def two() -> ShortForward:
    """On two threads."""
    return ShortForward(bfloat16(network()), 2)


@pytest.fixture(scope="module")
def alone() -> list[tuple[Tensor, Tensor | None]]:
    """What one thread says of a text of every length."""
    one = ShortForward(bfloat16(network()), 1)
    return [one(text(length)) for length in LENGTHS]


def same_bits(found: tuple[Tensor, Tensor | None], expected: tuple[Tensor, Tensor | None]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@needs_bfloat16
@pytest.mark.parametrize("variant", ["linear", "paper"])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_short_text_is_what_packing_makes_of_it(length: int, variant: str) -> None:
    """Every length, of a text that spells out the padding piece where it is long enough."""
    packed, row = bfloat16(network(echo_variant=variant)), text(length)
    if length > 4:
        row[0][2] = PADDING
    for one, other in zip(ShortForward(packed, 2)(row), packed(row), strict=True):
        assert one is not None and other is not None
        assert one.dtype == other.dtype and one.shape == other.shape
        torch.testing.assert_close(one, other, atol=3e-2, rtol=3e-2)


@needs_bfloat16
@pytest.mark.parametrize("variant", ["linear", "paper"])
def test_short_is_no_further_from_float32_than_autocast(variant: str) -> None:
    """Mean distance of the logits and of the echo weights from the float32 network, over texts of all lengths."""
    model = network(echo_variant=variant)
    forward, distances = ShortForward(bfloat16(model), 2), []
    for row in [text(length, seed) for length in LENGTHS for seed in range(6)]:
        exact, plain = padded(model, row, torch.float32), padded(model, row, torch.bfloat16)
        pairs = zip(forward(row), plain, exact, strict=True)
        distances.append([[float((one - truth).abs().mean()) for one in both] for *both, truth in pairs])
    for ours, autocast in np.mean(distances, axis=0):
        assert ours <= 1.02 * autocast


@needs_bfloat16
@pytest.mark.golden
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_short_texts_of_a_golden_checkpoint(checkpoint: str) -> None:
    """Widths that fill no tile, heads of eight: no further from float32 than packing; the first has no LexEcho head."""
    one = encoder(checkpoint)
    exact, packed = PackedForward(one.model, torch.float32), bfloat16(one.model)
    forward, distances = ShortForward(packed, 2), []
    for row in one.tokenizer.tokenize([text for text in TEXTS if text], LONGEST):
        logits, echo = forward([row.ids])
        assert (echo is None) == (checkpoint == "alignment")
        truth = exact([row.ids])[0]
        distances.append([float((found - truth).abs().mean()) for found in (logits, packed([row.ids])[0])])
    ours, theirs = np.mean(distances, axis=0)
    assert ours <= 1.02 * theirs


@needs_bfloat16
@pytest.mark.golden
def test_a_warm_encoder_says_of_a_query_alone_what_it_says_of_it_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the encoder's promise for bfloat16; texts that are too long for the short way, too."""
    monkeypatch.setattr(short, "_is_faster", lambda *_: True)
    one, texts = encoder.__wrapped__("distillation", "bfloat16"), [text for text in TEXTS if text]
    one.warm_up()
    alone = np.concatenate([dense(one.encode_query(text)) for text in texts])
    np.testing.assert_allclose(alone, dense(one.encode_query(texts)), atol=1e-2)


@needs_bfloat16
@pytest.mark.parametrize("threads", [2, 3, 9])
def test_more_threads_change_no_bit(threads: int, alone: list) -> None:
    """Whoever claims what, every sum has one order; also where there are more threads than cores, or than heads."""
    several = ShortForward(bfloat16(network()), threads)
    for _ in range(20):
        assert all(same_bits(several(text(length)), wanted) for length, wanted in zip(LENGTHS, alone, strict=True))


class _Absent:
    """A pool without a thread: it takes the work and never begins."""

    def submit(self, *_: object) -> None:
        pass


@needs_bfloat16
def test_without_its_helper_a_text_has_the_same_bits(
    two: ShortForward, alone: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that asks does all that nobody else claims."""
    monkeypatch.setattr(short, "_pool", lambda helpers: _Absent())
    assert all(same_bits(two(text(length)), wanted) for length, wanted in zip(LENGTHS, alone, strict=True))


def test_a_pool_serves_with_the_threads_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second cannot start, and what the first is given fails before what it does."""
    started: list[int] = []

    def start(thread: Thread) -> None:
        started.append(1)
        if len(started) > 1:
            raise RuntimeError("can't start new thread")
        begin(thread)

    begin = Thread.start
    monkeypatch.setattr(Thread, "start", start)
    pool, done = short._Pool(3), SimpleQueue[str]()
    pool.submit(np.empty, (1 << 60,))
    pool.submit(done.put, "done")
    assert done.get(timeout=10) == "done"
    assert len(started) == 2


@needs_bfloat16
def test_a_late_helper_disturbs_no_text(two: ShortForward, alone: list) -> None:
    """It comes in the midst of a text, or to one that is done."""
    draw = np.random.default_rng(0)
    for length, wanted in zip(LENGTHS, alone, strict=True):
        short._pool(1).submit(time.sleep, draw.random() * 2e-3)
        assert same_bits(two(text(length)), wanted)


@needs_bfloat16
def test_threads_may_ask_at_once(two: ShortForward, alone: list) -> None:
    """Four of them, with one helper between them."""
    with ThreadPoolExecutor(4) as askers:
        for _ in range(5):
            found = list(askers.map(lambda length: two(text(length)), LENGTHS))
            assert all(map(same_bits, found, alone))


@needs_bfloat16
def test_an_interrupted_text_leaves_the_next_alone(
    two: ShortForward, alone: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after the helper was sent to work."""
    run = short_kernel.run

    def interrupted(*arguments: object) -> None:
        if arguments[-1] == 0:
            raise KeyboardInterrupt
        run(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(short_kernel, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            two(text(16))
    assert same_bits(two(text(9)), alone[8])


@needs_bfloat16
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_there_is_a_new_helper(two: ShortForward, alone: list) -> None:
    """The child has its parent's memory but none of its threads."""
    two(text(5))
    before = short._pool(1)
    child = os.fork()
    if not child:
        good = same_bits(two(text(5)), alone[4]) and short._pool(1) is not before
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("change", "dtype", "reason"),
    [
        ({"encoder": {"hidden_size": 66, "num_attention_heads": 3}}, torch.bfloat16, "widths 66 and 48"),
        ({}, torch.float32, r"torch\.float32"),
    ],
)
def test_what_is_not_computed_is_refused(change: dict, dtype: torch.dtype, reason: str) -> None:
    """The reason names what is different."""
    with pytest.raises(NotPacked, match=reason):
        ShortForward(PackedForward(network(**change), dtype))


def test_another_processor_stays_with_packing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """None of the instructions is tried where the processor or numba's target lacks them, and it is said."""
    packed = bfloat16(network())
    with monkeypatch.context() as patch:
        patch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
        patch.setattr(sys, "platform", "linux")
        patch.setattr(short_kernel, "compiles_for_bfloat16", lambda: False)
        assert for_lone_texts(packed) is packed
    assert capsys.readouterr().err.endswith("numba compiles for a processor without avx512_bf16\n")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    assert for_lone_texts(packed) is packed
    assert capsys.readouterr().err.endswith("no Linux with avx512_bf16\n")


@needs_bfloat16
@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (OSError("No space left on device\nmore"), r"OSError: No space left on device$"),
        (None, "computes something else"),
    ],
)
def test_what_fails_the_probe_is_not_used(
    failure: Exception | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be compiled or its code not kept, or it multiplies wrongly."""

    def broken(forward: ShortForward, rows: Rows) -> tuple[Tensor, None]:
        if failure:
            raise failure
        return torch.zeros(1, 5000), None

    packed = bfloat16(network())
    monkeypatch.setattr(short, "_is_faster", lambda *_: True)
    assert isinstance(short_forward(packed), ShortForward)
    monkeypatch.setattr(ShortForward, "__call__", broken)
    with pytest.raises(NotPacked, match=reason):
        short_forward(packed)


@needs_bfloat16
def test_what_is_no_faster_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing may be quicker where there are many threads."""
    monkeypatch.setattr(short, "_is_faster", lambda *_: False)
    with pytest.raises(NotPacked, match="no faster"):
        short_forward(bfloat16(network()))


@pytest.mark.parametrize(("ours", "faster"), [(0.0, True), (0.01, False)])
def test_the_faster_way_is_measured(ours: float, faster: bool) -> None:
    """Against one that takes 5 ms."""
    assert short._is_faster(lambda row: time.sleep(ours), lambda row: time.sleep(0.005), text(3)) is faster


@needs_bfloat16
@pytest.mark.golden
@pytest.mark.parametrize(("dtype", "expected"), [("bfloat16", LoneForward), ("float32", PackedForward)])
def test_an_encoder_warms_up_once(dtype: str, expected: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it, and for what is no bfloat16 after it, a query goes the way of all texts."""
    monkeypatch.setattr(short, "_is_faster", lambda *_: True)
    one = encoder.__wrapped__("distillation", dtype)
    assert isinstance(one._runner._forward, PackedForward)
    one.warm_up()
    warm = one._runner._forward
    assert isinstance(warm, expected)
    one.warm_up()
    assert one._runner._forward is warm


def test_only_a_short_text_alone_takes_the_short_way() -> None:
    """Two texts, or 17 tokens, go the way they always went, and a text without tokens is refused as ever."""
    packed = bfloat16(network())
    taken: list[Rows] = []
    forward = LoneForward(packed, cast(ShortForward, taken.append))
    for rows in (text(16), [*text(5), *text(6)], [[*text(16)[0], 2]]):
        forward(rows)
    assert taken == [text(16)]
    with pytest.raises(ValueError, match="row 0 has no tokens"):
        forward([[]])
