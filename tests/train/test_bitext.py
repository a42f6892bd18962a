"""Reading sentence pairs from files, and mixing sources into a stream."""

import gzip
import itertools
import pickle
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from milco_pyserini.corpora import bitext
from milco_pyserini.corpora.bitext import BitextPair, BitextSource, open_bitext
from milco_pyserini.corpora.pair_index import BLOCK, PairIndex, Row
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.lines import open_lines
from milco_pyserini.train.batches import ProcessBatches, pair_length, read_ahead
from milco_pyserini.train.data.streams import BitextStream


def write(path: Path, *lines: str) -> Path:
    """Write lines to a file, compressed if its name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def numbered(path: Path, count: int, prefix: str = "") -> Path:
    """Write a TSV file of count different pairs."""
    return write(path, *(f"{prefix}text {number}\t{prefix}english {number}" for number in range(count)))


def head(stream: BitextStream, count: int) -> list[BitextPair]:
    """Return the first examples of a stream."""
    return list(itertools.islice(stream, count))


class MemorySource(BitextSource):
    """A source of count generated pairs."""

    def __init__(self, collection: str, language: str, count: int) -> None:
        super().__init__(collection, f"{collection}/{language}", language)
        self._count = count

    @cached_property
    def index(self) -> PairIndex:
        """The number of pairs."""
        return PairIndex(self._count, 0, "", (), np.zeros((-(-self._count // BLOCK) + 1, 0), np.int64))

    def rows(self, block: int) -> list[Row]:
        """Return the numbers of a block."""
        return [(b"%d" % n,) for n in range(self._count)[block * BLOCK : (block + 1) * BLOCK]]

    def parse(self, row: Row) -> BitextPair:
        """Return the pair of a number."""
        return BitextPair(self.language, f"{self.name} {int(row[0])}", f"english {int(row[0])}")


def test_tsv_and_jsonl_plain_or_gzip_give_the_same_pairs(tmp_path: Path) -> None:
    """All four formats give the same pairs, in the language of the file name."""
    tsv = ("Hallo!\tHi.", "", " Grüß Gott! \tGood day.")
    lines = ('{"text": "Hallo!", "english": "Hi."}', '{"text": "Grüß Gott!", "english": "Good day.", "language": "de"}')
    for name in ("de-en.tsv", "de-en.tsv.gz", "de-en.part1.jsonl", "de-en.jsonl.gz"):
        path = write(tmp_path / name, *(lines if "jsonl" in name else tsv))
        (source,) = open_bitext([path])
        assert (source.language, source.name, source.collection, source.index.pairs) == ("de", str(path), str(path), 2)
        assert list(source.pairs()) == [("de", "Hallo!", "Hi."), ("de", "Grüß Gott!", "Good day.")]


def test_a_directory_means_every_bitext_file_below_it_in_sorted_order(tmp_path: Path) -> None:
    """Other and hidden files are ignored; a script or region is part of the language."""
    for name in ("b/de-en.tsv.gz", "a/zh-tw-en.tsv", "a/de-en.jsonl", "README.md", "a/.de-en.tsv", ".old/de-en.tsv"):
        write(tmp_path / name, '{"text": "a", "english": "b"}' if "jsonl" in name else "a\tb")
    sources = open_bitext([tmp_path])
    assert [(Path(source.name).relative_to(tmp_path).as_posix(), source.language) for source in sources] == [
        ("a/de-en.jsonl", "de"),
        ("a/zh-tw-en.tsv", "zh-tw"),
        ("b/de-en.tsv.gz", "de"),
    ]
    assert {source.collection for source in sources} == {str(tmp_path)}


def test_the_language_of_jsonl_may_come_from_its_lines(tmp_path: Path) -> None:
    """The first line decides if the file name has none; another language later is an error."""
    german = '{"text": "a", "english": "b", "language": "de"}'
    (source,) = open_bitext([write(tmp_path / "pairs.jsonl", german)])
    assert (source.language, source.index.pairs) == ("de", 1)
    (mixed,) = open_bitext([write(tmp_path / "mixed.jsonl", german, german.replace("de", "fr"))])
    with pytest.raises(MilcoError, match=r"mixed\.jsonl:2: language 'fr' in a file of 'de': write one file for each"):
        _ = mixed.index


@pytest.mark.parametrize(
    ("name", "line", "why"),
    [
        ("de-en.tsv", b"a", r"1 tab-separated column\(s\): expected text TAB English"),
        ("de-en.tsv", b" \tb", "column 1 is empty"),
        ("de-en.tsv", b"a\t ", "column 2 is empty"),
        ("de-en.tsv", b"a\xff\tb", r"not UTF-8 \(byte 2 of the line\)"),
        ("de-en.jsonl", b"a\tb", "not UTF-8 JSON"),
        ("de-en.jsonl", b'{"text": "a"}', "'english' is missing"),
        ("de-en.jsonl", b'{"text": 1, "english": "b"}', "'text' is not a string"),
        ("de-en.jsonl", b'{"text": "a", "english": ""}', "'english' is empty"),
    ],
)
def test_a_broken_line_is_reported_before_training(tmp_path: Path, name: str, line: bytes, why: str) -> None:
    """The error has the file, the line number and the reason; pairs of a probe may have an id."""
    good = b'{"text": "a", "english": "b"}' if "jsonl" in name else b"a\tb"
    path = tmp_path / name
    path.write_bytes(good + b"\n" + line + b"\n")
    with pytest.raises(MilcoError, match=rf"{name}:2: {why}"):
        BitextStream(open_bitext([path]), temperature=1, seed=0)
    probe = write(tmp_path / "probe" / "de-en.tsv", "1\ta\tb\tc")
    with pytest.raises(MilcoError, match=r"de-en.tsv:1: 4 tab-separated column\(s\): expected \[id TAB\] text TAB"):
        _ = open_bitext([probe], ids=True)[0].index


def test_invalid_bitext_names_and_files_are_refused(tmp_path: Path) -> None:
    """Unknown names, wrong file names, empty and damaged files: each error has the fix."""
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("europal", "unknown bitext 'europal': did you mean 'europarl'"),
        (tmp_path / "absent.tsv", "no such bitext file or directory"),
        (write(tmp_path / "german.tsv", "a\tb"), "no language in the file name: name it LANG-en"),
        (write(tmp_path / "german.jsonl", "no JSON"), "add the language to every line"),
        (write(tmp_path / "de-en.txt", "a\tb"), "is not bitext: its name must be"),
        (tmp_path / "empty", "has no bitext: file names must be"),
        (write(tmp_path / "fr-en.tsv"), "has no pairs"),
    ):
        with pytest.raises(MilcoError, match=message):
            _ = open_bitext([name])[0].index
    path = write(tmp_path / "es-en.tsv.gz", *("a\tb" for _ in range(1000)))
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(MilcoError, match="is not a complete gzip file"):
        _ = open_bitext([path])[0].index
    with pytest.raises(MilcoError, match="is given 2 times"):
        open_bitext([path, path])


def test_languages_filter_sources_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    """The error for an unknown language lists the available ones."""
    for language in ("de", "fr", "es"):
        numbered(tmp_path / f"{language}-en.tsv", 1)
    assert [source.language for source in open_bitext([tmp_path], ["fr", "de"])] == ["de", "fr"]
    with pytest.raises(MilcoError, match=r"unknown language 'ger': .*valid are de, es, fr"):
        open_bitext([tmp_path], ["de", "ger"])


def test_a_stream_is_reproducible(tmp_path: Path) -> None:
    """Read twice, pickled or from another directory: the same examples; another seed gives others."""
    for place in ("here", "there"):
        numbered(tmp_path / place / "de-en.tsv", 40)
        numbered(tmp_path / place / "fr-en.tsv.gz", 10)
    stream = BitextStream(open_bitext([tmp_path / "here"]), temperature=2, seed=3, concatenate=0.5)
    first = head(stream, 200)
    assert head(stream, 200) == first
    assert head(pickle.loads(pickle.dumps(stream)), 200) == first
    assert head(BitextStream(open_bitext([tmp_path / "there"]), 2, 3, concatenate=0.5), 200) == first
    assert head(BitextStream(open_bitext([tmp_path / "here"]), 2, 4, concatenate=0.5), 200) != first


@pytest.mark.parametrize("count", [1, 5, 16, 1000])
def test_every_pass_is_a_different_permutation(tmp_path: Path, count: int) -> None:
    """Every pair comes once before any comes twice, for any number of pairs."""
    (source,) = open_bitext([numbered(tmp_path / "de-en.tsv", count)])
    examples = head(BitextStream([source], 1, 0), 2 * count)
    assert sorted(examples[:count]) == sorted(examples[count:]) == sorted(source.pairs())
    if count == 1000:
        assert examples[:count] != examples[count:]
        assert examples[:count] != list(source.pairs())


def test_languages_are_drawn_by_tempered_size() -> None:
    """With temperature 2, 90,000 and 10,000 pairs are drawn 3 to 1; sources of a language by size."""
    stream = BitextStream(sources(("a", "de", 60_000), ("b", "de", 30_000), ("a", "fr", 10_000)), 2, seed=1)
    drawn = Counter(pair.text.split()[0] for pair in head(stream, 20_000))
    assert drawn["a/de"] / 20_000 == pytest.approx(0.5, abs=0.015)
    assert drawn["a/fr"] / 20_000 == pytest.approx(0.25, abs=0.015)


def sources(*each: tuple[str, str, int]) -> list[BitextSource]:
    """Return sources of these collections, languages and numbers of pairs."""
    return [MemorySource(*one) for one in each]


SIZES = (("a", "de", 60_000), ("b", "de", 30_000), ("a", "fr", 10_000))


@pytest.mark.parametrize(
    ("each", "temperature", "weights", "expected"),
    [
        (SIZES, 2, {}, [0.5, 0.25, 0.25]),
        (SIZES, 1, {}, [0.6, 0.3, 0.1]),
        # A lexicon gets a fifth of the draws, whatever its size.
        ((("a", "de", 100), ("w", "de", 900), ("w", "yo", 100)), 2, {"a": 4, "w": 1}, [0.8, 0.15, 0.05]),
        # A weight of 0.2 leaves 0.8 to the others, which are mixed like one collection.
        ((("a", "de", 300), ("b", "fr", 100), ("w", "de", 900)), 1, {"w": 0.2}, [0.6, 0.2, 0.2]),
    ],
)
def test_weights_are_shares_of_collections(
    each: tuple, temperature: float, weights: dict[str, float], expected: list[float]
) -> None:
    """Within a collection, sizes decide; collections without a weight share the rest."""
    stream = BitextStream(sources(*each), temperature, seed=1, weights=weights)
    assert stream.probabilities == pytest.approx(expected)


def test_concatenated_examples_join_pairs_of_one_source() -> None:
    """2, 4 or 8 pairs, equally often, with both sides in the same order."""
    sources: list[BitextSource] = [MemorySource("a", "de", 500), MemorySource("b", "fr", 500)]
    lengths: Counter[int] = Counter()
    for pair in head(BitextStream(sources, 1, 0, concatenate=0.6), 6000):
        words, english = pair.text.split(), pair.english.split()
        assert set(words[::2]) == {"a/de" if pair.language == "de" else "b/fr"}
        assert words[1::2] == english[1::2]
        lengths[len(words) // 2] += 1
    assert set(lengths) == {1, 2, 4, 8}
    assert lengths[1] / 6000 == pytest.approx(0.4, abs=0.03)
    assert lengths[8] / 6000 == pytest.approx(0.2, abs=0.03)


def test_translations_of_a_passage_do_not_meet_in_a_batch() -> None:
    """Six languages share their English lines: of a large batch no more repeat one than in a full shuffle."""
    sources: list[BitextSource] = [MemorySource("mmarco", f"l{number}", 40_000) for number in range(6)]
    stream = BitextStream(sources, 1, 0)
    repeated = []
    for batch in itertools.islice(stream.blocks(0, 512, slice(None)), 40):
        times = Counter(pair.english for pair in batch)
        repeated.append(sum(count for count in times.values() if count > 1) / len(batch))
    # A pair shares its passage with 5 / 6 x 511 / 40,000 = .011 others on average.
    assert sum(repeated) / len(repeated) < 0.02


def test_neighbors_in_a_file_meet_by_chance_only() -> None:
    """Passages in a row are the results of one query: of 512 among 40,000, about a fifth have one within 9."""
    stream = BitextStream([MemorySource("mmarco", "de", 40_000)], 1, 0)
    near = 0
    for batch in itertools.islice(stream.blocks(0, 512, slice(None)), 40):
        numbers = sorted(int(pair.english.split()[1]) for pair in batch)
        near += sum(b - a < 10 for a, b in itertools.pairwise(numbers))
    # Each of 40 batches has 511 neighbors in order, whose distance is below 10 with a probability of 9 x 512 / 40,000.
    assert near / (40 * 511) == pytest.approx(1 - (1 - 512 / 40_000) ** 9, rel=0.15)


@pytest.mark.parametrize("concatenate", [0.0, 0.4])
def test_a_stream_is_read_from_any_example_on(tmp_path: Path, concatenate: float) -> None:
    """Neither earlier pairs nor earlier passes of a source are read."""
    numbered(tmp_path / "de-en.tsv", 3000)
    numbered(tmp_path / "fr-en.tsv.gz", 700)
    stream = BitextStream(open_bitext([tmp_path]), 2, 3, concatenate=concatenate)
    examples = head(stream, 40_000)
    for first in (0, 5, 16_384, 30_001):
        block = next(stream.blocks(first, 64, slice(None)))
        assert block == examples[first : first + 64]
    second = stream.blocks(30_000, 8, slice(4, 8))
    assert [next(second) for _ in range(3)] == [examples[at + 4 : at + 8] for at in (30_000, 30_008, 30_016)]


@pytest.mark.parametrize(("process", "processes"), [(0, 1), (1, 2)])
def test_batches_are_sorted_by_length_within_a_process_only_if_asked(process: int, processes: int) -> None:
    """Without it they are the stream's; with it the same examples of every three batches, of similar length."""
    stream = BitextStream([MemorySource("a", "de", 100_000)], 1, 0)

    def batches(first: int, gathered: int) -> list[list[BitextPair]]:
        made = ProcessBatches(stream, first, 8, process, processes, gathered)
        return list(itertools.islice(made, 6))

    plain, grouped = batches(0, 0), batches(0, 3)
    examples = head(stream, 48 * processes)
    for number, batch in enumerate(plain):
        assert batch == examples[8 * (number * processes + process) :][:8]
    for start in (0, 3):
        window, by_length = (list(itertools.chain(*found[start : start + 3])) for found in (plain, grouped))
        assert sorted(window) == sorted(by_length)
        lengths = sorted([pair_length(pair) for pair in batch] for batch in grouped[start : start + 3])
        assert list(itertools.chain(*lengths)) == sorted(map(pair_length, window))
    assert batches(2, 3)[:4] == grouped[2:]


def test_reading_ahead_keeps_the_order_and_raises_errors_where_they_belong() -> None:
    """In the thread of the consumer, after the items before."""

    def items() -> Iterator[int]:
        yield from range(5)
        raise MilcoError("broken")

    ahead = read_ahead(items(), 2)
    assert list(itertools.islice(ahead, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(MilcoError, match="broken"):
        next(ahead)


def test_an_index_is_kept_until_its_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process does not read the file; a changed file is read again, and a damaged index is replaced."""
    monkeypatch.setenv("MILCO_DATA", str(tmp_path / "data"))
    path = numbered(tmp_path / "de-en.tsv.gz", 300)
    first = open_bitext([path])[0].index
    opened: list[Path] = []
    monkeypatch.setattr(bitext, "open_lines", lambda path: opened.append(path) or open_lines(path))
    assert open_bitext([path])[0].index.digest == first.digest and not opened
    (kept,) = (tmp_path / "data" / "bitext").glob("*.npz")
    kept.write_bytes(kept.read_bytes()[:100])
    assert open_bitext([path])[0].index.digest == first.digest and len(opened) == 1
    numbered(tmp_path / "de-en.tsv.gz", 301)
    (source,) = open_bitext([path])
    assert source.index.pairs == 301 == len(list(source.pairs())) and source.index.digest != first.digest
