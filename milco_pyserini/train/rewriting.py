"""Rewrite training sets (milco train mine, score): their options, and one resumable JSONL file for each source."""

import contextlib
import gzip
import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.console import Progress
from milco_pyserini.corpora.languages import UNDETERMINED
from milco_pyserini.defaults import DEFAULT_ENCODER, ENCODER_DTYPES, MINI, directory_name
from milco_pyserini.encode.devices import choose_device, choose_dtype
from milco_pyserini.errors import Message, MilcoError, ParameterError
from milco_pyserini.io.artifact import Action, Artifact
from milco_pyserini.io.files import atomic_file, read_json, remove_directory, write_json
from milco_pyserini.io.lines import numbered_lines
from milco_pyserini.options import MAX_THREADS, DeviceOptions, option
from milco_pyserini.train.config import LEXICAL
from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalSource, dump_example

MANIFEST = "manifest.json"

_PARTS = ".parts"
_COMPRESSION = 3
# Options that do not change the content of the files. The dtype does, but the plan has the one that was chosen.
_FREE = {"output", "device", "dtype", "batch_size", "threads", "overwrite"}


@dataclass(frozen=True, kw_only=True)
class RewriteOptions(DeviceOptions):
    """Options of both commands."""

    data: tuple[str, ...] = option(metavar="SOURCE", help="training data: JSONL files, directories, collection names")
    output: Path = option(metavar="DIR", help="directory of the new files")
    languages: tuple[str, ...] = option((), metavar="LANG", help="languages to keep (default: all)")
    batch_size: int = option(64, minimum=1, help="texts or pairs per forward pass, at most")
    overwrite: bool = option(False, help="start over if --output has something else")


@dataclass(frozen=True, kw_only=True)
class MineOptions(RewriteOptions):
    """Mine hard negatives by searching for the queries of a training set among its passages.

    Each source becomes a file of --output: {"query", "positives", "negatives"}, hardest negatives first. Positives of
    the same query and near-duplicates of them are skipped. Queries without a negative are left out.

      milco train mine --data pairs.ja.jsonl.gz --output mined
    """

    corpus: str | None = option(None, metavar="NAME|PATH", help="corpus with further passages to search")
    encoder: str = option(DEFAULT_ENCODER, metavar="CHECKPOINT", help="checkpoint: hub name, directory, or mini")
    negatives: int = option(15, minimum=1, help="negatives per query, at most")
    depth: int = option(100, metavar="K", minimum=1, help="hits to choose negatives from")
    max_score: float | None = option(
        None, metavar="SHARE", above=0, maximum=1, help="share of the best positive score that negatives may reach"
    )
    engine: str = option("exact", choices=("exact", "lucene"), help="search engine")
    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="search threads")


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(RewriteOptions):
    """Add a teacher's scores to a training set, for distillation.

    Each source becomes a file of --output: the same lines with "scores", one for each passage, positives first.

      milco train score --data mined --teacher BAAI/bge-reranker-v2-m3 --output scored
    """

    teacher: str = option(
        metavar="CHECKPOINT|lexical", help="cross-encoder, or lexical: BM25 and an encoder's score, without a download"
    )
    encoder: str = option(MINI, metavar="CHECKPOINT", help="encoder of the lexical teacher")
    bm25_weight: float = option(1.0, minimum=0, help="BM25 weight of the lexical teacher")
    encoder_weight: float = option(1.0, minimum=0, help="encoder weight of the lexical teacher")
    label_weight: float = option(0.0, minimum=0, help="bonus added to the scores of positives")
    max_length: int = option(512, minimum=8, help="tokens of query and passage together, for a cross-encoder")

    def conflicts(self) -> Iterator[MilcoError | str]:
        """Yield messages about options that exclude each other."""
        if self.teacher == LEXICAL and not self.bm25_weight + self.encoder_weight > 0:
            yield Message(
                "{bm25_weight} and {encoder_weight} give every text the score 0", bm25_weight=0, encoder_weight=0
            )


def pending_files(
    options: RewriteOptions, sources: Sequence[RetrievalSource], weight_hash: str, corpus_hash: str | None = None
) -> list[tuple[RetrievalSource, Path]]:
    """Return the sources whose file is not complete yet, with that file: output/NAME.LANG.jsonl.gz.

    output/manifest.json has everything that determines the files' content: options, weights, and digests of the
    sources, for which each is read once, and of further passages.

    Raises:
        MilcoError: the directory was begun with another plan, or has other files, or two sources would share a file.
    """
    files: dict[Path, RetrievalSource] = {}
    for source in sources:
        name = directory_name(source.name)
        if source.language != UNDETERMINED and not name.endswith(f".{source.language}"):
            name = f"{name}.{source.language}"
        file = options.output / f"{name}.jsonl.gz"
        if file in files:
            raise MilcoError(f"{files[file].name} and {source.name} would both become {file}: rename one of them")
        files[file] = source
    given = {name: value for name, value in vars(options).items() if name not in _FREE}
    plan = {
        "command": "mine" if isinstance(options, MineOptions) else "score",
        **{name: list(value) if isinstance(value, tuple) else value for name, value in given.items()},
        "dtype": str(choose_dtype(options.dtype, choose_device(options.device), ENCODER_DTYPES)).removeprefix("torch."),
        "weight_hash": weight_hash,
        "corpus_hash": corpus_hash,
        "examples": {file.name: source.stats.examples for file, source in files.items()},
        **{f"digest of {file.name}": source.stats.digest for file, source in files.items()},
    }
    manifest = options.output / MANIFEST
    recorded = read_json(manifest) if manifest.is_file() else {}
    is_owned = recorded.get("command") == plan["command"]
    begun = Artifact(options.output, lambda _: is_owned, recorded, is_complete=False, in_place=True)
    action = begun.action(plan, options.overwrite)
    for source in sources:
        if not source.stats.examples:
            raise MilcoError(f"{source.name} has no examples")
    if action is not Action.RESUME:
        for source in sources:
            if Path(source.name).resolve().is_relative_to(options.output.resolve()):
                raise ParameterError("output", options.output, f"{source.name} is in it", "Choose another.")
        if action is Action.REPLACE:
            remove_directory(options.output)
        write_json(manifest, plan)
    pending = [(source, file) for file, source in files.items() if not file.is_file()]
    if not pending:
        begun.keep()
    return pending


def parts_of(file: Path) -> Path:
    """Return the directory of what is kept for a file until it is complete."""
    return file.parent / _PARTS / file.name


def rewrite(
    file: Path,
    source: RetrievalSource,
    part_size: int,
    work: Callable[[Sequence[RetrievalExample]], Iterable[RetrievalExample | None]],
) -> int:
    """Write what work() makes of a source's examples, part_size at a time; return how many were left out.

    Parts are kept next to the file until it is complete, so an interrupted run resumes after its last part.

    Args:
        work: yields the new form of each example, or None to leave it out.
    """
    directory = parts_of(file)
    parts: list[Path] = []
    left_out = 0
    progress = Progress("queries", source.stats.examples)
    stream = iter(source.examples())
    while chunk := list(itertools.islice(stream, part_size)):
        part = directory / f"{len(parts):06d}.jsonl.gz"
        if part.is_file():
            left_out += len(chunk) - sum(1 for _ in numbered_lines(part))
            progress.add(len(chunk))
        else:
            # No time stamp: the same work gives the same bytes.
            with atomic_file(part) as handle, gzip.GzipFile("", "wb", _COMPRESSION, handle, mtime=0) as packed:
                for example in work(chunk):
                    if example is None:
                        left_out += 1
                    else:
                        packed.write(dump_example(example) + b"\n")
                    progress.add(1)
        parts.append(part)
    with atomic_file(file) as handle:
        # Concatenated gzip files are a gzip file.
        for part in parts:
            with part.open("rb") as written:
                shutil.copyfileobj(written, handle)
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(OSError):
        directory.parent.rmdir()
    progress.close(f"Wrote {file}")
    return left_out
