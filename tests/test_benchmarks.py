"""Each benchmark runs end to end on a few texts and prints its table; the results themselves are not tested."""

import csv
import gzip
import importlib
import importlib.util
import io
import itertools
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from types import ModuleType

import numpy as np
import orjson
import pytest
from opensearch_cluster import Cluster

from milco_pyserini.cli.main import main
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.train.data.retrieval import RetrievalExample

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent / "benchmarks"
CHECKPOINT = str(Path(__file__).parent / "data" / "golden" / "ckpt_distillation")
ENCODER = ["--encoder", CHECKPOINT, "--device", "cpu", "--dtype", "float32"]
TEXTS = ["old harbour", "first book train", "river bridge", "every summer market", "the old train", "book of the river"]
Load = Callable[[str], ModuleType]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return a function that imports benchmarks/NAME.py."""

    def import_program(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(ROOT))
        return importlib.import_module(name)

    return import_program


@pytest.fixture
def one_process(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in this process what benchmarks run in fresh ones, so that Java and Pyserini are started once."""
    # Not importorskip(): importing jnius starts Java, without Anserini's classes.
    if importlib.util.find_spec("jnius") is None:
        pytest.skip("pyjnius is not installed")
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    names = ("lucene_indexing", "lucene_search", "seismic_pruning", "table_curve", "table_engines", "table_command")
    for name in names:
        monkeypatch.setattr(load(name), "in_fresh_process", lambda work, *arguments: work(*arguments))


@pytest.fixture
def small_parts(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw synthetic documents by the hundred in two languages, tune on few topics, and time after one pass."""
    monkeypatch.setattr(load("topical_vectors"), "PART", 400)
    monkeypatch.setattr(load("topical_vectors"), "LANGUAGES", 2)
    monkeypatch.setattr(load("table_engines"), "TUNING_TOPICS", 40)
    monkeypatch.setattr("experiments.timing.WARM_UP_SECONDS", 0.0)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    lines = [f"{number}\t{text}\t{text}\n" for number, text in enumerate(TEXTS)]
    for language in ("xx", "yy"):
        (tmp_path / f"{language}-en.tsv").write_text("".join(lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    documents = [{"id": f"d{number}", "contents": text} for number, text in enumerate(TEXTS)]
    (tmp_path / "corpus.en.jsonl.gz").write_bytes(gzip.compress(b"\n".join(map(orjson.dumps, documents))))
    numbers = range(len(TEXTS))
    (tmp_path / "queries.en.tsv").write_text("".join(f"q{n}\t{TEXTS[n]}\n" for n in numbers), encoding="utf-8")
    (tmp_path / "qrels.en.txt").write_text("".join(f"q{n} 0 d{n} 1\n" for n in numbers), encoding="utf-8")
    return tmp_path


@pytest.fixture
def held_out_data(tmp_path: Path) -> Path:
    """Two datasets of one name and one across languages, whose passages are their queries."""
    (tmp_path / "retrieval").mkdir()
    for number, name in enumerate(("quiz.de", "quiz.fr", "afriqa-xen.yo")):
        texts = [f"{TEXTS[row % 6]} {TEXTS[row % 5]} {row} {number}" for row in range(40)]
        lines = [orjson.dumps({"query": text, "positive": text, "title": ""}) for text in texts]
        (tmp_path / "retrieval" / f"{name}.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines)))
    return tmp_path


@pytest.fixture
def card_data(held_out_data: Path, pairs: Path, collection: Path) -> Path:
    """Every set of the model card and a dictionary, small."""
    data, folder = held_out_data / "eval", held_out_data / "lexicon" / "omw"
    for name in ("flores", "tatoeba"):
        (data / name).mkdir(parents=True)
        for path in pairs.glob("*-en.tsv"):
            shutil.copy(path, data / name)
    for name in ("cmrc2018", "limit-small", "cacm", "vaswani"):
        (data / name).mkdir()
        for path in collection.glob("*.en.*"):
            shutil.copy(path, data / name)
    folder.mkdir(parents=True)
    (folder / "de-en.tsv.gz").write_bytes(gzip.compress(b"Schiff\tship\nSchiff\tvessel\nKahn\tvessel\nKahn\tship\n"))
    return held_out_data


def test_a_sentence_that_is_its_own_translation_is_found_first(load: Load, pairs: Path, capsys: Capture) -> None:
    """crosslingual prints a row per language and for their mean, and columns per view."""
    module = load("crosslingual")
    assert module.main(["--data", str(pairs), *ENCODER, "--views", "source", "both"]) == 0
    head, *rows, _, note = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "dataset"
    assert "R@1 source" in head and "RR both" in head and "terms both" in head
    assert [row.split()[0] for row in rows] == ["xx", "yy", "mean"]
    assert len({tuple(row.split()[1:]) for row in rows}) == 1
    assert "12 sentences" in note


def test_pooled_search_finds_the_translations_in_other_languages(load: Load, pairs: Path) -> None:
    """Equal sentences in two files: each finds the other first, and the ten best have both languages."""
    one = load("crosslingual")
    read = {language: one.read_pairs(pairs / f"{language}-en.tsv") for language in ("xx", "yy")}
    indptr, columns = np.arange(7), np.arange(6, dtype=np.int32)
    batch = SparseBatch(indptr, columns, np.ones(6, np.float32), 9)
    values = one.pooled({"xx": batch, "yy": batch}, read, ("pivot",))
    assert values["xx"]["pooled nDCG@20"].tolist() == pytest.approx([1] * 6)
    assert values["yy"]["OwnLanguage@10"].tolist() == [0] * 6


def test_ties_count_half_and_no_common_term_means_not_found(load: Load) -> None:
    """Ranks 1, 1.5 (a tie) and none."""
    english = SparseBatch(np.array([0, 1, 2, 3]), np.array([0, 1, 1], np.int32), np.ones(3, np.float32), 9)
    sentences = SparseBatch(np.array([0, 1, 2, 3]), np.array([0, 1, 5], np.int32), np.ones(3, np.float32), 9)
    found = load("crosslingual").measures(sentences, english, np.array([0, 1, 2]), ("pivot",))
    assert found["R@1"].tolist() == [1, 0, 0]
    assert found["R@10"].tolist() == [1, 1, 0]
    assert found["RR"].tolist() == pytest.approx([1, 1 / 1.5, 0])


# Program -> its options for a few texts, and words of its lines in order.
PROGRAMS = {
    "balance": (
        "--data {data} {encoder} --languages xx yy --dominant xx yy --strengths 0 1 --draws 2",
        (" 0.000 ", " 1.000 ", " 0.000 ", " 1.000 "),
    ),
    "bm25": ("--data {data} --languages sw", ("sample-sw ", " 0.0000 ", " 0.0000", "sample, mean ", "cmrc2018 ")),
    "encoding": (
        "--layers 1 --documents 2 --median 9 --longest 20 --head-texts 1 --threads 1 --repeats 1 --dtype float32",
        ("limit", " 0.0% padding", "documents/s", "int8 ", "one query", "ms packed, "),
    ),
    "explained": (
        "--queries 5 --k 2 {encoder}",
        ("lucene: 5 queries, 10 hits, largest difference 0\n", "exact: 5 queries, 10 hits, largest difference 0\n"),
    ),
    "first_hit": (
        "--corpus {corpus} --encoder {checkpoint} --engines exact --repeats 1",
        ("CPU s", "first vector", "first hit, exact"),
    ),
    "gpu": (
        "{encoder} --dtype float32 --documents 40 --median 10 --longest 20 --repeats 1",
        ("cpu, torch ", "2 layers, 40 texts, ", "limit ", "documents/s", "one query of 16 tokens: ", "on CUDA only"),
    ),
    "help_time": ("--repeats 1 --commands encode index", ("encode", "index", "slowest")),
    "keywords": (
        "--data {data} {encoder} --sentences 3 --format csv",
        ("words of the query,", "structured queries", "10 keywords,", "all keywords,", "both sides,", "10 strongest,"),
    ),
    "languages": ("--data {data} {encoder} --sentences 3 --format csv", ("R@1,all,own,other,spelled", "en,,", "sw,")),
    "lexecho": ("{encoder} --topics 2 --languages sw", ("1 language;", "mean of 50 topics")),
    "lucene_indexing": ("--documents 40 --threads 1 --repeats 1", ("threads", "ratio", "40 documents")),
    "lucene_search": (
        "--documents 40 --queries 3 --k 10 --passes 1 --repeats 1",
        ("open, first", "open, again", "search, k=10", "equal for all of 3 searches"),
    ),
    "memory": (
        "--data {data}/eval/flores --notes 2 {encoder}",
        ("ms to recall", "MILCO", "FTS5 unicode61", "FTS5 trigram", "FTS5 with English keywords", "6 notes"),
    ),
    "quantization": (
        "--corpus {corpus} --topics {topics} --k 3 --scales 1 1000 {encoder}",
        ("scale", "overlap@3", "identical", "impacts", "1.0000"),
    ),
    "reasons": ("--data {data} {encoder} --sentences 3 --format csv", ("FLORES,", "sample,")),
    "same_language": (
        "--data {data} {encoder} --bm25",
        ("BM25", "BM25, tokens", "pivot", "source", "both", "both + BM25"),
    ),
    "scale": (
        "--documents 60 120 --queries 3 --k 5 --rounds 1 --threads 1 --output {data}/rows.json --plot {data}/rows.png",
        ("100,000,000",) * 5,
    ),
    "seismic_pruning": (
        "--documents 60 --queries 3 --rounds 1 --threads 1 --terms 30 60 --work {data} --output {data}/rows.json",
        ("30", "60"),
    ),
    "serve_load": (
        "{encoder} --engine exact --clients 1 3 --requests 20",
        ("clients", "library", "50 of 50 queries have the scores"),
    ),
    "skipping": ("--documents 2000 --queries 2 --blocks 32 --k 10", ("Lucene index",)),
    "spelling": ("--data {data} {encoder} --sentences 3 --format csv", ("sample, loss", "ue,", "upper,")),
    "training_batches": (
        "--batches 64 512 --count 4000 --scale .0005 --languages 3",
        ("batch", "share of a source: at most", "memory", "first batch"),
    ),
    "training_throughput": (
        "--model {checkpoint} --device cpu --dtype float32 --batch 4 --tokens 8 --repeats 1",
        ("pairs/s", "%"),
    ),
}


@pytest.mark.integration
@pytest.mark.usefixtures("one_process", "small_parts")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_its_table(
    name: str, load: Load, card_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """From the first line to the last."""
    if name == "seismic_pruning":
        pytest.importorskip("seismic", reason="pyseismic-lsr is not installed")
    options, words = PROGRAMS[name]
    module = load(name)
    monkeypatch.setattr(module, "_PRODUCT", (64, 64, 64), raising=False)
    monkeypatch.setattr(module, "CORPUS", "sample-ja", raising=False)
    files = {"corpus": card_data / "corpus.en.jsonl.gz", "topics": card_data / "queries.en.tsv", "data": card_data}
    encoder = f"--encoder {CHECKPOINT} --device cpu"
    assert module.main(options.format(**files, encoder=encoder, checkpoint=CHECKPOINT).split()) == 0
    shown = capsys.readouterr().out
    for word in words:
        _, found, shown = shown.partition(word)
        assert found, word


@pytest.mark.parametrize(
    ("name", "columns", "sets"),
    [("mini", ["as encoded", "pivot view", "source view"], 15), ("dense_baseline", ["plain", "centered"], 13)],
)
def test_a_row_per_set_of_the_model_card(
    load: Load, card_data: Path, name: str, columns: list[str], sets: int, capsys: Capture
) -> None:
    """For milco-mini with a column per view, and balanced; for its baseline plain and centered."""
    assert load(name).main(["--data", str(card_data), *ENCODER, "--format", "csv"]) == 0
    head, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert head == ["set and measure", *columns]
    values = {row[0]: row[1:] for row in rows}
    assert {"sample, all languages, OwnLanguage@10", "held-out queries, nDCG@10", "FLORES, pooled nDCG@20"} <= set(
        values
    )
    assert len(values) == sets
    assert all(0 <= float(value) <= 1 for row in values.values() for value in row)


def test_answers_are_looked_for_in_snippets_and_contexts(load: Load, tmp_path: Path, capsys: Capture) -> None:
    """A row per file of questions, whose ids are those of the passages; a file without such ids is refused."""
    evidence, fill = (
        load("evidence"),
        "The orchestra plays on a long summer evening in the old hall of the harbor. " * 4,
    )
    answer = "Alexander Graham Bell patented the telephone in 1876."
    for name, ident, question in (("en", "1", "Who patented the telephone?"), ("xx", "2", "?")):
        item = {"id": ident, "question": question, "answers": [{"text": "Bell"}]}
        content = {"data": [{"paragraphs": [{"context": f"{fill}{answer} {fill}", "qas": [item]}]}]}
        (tmp_path / f"{name}.json").write_bytes(orjson.dumps(content))
    passages = ["--passages", str(tmp_path / "en.json"), "--format", "csv"]
    assert evidence.main([*passages, "--questions", str(tmp_path / "en.json"), "--share", "1"]) == 0
    ((_, snippet, *_, kept),) = list(csv.reader(capsys.readouterr().out.splitlines()[1:2]))
    assert float(snippet) == float(kept) == 1
    assert evidence.main([*passages, "--questions", str(tmp_path / "xx.json")]) == 2
    assert "no question has an id of" in capsys.readouterr().err


def test_held_out_queries_search_their_passages(load: Load, held_out_data: Path, capsys: Capture) -> None:
    """held_out prints a row per dataset and view, and selects no query that the recipe trains on."""
    from recipes.milco_mini.data import is_for_training

    module = load("held_out")
    sizes = ["--queries", "3", "--passages", "9"]
    assert module.main(["--data", str(held_out_data), *ENCODER, *sizes]) == 0
    head, *rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert head.split() == ["dataset", "run", "nDCG@10", "R@10"]
    sets = ["afriqa-xen.yo", "quiz.de", "quiz.fr", "mean"]
    assert [row.split()[:2] for row in rows] == [[name, view] for name in sets for view in ("pivot", "source", "both")]
    assert all(float(row.split()[3]) == 1 for row in rows if row.split()[1] == "both")
    found = module.held_out(module.HeldOutOptions(held_out_data, queries=3, passages=9))
    assert [(one.name, list(one.queries), len(one.passages)) for one in found] == [
        ("afriqa-xen", ["yo"], 9),
        ("quiz", ["de", "fr"], 9),
    ]
    for collection in found:
        for queries in collection.queries.values():
            assert 0 < len(queries) <= 3
            for query in queries:
                passage = collection.passages[query.passage]
                assert passage == query.text
                assert not is_for_training(RetrievalExample("und", query.text, (passage,), ()))


@pytest.mark.integration
@pytest.mark.usefixtures("one_process", "small_parts")
def test_the_table_has_all_engines_and_their_peers(load: Load, tmp_path: Path, capsys: Capture) -> None:
    """python benchmarks prints a row per system, as JSON with the rounds, and plots them."""
    module, picture = load("table_command"), tmp_path / "table.png"
    sizes = ["--documents", "60", "--queries", "3", "--repeats", "1", "--threads", "1"]
    parts = ["--only", "write", "engines", "--plot", str(picture), "--format", "json"]
    assert module.main([*sizes, *parts]) == 0
    table = orjson.loads(capsys.readouterr().out)
    steps = {step: list(rows) for step, rows in itertools.groupby(table["rows"], lambda row: row["step"])}
    tuned = ["tune to recall@10 0.96"] if importlib.util.find_spec("seismic") else []
    assert list(steps) == ["write vectors", "index a pivot view", *tuned, "search a pivot view, k=10"]
    assert all(row["figures"]["disk MB"] > 0 for row in steps["index a pivot view"] if row["figures"])
    searched = {row["system"]: row["figures"] for row in steps["search a pivot view, k=10"] if row["figures"]}
    assert {"exact", "lucene", "Pyserini LuceneImpactSearcher", "scipy, sparse product"} <= set(searched)
    assert searched["exact"]["recall@10"] == 1 and searched["lucene"]["recall@10"] > 0.9
    assert all(len(row["ratios"]) == 1 for row in steps["write vectors"][1:])
    assert picture.read_bytes().startswith(b"\x89PNG") and table["documents"] == 60


@pytest.mark.integration
@pytest.mark.usefixtures("one_process")
def test_the_curve_has_a_row_per_step_and_engine(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    """python benchmarks --only curve prints time and peak memory of encode, index and search."""
    write_collection = load("lucene_indexing").write_collection
    encode = lambda root, count, options: (write_collection(root, count, 900), 1.0)  # noqa: E731
    monkeypatch.setattr(load("encode_memory"), "encode", encode)
    module, picture = load("table_command"), tmp_path / "curve.png"
    sizes = ["--only", "curve", "--curve", "20", "--plot", str(picture)]
    assert module.main([*sizes, "--format", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    engines = 2 + sum(importlib.util.find_spec(name) is not None for name in ("seismic", "qdrant_edge"))
    assert [row["step"].split()[:2] for row in rows] == [
        ["encode", "20"],
        *[["index", "20"], ["search", "20"]] * engines,
    ]
    assert all(float(row["MB"]) > 0 for row in rows) and picture.is_file()


@pytest.fixture
def help_pages(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty help pages of eight paragraphs in English and Spanish. The first is not translated, two have one title."""
    for name in ("adapt", "manuals"):
        monkeypatch.setattr(load(name), "LANGUAGES", ("en", "es"))
    monkeypatch.setattr(load("adapt"), "MODULES", ("swriter/guide",))
    for code, page, number_of in (("en-US", "page", "with its number"), ("es", "página", "con su número")):
        directory = tmp_path / "usr/share/libreoffice/help" / code / "text/swriter/guide"
        directory.mkdir(parents=True)
        for number in range(20):
            name, rest = ("page", "with its number") if number == 0 else (page, number_of)
            title = f"{page} {min(number, 18)}"
            described = f"The first sentence of {name} {number}. The second." if number else "Opening"
            parts = [f"Text {part} of {name} {number}, {rest}." for part in range(5)]
            body = "".join(f"<p>{part}</p>" for part in (described, *parts, "Never translated at all."))
            text = f'<title>{title}</title><div id="DisplayArea"><h1>The {title}</h1>{body}</div>'
            (directory / f"{number}.html").write_text(text, encoding="utf-8")
    return tmp_path


def test_pages_are_split_by_name_in_all_languages(load: Load, help_pages: Path, tmp_path: Path) -> None:
    """A page is trained on or measured, whatever its language; an untranslated page is neither."""
    adapt = load("adapt")
    pages = adapt.read_help(help_pages)
    assert len(pages["en"]) == 20 and pages["en"].keys() - pages["es"].keys() == {"swriter/guide/0.html"}
    adapt.write_documents(pages, tmp_path / "out")
    records = [orjson.loads(line) for line in (tmp_path / "out" / "docs.jsonl").read_bytes().splitlines()]
    trained = {record["id"].partition(":")[2] for record in records}
    assert 0 < len(trained) < 20 and trained == {page.name for page in pages["en"].values() if adapt.is_trained(page)}
    pairs = (tmp_path / "out" / "pairs" / "es-en.tsv").read_text(encoding="utf-8").splitlines()
    assert len(pairs) == 6 * (len(trained) - ("swriter/guide/0.html" in trained))


def test_unseen_titles_search_for_all_translations(load: Load, help_pages: Path) -> None:
    """Without titles in the texts, and without a title that two pages of a language have."""
    adapt = load("adapt")
    pages = adapt.chosen_pages(adapt.read_help(help_pages), 20, 40)
    made = adapt.unseen_items(pages, 3)
    unseen = {page.name for page in pages["en"].values() if not adapt.is_trained(page, 3)}
    assert {document.id.partition(":")[2] for document in made.documents} == unseen
    assert all(len(document.contents.encode()) <= 40 and not document.title for document in made.documents)
    shared = {f"swriter/guide/{number}.html" for number in (18, 19)}
    assert {docid.partition(":")[2] for grades in made.qrels.values() for docid in grades} == unseen - shared
    assert all(len(grades) == 2 for topic, grades in made.qrels.items() if "en:swriter/guide/0.html" not in grades)


def test_a_package_has_the_title_of_its_description(load: Load, tmp_path: Path) -> None:
    """Not its checksum, and only if every language has it."""
    text = 9 * "The first paragraph of it. "
    for language, title, names in (("en", "editor for notes", "abc"), ("de", "Editor für Notizen", "ab")):
        record = (
            f"Package: {{0}}\nDescription-md5: 0123\nDescription-{language}: {title} {{0}}\n {text}\n .\n The end.\n"
        )
        records = map(record.format, names)
        (tmp_path / f"debian_Translation-{language}").write_text("\n".join(records), encoding="utf-8")
    pages = load("adapt").read_packages(tmp_path, ("en", "de"))
    assert [page.title for page in pages["de"].values()] == ["Editor für Notizen a", "Editor für Notizen b"]
    assert pages["en"].keys() == {"a", "b"} and pages["en"]["a"].paragraphs == [text.strip(), "The end."]


@pytest.mark.integration
def test_the_word_of_the_gate_is_held_against_unseen_titles(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The table has every leg of both sides, of a model that the gate rejects, too."""
    draw = random.Random(1)
    words = [f"{''.join(draw.choices('bdgklmnprst', k=3))}{vowel}n" for vowel in "aeiou" for _ in range(30)]
    for language in ("en", "de"):
        records = []
        for number in range(120):
            title, *texts = (" ".join(draw.choices(words, k=size)) for size in (4, 12, 12, 12))
            records.append(f"Package: p{number}\nDescription-{language}: {title}\n " + "\n .\n ".join(texts) + "\n")
        (tmp_path / f"debian_Translation-{language}").write_text("\n".join(records), encoding="utf-8")
    take = lambda documents, _: {one.id: one.id[3:] for one in documents}  # noqa: E731
    monkeypatch.setattr("recipes.adapt.run.find_parallel", take)
    sizes = ["--steps", "2", "--batch-size", "8", "--pages", "120", "--text-bytes", "160", "--held-out", ".5"]
    data = ["--data", str(tmp_path), "--set", "packages", "--languages", "en", "de", "--device", "cpu"]
    assert load("adapt").main([*data, "--encoder", CHECKPOINT, "--output", str(tmp_path / "out"), *sizes]) == 0
    printed = capsys.readouterr().out
    for leg in ("own language", "all languages at once", "another language", "sample"):
        assert f"| {leg} " in printed
    assert "gate: " in printed and "unseen questions: " in printed and "agree" in printed.casefold()


def test_a_page_of_a_manual_lacks_what_it_is_searched_for(load: Load, help_pages: Path) -> None:
    """Title, heading and first paragraph are not in its text, nor is a paragraph that is not translated."""
    manuals = load("manuals")
    pages = manuals.read_manuals(help_pages, 100)
    assert [page.language for page in pages] == ["en"] * 19 + ["es"] * 19
    english, spanish = pages[1], pages[20]
    assert (english.id, spanish.id) == ("en-swriter/guide/10.html", "es-swriter/guide/10.html")
    assert english.queries == {"titles": "page 10", "sentences": "The first sentence of page 10."}
    assert spanish.queries == {"titles": "página 10", "sentences": "The first sentence of página 10."}
    assert english.text.splitlines()[0] == "Text 0 of page 10, with its number."
    assert english.text.endswith("Never translated at all.")
    assert spanish.text.splitlines() == [f"Text {part} of página 10, con su número." for part in range(5)]
    assert len(manuals.unshared(pages, "titles")) == 2 * 17, "pages 18 and 19 have one title"
    assert {page.name for page in manuals.read_manuals(help_pages, 3)} < {page.name for page in pages}


def test_languages_are_searched_at_once_and_one_by_one(load: Load, help_pages: Path) -> None:
    """Every page in the query's language has a higher score than any other; balanced, translations come second."""
    manuals = load("manuals")
    pages = manuals.read_manuals(help_pages, 100)
    scores = np.zeros((38, 38), np.float32)
    scores[:19, :19] = scores[19:, 19:] = 1
    scores[np.arange(38), np.arange(38)] = 3
    scores[np.arange(38), (np.arange(38) + 19) % 38] = 0.5
    systems = {manuals.BOTH: scores, manuals.WORDS: scores * 0}
    rows = dict(manuals.measure(systems, systems, pages, pages))
    none = {system: matrix * 0 for system, matrix in systems.items()}
    changed = {name for name, values in manuals.measure(systems, none, pages, pages) if values != rows[name]}
    assert changed == {name for name in rows if name.startswith(("own language", "English pages"))}
    means = {name: {system: fmean(of.values()) for system, of in values.items()} for name, values in rows.items()}
    assert means["own language, nDCG@10"] == {"both views": 1, "BM25": 0, "both + BM25": 1}
    assert means["own language, es, nDCG@10"]["both views"] == means["English pages, nDCG@10"]["both views"] == 1
    assert set(rows["English pages, nDCG@10"]["both views"]) == {page.id for page in pages[19:]}
    assert means["all languages, OwnLanguage@10"]["both views"] == 1
    assert means["all languages, R@100"] == {"both views": 1, "BM25": 0, "both + BM25": 1}
    assert means["all languages, nDCG@10"]["both views"] == pytest.approx(1 / (1 + 1 / np.log2(3)))
    assert means["balanced, nDCG@10"] == {"both views": 1}
    assert manuals.by_page({"en-b": 1.0, "en-a": 0.0, "es-a": 1.0}) == [0.5, 1]


@pytest.mark.integration
@pytest.mark.usefixtures("one_process")
def test_a_second_run_on_a_manual_only_encodes_queries(
    load: Load, help_pages: Path, tmp_path: Path, capsys: Capture
) -> None:
    """A row per kind of queries, search and measure; the vectors of pages are kept, and alpha weighs queries."""
    manuals, work = load("manuals"), tmp_path / "work"
    arguments = ["--data", str(help_pages), "--work", str(work), *ENCODER, "--base", CHECKPOINT, "--format", "csv"]
    tables, kept = [], []
    for alpha in ([], [], ["--alpha", "1"]):
        assert manuals.main([*arguments, *alpha]) == 0
        tables.append(list(csv.DictReader(io.StringIO(capsys.readouterr().out))))
        kept.append({path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()})
    systems = ["both views", "pivot view", "BM25", "both + BM25", "base, plain", "base, centered"]
    assert [name for name in tables[0][0] if name in systems] == systems
    assert tables[0] == tables[1] and kept[0] == kept[1] == kept[2]
    rows = {row["queries, search"]: row for row in tables[0]}
    assert len(rows) == 2 * 11 and rows["titles, balanced, nDCG@10"]["BM25"] == ""
    assert float(rows["sentences, own language, en, nDCG@10"]["BM25"]) > 0.5
    assert all(row["both views"] == row["pivot view"] for row in tables[2])


@pytest.mark.integration
def test_engines_have_one_effectiveness_in_lsr_benchmark(
    load: Load, collection: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """lsr-benchmark evaluates a run of each engine, on vectors in its layout."""
    pytest.importorskip("lsr_benchmark", reason="needs lsr-benchmark: make pyserini-2")
    for kind, source in (("corpus", "corpus.en.jsonl.gz"), ("topics", "queries.en.tsv")):
        assert main(["encode", f"--{kind}", str(collection / source), *ENCODER, "--output", str(tmp_path / kind)]) == 0
    stores = ["--vectors", str(tmp_path / "corpus"), "--topics", str(tmp_path / "topics")]
    output, qrels = tmp_path / "lsr", str(collection / "qrels.en.txt")
    assert load("lsr_engines").main([*stores, "--qrels", qrels, "--output", str(output), "--k", "10"]) == 0
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("nDCG@10")]
    first, second = line.split()[1:]
    assert first == second and float(first) > 0.5
    runs = [gzip.decompress((output / engine / "run.txt.gz").read_bytes()) for engine in ("lucene", "exact")]
    found = [[line.split()[:4] for line in run.splitlines()] for run in runs]
    assert found[0] == found[1]


def test_vectors_of_mini_have_its_limits(load: Load) -> None:
    """206 terms a passage and 48 a query, in both views; a source term of many documents weighs least."""
    module = load("topical_vectors")
    for terms, views in ((206, module.MINI_DOCUMENT), (48, module.MINI_QUERY)):
        batch = module.mini_batch(np.random.default_rng(0), 300, *views)
        in_pivot = batch.columns < module.TERMS
        assert np.bincount(batch.row_numbers()[in_pivot]).max() == views[-1]
        assert batch.lengths().mean() == pytest.approx(terms, abs=2)
        columns, counts = np.unique(batch.columns[~in_pivot], return_counts=True)
        frequent = np.isin(batch.columns, columns[counts > 2 * counts.mean()])
        assert batch.weights[frequent].mean() < batch.weights[~in_pivot & ~frequent].mean()


@pytest.mark.cluster
def test_a_curve_has_a_row_for_each_size_and_way(
    load: Load, opensearch: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """In one shard, in several, and in one of several; an index that is cloned has the documents of the smaller one."""
    module = load("cluster_curve")
    monkeypatch.setattr(module, "PART", 40)
    monkeypatch.setattr(module, "STATISTICS", 0)
    options = ["--url", opensearch.urls[0], "--shards", "1", "2", "--k", "5", "--queries", "3", "--rounds", "1"]
    assert module.main([*options, "--documents", "40", "80", "--delete"]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    sizes = [(row[:12].strip(), "exact" in row) for row in rows]
    assert sizes == [(size, way) for size in ("20", "40", "40", "40", "80", "80") for way in (True, False)]
    assert not opensearch.request("GET", "/_cat/indices/curve_*?format=json")
    assert module.main([*options, "--documents", "41", "80"]) == 2
    assert "all sizes but the largest must be multiples of 40" in capsys.readouterr().err
