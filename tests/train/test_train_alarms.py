"""Collapse alarms: figures held against a plain count, and sentences when training leaves English behind."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from milco_pyserini.train.alarms import LEAST_TEXTS, CollapseMonitor, Source

LANGUAGES = ("ar", "de", "ja")
# Wide enough for ranges on shares of the vocabulary.
PIECES = 1000
# Of the source vocabulary.
SOURCE_PIECES = 40


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
    monitor.update(kind, names, pivot, grounded, None if source is None else echo(len(pivot), source))


def echo(texts: int, terms: int) -> Source:
    """Texts with ten pieces each, among which a text gives so many a weight, the same for every fourth text."""
    pieces = torch.arange(SOURCE_PIECES)
    held = pieces // 10 == torch.arange(texts).unsqueeze(1) % 4
    return Source(pieces, held, held & (pieces % 10 < terms), 5 * SOURCE_PIECES)


def watch(**options: int) -> CollapseMonitor:
    """A monitor that speaks as soon as 64 texts are there, 64 of a language about the terms that are in use."""
    return CollapseMonitor(window=64, **{"warm_up": 0, "counted": 64, **options})


def plain_means(texts: list[dict]) -> dict[str, float]:
    """The readable reference: the means that figures() should say of these texts."""
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
    """The readable reference: which terms are in use, by these texts of one kind."""
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
def test_figures_are_a_plain_count_over_the_last_texts(seed: int, sparse: bool) -> None:
    """Batches of any size and kind: equal to the references over the texts that the monitor says it looks at."""
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
        source = Source(pieces, held, held & (torch.rand(rows, 9, generator=generator) < 0.6), 30)
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


def test_no_text_has_no_figures() -> None:
    """Before the first batch there is nothing to say; figures that were not given are absent."""
    monitor = CollapseMonitor()
    assert monitor.figures() == {}
    assert monitor.warnings() == []
    feed(monitor, torch.ones(2, 4))
    names = {"pivot/terms/text", "pivot/terms/text/de", "pivot/dead/text", "pivot/always_on/text"}
    assert monitor.figures().keys() == names


def test_every_figure_can_be_logged() -> None:
    """Numbers only, no NaN, even when no text has a term, or a piece."""
    monitor = watch()
    feed(monitor, torch.zeros(64, 5), torch.ones(64, 5, dtype=torch.bool), source=0)
    assert monitor.figures()["pivot/terms/text"] == 0
    nothing = Source(torch.arange(9), torch.zeros(64, 9, dtype=torch.bool), torch.zeros(64, 9, dtype=torch.bool), 9)
    monitor.update("query", ["de"] * 64, torch.zeros(64, 5), None, nothing)
    assert "source/dead/query" not in monitor.figures()
    assert all(isinstance(value, float) and math.isfinite(value) for value in monitor.figures().values())


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
    assert any("dead pivot terms, English pieces that no text uses, of text 0.96, above 0.95" in one for one in said)
    assert any("that more than half of the texts use, of text 0.04, above 0.005" in one for one in said)


def test_terms_in_use_are_told_by_view_and_language() -> None:
    """One language that says everything with forty terms, and whose echo dies: it is named, in a window that is not."""
    monitor = watch(counted=200)
    for seed in range(9):
        feed(monitor, *batch(60, 0.9, seed=seed), source=10, kind="query")
    shrunk = torch.zeros(200, PIECES)
    shrunk[:, :40] = 1
    feed(monitor, shrunk[:199], source=2, kind="query", languages=["sw"])
    assert monitor.warnings() == []
    feed(monitor, shrunk[:1], source=2, kind="query", languages=["sw"])
    said = {
        sentence.split(",")[0].removeprefix("collapse alarm: share of "): sentence for sentence in monitor.warnings()
    }
    assert set(said) == {"dead pivot terms", "always-on pivot terms", "dead source terms"}
    assert "of query in sw 0.96, above 0.95" in said["dead pivot terms"]
    assert "of query in sw 0.04, above 0.005" in said["always-on pivot terms"]
    assert "have no weight wherever they stand, of query in sw 0.8, above 0.5: the echo" in said["dead source terms"]


def test_terms_that_every_text_holds_are_said_of_the_source_view() -> None:
    """The same ten pieces in every text, each with a weight: the echo leaves nothing out."""
    monitor = watch()
    pieces, everything = torch.arange(10), torch.ones(64, 10, dtype=torch.bool)
    monitor.update("passage", ["ja"] * 64, batch(60)[0], None, Source(pieces, everything, everything, 200))
    (sentence,) = monitor.warnings()
    assert "always-on source terms, pieces that more than half of the texts use, of passage 1, above 0.02" in sentence


def test_texts_that_come_again_do_not_count_as_new_ones() -> None:
    """A probe's few sentences use few terms, however often they are looked at: means, and nothing on terms in use."""
    monitor = watch()
    for _ in range(4):
        monitor.update("probe", ["de"] * 20, batch(10, texts=20)[0], repeated=True)
    assert monitor.figures().keys() == {"pivot/terms/probe", "pivot/terms/probe/de"}
    assert monitor.warnings() == []


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
