"""recipes/adapt: a model for one's own documents."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from golden_set import GOLDEN
from training_set import examples, write_lines

from milco_pyserini.corpora import Document, open_corpus
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.eval.known_items import KnownItems, make_known_items
from milco_pyserini.options import replace_options
from milco_pyserini.train.stages import prepare_sct
from milco_pyserini.train.trainer import TrainingTask
from recipes.adapt.__main__ import main
from recipes.adapt.preset import ADAPT
from recipes.adapt.queries import training_examples, write_examples, write_pairs
from recipes.adapt.report import HELD_OUT, JudgedCollection, Measured, misspelled

TINY = GOLDEN / "ckpt_distillation"
SHORT = ["--encoder", str(TINY), "--steps", "2", "--batch-size", "8", "--device", "cpu", "--dtype", "float32"]
LIMITS = {"pivot_top_k": 9, "source_top_k": 3, "query_pivot_top_k": 5, "query_source_top_k": 2}
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample in English, German and Swahili."""
    documents = [one for language in ("en", "de", "sw") for one in open_corpus(f"sample-{language}")]
    records = ({"id": one.id, "title": one.title, "text": one.text, "lang": one.id[:2]} for one in documents)
    return write_lines(tmp_path_factory.mktemp("docs") / "docs.jsonl", *records)


@pytest.fixture(scope="module")
def made(docs: Path) -> KnownItems:
    """The documents with a quarter held out."""
    return make_known_items(open_corpus(str(docs)), 0.25)


@pytest.fixture(scope="module")
def encoder() -> MilcoEncoder:
    """The tiny model."""
    return MilcoEncoder.from_pretrained(TINY, device="cpu", dtype="float32")


def test_held_out_documents_are_not_trained_on(made: KnownItems, encoder: MilcoEncoder, tmp_path: Path) -> None:
    """No query and no passage is of a held-out document, whatever its kind."""
    found, counts = training_examples(made, encoder, 10_000, 1)
    assert {"titles", "sentences", "terms"} <= counts.keys() and sum(counts.values()) == len(found)
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
    found = {one.query: one.positives[0] for one in training_examples(held, encoder, 100, 1)[0]}
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


def measured(made: KnownItems, gain: float) -> Measured:
    """Return runs in which the rank of each held-out document is better after training, if gain is positive."""
    runs: dict[str, dict] = {}
    for system, bonus in (("before", 0.0), ("after", gain)):
        found = {}
        for number, topic in enumerate(made.topics):
            (docid,) = made.qrels[topic.id]
            others = {one.id: 1.0 - place / 100 for place, one in enumerate(made.documents[:20]) if one.id != docid}
            found[topic.id] = {**others, docid: 0.9 + bonus + number % 7 / 100}
        runs[system] = {HELD_OUT: found}
    return Measured(made, [JudgedCollection(made.documents, {HELD_OUT: made.topics}, made.qrels)], runs)


def test_only_a_significant_gain_is_one(made: KnownItems) -> None:
    """Equal and worse models are not kept."""
    assert measured(made, 0.05).has_gained()
    assert not measured(made, 0.0).has_gained() and not measured(made, -0.05).has_gained()
    table = measured(made, 0.05).changed()
    assert 0 < len(table.rows) <= 10 and all(row[-1] > row[-2] for row in table.rows)


def test_misspelled_topics_differ(made: KnownItems) -> None:
    """Each has an error in one word, at most."""
    texts = {topic.id: topic.text for topic in made.topics}
    changed = {topic.id: topic.text for topic in misspelled(made.topics)}
    assert len(changed) > len(texts) / 2
    assert all(len(texts[name]) == len(text) for name, text in changed.items())


def test_without_a_gain_there_is_a_report_and_no_model(
    docs: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """It states so in one sentence, ends well, and has nothing to do when it runs again."""
    output = tmp_path / "adapted"
    command = [str(docs), "--output", str(output), "--held-out", ".25", *SHORT]
    assert main(command) == 0
    printed = capfd.readouterr().err
    assert "150 documents (en 50, de 50, sw 50)" in printed and "No gain, no model" in printed
    assert {path.name for path in output.iterdir()} == {"adapt.json", "held-out", "report.html", "report.md"}
    report = (output / "report.md").read_text(encoding="utf-8")
    assert "nDCG@10" in report and "sample misspelled" in report and "| de " in report
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    assert main(command) == 0
    assert "is up to date" in capfd.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    assert main([*command, "--seed", "2"]) == 2
    assert "--overwrite" in capfd.readouterr().err


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
    assert "No document has a title: queries are sentences, headings and terms" in list(untitled.describe())
