"""Collapse alarms: figures against a reference count, and warnings when terms lose their grounding."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from milco_pyserini.train.monitor import LEAST_TEXTS, CollapseMonitor, SourceActivity

LANGUAGES = ("ar", "de", "ja")
# Large enough for the ranges of shares of the vocabulary.
PIECES = 1000
# Of the source vocabulary.
SOURCE_PIECES = 40


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
    monitor.update(kind, names, pivot, grounded, None if source is None else echo(len(pivot), source))


def echo(texts: int, terms: int) -> SourceActivity:
    """Return texts of ten tokens, of which so many have a weight, the same for every fourth text."""
    pieces = torch.arange(SOURCE_PIECES)
    held = pieces // 10 == torch.arange(texts).unsqueeze(1) % 4
    return SourceActivity(pieces, held, held & (pieces % 10 < terms), 5 * SOURCE_PIECES)


def watch(**options: int) -> CollapseMonitor:
    """Return a monitor that warns from the 64th text on."""
    return CollapseMonitor(window=64, **{"warm_up": 0, "counted": 64, **options})


def plain_means(texts: list[dict]) -> dict[str, float]:
    """Compute the means of figures() by definition."""
    values: dict[str, list[float]] = {}
    for text in texts:
        active = {column for column, weight in enumerate(text["pivot"]) if weight > 0}
        numbers = {"pivot/terms": len(active), "source/terms": len(text["source"])}
        if active:
            numbers["pivot/grounded"] = len(active & text["grounded"]) / len(active)
        for figure, number in numbers.items():
            for name in (text["kind"], f"{text['kind']}/{text['language']}"):
                values.setdefault(f"{figure}/{name}", []).append(number)
    return {name: fmean(numbers) for name, numbers in values.items()}


def plain_usage(texts: list[dict], counted: int) -> dict[str, float]:
    """Compute dead and always-on shares of texts of one kind by definition."""
    by_language: dict[str, list[list[dict]]] = {}
    for text in texts:
        parts = by_language.setdefault(text["language"], [[]])
        if len(parts[-1]) >= counted and text["first"]:
            parts.append([])
        parts[-1].append(text)
    last = {language: [text for part in parts[-2:] for text in part] for language, parts in by_language.items()}
    groups = {name: found for name, found in last.items() if len(found) >= counted}
    found = {}
    for name, group in {**groups, "": [text for some in last.values() for text in some]}.items():
        end = f"{texts[0]['kind']}/{name}".rstrip("/")
        used = [{column for column, weight in enumerate(text["pivot"]) if weight > 0} for text in group]
        views = {"pivot": (used, range(len(texts[0]["pivot"])))}
        views["source"] = ([text["source"] for text in group], set().union(*(text["held"] for text in group)))
        for view, (sets, possible) in views.items():
            counts = [sum(column in one for one in sets) for column in possible]
            found[f"{view}/dead/{end}"] = fmean(count == 0 for count in counts)
            found[f"{view}/always_on/{end}"] = fmean(count > len(group) / 2 for count in counts)
    return found


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_figures_equal_the_reference_over_the_latest_texts(seed: int, sparse: bool) -> None:
    """For batches of any size and kind, with dense and sparse masks."""
    generator = torch.Generator().manual_seed(seed)
    monitor = CollapseMonitor(window=20, counted=8)
    texts: list[dict] = []
    for step in range(30):
        rows = int(torch.randint(1, 7, (), generator=generator))
        pivot = (torch.rand(rows, 12, generator=generator) - 0.8).relu()
        pivot[:, 3] = 1.0 if step > 10 else 0.0
        pivot[0] *= step % 5
        mask = torch.rand(rows, 12, generator=generator) < 0.5
        pieces = torch.randperm(30, generator=generator)[:9]
        held = torch.rand(rows, 9, generator=generator) < 0.4
        held[:, 0] = True
        source = SourceActivity(pieces, held, held & (torch.rand(rows, 9, generator=generator) < 0.6), 30)
        kind = ("query", "passage")[step % 2]
        names = [LANGUAGES[i] for i in torch.randint(3, (rows,), generator=generator).tolist()]
        monitor.update(kind, names, pivot, mask.to_sparse() if sparse else mask, source)
        for row in range(rows):
            sets = {"held": set(pieces[held[row]].tolist()), "source": set(pieces[source.active[row]].tolist())}
            sets["grounded"] = set(mask[row].nonzero().flatten().tolist())
            first = names[row] not in names[:row]
            texts.append({"kind": kind, "language": names[row], "pivot": pivot[row].tolist(), "first": first, **sets})
        assert min(len(texts), 20) <= monitor.texts < 20 + 7 + 2
        expected = plain_means(texts[-monitor.texts :])
        for kind in dict.fromkeys(text["kind"] for text in texts):
            expected |= plain_usage([text for text in texts if text["kind"] == kind], 8)
        assert monitor.figures() == pytest.approx(expected)
    assert monitor.seen == len(texts)


def test_without_texts_there_are_no_figures() -> None:
    """Figures whose input is missing are absent."""
    monitor = CollapseMonitor()
    assert monitor.figures() == {}
    assert monitor.warnings() == []
    feed(monitor, torch.ones(2, 4))
    names = {"pivot/terms/text", "pivot/terms/text/de", "pivot/dead/text", "pivot/always_on/text"}
    assert monitor.figures().keys() == names


def test_figures_are_finite_numbers() -> None:
    """Even if no text has a term, or a token."""
    monitor = watch()
    feed(monitor, torch.zeros(64, 5), torch.ones(64, 5, dtype=torch.bool), source=0)
    assert monitor.figures()["pivot/terms/text"] == 0
    nothing = SourceActivity(
        torch.arange(9), torch.zeros(64, 9, dtype=torch.bool), torch.zeros(64, 9, dtype=torch.bool), 9
    )
    monitor.update("query", ["de"] * 64, torch.zeros(64, 5), None, nothing)
    assert "source/dead/query" not in monitor.figures()
    assert all(isinstance(value, float) and math.isfinite(value) for value in monitor.figures().values())


def test_healthy_training_raises_no_alarm() -> None:
    """Sixty terms per text, half of them grounded, different ones for each text."""
    monitor = watch()
    for seed in range(5):
        feed(monitor, *batch(60, 0.5, seed=seed), source=10, languages=LANGUAGES)
        assert monitor.warnings() == []


def test_different_sizes_are_refused() -> None:
    """Languages, pivot and mask must be of the same texts."""
    with pytest.raises(ValueError, match=r"sizes differ: 2 languages, pivot \(3, 4\), grounded None"):
        CollapseMonitor().update("text", ["de", "ar"], torch.ones(3, 4))
    with pytest.raises(ValueError, match=r"grounded \(3, 5\)"):
        CollapseMonitor().update("text", ["de"] * 3, torch.ones(3, 4), torch.ones(3, 5, dtype=torch.bool))


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


def test_dead_and_always_on_terms_raise_alarms() -> None:
    """Forty terms for all texts are both."""
    monitor = watch()
    pivot = torch.zeros(64, PIECES)
    pivot[:, :40] = 1
    feed(monitor, pivot)
    dead, always_on = monitor.warnings()[-2:]
    assert "dead pivot terms (active in no text) 0.96, above 0.95" in dead
    assert "always-on pivot terms (active in more than half of the texts) 0.04, above 0.005" in always_on


def test_term_usage_alarms_name_view_and_language() -> None:
    """One language with forty terms and a dying LexEcho is named though the window over all languages is healthy."""
    monitor = watch(counted=200)
    for seed in range(9):
        feed(monitor, *batch(60, 0.9, seed=seed), source=10, kind="query")
    shrunk = torch.zeros(200, PIECES)
    shrunk[:, :40] = 1
    feed(monitor, shrunk[:199], source=2, kind="query", languages=["sw"])
    assert monitor.warnings() == []
    feed(monitor, shrunk[:1], source=2, kind="query", languages=["sw"])
    dead, always_on, dead_source = monitor.warnings()
    assert "(query): share of dead pivot terms" in dead and "0.96 in sw, above 0.95" in dead
    assert "(query): share of always-on pivot terms" in always_on and "0.04 in sw, above 0.005" in always_on
    assert "(query): share of dead source terms" in dead_source and "0.8 in sw, above 0.5" in dead_source


def test_source_terms_of_every_text_raise_an_alarm() -> None:
    """The same ten tokens in every text, each with a weight."""
    monitor = watch()
    pieces, everything = torch.arange(10), torch.ones(64, 10, dtype=torch.bool)
    monitor.update("passage", ["ja"] * 64, batch(60)[0], None, SourceActivity(pieces, everything, everything, 200))
    (sentence,) = monitor.warnings()
    assert "(passage): share of always-on source terms" in sentence and " 1, above 0.02" in sentence


def test_repeated_texts_do_not_count_for_term_usage() -> None:
    """The few sentences of a probe use few terms, however often they are encoded: only means are reported."""
    monitor = watch()
    for _ in range(4):
        monitor.update("probe", ["de"] * 20, batch(10, texts=20)[0], repeated=True)
    assert monitor.figures().keys() == {"pivot/terms/probe", "pivot/terms/probe/de"}
    assert monitor.warnings() == []


def test_an_alarm_is_raised_once_until_the_figure_recovers() -> None:
    """Inside its range by a tenth and out again, it is raised again."""
    monitor = watch()
    warned = []
    for grounded in (0.02, 0.02, 0.05, 0.02, 0.06, 0.02):
        feed(monitor, *batch(100, grounded))
        warned.append(len(monitor.warnings()))
    assert warned == [1, 0, 0, 0, 0, 1]


def test_languages_share_an_alarm() -> None:
    """Languages that leave a range together are listed; if all texts of the kind do, they are not."""
    monitor = CollapseMonitor(window=600, warm_up=0)
    languages = [f"l{number}" for number in range(6)]
    feed(monitor, *batch(60, 0.9, texts=400))
    feed(monitor, *batch(100, 0.02, texts=200), languages=languages)
    (sentence,) = monitor.warnings()
    assert "0.02 in l0, 0.02 in l1, 0.02 in l2, 0.02 in l3 and 2 more languages, below 0.05" in sentence
    feed(monitor, *batch(100, 0.02, texts=600), languages=languages)
    (sentence,) = monitor.warnings()
    assert "(text): share of grounded pivot terms 0.02, below 0.05" in sentence


def test_a_few_texts_raise_no_alarm() -> None:
    """Neither does a language with less than LEAST_TEXTS, a window that is not full, or the warm-up."""
    rare = watch()
    feed(rare, *batch(60, 0.9, texts=64))
    feed(rare, *batch(60, 0.0, texts=LEAST_TEXTS - 1), languages=["yo"])
    assert rare.warnings() == []
    short = CollapseMonitor(window=128, warm_up=0)
    early = watch(warm_up=128)
    for warned in (0, 1):
        for monitor in (short, early):
            feed(monitor, *batch(100, 0.02))
            assert len(monitor.warnings()) == warned


def test_a_halved_share_raises_an_alarm_inside_its_range() -> None:
    """From .9 to .4 is drift, although .4 is healthy for another teacher."""
    monitor = watch()
    warned = []
    for grounded in (0.9, 0.6, 0.4, 0.4):
        feed(monitor, *batch(60, grounded))
        warned.append(monitor.warnings())
    assert [len(sentences) for sentences in warned] == [0, 0, 1, 0]
    assert "(text): share of grounded pivot terms fell from 0.9 to 0.4" in warned[2][0]


class TinyMilco(torch.nn.Module):
    """The smallest MILCO: LogSat of the maximum over words of two languages, each with logits of 200 English words."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.randn(2 * WORDS, WORDS))

    def forward(self, words: Tensor) -> Tensor:
        """Encode int64 [B, S] to float [B, 200]."""
        return torch.log1p(torch.relu(self.logits[words].amax(dim=1)))


WORDS, BATCH = 200, 64


def train(model: TinyMilco, monitor: CollapseMonitor, steps: int, aligned: bool) -> None:
    """Align, or contrast texts with their translations under an L1 penalty."""
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
    """Contrast by itself learns latent terms; after alignment it keeps English ones, as in the paper."""
    torch.manual_seed(0)
    model = TinyMilco()
    if aligned:
        train(model, CollapseMonitor(), 150, aligned=True)
    monitor = CollapseMonitor(window=512, warm_up=0)
    train(model, monitor, 150, aligned=False)
    warned = [sentence for sentence in monitor.warnings() if "grounded" in sentence]
    assert len(warned) == (0 if aligned else 2), (monitor.figures(), warned)


def test_a_monitor_continues_from_a_saved_state(tmp_path: Path) -> None:
    """The same figures, the same warnings, and none that was raised before."""
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
