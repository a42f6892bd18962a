"""Batches on a device: prefetched, smaller if there is no memory, converted to CSR rows of two views."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from golden_set import TEXTS, dense, encoder
from torch import Tensor

from milco_pyserini.defaults import BATCH_SIZE
from milco_pyserini.encode import batches
from milco_pyserini.encode.batches import BatchRunner
from milco_pyserini.encode.csr import CopyStream, SourceTerms, ViewRows, concat_views, pivot_entries
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.forward import Forward, PaddedForward
from milco_pyserini.sparse import VIEWS

CPU = torch.device("cpu")


class SmallDevice(PaddedForward):
    """A forward pass that runs out of memory above a number of padded tokens, and records its batches."""

    def __init__(self, capacity: int) -> None:
        super().__init__(encoder("distillation").model, CPU, torch.float32)
        self.capacity = capacity
        self.batches: list[int] = []

    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        """Run if the batch fits."""
        self.batches.append(len(rows) * max(map(len, rows)))
        if self.batches[-1] > self.capacity:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().__call__(rows)


def runner(forward: Forward) -> BatchRunner:
    milco = encoder("distillation")
    return BatchRunner(forward, CPU, milco.vocabulary.english_size, len(milco.tokenizer.pieces), "sum", [])


@pytest.fixture(scope="module")
def rows() -> list[list[int]]:
    """The golden texts as token ids, shortest first, truncated to 100 tokens."""
    return sorted((row[:100] for row in encoder("distillation").tokenizer.ids(TEXTS) if row), key=len)


def vectors(run: BatchRunner, rows: list[list[int]], batch_size: int = 512) -> np.ndarray:
    return np.concatenate([dense(batch) for batch in run.run(rows, VIEWS, batch_size)])


def test_out_of_memory_halves_the_batches(rows: list[list[int]], capsys: pytest.CaptureFixture) -> None:
    """No vector is lost or different; each new size is reported in one line, and kept for later texts."""
    wanted = vectors(runner(SmallDevice(1 << 30)), rows)
    small = SmallDevice(250)
    run = runner(small)
    np.testing.assert_allclose(vectors(run, rows), wanted, atol=1e-5, rtol=1e-5)
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 5 and all(line.startswith("cpu is out of memory: continuing with ") for line in lines)
    small.batches.clear()
    np.testing.assert_allclose(vectors(run, rows), wanted, atol=1e-5, rtol=1e-5)
    assert max(small.batches) <= 250 and not capsys.readouterr().err


def test_out_of_memory_during_conversion_repeats_the_batch(
    rows: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Converting a batch to CSR may lack memory too: its texts are computed again, none twice, none omitted."""
    wanted = vectors(runner(SmallDevice(1 << 30)), rows)
    run, calls = runner(SmallDevice(1 << 30)), []

    def fail_at_the_second(logits: Tensor) -> object:
        calls.append(logits)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return pivot_entries(logits)

    monkeypatch.setattr(batches, "pivot_entries", fail_at_the_second)
    np.testing.assert_allclose(vectors(run, rows, batch_size=3), wanted, atol=1e-5, rtol=1e-5)


def test_batches_end_before_they_are_padding(rows: list[list[int]]) -> None:
    """By tokens only: as many texts as the budget holds, fewer if they differ in length; without padding, no fewer."""
    run = runner(SmallDevice(1 << 30))
    run.token_budget = 4000
    assert run.batch_end([4] * 2000, 0, BATCH_SIZE) == 1000
    lengths = [*[20] * 49, *[21] * 49, *[60] * 49]
    assert [run.batch_end(lengths, start, BATCH_SIZE) for start in (0, 49, 98)] == [98, 98, 147]
    assert run.largest_memory(lengths, BATCH_SIZE) == run.forward.memory(49, 60)
    packed = runner(encoder("distillation").network.runner.forward)
    packed.token_budget = 4000
    assert packed.batch_end(lengths, 0, BATCH_SIZE) == 98 + (4000 - 49 * 41) // 60


def test_a_text_that_does_not_fit_is_one_clear_line(rows: list[list[int]]) -> None:
    """If not even one text fits, the error has its length and the fix; other errors are raised as they are."""
    with pytest.raises(MilcoError, match=r"cpu has no memory for a text of 100 tokens. Use a smaller max_length"):
        vectors(runner(SmallDevice(99)), rows)
    broken = SmallDevice(1 << 30)
    broken.capacity = None  # type: ignore[assignment]
    with pytest.raises(TypeError):
        vectors(runner(broken), rows)


def test_pivot_entries_are_the_positive_logits() -> None:
    """Counts, columns and log(1 + x) of every positive logit, row by row; NaN is kept, to be reported later."""
    logits = torch.tensor([[0.0, 2.0, -1.0, 0.5], [-1.0, 0.0, -0.0, -3.0], [1e-30, torch.nan, -torch.inf, 1.0]])
    counts, columns, weights = (tensor.numpy() for tensor in pivot_entries(logits.clone()))
    assert counts.tolist() == [2, 0, 3] and columns.tolist() == [1, 3, 0, 1, 3]
    assert (counts.dtype, columns.dtype, weights.dtype) == (np.int64, np.int32, np.float32)
    np.testing.assert_allclose(weights, [np.log1p(2), np.log1p(0.5), 1e-30, np.nan, np.log1p(1)], rtol=1e-6)


@pytest.mark.parametrize("pool", ["sum", "max"])
def test_source_terms_are_pooled_as_by_a_loop(pool: str) -> None:
    """Random ids and weights, some dropped, some zero: the result of a loop over the tokens with a dict."""
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
    batch = concat_views(ViewRows.empty(4), source, 100)
    for (columns, weights), expected in zip(batch.rows(), wanted, strict=True):
        assert columns.tolist() == list(expected)
        np.testing.assert_allclose(weights, list(expected.values()), rtol=1e-6)


@pytest.mark.integration
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch sees")
def test_a_gpu_copies_while_it_computes() -> None:
    """The copy stream reads what was computed before the event, whatever is queued after it."""
    device = torch.device("cuda")
    stream = CopyStream(device)
    values = torch.randn(1000, 1000, device=device)
    products = values @ values
    event = stream.event()
    for _ in range(20):
        values = values @ values
    with stream.after(event, products):
        (copied,) = stream.to_host(products + 1)
    np.testing.assert_array_equal(copied, (products + 1).cpu().numpy())
