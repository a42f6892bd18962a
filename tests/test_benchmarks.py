"""The benchmarks run from end to end on a few texts and print their figures; what the figures are worth is theirs."""

import csv
import gzip
import importlib
import importlib.util
import io
import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import orjson
import pytest

from milco_pyserini.errors import MilcoError
from milco_pyserini.index import open_index
from milco_pyserini.sparse import SparseBatch, Vocabulary, open_store
from milco_pyserini.train.data.retrieval import RetrievalExample

ROOT = Path(__file__).parent.parent / "benchmarks"
CHECKPOINT = str(Path(__file__).parent / "data" / "golden" / "ckpt_distillation")
ENCODER = ["--encoder", CHECKPOINT, "--device", "cpu", "--dtype", "float32"]
TEXTS = ["old harbour", "first book train", "river bridge", "summer market", "the old train", "book of the river"]
Load = Callable[[str], ModuleType]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def benchmark_named(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load benchmarks/NAME.py as the program that it is."""

    def load(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(ROOT))
        return importlib.import_module(name)

    return load


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


def test_a_text_that_is_its_own_translation_is_found_first(benchmark_named: Load, pairs: Path, capsys: Capture) -> None:
    """crosslingual prints a row for each language and their mean, columns for each view."""
    module = benchmark_named("crosslingual")
    assert module.main(["--data", str(pairs), *ENCODER, "--views", "source", "both"]) == 0
    head, *rows, _, note = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "dataset"
    assert "R@1 source" in head and "RR both" in head and "terms both" in head
    assert [row.split()[0] for row in rows] == ["xx", "yy", "mean"]
    assert len({tuple(row.split()[1:]) for row in rows}) == 1
    assert "12 sentences" in note


def test_a_tie_costs_half_a_place_and_no_shared_term_means_not_found(benchmark_named: Load) -> None:
    """Ranks 1, 1.5 (a tie for the first place) and none at all."""
    english = SparseBatch(np.array([0, 1, 2, 3]), np.array([0, 1, 1], np.int32), np.ones(3, np.float32), 9)
    sentences = SparseBatch(np.array([0, 1, 2, 3]), np.array([0, 1, 5], np.int32), np.ones(3, np.float32), 9)
    found = benchmark_named("crosslingual").figures(sentences, english, np.array([0, 1, 2]), ("pivot",))
    assert found["R@1"].tolist() == [1, 0, 0]
    assert found["R@10"].tolist() == [1, 1, 0]
    assert found["RR"].tolist() == pytest.approx([1, 1 / 1.5, 0])


def test_a_file_that_is_not_pairs_is_named_with_its_line(
    benchmark_named: Load, tmp_path: Path, capsys: Capture
) -> None:
    """crosslingual refuses two columns, and a language that is not there."""
    (tmp_path / "xx-en.tsv").write_text("0\tun\tone\n1\tdeux two\n", encoding="utf-8")
    module = benchmark_named("crosslingual")
    assert module.main(["--data", str(tmp_path), *ENCODER]) == 2
    assert "xx-en.tsv:2: 2 columns" in capsys.readouterr().err
    assert module.main(["--data", str(tmp_path), *ENCODER, "--languages", "zz"]) == 2
    assert "no zz-en.tsv" in capsys.readouterr().err


def test_views_are_searched_alone_and_together(benchmark_named: Load, collection: Path, capsys: Capture) -> None:
    """same_language prints a row for each view."""
    assert benchmark_named("same_language").main(["--data", str(collection), *ENCODER]) == 0
    head, *rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert head.split() == ["run", "nDCG@10", "R@100"]
    assert [row.split()[0] for row in rows] == ["pivot", "source", "both"]


@pytest.mark.integration
def test_bm25_stands_beside_the_views(benchmark_named: Load, collection: Path, capsys: Capture) -> None:
    """same_language --bm25 adds Pyserini's figures as the first row, and its fusion with both views as the last."""
    pytest.importorskip("pyserini", reason="Pyserini is not installed")
    assert benchmark_named("same_language").main(["--data", str(collection), *ENCODER, "--bm25"]) == 0
    rows = capsys.readouterr().out.split("\n\n")[0].splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["BM25", "pivot", "source", "both", "both"]
    assert rows[-1].split()[:3] == ["both", "+", "BM25"]
    assert float(rows[0].split()[1].rstrip("*")) > 0.9


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Two sets of one name, and one across languages, whose passages are their questions."""
    (tmp_path / "retrieval").mkdir()
    for number, name in enumerate(("quiz.de", "quiz.fr", "afriqa-xen.yo")):
        texts = [f"{TEXTS[row % 6]} {TEXTS[row % 5]} {row} {number}" for row in range(40)]
        lines = [orjson.dumps({"query": text, "positive": text, "title": ""}) for text in texts]
        (tmp_path / "retrieval" / f"{name}.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines)))
    return tmp_path


def test_held_out_questions_search_their_passages(benchmark_named: Load, questions: Path, capsys: Capture) -> None:
    """held_out prints a row for each set and view; none of its questions is one that the recipe trains on."""
    from recipes.milco_mini.training import is_for_training

    module = benchmark_named("held_out")
    sizes = ["--questions", "3", "--passages", "9"]
    assert module.main(["--data", str(questions), *ENCODER, *sizes]) == 0
    head, *rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert head.split() == ["dataset", "run", "nDCG@10", "R@10"]
    sets = ["afriqa-xen.yo", "quiz.de", "quiz.fr", "mean"]
    assert [row.split()[:2] for row in rows] == [[name, view] for name in sets for view in ("pivot", "source", "both")]
    assert all(float(row.split()[3]) == 1 for row in rows if row.split()[1] == "both")
    found = module.held_out(module.Options(questions, questions=3, passages=9))
    assert [(one.name, list(one.questions), len(one.passages)) for one in found] == [
        ("afriqa-xen", ["yo"], 9),
        ("quiz", ["de", "fr"], 9),
    ]
    for collection in found:
        for asked in collection.questions.values():
            assert 0 < len(asked) <= 3
            for question in asked:
                passage = collection.passages[question.passage]
                assert passage == question.text
                assert not is_for_training(RetrievalExample("und", question.text, (passage,), ()))


@pytest.mark.integration
def test_bm25_answers_held_out_questions(benchmark_named: Load, questions: Path, capsys: Capture) -> None:
    """held_out --bm25 has Pyserini's figures first and its fusion with both views last, for every set."""
    pytest.importorskip("pyserini", reason="Pyserini is not installed")
    assert benchmark_named("held_out").main(["--data", str(questions), *ENCODER, "--bm25", "--questions", "3"]) == 0
    rows = capsys.readouterr().out.split("\n\n")[0].splitlines()[1:]
    assert [row.split()[1] for row in rows[:5]] == ["BM25", "pivot", "source", "both", "both"]


def test_held_out_questions_that_are_not_there_are_said(benchmark_named: Load, tmp_path: Path, capsys: Capture) -> None:
    """No folder, no held-out passage, no number of questions: a line before any work."""
    module = benchmark_named("held_out")
    assert module.main(["--data", str(tmp_path / "nowhere"), *ENCODER]) == 2
    assert "nowhere/retrieval is not there" in capsys.readouterr().err
    (tmp_path / "retrieval").mkdir()
    lines = b'{"query": "a", "positive": "one"}\n{"query": "b", "positive": "one"}\n'
    (tmp_path / "retrieval" / "quiz.de.jsonl").write_bytes(lines)
    assert module.main(["--data", str(tmp_path), *ENCODER]) == 2
    assert "none of its questions is held out" in capsys.readouterr().err
    assert module.main(["--data", str(tmp_path), "--questions", "0"]) == 2
    assert "--questions 0: must be at least 1" in capsys.readouterr().err


@pytest.mark.integration
def test_explanations_are_compared_with_both_engines(benchmark_named: Load, capsys: Capture) -> None:
    """explained prints queries, hits and the largest difference of each engine."""
    pytest.importorskip("pyserini", reason="Pyserini is not installed")
    assert benchmark_named("explained").main(["--queries", "5", "--hits", "2", *ENCODER[:4]]) == 0
    lucene, exact = capsys.readouterr().out.splitlines()
    assert lucene == "lucene: 5 queries, 10 hits, largest difference 0"
    assert exact == "exact: 5 queries, 10 hits, largest difference 0"


@pytest.mark.integration
def test_finer_scales_come_closer_to_the_exact_ranking(
    benchmark_named: Load, collection: Path, capsys: Capture
) -> None:
    """quantization prints overlap, identical lists and impacts for each scale."""
    pytest.importorskip("jnius", reason="pyjnius is not installed")
    corpus, topics = str(collection / "corpus.en.jsonl.gz"), str(collection / "queries.en.tsv")
    arguments = ["--corpus", corpus, "--topics", topics, "--hits", "3", "--scales", "1", "1000"]
    assert benchmark_named("quantization").main([*arguments, *ENCODER]) == 0
    head, coarse, fine = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert head.split() == ["scale", "overlap@3", "identical", "impacts"]
    assert float(coarse.split()[1]) <= float(fine.split()[1]) == 1


@pytest.mark.integration
def test_the_peak_of_many_documents_is_printed_beside_that_of_few(benchmark_named: Load, capsys: Capture) -> None:
    """encode_memory prints two peaks and their difference."""
    assert benchmark_named("encode_memory").main(["--documents", "40", "--few", "20", *ENCODER]) == 0
    few, many, difference = capsys.readouterr().out.splitlines()
    assert "20 documents: peak" in few and "40 documents: peak" in many
    assert difference.startswith("difference: ") and " MB " in difference


def test_short_texts_are_short_and_the_same_every_time(benchmark_named: Load) -> None:
    """8 to 12 words where words are told apart by spaces, no more than 24 characters where they are not."""
    module = benchmark_named("encode_memory")
    texts = list(module.short_texts("sample", 300))
    assert texts == list(module.short_texts("sample", 300))
    assert all(8 <= len(text.split()) <= 12 or len(text) <= 24 for text in texts)


@pytest.mark.integration
def test_help_is_timed_for_the_verbs_that_are_asked_for(benchmark_named: Load, capsys: Capture) -> None:
    """help_time prints a line for each verb, then the slowest; an unknown command is refused."""
    module = benchmark_named("help_time")
    assert module.main(["--repeats", "1", "--verbs", "encode", "index"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["encode", "index", "slowest"]
    assert module.main(["--verbs", "enc"]) == 2
    assert "encode" in capsys.readouterr().err


def test_the_training_head_learns_the_same_from_less(benchmark_named: Load, capsys: Capture) -> None:
    """training_head prints both formulations, ratios of time and memory, and that loss and gradients agree."""
    module = benchmark_named("training_head")
    sizes = ["--batch", "4", "--tokens", "6", "--vocabulary", "500", "--width", "16", "--terms", "20", "--repeats", "1"]
    assert module.main(sizes) == 0
    _, plain, sparse, ratio, agreement = capsys.readouterr().out.splitlines()
    assert "pairs/s" in plain and "pairs/s" in sparse and "times the pairs/s" in ratio
    assert float(agreement.split()[-3]) < 1e-5


def test_training_throughput_is_a_share_of_the_limit(benchmark_named: Load, capsys: Capture) -> None:
    """training_throughput prints pairs a second and the share of plain products' rate that they take."""
    module = benchmark_named("training_throughput")
    argv = ["--model", CHECKPOINT, "--device", "cpu", "--dtype", "float32", "--batch", "4", "--tokens", "8"]
    assert module.main([*argv, "--repeats", "1"]) == 0
    _, rate, share = capsys.readouterr().out.splitlines()
    assert float(rate.split()[0]) > 0
    assert 0 <= int(share.split()[-4].removesuffix("%")) <= 100


def test_the_source_view_gains_on_names(benchmark_named: Load, capsys: Capture) -> None:
    """lexecho prints the topics with the largest gain first, and means of those with names and of the others."""
    module = benchmark_named("lexecho")
    assert module.main(["--device", "cpu", "--dtype", "float32", "--topics", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 + 3
    gain = {line.split()[5].rstrip(":"): float(line.split()[2]) for line in lines[-3:]}
    assert gain["named"] > gain["others"]
    assert float(lines[2].split()[2]) >= float(lines[3].split()[2]) > gain["named"]


def test_the_packed_pass_stands_beside_padded_batches(benchmark_named: Load, capsys: Capture) -> None:
    """encoding prints the limit, both ways and their ratio, a query, that they agree, and the head's memory."""
    sizes = ["--layers", "1", "--documents", "2", "--median", "9", "--longest", "20", "--head-texts", "1"]
    sizes += ["--threads", "1"]
    module = benchmark_named("encoding")
    assert module.main([*sizes, "--repeats", "1", "--dtype", "float32"]) == 0
    _, limit, packed, padded, ratio, query, agreement, *_ = capsys.readouterr().out.splitlines()
    assert limit.startswith("limit") and " 0.0% padding" in packed and "documents/s" in padded
    assert float(ratio.split()[1]) > 0 and "ms packed, " in query
    assert float(agreement.split()[-1]) < 1e-5
    assert module.main(["--layers", "0"]) == 2
    assert "--layers" in capsys.readouterr().err


@pytest.mark.integration
def test_two_writers_of_indexes_are_timed_in_turn(benchmark_named: Load, capfd: Capture) -> None:
    """lucene_indexing prints a row for each number of threads: ours, Pyserini's, the ratio."""
    pytest.importorskip("jnius", reason="pyjnius is not installed")
    arguments = ["--documents", "40", "--threads", "1", "--repeats", "1"]
    assert benchmark_named("lucene_indexing").main(arguments) == 0
    head, row, note = capfd.readouterr().out.splitlines()
    assert head.split()[:4] == ["threads", "ours", "pyserini", "ratio"]
    assert row.split()[0] == "1" and float(row.split()[3]) > 0
    assert "40 documents" in note


@pytest.mark.integration
def test_two_searchers_answer_alike(benchmark_named: Load, capfd: Capture) -> None:
    """lucene_search prints rows for opening and for each k, after it has compared every answer."""
    pytest.importorskip("jnius", reason="pyjnius is not installed")
    arguments = ["--documents", "40", "--queries", "3", "--hits", "10", "--passes", "1", "--repeats", "1"]
    assert benchmark_named("lucene_search").main(arguments) == 0
    _, first, again, search, note = capfd.readouterr().out.splitlines()
    assert first.startswith("open, the first time") and again.startswith("open, again")
    assert search.startswith("search, k=10") and "equal in all of 3 answers" in note


def test_a_searcher_that_answers_otherwise_is_an_error(benchmark_named: Load) -> None:
    """lucene_search names the query and the rank; a millionth for a tie is no difference."""
    module = benchmark_named("lucene_search")
    scores = np.float32([9, 7, 7])
    module.check_equal(0, (["a", "b", "c"], scores), (["a", "b", "c"], np.float32([9, 7, 6.999999])))
    with pytest.raises(MilcoError, match="query 4: rank 2 has b, Pyserini's has c"):
        module.check_equal(4, (["a", "b", "c"], scores), (["a", "c", "b"], scores))


def test_peers_encode_the_same_vectors(benchmark_named: Load) -> None:
    """The systems that share a network give the same weights: packed, padded, and sentence-transformers if there."""
    import torch

    module, encoding = benchmark_named("table_encoding"), benchmark_named("encoding")
    model, tokenizer = encoding.random_network(1), module.word_tokenizer()
    texts = module.random_texts([7, 12])
    rows = module._rows(tokenizer, texts)
    assert [len(row) for row in rows] == [7, 12]
    expected = encoding.padded_pass(model, rows, torch.float32)[0]
    if not module.missing():
        found = module.sentence_transformer(model, tokenizer, torch.float32)(texts)
        torch.testing.assert_close(torch.stack([one.to_dense() for one in found]), expected)
    (batch,) = module.packed(model, tokenizer, torch.float32)(texts)
    pivot = batch.view("pivot")
    dense = np.zeros(expected.shape, np.float32)
    dense[pivot.row_numbers(), pivot.columns] = pivot.weights
    np.testing.assert_allclose(dense, expected.numpy(), atol=1e-5)


def test_padding_is_what_a_system_computes_too_much(benchmark_named: Load) -> None:
    """None when packed; to a multiple of 32 in padded batches; to the longest of a batch elsewhere."""
    module = benchmark_named("table_encoding")
    lengths = [10, 20]
    assert module.padding(module.OURS, lengths) == 0
    assert module.padding(module.PADDED, lengths) == 1 - 30 / 64
    assert module.padding(module.PYSERINI, lengths) == 1 - 30 / 40
    # Two batches, which sorting makes even.
    mixed = [10, 20] * module.BATCH
    assert module.padding(module.SENTENCE_TRANSFORMERS, mixed) == 0 < module.padding(module.PYSERINI, mixed)


def test_the_loop_over_terms_writes_the_same_lines(benchmark_named: Load) -> None:
    """What stands beside write_jsonl() in the table does the same work."""
    module = benchmark_named("table_engines")
    batch = module.synthetic_batch(np.random.default_rng(3), 5, 900)
    vocabulary = Vocabulary([f"t{number}" for number in range(900)], [])
    ids = [f"d{row}" for row in range(5)]
    ours, theirs = io.BytesIO(), io.BytesIO()
    module.write_jsonl(ours, ids, batch, vocabulary, module.SCALE)
    module.write_by_loop(theirs, ids, batch, vocabulary.terms.tolist())
    assert [*map(orjson.loads, ours.getvalue().splitlines())] == [*map(orjson.loads, theirs.getvalue().splitlines())]


def test_scipy_and_numpy_rank_as_exact_does(benchmark_named: Load, tmp_path: Path) -> None:
    """The peers of the exact engine find its documents, with its scores."""
    module = benchmark_named("table_engines")
    module.write_collection(tmp_path, 60, 900)
    module.index_ours(tmp_path, tmp_path / "exact", 1, "exact")
    searcher = open_index(tmp_path / "exact").searcher()
    queries = benchmark_named("lucene_search").synthetic_queries(4, 900)
    expected = searcher.search(queries, module.HITS)
    for make in (module.scipy_ask, module.numpy_ask):
        found = [make(searcher, queries)(number) for number in range(len(queries))]
        assert module.recall(expected, found) == 1
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_allclose(one.scores, other.scores, rtol=1e-5)


def test_documents_have_topics_and_large_collections_begin_as_small_ones(benchmark_named: Load, tmp_path: Path) -> None:
    """Of the same topic, and no others, documents share more than frequent terms; vectors are what a store takes."""
    module = benchmark_named("topical_vectors")
    module.write_topical_store(tmp_path / "few", 30)
    module.write_topical_store(tmp_path / "more", module.PART + 5)
    few, more = (list(open_store(tmp_path / name).batches()) for name in ("few", "more"))
    assert [len(names) for names, _ in more] == [module.PART, 5] and more[1][0][0] == f"doc{module.PART}"
    _, batch = more[0]
    for one, other in zip(few[0][1].rows(), batch.rows(), strict=False):
        assert np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1])
    assert all((np.diff(columns) > 0).all() for columns, _ in batch.rows()) and batch.weights.min() > 0
    assert 100 < batch.lengths().mean() < 150
    likeness = batch.dot(batch)[np.triu_indices(len(batch), 1)]
    assert likeness.max() > 8 * np.median(likeness)


def test_settings_that_were_tuned_on_topics_serve_other_queries(benchmark_named: Load, tmp_path: Path) -> None:
    """Seismic answers with its own settings and with the tuned, which find about what was asked for."""
    pytest.importorskip("seismic", reason="pyseismic-lsr is not installed")
    vectors, module = benchmark_named("topical_vectors"), benchmark_named("table_engines")
    vectors.write_topical_store(tmp_path / "store", 500)
    vectors.write_topics_store(tmp_path / "topics", 60)
    for engine in ("exact", "seismic"):
        module.index_ours(tmp_path, tmp_path / engine, 1, engine)
    assert [row.system for row in module.tuned_rows(tmp_path)] == ["seismic"]
    queries = vectors.topical_queries(40)
    assert not {*map(str, queries)} & {str(vector) for _, vector in open_store(tmp_path / "topics").vectors()}
    (exact,) = module.open_searchers(tmp_path / "exact").values()
    searchers = module.open_searchers(tmp_path / "seismic")
    assert [name.split(" ")[:2] for name in searchers] == [["seismic,", "query_cut"], ["seismic,", "tuned,"]]
    best = exact.search(queries, module.HITS)
    assert all(module.recall(best, searcher.search(queries, module.HITS)) > 0.9 for searcher in searchers.values())


def test_a_system_is_compared_with_the_first_of_its_step(benchmark_named: Load) -> None:
    """times is the median of the rounds' ratios, not the ratio of the medians."""
    module = benchmark_named("table_rows")
    ours, theirs = module.compared("step", {"a": [1, 2, 4], "b": [3, 8, 8]}, lambda _, taken: {"s": taken})
    assert ours.figures == {"s": 2} and ours.ratios == ()
    assert theirs.figures == {"s": 8, "times": 3} and theirs.ratios == (3, 4, 2)


def test_memory_is_that_of_the_process_which_takes_most(benchmark_named: Load) -> None:
    """A process that the work starts and waits for counts, if it takes more than the one that measures."""
    module = benchmark_named("table_rows")
    if not Path("/proc/self/status").is_file():
        pytest.skip("Linux alone tells the peak of a process")
    program = "import numpy; numpy.ones(1 << 26)"
    before = module.with_peak(int)[1]
    _, after = module.with_peak(subprocess.run, [sys.executable, "-c", program])
    assert after >= max(before, 8 * (1 << 26) / 1e6)


@pytest.mark.integration
def test_one_table_has_all_engines_and_their_peers(benchmark_named: Load, tmp_path: Path, capfd: Capture) -> None:
    """python benchmarks prints a row for each system, as JSON with the rounds, and draws them."""
    pytest.importorskip("jnius", reason="pyjnius is not installed")
    module, picture = benchmark_named("table_command"), tmp_path / "table.png"
    sizes = ["--documents", "60", "--queries", "3", "--repeats", "1", "--threads", "1"]
    parts = ["--only", "write", "engines", "--plot", str(picture), "--format", "json"]
    assert module.main([*sizes, *parts]) == 0
    table = orjson.loads(capfd.readouterr().out)
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
def test_the_curve_has_every_step(benchmark_named: Load, tmp_path: Path, capfd: Capture) -> None:
    """python benchmarks --only curve prints encode, index and search of a size with their peaks."""
    pytest.importorskip("jnius", reason="pyjnius is not installed")
    module, picture = benchmark_named("table_command"), tmp_path / "curve.png"
    sizes = ["--only", "curve", "--curve", "20", "--encoder", CHECKPOINT, "--plot", str(picture)]
    assert module.main([*sizes, "--format", "csv"]) == 0
    rows = list(csv.DictReader(capfd.readouterr().out.splitlines()))
    engines = 2 + bool(importlib.util.find_spec("seismic"))
    assert [row["step"].split()[:2] for row in rows] == [
        ["encode", "20"],
        *[["index", "20"], ["search", "20"]] * engines,
    ]
    assert all(float(row["MB"]) > 0 for row in rows) and picture.is_file()


def test_the_table_refuses_numbers_that_are_none(benchmark_named: Load, capsys: Capture) -> None:
    """python benchmarks says which option and its value, before anything is measured."""
    module = benchmark_named("table_command")
    assert module.main(["--curve", "10", "0"]) == 2
    assert "--curve 0: must be at least 1" in capsys.readouterr().err
    assert module.main(["--only", "encod"]) == 2
    assert "encode" in capsys.readouterr().err
