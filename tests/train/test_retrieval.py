"""Reading retrieval examples from JSONL, and the stream of query groups."""

import itertools
from collections import Counter
from pathlib import Path

import orjson
import pytest
from torch.utils.data import DataLoader
from training_set import write_lines

from milco_pyserini.errors import MilcoError
from milco_pyserini.train.batches import GivenExamples, ProcessBatches
from milco_pyserini.train.data.retrieval import (
    RetrievalExample,
    RetrievalFile,
    file_language,
    open_retrieval,
    read_example,
)
from milco_pyserini.train.data.streams import QueryGroup, RetrievalStream


def example(name: str, negatives: int = 3, scores: bool = False) -> dict:
    """Return a query with two positives and some negatives; scores decrease from 10."""
    line: dict = {"query": name, "positives": [f"{name}+0", f"{name}+1"]}
    line["negatives"] = [f"{name}-{number}" for number in range(negatives)]
    if scores:
        line["scores"] = [10.0 - number for number in range(2 + negatives)]
    return line


def collection(path: Path, count: int, **more: int) -> Path:
    """Write a file of count examples."""
    return write_lines(path, *(example(f"{path.name[0]}{number}", **more) for number in range(count)))


def first(stream: RetrievalStream, count: int) -> list[QueryGroup]:
    """Return the first groups of a stream."""
    return list(itertools.islice(stream, count))


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_examples_are_read_plain_and_gzip(tmp_path: Path, ending: str) -> None:
    """Scores are split between positives and negatives."""
    path = write_lines(tmp_path / f"x.ja{ending}", example("q", 1, scores=True), example("r", 0))
    assert list(RetrievalFile(path).examples()) == [
        RetrievalExample("ja", "q", ("q+0", "q+1"), ("q-0",), (10.0, 9.0), (8.0,)),
        RetrievalExample("ja", "r", ("r+0", "r+1"), ()),
    ]


def test_a_title_precedes_its_passage(tmp_path: Path) -> None:
    """In {"query", "positive", "title"}; null, empty and absent titles add nothing."""
    pairs = [{"query": "q", "positive": "p", "title": "t"}, {"query": "q", "positive": "p", "title": None}]
    path = write_lines(tmp_path / "x.fr.jsonl", *pairs, {"query": "q", "positive": "p"}, {**pairs[0], "title": ""})
    assert [one.positives for one in RetrievalFile(path).examples()] == [("t p",), ("p",), ("p",), ("p",)]


def test_bge_layout_is_read() -> None:
    """Further fields are ignored; scores need both pos_scores and neg_scores."""
    line = {"query": "q", "pos": ["p"], "neg": ["n", "m"], "pos_scores": [90.5], "neg_scores": [1, 2.5], "prompt": "x"}
    assert read_example(line) == RetrievalExample("und", "q", ("p",), ("n", "m"), (90.5,), (1.0, 2.5))
    del line["pos_scores"]
    assert read_example(line).negative_scores is None


@pytest.mark.parametrize(
    "line, why",
    [
        (b"{", "not UTF-8 JSON"),
        (b"[]", "not a JSON object"),
        (b'{"positives": ["p"], "negatives": []}', "'query' is missing"),
        (b'{"query": "q", "positives": "p", "negatives": []}', "'positives' is a string"),
        (b'{"query": "q", "positives": [], "negatives": []}', "'positives' is empty"),
        (b'{"query": "q", "positives": ["p"], "negatives": [null]}', "'negatives[0]' is missing or null"),
        (b'{"query": "q", "positives": ["p"], "negatives": ["n"], "scores": [1]}', "1 numbers for 2 passages"),
        (b'{"query": "q", "positives": ["p"], "negatives": [], "scores": [NaN]}', "JSON"),
        # JSON has no infinity, but 1e999 overflows to it.
        (b'{"query": "q", "positives": ["p"], "negatives": [], "scores": [1e999]}', "JSON"),
        (b'{"query": "q", "positive": "p", "language": []}', "'language' is a list"),
        (b'{"query": "q", "pos": ["p"], "neg": ["n"], "pos_scores": [], "neg_scores": [1]}', "0 numbers for 1"),
    ],
)
def test_a_broken_line_is_reported_with_file_and_number(tmp_path: Path, line: bytes, why: str) -> None:
    """The first pass finds it; blank lines are counted."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(orjson.dumps(example("q")) + b"\n\n" + line + b"\n")
    with pytest.raises(MilcoError) as error:
        _ = RetrievalFile(path).stats
    assert f"{path}:3: " in str(error.value) and why in str(error.value)


@pytest.mark.parametrize(
    "name, language",
    [
        ("drcd-dev.zh-hant.jsonl", "zh-hant"),
        ("afriqa-xen.bem.jsonl.gz", "bem"),
        ("my.data.jsonl", "und"),
        (".ja.jsonl", "und"),
    ],
)
def test_language_of_a_file_name(name: str, language: str) -> None:
    """NAME.LANG.jsonl.gz, else "und"."""
    assert file_language(Path(name)) == language


def test_lines_have_their_own_language_if_the_file_name_has_none(tmp_path: Path) -> None:
    """Selecting languages filters the lines of such files, and other files as a unit."""
    write_lines(tmp_path / "d" / "mixed.jsonl", example("a") | {"language": "ja"}, example("b") | {"language": "ko"})
    write_lines(tmp_path / "d" / "deep" / "x.ko.jsonl", example("c") | {"language": "ko"})
    write_lines(tmp_path / "d" / "deep" / "y.ja.jsonl.gz", example("d"))
    (tmp_path / "d" / "manifest.json").write_text("{}")
    everything = [one for source in open_retrieval([tmp_path / "d"]) for one in source.examples()]
    assert [(one.language, one.query) for one in everything] == [("ko", "c"), ("ja", "d"), ("ja", "a"), ("ko", "b")]
    chosen = open_retrieval([tmp_path / "d"], ["ko"])
    assert [(one.language, one.query) for source in chosen for one in source.examples()] == [("ko", "c"), ("ko", "b")]
    assert [source.stats.examples for source in chosen] == [1, 1]
    (source,) = open_retrieval([write_lines(tmp_path / "train.hn.jsonl", example("a") | {"language": "sw"})])
    with pytest.raises(MilcoError, match=r"train\.hn\.jsonl:1: language 'sw' in a file of 'hn': rename the file"):
        _ = source.stats


def test_data_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    """By its own name and by its directory's: its examples would count twice."""
    path = write_lines(tmp_path / "a.ja.jsonl", example("a"))
    for names in ([path, path], [tmp_path, path]):
        with pytest.raises(MilcoError, match=r"a\.ja\.jsonl is given twice"):
            open_retrieval(names)


def test_invalid_retrieval_names_are_refused(tmp_path: Path) -> None:
    """A directory without JSONL, no name, a language that no file has, a misspelled collection."""
    with pytest.raises(MilcoError, match=r"has no \.jsonl or \.jsonl\.gz files"):
        open_retrieval([tmp_path])
    with pytest.raises(MilcoError, match="no retrieval data"):
        open_retrieval([])
    path = collection(tmp_path / "a.ja.jsonl", 1)
    with pytest.raises(MilcoError, match="no retrieval data in ko"):
        open_retrieval([path], ["ko"])
    with pytest.raises(MilcoError, match=r"did you mean 'en_msmarco'.*JSONL"):
        open_retrieval(["en_msmarko"])


def test_a_group_is_a_positive_and_distinct_negatives_with_their_scores(tmp_path: Path) -> None:
    """Scores stay with their passages."""
    stream = RetrievalStream(open_retrieval([collection(tmp_path / "a.ja.jsonl", 20, negatives=9, scores=1)]), 8, 1)
    groups = first(stream, 200)
    for group in groups:
        assert group.language == "ja" and len(group.passages) == 8 == len(set(group.passages))
        assert group.passages[0] in (f"{group.query}+0", f"{group.query}+1")
        assert all(passage.startswith(f"{group.query}-") for passage in group.passages[1:])
        places = [int(passage[-1]) + 2 * ("-" in passage) for passage in group.passages]
        assert group.scores == tuple(10.0 - place for place in places)
    assert {group.passages[0][-2:] for group in groups} == {"+0", "+1"}
    assert {passage[-2:] for group in groups for passage in group.passages[1:]} == {f"-{n}" for n in range(9)}


def test_too_few_negatives_are_repeated_evenly(tmp_path: Path) -> None:
    """No negative comes a third time before all have come twice."""
    stream = RetrievalStream(open_retrieval([collection(tmp_path / "a.jsonl", 3, negatives=3)]), 9, 1)
    for group in first(stream, 10):
        counts = Counter(group.passages[1:])
        assert len(counts) == 3 and set(counts.values()) == {2, 3} and group.scores is None


def test_a_stream_is_reproducible(tmp_path: Path) -> None:
    """Two equal streams, and one read twice; another seed gives another order."""
    paths = [collection(tmp_path / f"{name}.jsonl", 30) for name in "ab"]
    streams = [RetrievalStream(open_retrieval(paths), 3, seed, 2.0, 10, 4) for seed in (5, 5, 6)]
    once, again, other = (first(stream, 300) for stream in streams)
    assert once == again == first(streams[0], 300)
    assert once != other


def test_every_pass_is_a_different_permutation(tmp_path: Path) -> None:
    """With any buffer size."""
    path = collection(tmp_path / "a.jsonl", 50)
    for buffer in (1, 7, 1000):
        queries = [group.query for group in first(RetrievalStream(open_retrieval([path]), 2, 1, buffer=buffer), 150)]
        passes = [queries[start : start + 50] for start in (0, 50, 100)]
        assert all(sorted(one) == sorted(passes[0]) and len(set(one)) == 50 for one in passes)
        assert passes[0] != passes[1] != passes[2]


def test_a_block_is_of_one_source(tmp_path: Path) -> None:
    """In-batch negatives come from the query's own collection."""
    paths = [collection(tmp_path / f"{name}.jsonl", 5) for name in "abc"]
    queries = [group.query[0] for group in first(RetrievalStream(open_retrieval(paths), 2, 1, block=8), 800)]
    blocks = [set(queries[start : start + 8]) for start in range(0, 800, 8)]
    assert all(len(block) == 1 for block in blocks) and set.union(*blocks) == {"a", "b", "c"}


def test_temperature_flattens_the_distribution_of_sources(tmp_path: Path) -> None:
    """1 keeps the proportions 1:9, 2 makes them 1:3."""
    paths = [collection(tmp_path / "a.jsonl", 10), collection(tmp_path / "b.jsonl", 90)]
    for temperature, share in ((1.0, 0.1), (2.0, 0.25)):
        stream = RetrievalStream(open_retrieval(paths), 2, 3, temperature, block=1)
        found = sum(group.query[0] == "a" for group in first(stream, 4000)) / 4000
        assert abs(found - share) < 0.03


@pytest.mark.parametrize("seen", [0, 12])
def test_data_loader_workers_do_not_change_the_order(tmp_path: Path, seen: int) -> None:
    """Two data loader workers yield what one process yields, from the start and after resuming."""
    stream = RetrievalStream(open_retrieval([collection(tmp_path / "a.jsonl", 40)]), 2, 1, block=4)
    batches = ProcessBatches(stream, seen // 4, 4)
    loader = DataLoader(GivenExamples(), batch_sampler=batches, num_workers=2, collate_fn=list)
    batches = list(itertools.islice(loader, 7))
    assert [group for batch in batches for group in batch] == first(stream, 40)[seen : seen + 28]


def test_missing_negatives_and_scores_are_reported_before_training(tmp_path: Path) -> None:
    """So are empty sources, no sources, and values out of range."""
    bare = write_lines(tmp_path / "bare.jsonl", example("q", scores=True), {"query": "r", "positive": "p"})
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    sources = open_retrieval([bare])
    with pytest.raises(MilcoError, match=r"bare\.jsonl:2: no negatives.*milco train mine"):
        RetrievalStream(sources, 2, 1)
    assert len(first(RetrievalStream(sources, 1, 1), 4)) == 4
    with pytest.raises(MilcoError, match=r"bare\.jsonl:2: no teacher scores.*milco train score"):
        RetrievalStream(sources, 1, 1, scored=True)
    with pytest.raises(MilcoError, match="has no examples"):
        RetrievalStream(open_retrieval([tmp_path / "empty.jsonl"]), 1, 1)
    with pytest.raises(MilcoError, match="no retrieval data"):
        RetrievalStream([], 1, 1)
    for settings in ({"group_size": 0}, {"buffer": 0}, {"block": 0}, {"temperature": 0.0}):
        with pytest.raises(MilcoError, match=next(iter(settings))):
            RetrievalStream(sources, **{"group_size": 1, "seed": 1} | settings)
