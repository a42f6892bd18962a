"""Collapse alarms: figures held against a plain count, and sentences when training leaves English behind."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from milco_pyserini.train.alarms import LEAST_TEXTS, CollapseMonitor

LANGUAGES = ("ar", "de", "ja")
# Wide enough for ranges on shares of the vocabulary.
PIECES = 1000


def batch(terms: int, grounded: float = 1.0, texts: int = 64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pivot rows with so many terms each, and the mask of which that share is expected."""
    generator = torch.Generator().manual_seed(seed)
    columns = torch.rand(texts, PIECES, generator=generator).argsort(dim=1)[:, :terms]
    pivot = torch.zeros(texts, PIECES).scatter_(1, columns, 1.0)
    mask = torch.zeros(texts, PIECES, dtype=torch.bool)
    return pivot, mask.scatter_(1, columns[:, : round(terms * grounded)], True)


def feed(
    monitor: CollapseMonitor,
    pivot: Tensor,
    grounded: Tensor | None = None,
    source: int | None = None,
    kind: str = "text",
    languages: Sequence[str] = ("de",),
) -> None:
    """One update whose texts take turns with the languages."""
    names = [languages[row % len(languages)] for row in range(len(pivot))]
    monitor.update(kind, names, pivot, grounded, None if source is None else torch.full((len(pivot),), source))


def watch(**options: int) -> CollapseMonitor:
    """A monitor that speaks as soon as 64 texts are there."""
    return CollapseMonitor(window=64, **{"warm_up": 0, **options})


def plain_figures(texts: list[dict], pieces: int) -> dict[str, float]:
    """The readable reference: what figures() should say of these texts."""
    values: dict[str, list[float]] = {}
    for text in texts:
        active = {column for column, weight in enumerate(text["pivot"]) if weight > 0}
        numbers = {"pivot/terms": len(active), "source/terms": text["source"]}
        if active:
            numbers["pivot/grounded"] = len(active & text["grounded"]) / len(active)
        for figure, number in numbers.items():
            for name in (text["kind"], f"{text['kind']}/{text['language']}"):
                values.setdefault(f"{figure}/{name}", []).append(number)
    holding = [sum(text["pivot"][column] > 0 for text in texts) for column in range(pieces)]
    return {name: fmean(numbers) for name, numbers in values.items()} | {
        "pivot/dead": fmean(count == 0 for count in holding),
        "pivot/always_on": fmean(count > len(texts) / 2 for count in holding),
    }


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_figures_are_a_plain_count_over_the_last_texts(seed: int, sparse: bool) -> None:
    """Batches of any size and kind: equal to the reference over the texts that the monitor says it looks at."""
    generator = torch.Generator().manual_seed(seed)
    monitor = CollapseMonitor(window=20)
    texts: list[dict] = []
    for step in range(30):
        rows = int(torch.randint(1, 7, (), generator=generator))
        pivot = (torch.rand(rows, 12, generator=generator) - 0.8).relu()
        pivot[:, 3] = 1.0 if step > 10 else 0.0
        pivot[0] *= step % 5
        mask = torch.rand(rows, 12, generator=generator) < 0.5
        source = torch.randint(0, 9, (rows,), generator=generator)
        kind = ("query", "passage")[step % 2]
        names = [LANGUAGES[i] for i in torch.randint(3, (rows,), generator=generator).tolist()]
        monitor.update(kind, names, pivot, mask.to_sparse() if sparse else mask, source)
        for row in range(rows):
            grounded = set(mask[row].nonzero().flatten().tolist())
            numbers = {"pivot": pivot[row].tolist(), "grounded": grounded, "source": source[row].item()}
            texts.append({"kind": kind, "language": names[row], **numbers})
        assert min(len(texts), 20) <= monitor.texts < 20 + 7 + 2
        assert monitor.figures() == pytest.approx(plain_figures(texts[-monitor.texts :], 12))
    assert monitor.seen == len(texts)


def test_no_text_has_no_figures() -> None:
    """Before the first batch there is nothing to say; figures that were not given are absent."""
    monitor = CollapseMonitor()
    assert monitor.figures() == {}
    assert monitor.warnings() == []
    feed(monitor, torch.ones(2, 4))
    assert monitor.figures().keys() == {"pivot/terms/text", "pivot/terms/text/de", "pivot/dead", "pivot/always_on"}


def test_every_figure_can_be_logged() -> None:
    """Numbers only, no NaN, even when no text has a term."""
    monitor = watch()
    feed(monitor, torch.zeros(64, 5), torch.ones(64, 5, dtype=torch.bool), source=0)
    assert all(isinstance(value, float) and math.isfinite(value) for value in monitor.figures().values())
    assert monitor.figures()["pivot/terms/text"] == 0


def test_healthy_training_is_silent() -> None:
    """Sixty terms a text, half of them the teacher's, each text its own: no sentence."""
    monitor = watch()
    for seed in range(5):
        feed(monitor, *batch(60, 0.5, seed=seed), source=10, languages=LANGUAGES)
        assert monitor.warnings() == []


def test_sizes_that_differ_are_refused() -> None:
    """Languages, pivot and mask are of the same texts."""
    with pytest.raises(ValueError, match=r"2 languages, pivot \(3, 4\), grounded None do not fit"):
        CollapseMonitor().update("text", ["de", "ar"], torch.ones(3, 4))
    with pytest.raises(ValueError, match=r"grounded \(3, 5\) do not fit"):
        CollapseMonitor().update("text", ["de"] * 3, torch.ones(3, 4), torch.ones(3, 5, dtype=torch.bool))


@pytest.mark.parametrize(
    ("terms", "grounded", "source", "sentence"),
    [
        (50, 0.02, 5, "share of grounded pivot terms of text 0.02, below 0.05: terms drift away"),
        (600, 0.5, 5, "pivot terms per text of text 600, above 500: vectors are no longer sparse"),
        (2, 0.5, 5, "pivot terms per text of text 2, below 3: texts lose their terms"),
        (60, 0.5, 0, "source terms per text of text 0, below 1: the echo is dying"),
    ],
)
def test_a_figure_out_of_its_range_is_said(terms: int, grounded: float, source: int, sentence: str) -> None:
    """In words, with the value, the limit and what to do."""
    monitor = watch()
    feed(monitor, *batch(terms, grounded), source=source)
    assert any(f"collapse alarm: {sentence}" in said for said in monitor.warnings())


def test_dead_and_constant_terms_are_said() -> None:
    """A vocabulary that shrinks to the same forty terms is both."""
    monitor = watch()
    pivot = torch.zeros(64, PIECES)
    pivot[:, :40] = 1
    feed(monitor, pivot)
    said = monitor.warnings()
    assert any("that no text uses 0.96, above 0.9" in sentence for sentence in said)
    assert any("that more than half of the texts use 0.04, above 0.002" in sentence for sentence in said)


def test_a_warning_is_said_once_until_it_recovers() -> None:
    """The same state says nothing new; back in its range by a tenth and out again, it is said again."""
    monitor = watch()
    said = []
    for grounded in (0.02, 0.02, 0.05, 0.02, 0.06, 0.02):
        feed(monitor, *batch(100, grounded))
        said.append(len(monitor.warnings()))
    assert said == [1, 0, 0, 0, 0, 1]


def test_languages_share_a_sentence() -> None:
    """Languages that leave their range together are listed; the kind as a whole speaks for all of them."""
    monitor = CollapseMonitor(window=600, warm_up=0)
    languages = [f"l{number}" for number in range(6)]
    feed(monitor, *batch(60, 0.9, texts=400))
    feed(monitor, *batch(100, 0.02, texts=200), languages=languages)
    (sentence,) = monitor.warnings()
    assert "of text in l0 0.02, l1 0.02, l2 0.02, l3 0.02 and 2 more, below 0.05" in sentence
    feed(monitor, *batch(100, 0.02, texts=600), languages=languages)
    (sentence,) = monitor.warnings()
    assert "of text 0.02, below 0.05" in sentence


def test_a_few_texts_raise_no_alarm() -> None:
    """Neither a language with less than LEAST_TEXTS, nor a window that is not full, nor the warm-up."""
    rare = watch()
    feed(rare, *batch(60, 0.9, texts=64))
    feed(rare, *batch(60, 0.0, texts=LEAST_TEXTS - 1), languages=["yo"])
    assert rare.warnings() == []
    short = CollapseMonitor(window=128, warm_up=0)
    early = watch(warm_up=128)
    for said in (0, 1):
        for monitor in (short, early):
            feed(monitor, *batch(100, 0.02))
            assert len(monitor.warnings()) == said


def test_a_share_that_halves_is_said_while_still_in_its_range() -> None:
    """From .9 to .4 is a drift, although .4 would be a good share for another teacher."""
    monitor = watch()
    said = []
    for grounded in (0.9, 0.6, 0.4, 0.4):
        feed(monitor, *batch(60, grounded))
        said.append(monitor.warnings())
    assert [len(sentences) for sentences in said] == [0, 0, 1, 0]
    assert "share of grounded pivot terms of text fell from 0.9 to 0.4" in said[2][0]


class Table(torch.nn.Module):
    """The smallest MILCO: a word of two languages to logits of 200 English words, and LogSat of the maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.randn(2 * WORDS, WORDS))

    def forward(self, words: Tensor) -> Tensor:
        """words: int64 [B, S]. Returns float [B, 200]."""
        return torch.log1p(torch.relu(self.logits[words].amax(dim=1)))


WORDS, BATCH = 200, 64


def train(model: Table, monitor: CollapseMonitor, steps: int, aligned: bool) -> None:
    """Steps of alignment, or of contrast between a text and its translation with an L1 penalty."""
    generator = torch.Generator().manual_seed(steps)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(steps):
        english = torch.randint(WORDS, (BATCH, 5), generator=generator)
        grounded = torch.zeros(BATCH, WORDS, dtype=torch.bool).scatter_(1, english, True)
        pivots = model(english), model(english + WORDS)
        if aligned:
            loss = sum(functional.mse_loss(pivot, grounded.float(), reduction="sum") / BATCH for pivot in pivots)
        else:
            scores = pivots[0] @ pivots[1].T
            loss = functional.cross_entropy(scores, torch.arange(BATCH)) + 0.01 * sum(p.sum() for p in pivots) / BATCH
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for kind, pivot in zip(("query", "passage"), pivots, strict=True):
            monitor.update(kind, ["de"] * BATCH, pivot, grounded)


@pytest.mark.parametrize("aligned", [True, False])
def test_contrast_without_alignment_raises_the_alarm(aligned: bool) -> None:
    """The paper's claim, in miniature: contrast alone learns latent terms, after alignment it keeps English ones."""
    torch.manual_seed(0)
    model = Table()
    if aligned:
        train(model, CollapseMonitor(), 150, aligned=True)
    monitor = CollapseMonitor(window=512, warm_up=0)
    train(model, monitor, 150, aligned=False)
    said = [sentence for sentence in monitor.warnings() if "grounded" in sentence]
    assert len(said) == (0 if aligned else 2), (monitor.figures(), said)


def test_a_monitor_goes_on_from_what_another_knew(tmp_path: Path) -> None:
    """Through a file: the same figures, the same warnings, and none that was said before."""
    monitors = [watch(), watch()]
    for monitor in monitors:
        feed(monitor, *batch(terms=600), source=0, languages=LANGUAGES)
    assert monitors[0].warnings() == monitors[1].warnings() != []
    torch.save(monitors[0].state(), tmp_path / "alarms.pt")
    resumed = watch()
    resumed.load_state(torch.load(tmp_path / "alarms.pt", weights_only=True))
    assert resumed.figures() == monitors[1].figures()
    assert resumed.warnings() == []
    for monitor in (resumed, monitors[1]):
        feed(monitor, *batch(terms=2, grounded=0.0, seed=1), kind="query")
    assert resumed.figures() == monitors[1].figures()
    assert resumed.warnings() == monitors[1].warnings() != []
    assert resumed.seen == monitors[1].seen
