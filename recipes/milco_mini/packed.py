"""Pack what training needs of DATA and WORK into one file, to train on another machine.

The file is a tar.xz of a data directory and a work directory. Pairs are stored as token ids, first all foreign sides,
then all English ones, and restored when the file is unpacked: case and punctuation are lost, but nothing that training
reads (spelling.py), so every training step is the same. If not all pairs fit, each of their files keeps about as many
as a run of some length would draw from it.
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

from milco_pyserini.console import Progress, counted, log
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_directory, atomic_file, is_json_with, validate_output_file
from milco_pyserini.train.config import SapConfig, load_config
from milco_pyserini.train.data.bitext import open_bitext
from milco_pyserini.train.data.streams import source_probabilities

from . import alignment, corpus, training
from .alignment import Translations
from .spelling import SIDES, Spelling

# Files of WORK that teacher and start need besides the translations.
_WORK = ("english.json", "english_weights.npy", "tokenizer.json", "echo.npy", "table.npz", "initial")
_MANIFEST = "manifest.json"
# A window that spans several English sides, because the same verses occur in ten languages; numbers of four bytes.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 25, "lc": 2, "lp": 2, "pb": 2}]
# First estimate of the compression ratio, which is then measured, and a safety factor.
_RATIO, _DOUBT = 0.16, 1.01

Members = Iterable[tuple[str, bytes]]


class PackedSource(NamedTuple):
    """The pairs of one file as numbers, and its probability in SAP's draws."""

    name: str
    pairs: list[tuple[bytes, bytes]]
    probability: float


def pack(data: Path, work: Path, output: Path, megabytes: float, overwrite: bool = False) -> None:
    """Write what SAP and SCT need of data and work to one file.

    Args:
        data: the data directory.
        work: the work directory, complete up to "initial".
        output: the file.
        megabytes: size limit in 1e6 bytes.
        overwrite: replace an existing file.

    Raises:
        MilcoError: work is incomplete, or the limit is too low.
    """
    validate_output_file(output, overwrite)
    if not (data / "retrieval").is_dir():
        raise MilcoError(f"{data} has no retrieval/, which SCT needs: pack from the original data")
    missing = [name for name in (*_WORK, *map(_translations, corpus.languages(data))) if not (work / name).exists()]
    if missing:
        raise MilcoError(f"{work} lacks {', '.join(missing)}: make it with the recipe first, up to {work / 'initial'}")
    fixed = _compressed(work_members(data, work))
    budget = int(megabytes * 1e6) - len(fixed)
    if budget <= 0:
        raise MilcoError(f"{megabytes:g} MB leaves nothing for pairs: model and tables take {len(fixed) / 1e6:.1f}")
    pairs = fit_pairs(list(read_sources(data, Spelling(work))), budget)
    with atomic_file(output) as handle:
        handle.write(fixed + pairs)
    log(f"Wrote {output}: {(len(fixed) + len(pairs)) / 1e6:.1f} MB, {len(pairs) / 1e6:.1f} of which pairs")


def unpack(packed: Path, directory: Path) -> tuple[Path, Path]:
    """Unpack a file of pack(); return its data and work directories.

    A directory that exists already is kept, with the files of training in it.
    """
    if not is_json_with(directory / _MANIFEST, "packed"):
        with atomic_directory(directory, overwrite=False, is_owned=lambda _: False) as made:
            try:
                with lzma.open(packed) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
                    _extract(archive, made)
            except (OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
                raise MilcoError(f"{packed} is not a complete packed file: {error}") from error
    return directory / "data", directory / "work"


def _translations(language: str) -> str:
    return f"translations.{language}.npz"


def work_members(data: Path, work: Path) -> Iterator[tuple[str, bytes]]:
    for name in _WORK:
        for path in sorted((work / name).rglob("*")) if (work / name).is_dir() else [work / name]:
            if path.is_file():
                yield f"work/{path.relative_to(work)}", path.read_bytes()
    for language in corpus.languages(data):
        yield f"work/{_translations(language)}", pack_translations(alignment.load(work / _translations(language)))
    with tempfile.TemporaryDirectory() as made:
        training.write_pairs(data, Path(made))
        for path in sorted(Path(made).iterdir()):
            yield f"work/contrast/{path.name}", gzip.decompress(path.read_bytes())


def pack_translations(found: Translations) -> bytes:
    """Return the linked units, which are all that a word table reads, as arrays that compress well."""
    units, unit = np.unique(found.unit, return_inverse=True)
    words, word = np.unique(found.word, return_inverse=True)
    arrays: dict[str, Any] = {
        "units": np.frombuffer("\n".join(found.units[i] for i in units).encode(), np.uint8),
        "counts": found.counts[units].astype(np.float32),
        "words": np.frombuffer("\n".join(found.words[i] for i in words).encode(), np.uint8),
        # Links are sorted by unit.
        "links": np.bincount(unit).astype(np.uint8),
        "word": word.astype(np.uint16 if len(words) <= 1 << 16 else np.uint32),
        "probability": found.probability.astype(np.float32),
    }
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def unpack_translations(content: bytes) -> Translations:
    arrays = np.load(io.BytesIO(content))
    return Translations(
        units=arrays["units"].tobytes().decode().split("\n"),
        counts=arrays["counts"].astype(np.float64),
        words=arrays["words"].tobytes().decode().split("\n"),
        unit=np.repeat(np.arange(len(arrays["links"]), dtype=np.int32), arrays["links"]),
        word=arrays["word"].astype(np.int32),
        probability=arrays["probability"].astype(np.float64),
    )


def read_sources(data: Path, spelling: Spelling) -> Iterator[PackedSource]:
    """Yield every file of pairs as SAP reads it."""
    collections = {str(data / name): share for name, share in training.SHARES.items() if (data / name).is_dir()}
    opened = open_bitext(list(collections), corpus.languages(data))
    temperature = load_config(SapConfig, "mini-sap").temperature
    sizes = [source.stats().pairs for source in opened]
    probabilities = source_probabilities(opened, sizes, temperature, collections)
    progress = Progress("pairs", sum(sizes))
    for source, probability in zip(opened, probabilities, strict=True):
        foreign = spelling.numbers([pair.text for pair in source.pairs()], SIDES[0])
        english = spelling.numbers([pair.english for pair in source.pairs()], SIDES[1])
        pairs = list(zip(foreign, english, strict=True))
        yield PackedSource(str(Path(source.name).relative_to(data)), pairs, probability)
        progress.add(len(pairs))
    progress.close("Converted to token ids")


def fit_pairs(sources: Sequence[PackedSource], budget: int) -> bytes:
    """Compress as many pairs as fit in so many bytes."""
    total = sum(len(source.pairs) for source in sources)
    ratio, measured = _RATIO, False
    while True:
        kept = sample_pairs(sources, budget / ratio)
        count = sum(len(source.pairs) for source in kept)
        packed = _compressed(_pair_members(kept), ends=True)
        log(f"{count:,} of {counted(total, 'pair')}: {len(packed) / 1e6:.1f} of {budget / 1e6:.1f} MB")
        if len(packed) <= budget and (measured or count == total):
            return packed
        if count == len(sources):
            raise MilcoError(
                f"one pair of each file takes more than the remaining {budget / 1e6:g} MB: allow more megabytes"
            )
        ratio, measured = _DOUBT * max(len(packed) / _bytes(kept), ratio if measured else 0), True


def sample_pairs(sources: Sequence[PackedSource], most: float) -> list[PackedSource]:
    """Keep of every source as many pairs as a run draws from it, for the longest run that fits in so many bytes.

    At least one of every source, so that no language is lost.
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
    kept = []
    for source, quota in zip(sources, quotas.tolist(), strict=True):
        places = sorted(random.Random(source.name).sample(range(len(source.pairs)), quota))
        kept.append(source._replace(pairs=[source.pairs[place] for place in places]))
    return kept


def _bytes(sources: Iterable[PackedSource]) -> int:
    return sum(len(foreign) + len(english) for source in sources for foreign, english in source.pairs)


def _pair_members(sources: Sequence[PackedSource]) -> Iterator[tuple[str, bytes]]:
    """Yield the numbers of pairs, then one side of all files, then the other."""
    yield _MANIFEST, orjson.dumps({"packed": {source.name: len(source.pairs) for source in sources}})
    for place, side in enumerate(SIDES):
        for source in sources:
            yield f"data/{source.name}/{side}", b"".join(pair[place] for pair in source.pairs)


def _compressed(members: Members, ends: bool = False) -> bytes:
    """Return members as an xz stream of a tar; streams can be concatenated. ends: end the tar."""
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
    """Write every member as a file; pairs as training reads them."""
    spelling: Spelling | None = None
    foreign: dict[Path, list[str]] = {}
    for member in archive:
        path = directory / tarfile.data_filter(member, str(directory)).name
        content = cast(IO[bytes], archive.extractfile(member)).read()
        if path.name in SIDES:
            # WORK comes first, with the tokenizers.
            spelling = spelling or Spelling(directory / "work")
            lines = spelling.texts(content)
            if path.name == SIDES[0]:
                foreign[path.parent] = lines
                continue
            path = path.parent
            pairs = zip(foreign.pop(path), lines, strict=True)
            content = "".join(f"{text}\t{english}\n" for text, english in pairs).encode()
        elif path.match(f"work/{_translations('*')}"):
            alignment.save(path, unpack_translations(content))
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content, 1, mtime=0) if path.suffix == ".gz" else content)
