"""Each benchmark runs end to end on a few texts and prints its table; the results themselves are not tested."""

import csv
import gzip
import importlib
import importlib.util
import io
import itertools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import orjson
import pytest

from milco_pyserini.sparse import SparseBatch
from milco_pyserini.train.data.retrieval import RetrievalExample

ROOT = Path(__file__).parent.parent / "benchmarks"
CHECKPOINT = str(Path(__file__).parent / "data" / "golden" / "ckpt_distillation")
ENCODER = ["--encoder", CHECKPOINT, "--device", "cpu", "--dtype", "float32"]
TEXTS = ["old harbour", "first book train", "river bridge", "summer market", "the old train", "book of the river"]
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
    for name in ("lucene_indexing", "lucene_search", "table_curve", "table_engines", "table_command"):
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


def test_balance_measures_collections_of_uneven_languages(load: Load, pairs: Path, capsys: Capture) -> None:
    """A row per largest language and strength; a sentence finds its translations, never itself."""
    options = ["--languages", "xx", "yy", "--dominant", "xx", "yy", "--strengths", "0", "1", "--draws", "2"]
    assert load("balance").main(["--data", str(pairs), *ENCODER, *options]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    cells = [row.split() for row in rows]
    collections = (["xx", "6,", "yy", "1"], ["yy", "6,", "xx", "1"])
    assert [row[:5] for row in cells] == [[*name, number] for name in collections for number in ("0.000", "1.000")]
    assert all(0 < float(value) <= 1 for row in cells for value in row[5:8])


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
    "encoding": (
        "--layers 1 --documents 2 --median 9 --longest 20 --head-texts 1 --threads 1 --repeats 1 --dtype float32",
        ("limit", " 0.0% padding", "documents/s", "int8 ", "one query", "ms packed, "),
    ),
    "explained": (
        "--queries 5 --k 2 {encoder}",
        ("lucene: 5 queries, 10 hits, largest difference 0\n", "exact: 5 queries, 10 hits, largest difference 0\n"),
    ),
    "gpu": (
        "{encoder} --dtype float32 --documents 40 --median 10 --longest 20 --repeats 1",
        ("cpu, torch ", "2 layers, 40 texts, ", "limit ", "documents/s", "one query of 16 tokens: ", "on CUDA only"),
    ),
    "help_time": ("--repeats 1 --commands encode index", ("encode", "index", "slowest")),
    "lexecho": ("{encoder} --topics 2 --languages sw", ("1 language;", "mean of 50 topics")),
    "lucene_indexing": ("--documents 40 --threads 1 --repeats 1", ("threads", "ratio", "40 documents")),
    "lucene_search": (
        "--documents 40 --queries 3 --k 10 --passes 1 --repeats 1",
        ("open, first", "open, again", "search, k=10", "equal for all of 3 searches"),
    ),
    "quantization": (
        "--corpus {corpus} --topics {topics} --k 3 --scales 1 1000 {encoder}",
        ("scale", "overlap@3", "identical", "impacts", "1.0000"),
    ),
    "same_language": (
        "--data {data} {encoder} --bm25",
        ("BM25", "BM25, tokens", "pivot", "source", "both", "both + BM25"),
    ),
    "skipping": ("--documents 2000 --queries 2 --blocks 32 --k 10", ("Lucene index",)),
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
@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_its_table(
    name: str, load: Load, collection: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """From the first line to the last."""
    options, words = PROGRAMS[name]
    module = load(name)
    monkeypatch.setattr(module, "_PRODUCT", (64, 64, 64), raising=False)
    files = {"corpus": collection / "corpus.en.jsonl.gz", "topics": collection / "queries.en.tsv", "data": collection}
    encoder = f"--encoder {CHECKPOINT} --device cpu"
    assert module.main(options.format(**files, encoder=encoder, checkpoint=CHECKPOINT).split()) == 0
    shown = capsys.readouterr().out
    for word in words:
        _, found, shown = shown.partition(word)
        assert found, word


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
    """Every set of the model card, small."""
    data = held_out_data / "eval"
    for name in ("flores", "tatoeba"):
        (data / name).mkdir(parents=True)
        for path in pairs.glob("*-en.tsv"):
            shutil.copy(path, data / name)
    for name in ("cmrc2018", "limit-small", "cacm", "vaswani"):
        (data / name).mkdir()
        for path in collection.glob("*.en.*"):
            shutil.copy(path, data / name)
    return held_out_data


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


def test_a_row_per_spelling(load: Load, card_data: Path, capsys: Capture) -> None:
    """Only queries that a kind changes are counted; what no text has is empty."""
    options = ["--sentences", "3", "--format", "csv"]
    assert load("spelling").main(["--data", str(card_data), *ENCODER, *options]) == 0
    head, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert head[1:5] == ["sample, queries", "sample, as written", "sample, spelled", "sample, loss"]
    found = {row[0]: row[1:] for row in rows}
    assert 0 < int(found["ue"][0]) <= 50 < int(found["upper"][0]) < 650
    for cells in found.values():
        for _, written, spelled, loss in (cells[:4], cells[4:]):
            assert not written or float(loss) == pytest.approx(float(written) - float(spelled), abs=2e-3)


def test_reasons_are_words_neighbors_or_nonsense(load: Load, card_data: Path, capsys: Capture) -> None:
    """Shares of a row sum to 1; inflections are words, translations of the same words neighbors."""
    module = load("reasons")
    neighbors = {"vessel": {"ship"}}
    words = {"ships", "translated", "harbours"}
    kinds = {"ship": "word", "translation": "word", "vessel": "neighbor", "kansas": "nonsense", "##4": "nonsense"}
    assert {term: module.grounding(term, words, neighbors) for term in kinds} == kinds
    folder = card_data / "lexicon" / "omw"
    folder.mkdir(parents=True)
    (folder / "de-en.tsv.gz").write_bytes(gzip.compress(b"Schiff\tship\nSchiff\tvessel\nKahn\tvessel\nKahn\tship\n"))
    assert module.read_neighbors(folder.parent)["ship"] == {"vessel"}
    assert module.main(["--data", str(card_data), *ENCODER, "--sentences", "3", "--format", "csv"]) == 0
    _, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert [row[0] for row in rows] == ["FLORES", "sample"]
    assert all(sum(map(float, row[2:])) == pytest.approx(1, abs=2e-3) for row in rows)
    assert module.main(["--read", "2", *ENCODER]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")] == ["query", "passage", "1", "2", "3", "4", "5"]
    assert len(rows) == 2 and all(row.count(" → ") >= 1 and row.count("%") >= 5 for row in rows)


@pytest.mark.integration
@pytest.mark.usefixtures("one_process", "small_parts")
def test_engines_are_measured_at_several_sizes(load: Load, tmp_path: Path, capsys: Capture) -> None:
    """A row per size and system, from the file if it has them, and two extrapolated ones; and a picture."""
    module, picture, figures = load("scale"), tmp_path / "scale.png", tmp_path / "scale.json"
    sizes = ["--documents", "60", "120", "--queries", "3", "--k", "5", "--rounds", "1", "--threads", "1"]
    argv = [*sizes, "--output", str(figures), "--plot", str(picture)]
    assert module.main(argv) == 0
    table = capsys.readouterr().out
    rows = orjson.loads(figures.read_bytes())["rows"]
    assert [row["documents"] for row in rows] == [60] * 4 + [120] * 4
    assert {row["system"] for row in rows} == {"exact", "lucene", "lucene, 1 thread", module.SEARCHER}
    assert all(row["recall@5"] == 1 for row in rows if row["system"] == "exact")
    assert table.count("100,000,000") == 5 and picture.read_bytes().startswith(b"\x89PNG")
    (lucene,) = (row for row in module.extrapolated(rows, 240) if row["system"] == "lucene")
    first, second = (row for row in rows if row["system"] == "lucene")
    for name in ("disk MB", "p50, k=5"):
        assert lucene[name] == pytest.approx(second[name] + 2 * max(second[name] - first[name], 0))
    assert module.main(argv) == 0
    assert orjson.loads(figures.read_bytes())["rows"] == rows and capsys.readouterr().out == table


def test_seismic_is_measured_on_pruned_documents(
    load: Load, small_parts: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    """A row per number of terms, from the file if it has them, and a picture."""
    pytest.importorskip("seismic", reason="pyseismic-lsr is not installed")
    module, picture, figures = load("seismic_pruning"), tmp_path / "seismic.png", tmp_path / "seismic.json"
    monkeypatch.setattr(module, "in_fresh_process", lambda work, *arguments: work(*arguments))
    sizes = ["--documents", "60", "--queries", "3", "--rounds", "1", "--threads", "1", "--work", str(tmp_path)]
    argv = [*sizes, "--terms", "30", "60", "--output", str(figures), "--plot", str(picture)]
    assert module.main(argv) == 0
    table = capsys.readouterr().out
    rows = orjson.loads(figures.read_bytes())["rows"]
    assert [row["top-k"] for row in rows] == [30, 60] and [row["terms"] for row in rows] == [30, 60]
    for row in rows:
        unpruned, exact, *seismic = row["searches"]
        assert unpruned["recall"] == exact["of pruned"] == 1 and len(seismic) == len(module.SETTINGS)
        assert all(one["recall"] <= 1 and one["p50 ms"] <= one["p99 ms"] for one in seismic)
        assert all(row[system]["disk MB"] > 0 for system in ("exact", "seismic"))
    assert picture.read_bytes().startswith(b"\x89PNG")
    # The exact indexes are kept, those of Seismic are not.
    assert {path.parent.name for path in tmp_path.glob("60-pivot/*/exact")} == {"30", "60", "all"}
    assert not list(tmp_path.glob("60-pivot/*/seismic*"))
    assert module.main(argv) == 0
    assert orjson.loads(figures.read_bytes())["rows"] == rows and capsys.readouterr().out == table


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


@pytest.mark.integration
def test_serve_load_prints_a_row_per_number_of_clients(
    load: Load, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """After one of the library, with the memory of the server, and all answers equal to those of milco search."""
    module = load("serve_load")
    monkeypatch.setattr(module, "CORPUS", "sample-ja")
    options = ["--engine", "exact", "--device", "cpu", "--clients", "1", "3", "--requests", "20"]
    assert module.main(["--encoder", CHECKPOINT, *options]) == 0
    head, _, library, *rows, answers = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["clients", "requests", "queries/s"]
    assert len(library.split()) == 6 and library.split()[:2] == ["library", "20"]
    assert [row.split()[:2] for row in rows] == [["1", "20"], ["3", "20"]]
    assert all(float(cell.replace(",", "")) > 10 for row in rows for cell in row.split()[-2:])
    assert answers.startswith("50 of 50 queries have the scores (within 1e-05) of milco search in all of 90")
