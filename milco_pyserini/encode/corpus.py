"""Encode a corpus or topics into a vector store: resumable, in shards, on several devices."""

import itertools
import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import structs

from milco_pyserini.console import Progress, counted, duration, log, warn
from milco_pyserini.corpora import Corpus, Topics, open_corpus
from milco_pyserini.corpora.collection import TextDigest
from milco_pyserini.corpora.records import encoded_text
from milco_pyserini.encode.devices import LOCAL, RAY
from milco_pyserini.encode.documents import SchemaReader
from milco_pyserini.encode.launch import Launcher, encode_here, encode_in_workers
from milco_pyserini.encode.parts import TEXT, EncodedPart, Job, PartEncoder
from milco_pyserini.encode.plan import FORMATS, EncodePlan, encoder_fields
from milco_pyserini.encode.ray_launcher import RayLauncher
from milco_pyserini.encode.reuse import ReusableStore, load_texts
from milco_pyserini.encode.writer import StoreWriter, validate_output
from milco_pyserini.errors import (
    Message,
    MilcoError,
    ParameterError,
    joined,
    parameter,
    require_package,
    shown,
    validate_name,
)
from milco_pyserini.io.artifact import Action
from milco_pyserini.io.files import visible
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.configuration import warn_if_trained_on
from milco_pyserini.options import validate
from milco_pyserini.sparse.store import FORMAT_VERSION, open_manifest, read_part, validate_shard_id

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder

_LAUNCHERS: dict[str, Launcher] = {LOCAL: Launcher(), RAY: RayLauncher()}


def encode_corpus(
    corpus: str | os.PathLike | Corpus | Topics | Iterable[Any],
    output: str | os.PathLike,
    plan: EncodePlan | None = None,
    *,
    device: str = "auto",
    launcher: str = LOCAL,
    shard_id: int = 0,
    shard_num: int = 1,
    overwrite: bool = False,
    reuse: str | os.PathLike | None = None,
    encoder: "MilcoEncoder | None" = None,
) -> StoreManifest | None:
    """Encode a corpus into a vector store, or continue an interrupted run: what `milco encode` does.

        encode_corpus("sample", "vectors/sample", EncodePlan(encoder="mini"))
        encode_corpus(open_topics("miracl-ar-dev"), "vectors/queries", EncodePlan(encoder="mini"))
        encode_corpus(["The Nile is a river.", "Bell patented it."], "vectors/two", EncodePlan(encoder="mini"))

    Several devices are several processes: a program that names some has its main part under
    `if __name__ == "__main__":`, as multiprocessing requires.

    Args:
        corpus: a name or a path of documents, or what open_corpus() or open_topics() returned; or an iterable of
            strings, (id, text) pairs, dicts with a text, or Documents, or a pandas.DataFrame. A generator is first
            written to a temporary file.
        output: directory of the store. If it holds an incomplete store of the same plan, its missing parts are encoded.
        plan: encoder and settings (default: the published checkpoint, with its own settings).
        device: "auto", "cpu", "cuda" (all GPUs), or one name per process, as in "cuda:0,cuda:2".
        launcher: "local", or "ray" for the workers of a Ray cluster.
        shard_id, shard_num: encode only the parts k for which k mod shard_num is shard_id.
        overwrite: start over if output holds a complete store, or one of another plan.
        reuse: a finished store of the same plan, of any corpus: only texts that it lacks are encoded.
        encoder: the encoder of the plan, if it is loaded already; for one device.

    Returns:
        The manifest of the store; None as long as parts of other shards are missing.

    Raises:
        MilcoError: a setting, the corpus or the output is invalid. All that can be checked without the encoder is
            checked before the encoder is loaded.
    """
    plan, output = plan or EncodePlan(), Path(output)
    validate_name("launcher", launcher, _LAUNCHERS)
    launched = _LAUNCHERS[launcher]
    launched.validate(device)
    if encoder is not None:
        _refuse(parameter("encoder") + " is loaded, and encodes on its own device", device=device, launcher=launcher)
        plan = replace(plan, encoder=encoder.name, english_prefix=encoder.vocabulary.english_prefix)
    validate(plan)
    checkpoint = Checkpoint.open(plan.encoder)
    if plan.format == "auto":
        plan = replace(plan, format=FORMATS[checkpoint.requires_fit])
    if plan.format == "parquet":
        require_package("pyarrow", "parquet", parameter("format", "parquet") + ", the format of bm25,")
    if encoder is None:
        checkpoint.validate_length(plan.max_length)
    validate_shard_id(shard_id, shard_num)
    records = corpus if isinstance(corpus, Topics) else open_corpus(corpus)
    topics = isinstance(records, Topics)
    if topics and plan.split_passages:
        raise ParameterError("split_passages", None, "is for documents, not for topics")
    if topics:
        plan = replace(plan, store_documents=False)
    launched.require()
    wanted = StoreManifest(
        format_version=FORMAT_VERSION,
        kind="topics" if topics else "documents",
        corpus=records.name,
        field_rule=getattr(records, "field_rule", "text"),
        **plan.manifest_fields(),
    )
    if checkpoint.requires_fit:
        _refuse(f"encoder {plan.encoder} is fitted to all texts on this machine", reuse=reuse, launcher=launcher)
        # Its complete name is known when it is fitted.
        wanted = structs.replace(wanted, encoder=None)
        # Only the statistics of documents are written, for processes to read.
        device = "cpu" if topics or device == "auto" else device
    # Cheap checks first, then one pass over the texts, then load the encoder.
    validate_output(output, wanted, overwrite)
    old = None if reuse is None else ReusableStore(Path(reuse), wanted)
    if old is not None and old.path.resolve() == output.resolve():
        raise ParameterError("output", output, Message("{reuse} reads it"), "Choose another.")
    schema = SchemaReader(records.name) if wanted.store_documents else None
    report = cast(Corpus, records).check(None if schema is None else schema.add)
    if report.skipped:
        log(f"Skipped {counted(len(report.skipped), 'invalid line')}:")
        for line in report.skipped:
            log(f"  {line}")
    if report.surrogates:
        warn(f"{counted(report.surrogates, 'text')} with lone surrogates, each encoded as U+FFFD")
    # The first text shows a wrong file or field at once.
    text = " ".join(encoded_text(report.first).split())
    what = counted(report.records, "topic" if topics else "document")
    log(f"{records.name}: {what}, the first is {shown(report.first.id)}: {shown(text) if text else 'empty'}")
    stored = schema.manifest_fields() if schema else {}
    wanted = structs.replace(wanted, texts=report.records, corpus_hash=report.digest, **stored)
    action = validate_output(output, wanted, overwrite)
    if encoder is not None:
        devices = [str(encoder.device)]
    else:
        log(f"Loading encoder {plan.encoder}")
        devices = launched.devices(device)
    plan, own = launched.own(plan, devices)
    loaded: Any = encoder or plan.load_encoder(checkpoint, own)
    if checkpoint.requires_fit:
        store = output if action in (Action.RESUME, Action.KEEP) else None
        loaded = loaded.fitted(records, plan.resolve(loaded, topics), store)
        plan = replace(plan, encoder=loaded.name)
    if not (topics or loaded.network.encodes_documents):
        fix = f"Encode documents with {loaded.config.checkpoint}."
        raise ParameterError("encoder", plan.encoder, "encodes topics only", fix)
    if topics:
        warn_if_trained_on(loaded, records.name)
    plan = plan.resolve(loaded, topics)
    wanted = structs.replace(wanted, **plan.manifest_fields(), **encoder_fields(checkpoint, loaded, devices[0], topics))
    part_encoder = PartEncoder(plan, loaded)
    if old is not None:
        old.validate(structs.replace(wanted, query_network=wanted.query_network or None))
        old.load()
    num_parts = -(-report.records // plan.part_size)
    parts = range(shard_id, num_parts, shard_num)
    with StoreWriter(output, wanted, overwrite) as writer:
        address = checkpoint.address
        if checkpoint.requires_fit and not topics:
            loaded.save_pretrained(output)
            address = str(output.resolve())
        writer.remove_damaged(parts, loaded.vocabulary)
        if writer.is_complete:
            log(f"{output} is up to date")
        else:
            EncodeRun(records, writer, part_encoder, parts, old).run(devices, launched, address)
            if not writer.complete(num_parts, plan.views, loaded.vocabulary):
                log(f"{output}: this shard is complete; the store is complete once the other shards are")
                return None
    manifest = open_manifest(output)
    if plan.split_passages:
        log(f"Split {counted(report.records, 'document')} into {counted(manifest.documents, 'passage')}")
    if manifest.empty_documents:
        log(f"{manifest.empty_documents:,} of {counted(manifest.documents, 'text')} have empty vectors (kept)")
    if manifest.truncated_documents:
        what = counted(manifest.truncated_documents, "text")
        warn(f"truncated {what} to {plan.max_length} tokens{_first_truncated(output, manifest, records)}")
    return manifest


def _first_truncated(store: Path, manifest: StoreManifest, records: Corpus | Topics) -> str:
    """Return which text of a complete store is the first that was truncated, for a message; "" if it is not known."""
    number, part = next((number, part) for number, part in enumerate(manifest.parts) if part.truncated)
    if part.digests is None:
        return ""
    texts = load_texts(read_part(store, part.digests))
    place = sum(before.texts for before in manifest.parts[:number]) + int(texts["truncated"].argmax())
    first: Any = next(itertools.islice(iter(records), place, None))
    return f", the first is {shown(first.id)}"


def _refuse(reason: str, **options: Any) -> None:
    """Raise MilcoError, with the reason, if options are given: other values than None, "auto" and "local"."""
    if given := [parameter(name, value) for name, value in options.items() if value not in (None, "auto", LOCAL)]:
        raise MilcoError(reason, joined(("Omit ", joined(given, " and "), ".")))


class EncodeRun:
    """Encodes those parts of a store that it lacks: reads their records, writes their vectors, reports progress.

    parts: numbers of the parts to encode. old: a store whose vectors are reused.
    """

    def __init__(
        self,
        records: Corpus | Topics,
        writer: StoreWriter,
        encoder: PartEncoder,
        parts: range,
        old: ReusableStore | None,
    ) -> None:
        self._records = records
        self._writer = writer
        self._encoder = encoder
        self._plan = encoder.plan
        self._parts = parts
        self._old = old
        existing = [record for number in parts if (record := writer.record(number))]
        self._num_missing = len(parts) - len(existing)
        self._texts_before = sum(record.texts for record in existing)
        total, size = writer.plan.texts or 0, encoder.plan.part_size
        self._texts = sum(min(size, total - number * size) for number in parts)
        self._unit = "topics" if isinstance(records, Topics) else "documents"
        self._progress = Progress(self._unit, self._texts, self._texts_before)
        self._digest = TextDigest()
        self._schema = SchemaReader(records.name) if writer.plan.store_documents else None
        # After an error, another thread may be at the next part.
        self._stopped = threading.Event()
        # Guards the progress and the fields below: workers report from several threads.
        self._lock = threading.Lock()
        self._encoded: dict[int, tuple[int, int]] = {}
        self._written: set[int] = set()

    def run(self, devices: list[str], launcher: Launcher, address: str) -> None:
        """Write the missing parts. devices: resolved. address: of the checkpoint, for workers.

        Raises MilcoError, and removes the written parts, if the records have changed since the store was begun.
        """
        plan, writer, old, progress, started = self._plan, self._writer, self._old, self._progress, time.monotonic()
        num_parts, unit = len(self._parts), self._unit.removesuffix("s")
        if self._num_missing < num_parts:
            log(f"{writer.path}: resuming, {num_parts - self._num_missing:,} of {counted(num_parts, 'part')} exist")
        # No more processes than parts, because a process takes time to start.
        devices = devices[: max(1, self._num_missing)]
        what = counted(self._texts - self._texts_before, unit)
        if old is not None:
            what = f"those of {what} that {old.path} ({counted(len(old), 'text')}) lacks"
        log(f"Encoding {what} on {', '.join(devices)} in {plan.dtype}")
        start = launcher.workers(replace(plan, encoder=address), self._encoder, devices)
        jobs, limit = self._missing_parts(), ""
        try:
            # Without a job no network is built, and no process starts.
            for first in jobs:
                remaining = itertools.chain([first], jobs)
                if start is None:
                    limit = encode_here(remaining, self._encoder, self._report, self._write)
                else:
                    encode_in_workers(remaining, start, devices, self._report, self._write)
        finally:
            self._stopped.set()
        read = self._digest.hexdigest(), self._schema and self._schema.manifest_fields()["documents_hash"]
        if read != (writer.plan.corpus_hash, writer.plan.documents_hash):
            writer.remove(self._written)
            raise MilcoError(
                f"{self._records.name} changed while it was being encoded, and the new parts were removed: rerun the "
                "same command when the corpus no longer changes"
            )
        progress.close(None)
        seconds = max(time.monotonic() - started, 1e-9)
        new = progress.done - self._texts_before - progress.reused
        short = "docs" if self._unit == "documents" else self._unit
        rates = f"{new / seconds:,.0f} {short}/s, {progress.tokens / seconds:,.0f} tokens/s"
        rates += f"; limited by {limit}" if limit else ""
        reused = "" if old is None else f", reused {progress.reused:,} of {old.path}"
        log(f"Encoded {counted(new, unit)} into {visible(writer.path)} in {duration(seconds)} ({rates}){reused}")

    def _missing_parts(self) -> Iterator[Job]:
        """Yield the records of each part that must be encoded. A part is written at once if all are reused."""
        stream = iter(self._records)
        for number in itertools.count():
            part: list[Any] = list(itertools.islice(stream, self._plan.part_size))
            if not part or self._stopped.is_set():
                return
            # All records are read, for the digest.
            for record in part:
                self._digest.add(record)
                if self._schema is not None:
                    self._schema.add(record)
            if number in self._parts and self._writer.record(number) is None:
                new = part if self._old is None else self._old.take(number, part)
                if new:
                    yield number, new
                else:
                    self._write(EncodedPart.of(number, b"", np.zeros(0, TEXT), self._plan.views, 0))

    def _report(self, number: int, texts: int, tokens: int) -> None:
        """Report how many texts and tokens of a part have been encoded so far."""
        with self._lock:
            # The last report of a part may arrive after the part.
            if number not in self._written:
                texts_before, tokens_before = self._encoded.get(number, (0, 0))
                self._encoded[number] = texts, tokens
                self._progress.add(texts - texts_before, tokens - tokens_before)

    def _write(self, part: EncodedPart) -> None:
        """Write a part, with the vectors that are reused."""
        plan, new = self._plan, part.counts["texts"]
        if self._old is not None:
            part = self._old.complete(part)
        record = self._writer.write(part.number, plan.format, part.content, part.digests, **part.counts)
        self._report(part.number, record.texts, part.tokens)
        with self._lock:
            self._written.add(part.number)
            self._progress.reused += record.texts - new
            self._progress.average(record.texts, **{f"{view} terms": float(record.terms[view]) for view in plan.views})
