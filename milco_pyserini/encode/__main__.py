"""python -m milco_pyserini.encode --corpus miracl-ar: a corpus, topics or one text to sparse term vectors."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.console import say
from milco_pyserini.defaults import DEFAULT_ENCODER, VECTORS, directory_name
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option, run_command

if TYPE_CHECKING:
    from milco_pyserini.corpora import Corpus, Topics
    from milco_pyserini.encode.encoder import MilcoEncoder
    from milco_pyserini.encode.shards import Work

FORMATS = ("jsonl", "parquet")


@dataclass(frozen=True)
class Options:
    """Encode a corpus, topics or one text into sparse term vectors: English terms and the text's own.

    The vector store that it writes is what milco_pyserini.index reads; its JSONL parts are what Anserini reads.
    Killed or interrupted, the same command goes on where it stopped.
    """

    corpus: str | None = option(
        None, help="documents: a name (miracl-ar, beir-scifact, sample, an ir_datasets id) or a path"
    )
    topics: str | None = option(None, help="topics instead of documents: a name (miracl-ar-dev) or a path")
    text: str | None = option(
        None, help="print the terms and weights of this text, strongest first; - reads it from stdin"
    )
    encoder: str = option(DEFAULT_ENCODER, help="checkpoint: hub name, directory, or mini (embedded)")
    output: Path | None = option(None, help="directory of the vector store (default: vectors/NAME)")
    format: str = option("jsonl", choices=FORMATS, help="jsonl (whole numbers, Anserini's) or parquet (float weights)")
    batch_size: int = option(128, help="texts in one forward pass, at most")
    max_length: int | None = option(None, help="tokens of a text (default: the checkpoint's, passages 512, queries 64)")
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16: the matrix products' precision")
    views: tuple[str, ...] = option((), help="pivot, source or both (default: all that the checkpoint has)")
    lowercase: bool = option(False, help="lower-case the texts first, as the paper's evaluation does")
    prune: str | None = option(None, help="top-k:K, percentile:P, mass:P or threshold:T")
    scale: float = option(100.0, help="impact = round(weight x scale)")
    english_prefix: str = option("", help="spelling of pivot terms; e_ is the authors'")
    split_passages: bool = option(False, help="documents longer than --max-length become passages ID#0, ID#1, ...")
    part_size: int = option(8192, help="documents in one part file")
    shard_id: int = option(0, help="which shard this process encodes, from 0")
    shard_num: int = option(1, help="number of processes that share the work in one directory")
    skip_bad_lines: bool = option(False, help="leave broken lines out, count and list them")
    overwrite: bool = option(False, help="start over if --output holds something else")
    top_k: int = option(25, help="with --text: terms to print of each view")


def command(options: Options) -> None:
    """Do what the options say. Raises MilcoError before anything is written if they cannot be met."""
    _check(options)
    if options.text is not None:
        _print_text(options)
    else:
        _encode_collection(options)


def _check(options: Options) -> None:
    given = [name for name in ("corpus", "topics", "text") if getattr(options, name) is not None]
    if len(given) != 1:
        what = f"not {' and '.join('--' + name for name in given)}" if given else "none was given"
        raise MilcoError(f"give one of --corpus, --topics and --text: {what}")
    for name in ("batch_size", "part_size", "shard_num", "top_k"):
        if getattr(options, name) < 1:
            raise MilcoError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least 1")
    if not 0 <= options.shard_id < options.shard_num:
        raise MilcoError(f"--shard-id {options.shard_id}: must be from 0 to {options.shard_num - 1} (--shard-num - 1)")
    if options.scale <= 0:
        raise MilcoError(f"--scale {options.scale}: must be above 0")
    if options.split_passages and options.topics:
        raise MilcoError("--split-passages is for documents, not for --topics")


def _encode_collection(options: Options) -> None:
    from milco_pyserini.corpora import open_corpus, open_topics
    from milco_pyserini.encode.shards import StoreWriter, Work, encode_corpus
    from milco_pyserini.sparse.pruning import Pruning

    pruning = Pruning.parse(options.prune) if options.prune else None
    opened: Corpus | Topics
    if options.corpus is not None:
        opened = open_corpus(options.corpus, options.skip_bad_lines)
    else:
        opened = open_topics(options.topics or "", options.skip_bad_lines)
    encoder = _load(options)
    config = encoder.model.config
    length = options.max_length or (config.query_max_length if options.topics else config.passage_max_length)
    work = Work(
        encoder=encoder,
        max_length=length,
        views=encoder.check(length, options.views or None),
        lowercase=options.lowercase,
        pruning=pruning,
        split_passages=options.split_passages,
        batch_size=options.batch_size,
        scale=options.scale,
        format=options.format,
        keep_contents=options.topics is not None,
    )
    report = opened.check()
    if report.skipped:
        say(f"left out {len(report.skipped):,} broken lines:")
        for line in report.skipped:
            say(f"  {line}")
    total = getattr(report, "documents", 0) or getattr(report, "topics", 0)
    output = options.output or VECTORS / directory_name(options.corpus or options.topics or "")
    writer = StoreWriter(output, _plan(options, work, opened, total), options.overwrite)
    if writer.finished:
        say(f"{output} is finished: nothing to do")
        return
    _close(encode_corpus(opened, total, writer, work, options.part_size, options.shard_id, options.shard_num), output)


def _close(finished: bool, output: Path) -> None:
    from milco_pyserini.sparse.store import open_store

    if not finished:
        say(f"{output}: this shard's parts are whole; the store is finished when the other shards' are")
        return
    manifest = open_store(output).manifest
    if manifest["empty_documents"]:
        say(f"{manifest['empty_documents']:,} of {manifest['documents']:,} texts have no terms (empty); they are kept")
    if manifest["truncated_documents"]:
        say(f"{manifest['truncated_documents']:,} texts were longer than {manifest['max_length']} tokens and cut there")


def _plan(options: Options, work: "Work", opened: "Corpus | Topics", total: int) -> dict:
    """Everything that decides the bytes of the store: the first half of its manifest."""
    import numpy
    import torch
    import transformers

    from milco_pyserini import __version__
    from milco_pyserini.sparse.store import FORMAT_VERSION

    vocabulary = work.encoder.vocabulary
    return {
        "format_version": FORMAT_VERSION,
        "kind": "topics" if options.topics else "documents",
        "corpus": opened.name,
        "field_rule": getattr(opened, "field_rule", "text"),
        "texts": total,
        "encoder": options.encoder,
        "weight_hash": work.encoder.weight_hash,
        "tokenizer_hash": work.encoder.tokenizer_hash,
        "views": list(work.views),
        "lowercase": work.lowercase,
        "max_length": work.max_length,
        "split_passages": work.split_passages,
        "dtype": str(work.encoder.dtype).removeprefix("torch."),
        "device": work.encoder.device.type,
        "batch_size": work.batch_size,
        "pruning": str(work.pruning) if work.pruning else None,
        "scale": work.scale,
        "english_prefix": vocabulary.english_prefix,
        "source_prefix": vocabulary.source_prefix,
        "format": work.format,
        "part_size": options.part_size,
        "versions": {
            "milco_pyserini": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": numpy.__version__,
        },
    }


def _load(options: Options) -> "MilcoEncoder":
    from milco_pyserini.encode.encoder import MilcoEncoder

    return MilcoEncoder.from_pretrained(options.encoder, options.device, options.dtype, options.english_prefix)


def _print_text(options: Options) -> None:
    from milco_pyserini.sparse.listing import listing
    from milco_pyserini.sparse.pruning import Pruning

    pruning = Pruning.parse(options.prune) if options.prune else None
    text = sys.stdin.read() if options.text == "-" else options.text or ""
    encoder = _load(options)
    length = options.max_length or encoder.model.config.passage_max_length
    views = encoder.check(length, options.views or None)
    encoded = encoder.encode(text, length, views, options.lowercase)
    if encoded.truncated:
        say(f"the text is longer than {length} tokens and was cut there")
    batch = pruning(encoded.batch) if pruning else encoded.batch
    for view in views:
        terms = encoder.decode(batch.view(view))[0]
        sys.stdout.write(listing(view, terms[: options.top_k], len(terms)))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("milco_pyserini.encode", Options, command, argv)


if __name__ == "__main__":
    sys.exit(main())
