"""All that training needs of DATA and WORK as one file, to train on another machine: pack here, unpack there.

The file is a tar.xz of a data folder and a work folder. Pairs are kept as token ids of the work folder's tokenizer, one
side behind the other, and are spelled out again where the file is unpacked: case and punctuation are lost, but nothing
that training reads (spelling.py), so that every step is the one that it would have been with the texts as they were.
Where not all pairs fit, each of their files keeps about as many as a run of some length would draw of it.
"""

import gzip
import io
import lzma
import random
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import orjson

from milco_pyserini.console import Progress, counted, say
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_directory, atomic_file, is_json_with, validate_output_file
from milco_pyserini.train.data.bitext_stream import open_bitext, source_probabilities
from milco_pyserini.train.recipe import SapOptions, read_recipe

from . import alignment, corpus, training
from .alignment import Translations
from .spelling import SIDES, Spelling

# What the teacher and the model's start need of WORK besides the translations.
_WORK = ("english.json", "english_weights.npy", "tokenizer.json", "table.npz", "initial")
_MANIFEST = "manifest.json"
# A window that holds one English side after another: the same verses stand in ten languages. Four bytes make a number.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 25, "lc": 2, "lp": 2, "pb": 2}]
# Compressed bytes for one of numbers, at first; then it is measured.
_RATIO, _DOUBT = 0.16, 1.01

Members = Iterable[tuple[str, bytes]]


class _Source(NamedTuple):
    """The pairs of one file as numbers, and the probability that an example of SAP comes from it."""

    name: str
    pairs: list[tuple[bytes, bytes]]
    probability: float


def pack(data: Path, work: Path, output: Path, megabytes: float, overwrite: bool = False) -> None:
    """Write what SAP and SCT need of data and work to output, in megabytes (1e6 bytes) at most.

    work: with everything up to "initial". Raises MilcoError if something is missing there, or if there is no room.
    """
    validate_output_file(output, overwrite)
    if not (data / "retrieval").is_dir():
        raise MilcoError(f"{data} has no retrieval/, whose questions SCT needs: pack from the data as they came")
    missing = [name for name in (*_WORK, *map(_translations, corpus.languages(data))) if not (work / name).exists()]
    if missing:
        raise MilcoError(f"{work} lacks {', '.join(missing)}: make it with the recipe first, up to {work / 'initial'}")
    fixed = _compressed(_work_members(data, work))
    room = int(megabytes * 1e6) - len(fixed)
    if room <= 0:
        raise MilcoError(f"{megabytes:g} MB hold no pairs: the model and the tables alone take {len(fixed) / 1e6:.1f}")
    pairs = _fitting(list(_sources(data, Spelling(work))), room)
    with atomic_file(output) as handle:
        handle.write(fixed + pairs)
    say(f"wrote {output}: {(len(fixed) + len(pairs)) / 1e6:.1f} MB, {len(pairs) / 1e6:.1f} of them pairs")


def unpack(packed: Path, directory: Path) -> tuple[Path, Path]:
    """Make directory of what pack() wrote; returns its data and work folders, to train from.

    A directory that is there already is taken as it is: what training left in it stays.
    """
    if not is_json_with(directory / _MANIFEST, "packed"):
        with atomic_directory(directory, overwrite=False, is_owned=lambda _: False) as made:
            try:
                with lzma.open(packed) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
                    _extract(archive, made)
            except (OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
                raise MilcoError(f"{packed} is no packed recipe, or not all of it: {error}") from error
    return directory / "data", directory / "work"


def _translations(language: str) -> str:
    return f"translations.{language}.npz"


def _work_members(data: Path, work: Path) -> Iterator[tuple[str, bytes]]:
    for name in _WORK:
        for path in sorted((work / name).rglob("*")) if (work / name).is_dir() else [work / name]:
            if path.is_file():
                yield f"work/{path.relative_to(work)}", path.read_bytes()
    for language in corpus.languages(data):
        yield f"work/{_translations(language)}", _write_translations(alignment.load(work / _translations(language)))
    with tempfile.TemporaryDirectory() as made:
        training.write_pairs(data, Path(made))
        for path in sorted(Path(made).iterdir()):
            yield f"work/contrast/{path.name}", gzip.decompress(path.read_bytes())


def _write_translations(found: Translations) -> bytes:
    """The linked units alone, which are all that a word table reads, as arrays that compress well."""
    units, unit = np.unique(found.unit, return_inverse=True)
    words, word = np.unique(found.word, return_inverse=True)
    arrays: dict[str, Any] = {
        "units": np.frombuffer("\n".join(found.units[i] for i in units).encode(), np.uint8),
        "counts": found.counts[units].astype(np.float32),
        "words": np.frombuffer("\n".join(found.words[i] for i in words).encode(), np.uint8),
        # Links stand unit by unit.
        "links": np.bincount(unit).astype(np.uint8),
        "word": word.astype(np.uint16 if len(words) <= 1 << 16 else np.uint32),
        "probability": found.probability.astype(np.float32),
    }
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _read_translations(content: bytes) -> Translations:
    arrays = np.load(io.BytesIO(content))
    return Translations(
        units=arrays["units"].tobytes().decode().split("\n"),
        counts=arrays["counts"].astype(np.float64),
        words=arrays["words"].tobytes().decode().split("\n"),
        unit=np.repeat(np.arange(len(arrays["links"]), dtype=np.int32), arrays["links"]),
        word=arrays["word"].astype(np.int32),
        probability=arrays["probability"].astype(np.float64),
    )


def _sources(data: Path, spelling: Spelling) -> Iterator[_Source]:
    """Every file of pairs as SAP reads it."""
    collections = {str(data / name): share for name, share in training.SHARES.items() if (data / name).is_dir()}
    opened = open_bitext(list(collections), corpus.languages(data))
    temperature = read_recipe(SapOptions, "mini-sap")["temperature"]
    sizes = [source.size() for source in opened]
    probabilities = source_probabilities(opened, sizes, temperature, collections)
    progress = Progress("pairs", sum(sizes))
    for source, probability in zip(opened, probabilities, strict=True):
        foreign = spelling.numbers([pair.text for pair in source.pairs()], SIDES[0])
        english = spelling.numbers([pair.english for pair in source.pairs()], SIDES[1])
        pairs = list(zip(foreign, english, strict=True))
        yield _Source(str(Path(source.name).relative_to(data)), pairs, probability)
        progress.add(len(pairs))
    progress.close("read as token ids")


def _fitting(sources: Sequence[_Source], room: int) -> bytes:
    """As many pairs as fit in so many compressed bytes."""
    total = sum(len(source.pairs) for source in sources)
    ratio, measured = _RATIO, False
    while True:
        kept = _kept(sources, room / ratio)
        count = sum(len(source.pairs) for source in kept)
        packed = _compressed(_pair_members(kept), ends=True)
        say(f"{count:,} of {counted(total, 'pair')}: {len(packed) / 1e6:.1f} of {room / 1e6:.1f} MB")
        if len(packed) <= room and (measured or count == total):
            return packed
        if count == len(sources):
            raise MilcoError(f"one pair of each file takes more than the {room / 1e6:g} MB left: allow more megabytes")
        ratio, measured = _DOUBT * max(len(packed) / _bytes(kept), ratio if measured else 0), True


def _kept(sources: Sequence[_Source], most: float) -> list[_Source]:
    """The sources with as many pairs as the longest run draws of each whose pairs have so many bytes of numbers.

    Of every source one at least: its language is to be there.
    """
    sizes = np.array([len(source.pairs) for source in sources])
    probabilities = np.array([source.probability for source in sources])
    each = np.array([_bytes([source]) for source in sources]) / sizes
    draws, too_many = 0.0, 1 + float((sizes / probabilities).max())
    while too_many - draws > 1:
        middle = (draws + too_many) / 2
        fits = np.minimum(sizes, middle * probabilities) @ each <= most
        draws, too_many = (middle, too_many) if fits else (draws, middle)
    quotas = np.minimum(sizes, np.floor(draws * probabilities) + 1).astype(int)
    return [_sample(source, quota) for source, quota in zip(sources, quotas.tolist(), strict=True)]


def _sample(source: _Source, quota: int) -> _Source:
    """So many of the source's pairs, in their order."""
    places = random.Random(source.name).sample(range(len(source.pairs)), quota)
    return source._replace(pairs=[source.pairs[place] for place in sorted(places)])


def _bytes(sources: Iterable[_Source]) -> int:
    return sum(len(foreign) + len(english) for source in sources for foreign, english in source.pairs)


def _pair_members(sources: Sequence[_Source]) -> Iterator[tuple[str, bytes]]:
    """How many pairs there are, then one side of all files, then the other."""
    yield _MANIFEST, orjson.dumps({"packed": {source.name: len(source.pairs) for source in sources}})
    for place, side in enumerate(SIDES):
        for source in sources:
            yield f"data/{source.name}/{side}", b"".join(pair[place] for pair in source.pairs)


def _compressed(members: Members, ends: bool = False) -> bytes:
    """Members as an xz stream of a tar; streams follow each other, and the last one ends the tar."""
    buffer = io.BytesIO()
    with lzma.open(buffer, "wb", filters=_FILTERS) as stream:
        for name, content in members:
            header = tarfile.TarInfo(name)
            header.size = len(content)
            stream.write(header.tobuf() + content + bytes(-len(content) % tarfile.BLOCKSIZE))
        if ends:
            stream.write(bytes(2 * tarfile.BLOCKSIZE))
    return buffer.getvalue()


def _extract(archive: tarfile.TarFile, directory: Path) -> None:
    """Every member as the file that it was, or at its name; pairs as training reads them."""
    spelling: Spelling | None = None
    foreign: dict[Path, list[str]] = {}
    for member in archive:
        path = directory / tarfile.data_filter(member, str(directory)).name
        content = cast(IO[bytes], archive.extractfile(member)).read()
        if path.name in SIDES:
            # The tokenizers are there: WORK comes first.
            spelling = spelling or Spelling(directory / "work")
            lines = spelling.texts(content)
            if path.name == SIDES[0]:
                foreign[path.parent] = lines
                continue
            path = path.parent
            pairs = zip(foreign.pop(path), lines, strict=True)
            content = "".join(f"{text}\t{english}\n" for text, english in pairs).encode()
        elif path.match(f"work/{_translations('*')}"):
            alignment.save(path, _read_translations(content))
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content, 1, mtime=0) if path.suffix == ".gz" else content)
