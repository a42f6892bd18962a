"""recipes/adapt: a model for one's own documents."""

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from golden_set import GOLDEN
from training_set import examples, write_lines

from milco_pyserini.corpora import Document, Query, open_corpus
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.known_items import KnownItems, make_known_items
from milco_pyserini.options import replace_options
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.train.stages import prepare_sct
from milco_pyserini.train.trainer import TrainingTask
from recipes.adapt import run
from recipes.adapt.__main__ import main
from recipes.adapt.preset import ADAPT
from recipes.adapt.queries import training_examples, write_examples, write_pairs
from recipes.adapt.report import (
    ALL,
    LEGS,
    OTHER,
    OWN,
    SAMPLE,
    JudgedCollection,
    Measured,
    TopicSet,
    leg_sets,
    misspelled,
    paired_interval,
    validate_legs,
)

TINY = GOLDEN / "ckpt_distillation"
SHORT = ["--encoder", str(TINY), "--steps", "2", "--batch-size", "8", "--device", "cpu", "--dtype", "float32"]
LIMITS = {"pivot_top_k": 9, "source_top_k": 3, "query_pivot_top_k": 5, "query_source_top_k": 2}
pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample in English, German and Swahili."""
    documents = [one for language in ("en", "de", "sw") for one in open_corpus(f"sample-{language}")]
    records = ({"id": one.id, "title": one.title, "text": one.text, "lang": one.id[:2]} for one in documents)
    return write_lines(tmp_path_factory.mktemp("docs") / "docs.jsonl", *records)


@pytest.fixture(scope="module")
def made(docs: Path) -> KnownItems:
    """The documents with a quarter held out."""
    return make_known_items(open_corpus(str(docs)), 0.25, groups(open_corpus(str(docs))))


def groups(documents: Iterable[Document], *_: object) -> dict[str, str]:
    """Take the documents of a number for translations, as find_parallel() returns them."""
    return {document.id: f"en{document.id[2:]}" for document in documents}


@pytest.fixture
def parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model finds nothing."""
    monkeypatch.setattr(run, "find_parallel", groups)


@pytest.fixture(scope="module")
def encoder() -> MilcoEncoder:
    """The tiny model."""
    return MilcoEncoder.from_pretrained(TINY, device="cpu", dtype="float32")


def vectors(made: KnownItems, encoder: MilcoEncoder) -> SparseBatch:
    """Return the vectors of a collection."""
    return encoder.encode_document([document.contents for document in made.documents])


def test_held_out_documents_are_not_trained_on(made: KnownItems, encoder: MilcoEncoder, tmp_path: Path) -> None:
    """No query and no passage is of a held-out document, whatever its kind."""
    found, counts = training_examples(made, encoder, vectors(made, encoder), 10_000, 1)
    assert {"titles", "terms"} <= counts.keys() and "sentences" not in counts and sum(counts.values()) == len(found)
    write_examples(found, tmp_path / "queries")
    held = [one for one in made.documents if one.id in made.held_out]
    texts = {text for one in examples(tmp_path / "queries") for text in (one.query, *one.positives)}
    assert not texts & {one.contents for one in held} | texts & {topic.text for topic in made.topics}
    assert len(examples(tmp_path / "queries")) == len(found)


def test_queries_come_from_headings_and_mentions_of_titles(encoder: MilcoEncoder) -> None:
    """A Markdown heading asks for its section, a sentence with a title for the document of that title."""
    section = "Press the red button until the lamp goes out, and wait for ten seconds."
    guide = Document("a", "Printer guide", f"## Restart the printer\n{section}\n## Paper\n{section} Then add paper.")
    other = Document("b", "Office", "Before you call anybody, please read the printer guide that is in the drawer.")
    held = KnownItems([guide, other], frozenset(), 0, 0)
    found = {one.query: one.positives[0] for one in training_examples(held, encoder, vectors(held, encoder), 100, 1)[0]}
    assert found["Printer guide Restart the printer"] == section
    assert found[other.text] == guide.contents


def test_pairs_of_held_out_documents_are_left_out(made: KnownItems, tmp_path: Path) -> None:
    """A topic is not learned as a translation."""
    topic = made.topics[0].text
    lines = [f"Satz {number}\tsentence {number}\n" for number in range(400)] + [f"{topic}\tits translation\n"]
    (tmp_path / "de-en.tsv").write_text("".join(lines), encoding="utf-8")
    assert write_pairs([str(tmp_path / "de-en.tsv")], made, tmp_path / "pairs", 400) == 400
    assert topic not in (tmp_path / "pairs" / "de-en.tsv").read_text(encoding="utf-8")


@pytest.fixture
def task(tmp_path: Path) -> TrainingTask:
    """The training of a tiny model, whose texts have few terms."""
    line = {"query": "the river", "positives": ["The Nile is a river."], "negatives": ["Bell had a telephone."]}
    data = write_lines(tmp_path / "pairs.en.jsonl", *[line] * 8)
    values = {"model": str(TINY), "data": (str(data),), "output": tmp_path, "dtype": "float32", "device": "cpu"}
    lengths = {"query_max_length": 16, "passage_max_length": 32}
    task = prepare_sct(replace_options(ADAPT, **values, **lengths, part_rates=()))
    for name, value in LIMITS.items():
        setattr(task.encoder.model.config, name, value)
    task.objective.eval()
    return task


def test_terms_of_the_start_cost_nothing_at_the_start(task: TrainingTask) -> None:
    """The regularizer is 0 before the first step, and not after a change."""
    batch = task.collate(next(task.stream.blocks(0, 4, slice(None))))
    batch.pop("languages")
    parts = task.objective(**batch)["parts"]
    assert parts["alignment"].item() == pytest.approx(0, abs=1e-6) and parts["infonce"] > 0
    with torch.no_grad():
        task.encoder.model.decoder.bias += 1
    assert task.objective(**batch)["parts"]["alignment"] > 0.1


def test_training_compares_the_terms_that_a_search_compares(task: TrainingTask) -> None:
    """Scores within the checkpoint's limits are those of the encoder."""
    (example,) = next(task.stream.blocks(0, 1, slice(None)))
    batch = task.collate([example])
    views, _, _ = task.objective.encode_views({name: batch[name] for name in ("query", "passage")})
    scores = sum(queries @ passages.T for queries, passages in views.values())
    encoder = MilcoEncoder.from_pretrained(TINY, device="cpu", dtype="float32", **LIMITS)
    expected = encoder.similarity([example.query], list(example.passages))
    assert scores.detach().numpy() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_translations_are_held_out_together_and_are_relevant(made: KnownItems) -> None:
    """Each leg has what is relevant where it searches, and titles only."""
    assert all(f"{language}{name[2:]}" in made.held_out for name in made.held_out for language in ("en", "de", "sw"))
    sets = leg_sets(made)
    topic = next(one for one in sets[ALL].topics if one.id.startswith("de"))
    own = set(sets[OWN].qrels[topic.id])
    assert {name[:2] for name in own} == {"de"} and {name[:2] for name in sets[OTHER].qrels[topic.id]} == {"en", "sw"}
    assert sets[ALL].qrels[topic.id].keys() == own | sets[OTHER].qrels[topic.id].keys()
    assert all("-title-" in one.id for judged in sets.values() for one in judged.topics)


def test_topics_of_one_document_and_its_translations_judge_nothing() -> None:
    """However many they are, no interval can be resampled from them."""
    languages = "ar de en es fr hi id ja ko sw th yo zh".split()
    documents = [Document(language, "", "text", {"lang": language}) for language in languages]
    topics = [Query(f"{language}-sentence-{number}", "text") for language in languages for number in (1, 2)]
    relevant = {topic.id: dict.fromkeys(languages, 1) for topic in topics}
    held = KnownItems(documents, frozenset(languages), 0, 0, topics, relevant)
    with pytest.raises(MilcoError, match=r"all topics held out for .* are of one document and its translations"):
        validate_legs(held, "docs.jsonl")


def measured(made: KnownItems, **gains: float) -> Measured:
    """Return runs in which the ranks of relevant documents are better after training, in legs with a positive gain."""
    sets = leg_sets(made)
    sets[SAMPLE] = TopicSet(sets[ALL].topics, sets[ALL].qrels)
    runs: dict[str, dict] = {}
    for system in ("before", "after"):
        runs[system] = {}
        for leg, judged in sets.items():
            bonus = gains.get(leg.replace(" ", "_"), 0.0) if system == "after" else 0.0
            found = runs[system].setdefault(leg, {})
            for number, topic in enumerate(judged.topics):
                relevant = judged.qrels[topic.id]
                others = {
                    one.id: 1.0 - place / 100
                    for place, one in enumerate(made.documents[:30])
                    if one.id not in judged.qrels[topic.id]
                }
                found[topic.id] = {**others, **dict.fromkeys(relevant, 0.9 + bonus + number % 7 / 100)}
    return Measured(made, [JudgedCollection(made.documents, sets)], runs)


def test_one_leg_has_to_gain_and_none_may_lose(made: KnownItems) -> None:
    """A gain in the own language does not outweigh a loss among all languages at once."""
    assert measured(made, own_language=0.05).has_gained()
    assert not measured(made).has_gained() and not measured(made, sample=0.05).has_gained()
    lost = measured(made, own_language=0.05, all_languages_at_once=-0.05)
    assert not lost.has_gained() and "all languages at once loses nDCG@10" in lost.verdict()
    assert all(f"{leg} 0." in lost.verdict() for leg in LEGS)
    assert not measured(made, own_language=0.05, sample=-0.05).has_gained()
    table = measured(made, all_languages_at_once=0.05).changed()
    assert 0 < len(table.rows) <= 10 and all(row[-1] > row[-2] for row in table.rows)


def test_a_leg_that_cannot_be_judged_keeps_the_old_model(made: KnownItems) -> None:
    """Topics for which neither model finds anything do not count."""
    found = measured(made, own_language=0.05)
    for runs in found.runs.values():
        runs[OTHER] = {topic: {"other": 1.0} for topic in runs[OTHER]}
    assert not found.has_gained() and "another language cannot be judged (0 topics)" in found.verdict()


def test_misspelled_topics_differ(made: KnownItems) -> None:
    """Each has an error in one word, at most."""
    texts = {topic.id: topic.text for topic in made.topics}
    changed = {topic.id: topic.text for topic in misspelled(made.topics)}
    assert len(changed) > len(texts) / 2
    assert all(len(texts[name]) == len(text) for name, text in changed.items())


@pytest.mark.usefixtures("parallel")
def test_without_a_gain_there_is_a_report_and_no_model(
    docs: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """It states so in one sentence, ends well, and has nothing to do when it runs again."""
    output = tmp_path / "adapted"
    command = [str(docs), "--output", str(output), "--held-out", ".25", *SHORT]
    assert main(command) == 0
    printed = capfd.readouterr().err
    assert "150 documents (en 50, de 50, sw 50)" in printed and "No model: nDCG@10 own language" in printed
    assert {path.name for path in output.iterdir()} == {"adapt.json", "held-out", "report.html", "report.md"}
    report = (output / "report.md").read_text(encoding="utf-8")
    assert "nDCG@10" in report and "sample misspelled" in report and "| de " in report and "another language" in report
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    assert main(command) == 0
    assert "is up to date" in capfd.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    assert main([*command, "--seed", "2"]) == 2
    assert "--overwrite" in capfd.readouterr().err


@pytest.mark.usefixtures("parallel")
def test_a_rejected_model_is_kept_on_request(docs: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """It is in a directory of its own, where no command takes it for the result, and the legs are in the record."""
    output = tmp_path / "adapted"
    command = [str(docs), "--output", str(output), "--held-out", ".25", *SHORT]
    assert main([*command, "--keep-rejected"]) == 0
    record = json.loads((output / "adapt.json").read_text())
    assert record["gain"] is False and {leg["leg"] for leg in record["legs"]} == set(LEGS)
    assert all(leg["low"] <= leg["high"] and leg["topics"] >= 20 for leg in record["legs"])
    assert not (output / "config.json").exists()
    assert MilcoEncoder.from_pretrained(output / "rejected", device="cpu").encode_query(["a river"]).shape[0] == 1
    assert "No model" in (output / "rejected" / "README.md").read_text(encoding="utf-8")
    assert main(command) == 2
    assert "--overwrite" in capfd.readouterr().err


def test_translations_of_a_topic_are_one_draw_of_the_bootstrap() -> None:
    """Topics that rise and fall together show no more than one of them."""
    draw = random.Random(1)
    differences = [draw.gauss(0.1, 1) for _ in range(40)]
    low, high = paired_interval([[value] for value in differences])
    assert paired_interval([[value] * 13 for value in differences]) == pytest.approx((low, high))
    apart_low, apart_high = paired_interval([[value] for value in differences for _ in range(13)])
    assert apart_high - apart_low < (high - low) / 2
    assert paired_interval([[0.0], [0.0, 0.0]]) == (0, 0)


@pytest.mark.usefixtures("parallel")
def test_a_better_model_states_what_it_was_adapted_from(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output is a checkpoint with a card."""
    monkeypatch.setattr(Measured, "has_gained", lambda self: True)
    output = tmp_path / "adapted"
    assert main([str(docs), "--output", str(output), "--held-out", ".25", *SHORT]) == 0
    assert MilcoEncoder.from_pretrained(output, device="cpu").encode_query(["a river"]).shape[0] == 1
    card = (output / "README.md").read_text(encoding="utf-8")
    assert f"base: {TINY}" in card and "150 documents (en 50, de 50, sw 50)" in card and "2 steps" in card
    assert json.loads((output / "adapt.json").read_text())["gain"] is True


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        (
            [
                {
                    "id": str(n),
                    "title": f"Town {n}",
                    "text": 9 * f"Town {n} is old. ",
                }
                | {"lang": "en"}
                for n in range(400)
            ],
            "its documents are in one language",
        ),
        ([{"id": "a", "text": "One sentence."}], "at least 50 are needed"),
        ([{"id": str(n), "text": f"Short {n}.", "lang": "en"} for n in range(90)], "a test of significance needs 20"),
    ],
)
def test_bad_documents_are_one_line_and_leave_nothing(
    records: list[dict], problem: str, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """Before training, with exit code 2."""
    path = write_lines(tmp_path / "docs.jsonl", *records)
    assert main([str(path), "--output", str(tmp_path / "adapted"), *SHORT]) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and problem in lines[0]
    assert not (tmp_path / "adapted").exists()


@pytest.mark.usefixtures("parallel")
def test_too_few_texts_leave_nothing_that_blocks_the_corrected_command(
    docs: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """Neither too few translations nor too few queries begin the output, and an earlier one is kept."""
    output, pairs = tmp_path / "adapted", tmp_path / "de-en.tsv"
    command = [str(docs), "--output", str(output), "--held-out", ".25", *SHORT]
    for number, needed in ((20, "20 English sentences"), (111, "at least 112 are needed")):
        pairs.write_text("".join(f"Satz {line}\tsentence {line}\n" for line in range(number)), encoding="utf-8")
        assert main([*command, "--parallel", str(pairs)]) == 2
        assert needed in capfd.readouterr().err and not output.exists()
    assert main(["1000" if part == "8" else part for part in command]) == 2
    assert "can be made of them" in capfd.readouterr().err and not output.exists()
    assert main(command) == 0
    before = (output / "report.md").read_bytes()
    assert main([*command, "--parallel", str(pairs), "--overwrite"]) == 2
    assert (output / "report.md").read_bytes() == before


def test_documents_without_titles_are_reported(made: KnownItems) -> None:
    """Other kinds of queries take their place."""
    untitled = replace(made, documents=[replace(one, title="") for one in made.documents], untitled=len(made.documents))
    assert "150 documents without a title" in list(untitled.describe())
