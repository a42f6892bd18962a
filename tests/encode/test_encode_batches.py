"""Batches on a device: one behind the network, smaller where there is no memory, compressed to rows of two views."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from golden_set import TEXTS, dense, encoder
from torch import Tensor

from milco_pyserini.encode.batches import BatchRunner, empty_batch
from milco_pyserini.encode.compression import Rows, Side, SourceTerms, beside, no_rows, pivot_entries
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.forward import PaddedForward
from milco_pyserini.sparse import VIEWS

CPU = torch.device("cpu")


class Small(PaddedForward):
    """A device with room for so many padded tokens; remembers the batches that it was given."""

    def __init__(self, room: int) -> None:
        super().__init__(encoder("distillation").model, CPU, torch.float32)
        self.room = room
        self.given: list[int] = []

    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        """As PaddedForward, if there is room."""
        self.given.append(len(rows) * max(map(len, rows)))
        if self.given[-1] > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().__call__(rows)


def runner(forward: PaddedForward) -> BatchRunner:
    milco = encoder("distillation")
    return BatchRunner(forward, CPU, milco.vocabulary.english_size, len(milco.tokenizer.pieces), "sum", [])


@pytest.fixture(scope="module")
def rows() -> list[list[int]]:
    """The golden texts as token ids, shortest first, cut at 100 tokens."""
    return sorted((row[:100] for row in encoder("distillation").tokenizer.ids(TEXTS) if row), key=len)


def vectors(run: BatchRunner, rows: list[list[int]], batch_size: int = 512) -> np.ndarray:
    return np.concatenate([dense(batch) for batch in run.run(rows, VIEWS, batch_size)])


def test_out_of_memory_halves_the_batches_and_goes_on(rows: list[list[int]], capsys: pytest.CaptureFixture) -> None:
    """Every vector is there and the same; each new size is told in one line, and kept for what comes later."""
    wanted = vectors(runner(Small(1 << 30)), rows)
    small = Small(250)
    run = runner(small)
    np.testing.assert_allclose(vectors(run, rows), wanted, atol=1e-5, rtol=1e-5)
    said = capsys.readouterr().err.splitlines()
    assert 1 <= len(said) <= 5 and all(line.startswith("cpu is out of memory: going on with ") for line in said)
    small.given.clear()
    np.testing.assert_allclose(vectors(run, rows), wanted, atol=1e-5, rtol=1e-5)
    assert max(small.given) <= 250 and not capsys.readouterr().err


def test_out_of_memory_after_the_network_is_treated_alike(
    rows: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compressing a batch may lack memory too: its texts are done again, none twice, none left out."""
    wanted = vectors(runner(Small(1 << 30)), rows)
    run = runner(Small(1 << 30))
    finish, calls = run._finish, []

    def fail_at_the_second(queued: object) -> object:
        calls.append(queued)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return finish(queued)

    monkeypatch.setattr(run, "_finish", fail_at_the_second)
    np.testing.assert_allclose(vectors(run, rows, batch_size=3), wanted, atol=1e-5, rtol=1e-5)


def test_a_text_without_room_is_one_clear_line(rows: list[list[int]]) -> None:
    """When not even one text fits, the error says how long it is and what to do; other errors are not touched."""
    with pytest.raises(MilcoError, match="cpu has no memory for one text of 100 tokens: choose a smaller --max-length"):
        vectors(runner(Small(99)), rows)
    broken = Small(1 << 30)
    broken.room = None  # type: ignore[assignment]
    with pytest.raises(TypeError):
        vectors(runner(broken), rows)


def test_a_batch_is_finished_while_the_next_is_computed(rows: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The network is given the next batch before the last one is waited for, and never more than that."""
    run, events = runner(Small(1 << 30)), []
    queue, finish = run._queue, run._finish
    monkeypatch.setattr(run, "_queue", lambda *given: (events.append("queue"), queue(*given))[1])
    monkeypatch.setattr(run, "_finish", lambda *given: (events.append("finish"), finish(*given))[1])
    assert len(list(run.run(rows[:8], VIEWS, 2))) == 4
    assert events == ["queue", *["queue", "finish"] * 3, "finish"]


def test_pivot_entries_are_what_is_above_zero() -> None:
    """Counts, columns and LogSat of every logit above zero, row by row; NaN is kept, to be found later."""
    logits = torch.tensor([[0.0, 2.0, -1.0, 0.5], [-1.0, 0.0, -0.0, -3.0], [1e-30, torch.nan, -torch.inf, 1.0]])
    counts, columns, weights = (tensor.numpy() for tensor in pivot_entries(logits.clone()))
    assert counts.tolist() == [2, 0, 3] and columns.tolist() == [1, 3, 0, 1, 3]
    assert (counts.dtype, columns.dtype, weights.dtype) == (np.int64, np.int32, np.float32)
    np.testing.assert_allclose(weights, [np.log1p(2), np.log1p(0.5), 1e-30, np.nan, np.log1p(1)], rtol=1e-6)


@pytest.mark.parametrize("pool", ["sum", "max"])
def test_source_terms_are_pooled_as_a_loop_pools_them(pool: str) -> None:
    """Random ids and weights, some dropped, some zero: what a loop over the tokens with a dict gives."""
    random = np.random.default_rng(0)
    rows = [random.integers(0, 9, size).tolist() for size in (1, 7, 30, 2)]
    echo = np.maximum(random.normal(size=40), 0).astype(np.float32)
    wanted: list[dict[int, float]] = []
    for row, weights in zip(rows, np.split(echo, np.cumsum([len(row) for row in rows])[:-1]), strict=True):
        found: dict[int, float] = {}
        for piece, weight in zip(row, weights.tolist(), strict=True):
            if weight > 0 and piece not in (0, 3):
                before = found.get(100 + piece, 0.0)
                found[100 + piece] = before + weight if pool == "sum" else max(before, weight)
        wanted.append(dict(sorted(found.items())))
    source = SourceTerms.of(rows, 9, np.array([0, 3])).pool(echo, pool, 100)
    batch = beside(no_rows(4), source, 100)
    for (columns, weights), expected in zip(batch.rows(), wanted, strict=True):
        assert columns.tolist() == list(expected)
        np.testing.assert_allclose(weights, list(expected.values()), rtol=1e-6)


def test_two_views_stand_beside_each_other_in_every_row() -> None:
    """Pivot columns first, then source columns, rows without either in their place."""
    pivot = Rows(np.array([2, 0, 1]), np.array([1, 3, 0], np.int32), np.array([1, 2, 3], np.float32))
    source = Rows(np.array([1, 2, 0]), np.array([9, 7, 8], np.int32), np.array([4, 5, 6], np.float32))
    batch = beside(pivot, source, 5)
    assert [(columns.tolist(), weights.tolist()) for columns, weights in batch.rows()] == [
        ([1, 3, 9], [1, 2, 4]),
        ([7, 8], [5, 6]),
        ([0], [3]),
    ]
    assert (batch.indptr.dtype, batch.columns.dtype, batch.weights.dtype) == (np.int64, np.int32, np.float32)
    assert empty_batch(3, 5).lengths().tolist() == [0, 0, 0]


@pytest.mark.integration
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch sees")
def test_a_gpu_copies_beside_its_work() -> None:
    """What is copied through the side stream is what was computed before the mark, whatever is queued after it."""
    device = torch.device("cuda")
    side = Side(device)
    values = torch.randn(1000, 1000, device=device)
    products = values @ values
    mark = side.mark()
    for _ in range(20):
        values = values @ values
    with side.after(mark, products):
        (copied,) = side.to_host(products + 1)
    np.testing.assert_array_equal(copied, (products + 1).cpu().numpy())
