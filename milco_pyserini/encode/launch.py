"""Encode the parts of a store: in this process, or in workers on several devices or a Ray cluster.

One process reads the corpus and writes the store. A worker receives records and returns the content of a part's file,
so workers share no file system, and one that dies leaves nothing behind.
"""

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.managers import BaseManager
from typing import Any, Protocol

from milco_pyserini.console import log, shows_messages, start_messages
from milco_pyserini.corpora import Document, Query
from milco_pyserini.encode.devices import choose_devices, require_devices
from milco_pyserini.encode.parts import EncodedPart, Job, PartEncoder, PartReport, TokenizedPart
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import Checkpoint

# The stages of encoding, for messages.
MODEL, TOKENIZING, WRITING = "the model", "reading and tokenizing", "writing"
# The model limits the speed if it waits for at most this share of the time.
_IDLE = 0.1
# Parts that a worker has at a time: one is encoded while another is tokenized or serialized.
IN_FLIGHT = 2
# A part on which this many workers have died is treated as the cause.
_MAX_DEATHS = 3
# Seconds between two looks at the progress of the workers.
_POLL = 1.0
# Seconds until a process that closed its connection has an exit code.
_GRACE = 5.0


class WorkerDiedError(Exception):
    """A worker has ended while it had work. Its message is the beginning of a line for the user."""


class Worker(Protocol):
    """A process on this or another machine that encodes parts."""

    def encode(self, number: int, records: Sequence[Document | Query]) -> EncodedPart:
        """Return the file of a part; called from IN_FLIGHT threads. Raises WorkerDiedError, and errors of the input."""

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return the numbers of texts and tokens encoded of each part, where they have changed."""

    def stop(self) -> None:
        """End the worker."""


def encode_here(
    jobs: Iterable[Job], encoder: PartEncoder, report: PartReport, write: Callable[[EncodedPart], None]
) -> str:
    """Encode parts in this process. While one is encoded, threads tokenize the next and write the last.

    Returns the stage that limits the speed: MODEL, or the one for which the model waits most, TOKENIZING or WRITING.
    """
    stream = iter(jobs)
    threads = ThreadPoolExecutor(2)
    writing: Future[None] | None = None

    def tokenize_next() -> TokenizedPart | None:
        job = next(stream, None)
        return None if job is None else encoder.tokenize(*job)

    def write_part(part: TokenizedPart, vectors: Any) -> None:
        write(encoder.serialize(part, vectors))

    tokenized = threads.submit(tokenize_next)
    waited = dict.fromkeys((TOKENIZING, WRITING), 0.0)
    try:
        # Nothing else can run before the first part is tokenized, or after the last one is encoded.
        part, started = tokenized.result(), time.monotonic()
        while part is not None:
            tokenized = threads.submit(tokenize_next)
            vectors = encoder.encode(part, report)
            before = time.monotonic()
            if writing is not None:
                writing.result()
            writing = threads.submit(write_part, part, vectors)
            written = time.monotonic()
            part = tokenized.result()
            waited[WRITING] += written - before
            waited[TOKENIZING] += time.monotonic() - written
        seconds = time.monotonic() - started
        if writing is not None:
            writing.result()
        slowest = max(waited, key=waited.__getitem__)
        return slowest if waited[slowest] > _IDLE * seconds else MODEL
    finally:
        # After an error or Ctrl-C, a part that is encoded is written; nothing else is waited for.
        tokenized.cancel()
        threads.shutdown(wait=False)
        concurrent.futures.wait([writing] if writing is not None else [])


def encode_in_workers(
    jobs: Iterable[Job],
    start: Callable[[str], Worker],
    devices: Sequence[str],
    report: PartReport,
    write: Callable[[EncodedPart], None],
) -> None:
    """Encode parts in one worker per device. A worker that dies is replaced, and its parts are encoded again.

    Args:
        start: starts a worker on a device.
        write: called with each part as soon as it is encoded, in any order.

    Raises:
        MilcoError: raised by a worker; or too many workers have died with the same part.
    """
    workers: dict[Worker, str] = {}
    stream, lost = iter(jobs), deque[Job]()
    pending: dict[Future[EncodedPart], tuple[Worker, Job]] = {}
    deaths: Counter[int] = Counter()
    threads = ThreadPoolExecutor(len(devices) * IN_FLIGHT)
    try:
        for device in devices:
            workers[start(device)] = device
        idle = deque(list(workers) * IN_FLIGHT)
        while True:
            while idle and (job := lost.popleft() if lost else next(stream, None)) is not None:
                worker = idle.popleft()
                pending[threads.submit(worker.encode, *job)] = worker, job
            if not pending:
                return
            done = concurrent.futures.wait(pending, _POLL, concurrent.futures.FIRST_COMPLETED).done
            for worker in workers:
                for number, counts in worker.progress().items():
                    report(number, *counts)
            for future in done:
                if future not in pending:
                    # Lost with its worker, and queued again.
                    continue
                worker, job = pending.pop(future)
                try:
                    part = future.result()
                except WorkerDiedError as error:
                    others = [future for future, (owner, _) in pending.items() if owner is worker]
                    again = sorted([job, *(pending.pop(future)[1] for future in others)], key=lambda job: job[0])
                    deaths.update(number for number, _ in again)
                    suspects = [str(number) for number, _ in again if deaths[number] >= _MAX_DEATHS]
                    if suspects:
                        raise MilcoError(
                            f"{error}, as {_MAX_DEATHS - 1} others have with part {' and '.join(suspects)}: complete "
                            "parts are kept; rerun the same command to resume"
                        ) from None
                    log(f"{error}: starting another")
                    lost.extend(again)
                    device = workers.pop(worker)
                    worker.stop()
                    idle = deque(other for other in idle if other is not worker)
                    workers[new := start(device)] = device
                    idle.extend([new] * IN_FLIGHT)
                else:
                    idle.append(worker)
                    write(part)
    finally:
        for worker in workers:
            worker.stop()
        threads.shutdown(cancel_futures=True)


class PartWorker:
    """Encodes parts in a worker's process. encode() may be called by several threads at once.

    Args:
        plan: resolved.
        device: of the encoder, which is loaded with the first part: its errors are errors of that part.
        num_workers: on this machine. On the CPU they share its threads.
        weight_hash: that the encoder must have; "" for any.
        with_messages: whether to show messages, as the process does that runs the command.
    """

    def __init__(
        self, plan: EncodePlan, device: str, num_workers: int = 1, weight_hash: str = "", with_messages: bool = False
    ) -> None:
        if with_messages:
            start_messages()
        self._plan = plan
        self._device = device
        self._num_workers = num_workers
        self._weight_hash = weight_hash
        self._encoder: PartEncoder | None = None
        self._progress: dict[int, tuple[int, int]] = {}
        # One thread computes, because OpenMP keeps a team of threads for each thread that does.
        self._compute = ThreadPoolExecutor(1)

    def encode(self, number: int, records: Sequence[Document | Query]) -> EncodedPart:
        """Return the file of a part."""
        try:
            encoder = self._compute.submit(self._load).result()
            part = encoder.tokenize(number, records)
            vectors = self._compute.submit(encoder.encode, part, self._report).result()
            return encoder.serialize(part, vectors)
        except Exception as error:
            error.add_note(f"In the worker on {self._device}: {traceback.format_exc()}")
            raise

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return the numbers of texts and tokens encoded of each part, where they have changed since the last call."""
        progress, self._progress = self._progress, {}
        return progress

    def _report(self, number: int, texts: int, tokens: int) -> None:
        self._progress[number] = texts, tokens

    def _load(self) -> PartEncoder:
        if self._encoder is None:
            if self._device.startswith("cuda:"):
                import torch

                # Else the libraries of every worker would occupy memory of the first GPU.
                torch.cuda.set_device(self._device)
            encoder = self._plan.load_encoder(Checkpoint.open(self._plan.encoder), self._device)
            if self._device == "cpu" and self._num_workers > 1:
                import torch

                torch.set_num_threads(max(1, torch.get_num_threads() // self._num_workers))
            if self._weight_hash and encoder.hashes["weight_hash"] != self._weight_hash:
                raise MilcoError(f"encoder {self._plan.encoder} has other weights on a machine of the Ray cluster")
            self._encoder = PartEncoder(self._plan, encoder)
        return self._encoder


class _WorkerManager(BaseManager):
    """Starts a process and gives access to a PartWorker in it."""


_WorkerManager.register("PartWorker", PartWorker)


class LocalWorker:
    """A PartWorker in a process of this machine."""

    def __init__(self, plan: EncodePlan, num_workers: int, device: str) -> None:
        self._device = device
        self._waiting = threading.Lock()
        # A forked process could not use CUDA, nor libraries whose threads are running.
        manager = _WorkerManager(ctx=multiprocessing.get_context("spawn"))
        others = set(multiprocessing.active_children())
        with _without_interrupts():
            manager.start(_exit_with_parent)
        (self._process,) = set(multiprocessing.active_children()) - others
        self._worker: Any = manager.PartWorker(  # type: ignore[attr-defined]
            plan, device, num_workers, with_messages=shows_messages()
        )

    def encode(self, number: int, records: Sequence[Document | Query]) -> EncodedPart:
        """Return the file of a part."""
        try:
            return self._worker.encode(number, records)
        except (EOFError, ConnectionError):
            # Only the first of two threads that wait for a process at once would get its exit code.
            with self._waiting:
                self._process.join(_GRACE)
                code = self._process.exitcode
            raise WorkerDiedError(f"the process on {self._device} has died (exit code {code})") from None

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return the progress of the parts; nothing of a process that has died."""
        with contextlib.suppress(EOFError, OSError):
            return self._worker.progress()
        return {}

    def stop(self) -> None:
        """End the process, which has nothing of its own on disk."""
        self._process.kill()
        self._process.join()


class Launcher:
    """Encodes in this process, or in a process for each device of this machine.

    validate raises MilcoError for a value of --device that cannot be used; devices returns the devices of one.
    """

    validate, devices = staticmethod(require_devices), staticmethod(choose_devices)

    @staticmethod
    def require() -> None:
        """Raise MilcoError if a package is missing, or the platform is another."""

    def own(self, plan: EncodePlan, devices: Sequence[str]) -> tuple[EncodePlan, str]:
        """Return the plan for the devices, and the device of this process's encoder."""
        return plan, devices[0]

    def workers(self, plan: EncodePlan, encoder: PartEncoder, devices: Sequence[str]) -> Callable[[str], Worker] | None:
        """Return what starts a worker on a device; None if the encoder of this process is the only one."""
        return partial(LocalWorker, plan, len(devices)) if len(devices) > 1 else None


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block SIGINT in processes that are started: only this one handles Ctrl-C. Windows has no signal masks."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit_with_parent() -> None:
    """End this process with the one that started it, even if that is killed."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
