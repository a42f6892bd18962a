"""The benchmarks run from end to end on a few texts and print their figures; what the figures are worth is theirs."""

import gzip
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import orjson
import pytest

from milco_pyserini.sparse import SparseBatch

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
    assert head.split("  ")[0] == "collection"
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
    """same_language --bm25 adds Pyserini's figures as the first row."""
    pytest.importorskip("pyserini", reason="Pyserini is not installed")
    assert benchmark_named("same_language").main(["--data", str(collection), *ENCODER, "--bm25"]) == 0
    rows = capsys.readouterr().out.split("\n\n")[0].splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["BM25", "pivot", "source", "both"]
    assert float(rows[0].split()[1].rstrip("*")) > 0.9


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
    """help_time prints a line for each verb, then the slowest; an unknown verb is refused."""
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
