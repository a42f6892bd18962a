"""milco encode --corpus miracl-ar: a corpus, topics or a text to term vectors, or to dense ones."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, say
from milco_pyserini.defaults import DEFAULT_ENCODER, MINI, check_local_name, vectors_directory
from milco_pyserini.encode.engines import ENGINES, LOCAL, RAY, check_engine, engine_devices, open_engine
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.corpora import Corpus, Topics

FORMATS = ("jsonl", "parquet")
# As in sparse and encode, which --help does not wait for; a test holds them equal.
VIEWS = ("pivot", "source")
DTYPES = ("auto", "float32", "bfloat16")
POOLINGS = ("cls", "mean", "last")
# <s>, one token, </s>.
SHORTEST = 3
# What says something of term vectors alone, and of dense ones alone.
_OF_TERMS = ("text", "views", "prune", "scale", "english_prefix", "format", "top_k")
_OF_DENSE = ("pooling", "query_prompt", "document_prompt")


@dataclass(frozen=True)
class Options:
    """Encode a corpus, topics or one text into sparse term vectors: English terms and the text's own.

    The vector store that it writes is what milco index reads; its JSONL parts are what Anserini reads.
    Killed or interrupted, the same command goes on where it stopped. With --dense it is dense vectors instead, one of
    length 1 for each text, in Parquet parts, by any encoder.
    """

    corpus: str | None = option(
        None, help="documents: a name (miracl-ar, beir-scifact, sample, an ir_datasets id) or a path"
    )
    topics: str | None = option(None, help="topics instead of documents: a name (miracl-ar-dev) or a path")
    text: str | None = option(
        None, help="print the terms and weights of this text, strongest first; - reads it from stdin"
    )
    encoder: str = option(DEFAULT_ENCODER, help="checkpoint: hub name, directory, or mini (embedded)")
    output: Path | None = option(
        None, help="directory of the vector store (default: vectors/NAME, of topics vectors/NAME.topics)"
    )
    dense: bool = option(False, help="dense vectors (default --output: vectors/NAME.dense)")
    pooling: str | None = option(
        None, choices=POOLINGS, help="with --dense: a text's vector (default: as the checkpoint's files say, else mean)"
    )
    query_prompt: str | None = option(
        None, metavar="TEXT", help="with --dense: what stands before queries (default: as the checkpoint's files say)"
    )
    document_prompt: str | None = option(
        None, metavar="TEXT", help="with --dense: what stands before documents (default: as the checkpoint's files say)"
    )
    format: str = option("jsonl", choices=FORMATS, help="jsonl (whole numbers, Anserini's) or parquet (float weights)")
    batch_size: int = option(
        512, minimum=1, help="texts in one forward pass, at most; how many tokens, the device decides"
    )
    max_length: int | None = option(
        None, minimum=SHORTEST, help="tokens of a text (default: the checkpoint's, passages 512, queries 64)"
    )
    device: str = option("auto", help="auto, cpu, cuda (all GPUs) or cuda:N; cuda:0,cuda:2 is a process for each")
    engine: str = option(LOCAL, choices=ENGINES, help="where: on this machine, or over a Ray cluster")
    dtype: str = option("auto", choices=DTYPES, help="the matrix products' precision")
    views: tuple[str, ...] = option((), choices=VIEWS, help="what to encode (default: all that the checkpoint has)")
    lowercase: bool = option(False, help="lower-case the texts first, as the paper's evaluation does")
    prune: tuple[str, ...] = option(
        (),
        metavar="RULE",
        help="top-k:K, percentile:P, mass:P or threshold:T over both views of a text together; over one alone as "
        "pivot:top-k:K or source:top-k:K; several rules apply in their order",
    )
    scale: float = option(100.0, above=0, maximum=2**31 - 1, help="impact = round(weight x scale)")
    english_prefix: str = option("", help="spelling of pivot terms; e_ is the authors'")
    split_passages: bool = option(False, help="documents longer than --max-length become passages ID#0, ID#1, ...")
    part_size: int = option(8192, minimum=1, help="documents in one part file")
    shard_id: int = option(0, minimum=0, help="which shard this process encodes, from 0")
    shard_num: int = option(1, minimum=1, help="number of processes that share the work in one directory")
    skip_bad_lines: bool = option(False, help="leave broken lines out, count and list them")
    overwrite: bool = option(False, help="start over if --output holds a finished or another store of the same kind")
    top_k: int = option(25, minimum=1, help="with --text: terms to print of each view")


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
    if options.shard_id >= options.shard_num:
        raise MilcoError(f"--shard-id {options.shard_id}: must be from 0 to {options.shard_num - 1} (--shard-num - 1)")
    if options.engine == RAY and options.text is not None:
        raise MilcoError("--engine ray is for --corpus and --topics, not for --text")
    if options.split_passages and options.topics:
        raise MilcoError("--split-passages is for documents, not for --topics")
    _check_kind(options)
    _check_names(options)


def _check_kind(options: Options) -> None:
    """Raise MilcoError for an option that says nothing of the vectors that are asked for."""
    defaults = {field.name: field.default for field in fields(Options)}
    for name in _OF_TERMS if options.dense else _OF_DENSE:
        if getattr(options, name) != defaults[name]:
            why = "is for term vectors, not for --dense" if options.dense else "is for --dense"
            raise MilcoError(f"--{name.replace('_', '-')} {why}")


def _check_names(options: Options) -> None:
    from milco_pyserini.encode.devices import check_device_name, device_names
    from milco_pyserini.sparse.pruning import PruningRule

    for name in device_names(options.device):
        check_device_name(name)
    check_engine(options.engine)
    if options.encoder != MINI:
        check_local_name(options.encoder)
    for rule in map(PruningRule.parse, options.prune):
        if rule.view and options.views and rule.view not in options.views:
            raise MilcoError(f"--prune {rule}: no {rule.view} view is encoded, --views is {' '.join(options.views)}")


def _encode_collection(options: Options) -> None:
    from milco_pyserini.corpora import open_corpus, open_topics
    from milco_pyserini.encode.plan import asked, made_by, open_work
    from milco_pyserini.encode.shards import encode_corpus
    from milco_pyserini.encode.writer import StoreWriter, check_output

    name = options.corpus if options.topics is None else options.topics
    output = options.output or vectors_directory(name or "", options.topics is not None, options.dense)
    opened: Corpus | Topics = (open_corpus if options.topics is None else open_topics)(
        name or "", options.skip_bad_lines
    )
    # What costs nothing to find out comes first; then a pass over the texts; only then is the model loaded.
    plan = asked(options, opened)
    check_output(output, plan, options.overwrite)
    plan |= _read_through(opened)
    check_output(output, plan, options.overwrite)
    say(f"loading encoder {options.encoder}")
    devices = engine_devices(options.engine, options.device)
    work = open_work(options, devices)
    parts = range(options.shard_id, -(-plan["texts"] // options.part_size), options.shard_num)
    with StoreWriter(output, plan | made_by(work, devices), options.overwrite) as writer:
        writer.mend(parts, work.vocabulary)
        if writer.finished:
            say(f"{output} is finished: nothing to do")
            return
        # No more processes than parts: each takes its time to begin.
        engine = open_engine(options.engine, work, devices[: max(len(parts), 1)])
        shards = options.part_size, options.shard_id, options.shard_num
        _close(encode_corpus(opened, plan["texts"], writer, work, *shards, engine), output)


def _read_through(opened: "Corpus | Topics") -> dict:
    """What a full pass over the texts tells of them; says how they begin, which shows a wrong file at once."""
    from milco_pyserini.corpora import CorpusReport
    from milco_pyserini.corpora.records import encoded_text

    report = opened.check()
    if report.skipped:
        say(f"left out {counted(len(report.skipped), 'broken line')}:")
        for line in report.skipped:
            say(f"  {line}")
    if isinstance(report, CorpusReport):
        texts, what = report.documents, counted(report.documents, "document")
    else:
        texts, what = report.topics, counted(report.topics, "topic")
    begins = " ".join(encoded_text(report.first).split())
    say(f"{opened.name}: {what}, the first is {shown(report.first.id)}: {shown(begins) if begins else 'empty'}")
    return {"texts": texts, "corpus_hash": report.digest}


def _close(finished: bool, output: Path) -> None:
    from milco_pyserini.sparse.store import open_manifest

    if not finished:
        say(f"{output}: this shard's parts are whole; the store is finished when the other shards' are")
        return
    manifest = open_manifest(output)
    if manifest["empty_documents"]:
        empty = f"{manifest['empty_documents']:,} of {counted(manifest['documents'], 'text')}"
        what = "zero vectors (blank texts)" if manifest.get("dense") else "without terms (empty)"
        say(f"{what}: {empty}, kept all the same")
    if manifest["truncated_documents"]:
        say(f"cut at {manifest['max_length']} tokens: {counted(manifest['truncated_documents'], 'longer text')}")


def _print_text(options: Options) -> None:
    from milco_pyserini.encode.plan import open_term_encoder, pruning
    from milco_pyserini.sparse.listing import listing

    text = sys.stdin.read() if options.text == "-" else options.text or ""
    encoder = open_term_encoder(options, engine_devices(options.engine, options.device))
    length = encoder.model.config.passage_max_length if options.max_length is None else options.max_length
    encoder.validate_length(length)
    views = encoder.resolve_views(options.views)
    encoded = encoder.encode(text, length, views, options.lowercase)
    if encoded.truncated:
        say(f"the text is longer than {length} tokens and was cut there")
    batch = encoded.batch
    for rule in pruning(options):
        batch = rule(batch)
    for view in views:
        terms = encoder.decode(batch.view(view))[0]
        sys.stdout.write(listing(view, terms[: options.top_k], len(terms)))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    whole = "what is whole stays, the same command goes on from there"
    return run_command("milco encode", Options, command, argv, interrupted=whole)
