"""Fill the collection of a running server, resume where an interrupted run ended, and compare with exact search."""

import contextlib
import importlib
import logging
import re
import statistics
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import orjson

from milco_pyserini.console import counted, duration, log
from milco_pyserini.errors import Message, MilcoError, ParameterError, Unreachable, installed_by
from milco_pyserini.export.access import Access
from milco_pyserini.export.directory import report
from milco_pyserini.export.faults import server_errors
from milco_pyserini.export.protocol import HITS, Collection, ExportJob, ExportTarget, ImpactDocument, Server
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.recall import find_ground_truth

# Documents that are sent at a time, and their bytes as JSON: memory holds as many of these as a server has writers.
BATCH, _BATCH_BYTES = 2_000, 2 * 2**20
_CHECKED = 100
_RESUMES = "Run the same command again: it resumes."
# Sums of 32-bit floats, and of weights with 9 significant bits.
_ROUNDING, _NINE_BITS = 1e-5, 2**-8


def fill(export: ExportJob, target: ExportTarget, access: Access) -> bool:
    """Write the documents of an export to a server, and check its scores of sample queries.

    Returns whether the collection is complete: it is not while other shards of the documents are missing.

    A collection states what it was filled with, and what it is being filled with: the same export completes one that
    an interrupted run left. With export.since a complete one is changed. Several runs may fill one collection at a
    time, each with a shard of the documents. The run that writes the last missing document completes it.

    Args:
        access: to one server; to a cluster, by several of its nodes.

    Raises:
        Unreachable: no server answers.
        MilcoError: the client is not installed, the server is too old or lacks what is asked for, the collection holds
            other vectors, or the scores are not those of exact search.
    """
    for name, value in (("shards", export.shards), ("replicas", export.replicas)):
        if value is not None:
            target.require(Capability.CLUSTER, name, value)
    if export.corpus is not None:
        target.validate_stores(export.corpus.fields)
    place = f"{target.title} at {access.shown}"
    server = connect(target, access, export.place)
    server.shards, server.replicas = export.shards, export.replicas
    with contextlib.closing(server.client), server_errors(place, _RESUMES, again=_RESUMES):
        stated, wanted = server.stated(), export.statement
        under_way = f"{'' if export.since is None else export.since.fingerprint}>{wanted}"
        _validate_stated(export, place, stated, under_way)
        if export.since is not None and export.corpus is not None:
            export.outdated = partial(_outdated, server)
        batches = _batches(target.documents(export))
        first = next(batches, [])
        if export.since is None and not export.is_shard and not first:
            raise MilcoError(f"{export.documents.path} holds no document with a term: nothing to export")
        if stated is None:
            try:
                server.create(under_way)
            except Exception:
                # A run with another shard may have created it meanwhile.
                stated = server.stated()
                if stated is None:
                    raise
                _validate_stated(export, place, stated, under_way)
        if stated is not None and stated != wanted:
            server.state(under_way)
        if stated is None and target.posting_bytes and first:
            _log_size(export, target, place, first)
        # A document that has to be replaced is present in both versions.
        only_missing = stated is not None and (stated == wanted or export.since is None)
        _write(server, chain([first] if first else [], batches), only_missing)
        for start in range(0, len(export.deleted), BATCH):
            server.delete(export.deleted[start : start + BATCH])
        count = server.finish()
        if export.is_shard:
            export.measure_all()
        expected = export.documents.manifest.documents - export.empty
        if export.is_shard and count < expected:
            export.progress.close(f"Filled {export.collection} of {place} with shard {export.shard_id}")
            log(
                f"{export.collection} holds {count:,} of {counted(expected, 'document')}: the last of the "
                f"{export.shard_num} shards completes it"
            )
            return False
        if count != expected:
            raise MilcoError(
                f"{export.collection} of {place} holds {count:,} documents, not {expected:,}: another program has "
                "added or deleted some. Delete the collection, and run the same command again"
            )
        server.state(wanted)
        report(export, target)
        export.progress.close(f"Filled {export.collection} of {place}")
        _check(export, target, server, place, expected)
    return True


def connect(target: ExportTarget, access: Access, collection: Collection, hint: str = "") -> Server:
    """Return target.connect(). Raises Unreachable, with a hint, if no server answers."""
    target.validate_urls(access.urls)
    place = f"{target.title} at {access.shown}"
    try:
        with server_errors(f"cannot connect to {place}", hint, Unreachable):
            return target.connect(access, collection)
    except Unreachable:
        raise
    except MilcoError as error:
        # Another product or version.
        raise MilcoError(f"{place}: " + error.message, error.hint) from None


def _outdated(server: Server, vectors: list[ImpactDocument]) -> list[ImpactDocument]:
    """Return the documents whose stored form at the server differs: their fields may have changed."""
    stored = server.stored([vector.id for vector in vectors])
    return [vector for vector in vectors if orjson.loads(stored.get(vector.id, "null")) != vector.document]


def _batches(documents: Iterable[ImpactDocument]) -> Iterator[list[ImpactDocument]]:
    """Yield up to BATCH documents, of about _BATCH_BYTES as JSON, at a time."""
    batch: list[ImpactDocument] = []
    size = 0
    for vector in documents:
        batch.append(vector)
        # A number, quotes, colon and comma for each term.
        size += sum(map(len, vector.terms)) + 8 * len(vector.terms)
        size += 0 if vector.document is None else len(orjson.dumps(vector.document))
        if size > _BATCH_BYTES or len(batch) == BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _log_size(export: ExportJob, target: ExportTarget, place: str, sample: list[ImpactDocument]) -> None:
    """Log what to expect of a collection whose documents are like those of a sample."""
    documents = len(export.exported)
    postings = sum(len(vector.terms) for vector in sample) / len(sample) * documents
    size, seconds = postings * target.posting_bytes / 1e6, postings / target.postings_per_second
    log(
        f"Filling {export.collection} of {place}: {counted(documents, 'document')} of about {postings / documents:.0f} "
        f"terms; their vectors need {size:,.0f} MB there, and as much for each replica; a node with two free cores "
        f"takes {duration(seconds)}"
    )


def _write(server: Server, batches: Iterable[list[ImpactDocument]], only_missing: bool) -> None:
    """Write documents, several batches at a time; only_missing: those that the server lacks."""

    def send(batch: list[ImpactDocument]) -> None:
        present = server.present([vector.id for vector in batch]) if only_missing else set()
        if missing := [vector for vector in batch if vector.id not in present]:
            server.write(missing)

    if server.writers == 1:
        for batch in batches:
            send(batch)
        return
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(server.writers) as pool:
        for batch in batches:
            if len(running) == server.writers:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for sent in done:
                    sent.result()
            running.add(pool.submit(send, batch))
        for sent in running:
            sent.result()


def client(module: str, extra: str) -> Any:
    """Return the module of a server's client. Raises MilcoError, which names the extra, if it is missing."""
    with installed_by(f"'.[{extra}]'"):
        imported = importlib.import_module(module)
    # It logs errors, which fill() reports. Set now, because importing it sets it, too.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    return imported


def validate_version(title: str, version: str, *oldest: tuple[int, int]) -> None:
    """Raise MilcoError unless a version is at least one of oldest of its major version, or of a later major version."""
    found = version_of(version)
    if found < max((version for version in oldest if version[0] == found[0]), default=oldest[-1]):
        needed = " or ".join(f"{version[0]}.{version[1]}" for version in oldest)
        raise MilcoError(f"this is {title} {version}: {needed} or later is needed")


def version_of(version: str) -> tuple[int, int]:
    """Return the major and the minor version."""
    major, minor = (int(number) for number in re.findall(r"\d+", f"{version} 0 0")[:2])
    return major, minor


def _validate_stated(export: ExportJob, place: str, stated: str | None, under_way: str) -> None:
    """Raise MilcoError if a collection is not the one that this export fills, changes, or was filling or changing."""
    collection, since = f"{export.collection} of {place}", export.since
    if stated is None and since is not None:
        raise ParameterError("since", None, f"needs {collection}, which does not exist", "Fill it without it first.")
    if stated == "":
        message = f"{collection} exists, and milco export did not make it or its schema was changed"
        raise MilcoError(message, Message("Choose another {collection}, or delete it."))
    if stated is None or stated in (export.statement, under_way):
        return
    if ">" in stated:
        fix = Message("Run that command again first, choose another {collection}, or delete it.")
        raise MilcoError(f"{collection} is incomplete: another export was interrupted", fix)
    vectors, is_stored, _ = stated.partition("+")
    if bool(is_stored) != (export.corpus is not None):
        raise MilcoError(
            f"{collection} was filled {'with' if is_stored else 'without'} documents",
            ("Pass " if is_stored else "Omit ")
            + Message("{store_documents}, or choose another {collection}.", store_documents=True),
        )
    if since is not None and vectors == since.fingerprint:
        return
    raise MilcoError(
        f"{collection} exists and was filled with other vectors{' or documents' if is_stored else ''}",
        Message(
            "Choose another {collection}, delete it, or pass the store that it was filled with, by the same {prune}, "
            "as {since}."
        ),
    )


def _check(export: ExportJob, target: ExportTarget, server: Server, place: str, count: int) -> None:
    """Compare the best scores of queries with those of exact search. count: of documents."""
    documents = export.documents
    try:
        truth = find_ground_truth(documents, export.topics, count)
    except MilcoError as error:
        raise MilcoError(
            f"{export.collection} of {place} is complete, but its scores were not compared: " + str(error)
        ) from None
    columns = {term: column for column, term in enumerate(documents.terms)}
    tolerance = _ROUNDING if export.largest <= target.exact_up_to else _NINE_BITS
    seconds, different = [], []
    pairs = list(zip(truth.queries, truth.best, strict=True))
    pairs = pairs[:: -(-len(pairs) // _CHECKED)]
    for number, (query, best) in enumerate(pairs):
        vector = ImpactDocument.of({term: int(impact) for term, impact in query.items()}, columns, str(number))
        started = time.perf_counter()
        (hits,) = server.search([vector], HITS, {})
        seconds.append(time.perf_counter() - started)
        scores = np.asarray([score for _, score in hits])
        wanted = np.asarray(best.scores[:HITS])
        if scores.shape != wanted.shape or not np.allclose(scores, wanted, rtol=tolerance, atol=0):
            different.append((scores[:1], wanted[:1]))
    if different:
        scores, wanted = different[0]
        raise MilcoError(
            f"scores of {place} differ from those of exact search for {len(different)} of "
            f"{counted(len(pairs), 'query', 'queries')}: {scores}, expected {wanted}"
        )
    exactly = "equal" if tolerance == _ROUNDING else "are, within .4 %,"
    log(
        f"Checked: the {HITS} best scores of {counted(len(pairs), 'query', 'queries')} {exactly} those of exact search "
        f"({1000 * statistics.median(seconds):.1f} ms a query)"
    )
