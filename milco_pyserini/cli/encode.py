"""milco encode: a corpus, topics or one text as sparse vectors."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.defaults import vectors_directory
from milco_pyserini.encode.devices import LAUNCHERS, LOCAL, require_devices
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.options import ShardOptions, one_of, option

_SCALE_OUT = "scale-out"
_RESUMES = "complete parts are kept; rerun the same command to resume"
# Options of vector stores, which --text does not write.
_OF_STORES = (
    *("output", "overwrite", "reuse", "skip_bad_lines", "split_passages", "format", "part_size"),
    *("launcher", "shard_id", "shard_num", "scale"),
)


@dataclass(frozen=True)
class EncodeOptions(EncodePlan, ShardOptions):
    """Encode a corpus, topics or one text as sparse vectors: English terms and terms of the text's own language.

    The output is a vector store, which milco index reads; its JSONL parts are in Anserini's format. An interrupted run
    is resumed by the same command.

      milco encode --corpus sample --encoder mini
      milco encode --text "Wer erfand das Telefon?" --encoder mini
    """

    corpus: str | None = option(
        None, metavar="NAME|PATH", help="documents: a name (miracl-ar, beir-scifact, an ir_datasets id) or a path"
    )
    topics: str | None = option(None, metavar="NAME|PATH", help="topics instead of documents, by name or path")
    text: str | None = option(
        None,
        metavar="TEXT",
        excludes=_OF_STORES,
        help="text whose terms and weights are printed, strongest first; - reads it from stdin",
    )
    top_k: int = option(25, minimum=1, metavar="K", requires="text", help="with --text: terms to print per view")
    output: Path | None = option(
        None, metavar="DIR", help="vector store (default: vectors/NAME, for topics vectors/NAME.topics)"
    )
    overwrite: bool = option(False, help="replace a complete store, or one with other options, at --output")
    reuse: Path | None = option(
        None, metavar="DIR", help="finished vector store whose vectors are reused: only texts that it lacks are encoded"
    )
    revision: str | None = option(
        None, metavar="REV", group="encoder", help="commit, tag or branch of the hub's checkpoint, as in NAME@REV"
    )
    skip_bad_lines: bool = option(False, help="skip and report invalid lines of the corpus")
    device: str = option(
        "auto", metavar="DEVICE", group=_SCALE_OUT, help="auto, cpu, cuda (all GPUs), or one per process: cuda:0,cuda:2"
    )
    launcher: str = option(LOCAL, choices=LAUNCHERS, group=_SCALE_OUT, help="processes here or on a Ray cluster")

    def conflicts(self) -> Iterator[MilcoError | str]:
        """Yield conflicts between options."""
        yield from one_of(self, "corpus", "topics", "text")
        yield from super().conflicts()


def encode_command(options: EncodeOptions) -> None:
    """Encode what the options name. Raises MilcoError before anything is written if they are invalid."""
    plan = EncodePlan(**{field.name: getattr(options, field.name) for field in fields(EncodePlan)})
    plan = replace(plan, encoder=Checkpoint.open(options.encoder, options.revision).name)
    if options.text is not None:
        text = options.text
        if text == "-":
            try:
                text = sys.stdin.buffer.read().decode("utf-8")
            except UnicodeDecodeError as error:
                raise MilcoError(f"--text -: stdin is not UTF-8 (byte {error.start + 1})") from None
        print_terms(text, plan, options.device, options.top_k)
        return
    from milco_pyserini.corpora import open_corpus, open_topics
    from milco_pyserini.encode.corpus import encode_corpus

    name = options.corpus or options.topics or ""
    open_records = open_corpus if options.topics is None else open_topics
    encode_corpus(
        open_records(name, options.skip_bad_lines),
        options.output or vectors_directory(name, options.topics is not None),
        plan,
        device=options.device,
        launcher=options.launcher,
        shard_id=options.shard_id,
        shard_num=options.shard_num,
        overwrite=options.overwrite,
        reuse=options.reuse,
    )


def print_terms(text: str, plan: EncodePlan, device: str, top_k: int) -> None:
    """Print the top_k terms of a text in each view with their weights."""
    from milco_pyserini.sparse.listing import listing

    require_devices(device)
    checkpoint = Checkpoint.open(plan.encoder)
    checkpoint.validate_length(plan.max_length)
    encoder: Any = plan.load_encoder(checkpoint, device)
    plan = plan.resolve(encoder, topics=False)
    batch = encoder.encode(text, max_length=plan.max_length, views=plan.views, lowercase=plan.lowercase)
    (row,) = encoder.tokenizer.tokenize([text.lower() if plan.lowercase else text], plan.max_length)
    if not row.ids:
        log("The text is blank: its vector is empty")
    if row.truncated:
        log(f"Truncated the text to {plan.max_length} tokens")
    for rule in plan.pruning_rules:
        batch = rule(batch)
    for view in plan.views:
        terms = encoder.decode(batch.view(view))[0]
        sys.stdout.write(listing(view, terms[:top_k], len(terms)))


main = partial(run_command, "milco encode", EncodeOptions, encode_command, interrupted=_RESUMES)
