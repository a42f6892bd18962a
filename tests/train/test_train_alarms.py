"""Collapse alarms: figures against a reference count, and warnings when terms lose their grounding."""

from collections.abc import Sequence
from statistics import fmean

import pytest
import torch
from torch import Tensor

from milco_pyserini.train.monitor import LEAST_TEXTS, PROBE, CollapseMonitor

LANGUAGES = ("ar", "de", "ja")
# Large enough for the ranges of shares of the vocabulary.
PIECES = 1000


def batch(terms: int, grounded: float = 1.0, texts: int = 64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return pivot rows with so many terms each, and the mask of the share that is grounded."""
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
    """Update once, with languages in turn."""
    names = [languages[row % len(languages)] for row in range(len(pivot))]
    monitor.update(kind, names, pivot, grounded, None if source is None else torch.full([len(pivot)], source))


def watch(counted: int = 64, warm_up: int = 0) -> CollapseMonitor:
    """Return a monitor whose counts are full after 64 texts."""
    return CollapseMonitor(warm_up, counted)


def reference(texts: list[dict], shares: bool) -> dict[str, float]:
    """Compute the figures of some texts by definition."""
    pieces = range(len(texts[0]["pivot"]))
    used = [{column for column, weight in enumerate(text["pivot"]) if weight > 0} for text in texts]
    found = {"pivot/terms": fmean(map(len, used)), "source/terms": fmean(text["source"] for text in texts)}
    if any(used):
        grounded = sum(len(terms & text["grounded"]) for terms, text in zip(used, texts, strict=True))
        found["pivot/grounded"] = grounded / sum(map(len, used))
    if shares:
        counts = [sum(column in terms for terms in used) for column in pieces]
        found["pivot/dead"] = fmean(count == 0 for count in counts)
        found["pivot/always_on"] = fmean(count > len(texts) / 2 for count in counts)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_figures_equal_the_reference_over_the_latest_texts(seed: int) -> None:
    """For batches of any size and kind: of each language the count that is being filled and the one before it."""
    generator = torch.Generator().manual_seed(seed)
    monitor = CollapseMonitor(counted=LEAST_TEXTS)
    counts: dict[tuple[str, str], list[list[dict]]] = {}
    for step in range(40):
        rows = int(torch.randint(1, 17, (), generator=generator))
        pivot = (torch.rand(rows, 12, generator=generator) - 0.8).relu()
        pivot[:, 3] = 1.0 if step > 10 else 0.0
        pivot[0] *= step % 5
        mask = torch.rand(rows, 12, generator=generator) < 0.5
        source = torch.randint(0, 9, (rows,), generator=generator)
        kind = ("query", "passage")[step % 2]
        names = [LANGUAGES[i] for i in torch.randint(3, (rows,), generator=generator).tolist()]
        monitor.update(kind, names, pivot, mask, source)
        for language in set(names):
            parts = counts.setdefault((kind, language), [[]])
            if len(parts[-1]) >= LEAST_TEXTS:
                parts.append([])
        for row, language in enumerate(names):
            grounded = set(mask[row].nonzero().flatten().tolist())
            text = {"pivot": pivot[row].tolist(), "source": int(source[row]), "grounded": grounded}
            counts[kind, language][-1].append(text)
        latest = {key: [text for part in parts[-2:] for text in part] for key, parts in counts.items()}
        groups = {"/".join(key): texts for key, texts in latest.items() if len(texts) >= LEAST_TEXTS}
        for kind, _ in latest:
            groups[kind] = [text for key, texts in latest.items() if key[0] == kind for text in texts]
        figures = monitor.figures()
        best = {name: figures.pop(name) for name in list(figures) if "of_best" in name}
        assert all(0 < value <= 1 for value in best.values())
        assert figures == pytest.approx(
            {
                f"{figure}/{name}": value
                for name, texts in groups.items()
                for figure, value in reference(texts, len(texts) >= LEAST_TEXTS).items()
            }
        )
    assert monitor.seen == sum(len(part) for parts in counts.values() for part in parts)


@pytest.mark.parametrize(
    ("terms", "grounded", "source", "sentence"),
    [
        (50, 0.02, 5, "share of grounded pivot terms 0.02, below 0.05: terms drift away"),
        (600, 0.5, 5, "pivot terms per text 600, above 500: vectors are no longer sparse"),
        (2, 0.5, 5, "pivot terms per text 2, below 3: texts lose their terms"),
        (60, 0.5, 0, "source terms per text 0, below 1: LexEcho is dying"),
    ],
)
def test_a_figure_out_of_range_raises_an_alarm(terms: int, grounded: float, source: int, sentence: str) -> None:
    """With value, limit and advice."""
    monitor = watch()
    feed(monitor, *batch(terms, grounded), source=source)
    assert any(f"collapse alarm (text): {sentence}" in warning for warning in monitor.warnings())


def test_term_usage_alarms_name_view_and_language() -> None:
    """One language with forty terms is named though all languages together are healthy."""
    monitor = watch(counted=200)
    for seed in range(9):
        feed(monitor, *batch(60, 0.9, seed=seed), source=10, kind="query")
    shrunk = torch.zeros(200, PIECES)
    shrunk[:, :40] = 1
    feed(monitor, shrunk[:199], source=2, kind="query", languages=["sw"])
    assert monitor.warnings() == []
    feed(monitor, shrunk[:1], source=2, kind="query", languages=["sw"])
    dead, always_on = monitor.warnings()
    assert "(query): share of dead pivot terms" in dead and "0.96 in sw, above 0.95" in dead
    assert "(query): share of always-on pivot terms" in always_on and "0.04 in sw, above 0.005" in always_on


def test_the_probes_texts_do_not_count_for_term_usage() -> None:
    """A few sentences use few terms, however often they are encoded: only means of the latest time are reported."""
    monitor = watch(counted=20)
    for terms in (5, 10):
        monitor.forget(PROBE)
        monitor.update(PROBE, ["de"] * 20, batch(terms, texts=20)[0])
    assert monitor.figures() == {"pivot/terms/probe": 10, "pivot/terms/probe/de": 10}
    assert monitor.warnings() == []


def test_an_alarm_is_raised_once_until_the_figure_recovers() -> None:
    """Inside its range by a tenth and out again, it is raised again."""
    monitor = watch()
    warned = []
    for terms in (2, 2, 3, 2, 4, 2):
        # Both counts are filled.
        for _ in range(2):
            feed(monitor, *batch(terms))
        warned.append(sum("terms per text" in warning for warning in monitor.warnings()))
    assert warned == [1, 0, 0, 0, 0, 1]


def test_a_few_texts_raise_no_alarm() -> None:
    """Neither does a language with less than LEAST_TEXTS, nor the warm-up."""
    rare = watch()
    feed(rare, *batch(60, 0.9, texts=64))
    feed(rare, *batch(60, 0.0, texts=LEAST_TEXTS - 1), languages=["yo"])
    assert rare.warnings() == []
    early = watch(warm_up=128)
    for warned in (0, 1):
        feed(early, *batch(100, 0.02))
        assert len(early.warnings()) == warned


def test_a_halved_share_raises_an_alarm_inside_its_range() -> None:
    """From .9 to .4 is drift, although .4 is healthy for another teacher."""
    monitor = watch()
    warned = []
    for grounded in (0.9, 0.6, 0.4, 0.4):
        for _ in range(2):
            feed(monitor, *batch(60, grounded))
        warned.append(monitor.warnings())
    assert [len(sentences) for sentences in warned] == [0, 0, 1, 0]
    assert "(text): share of grounded pivot terms relative to its best 0.444, below 0.5" in warned[2][0]
