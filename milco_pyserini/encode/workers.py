"""Several processes of this machine that encode the parts of one store: one for each device.

This process alone reads the corpus and writes the store. A worker gets records and gives back the bytes of a part, so
one that dies leaves nothing behind, and its parts are given to the others.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from milco_pyserini.cli.program import interrupts_held
from milco_pyserini.console import say
from milco_pyserini.encode.parts import Job, PartFile, PartReport, Parts, Work, encode_parts
from milco_pyserini.errors import MilcoError

# Parts that a worker has at a time: one that is encoded and one that is tokenised.
_IN_HAND = 2
# How many workers a part may cost before it is taken for the cause.
_DEATHS = 2
# Seconds between a worker's last word and its end.
_GRACE = 5.0


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A Work that can travel to another process: its kind, how its encoder is loaded, and the rest of its fields."""

    kind: type[Work]
    encoder: str
    dtype: str
    loading: dict[str, Any]
    rest: dict[str, Any]

    @classmethod
    def of(cls, work: Work) -> "Recipe":
        """The recipe of a Work whose encoder was loaded by its name."""
        rest = {field.name: getattr(work, field.name) for field in dataclasses.fields(work) if field.name != "encoder"}
        dtype = str(work.encoder.dtype).removeprefix("torch.")
        name = work.encoder.name
        name = str(Path(name).resolve()) if Path(name).is_dir() else name
        return cls(type(work), name, dtype, work.loading, rest)

    def open(self, device: str) -> Work:
        """The Work, with its encoder on a device."""
        return self.kind(encoder=self.kind.load(self.encoder, device, self.dtype, **self.loading), **self.rest)


def encode_in_processes(jobs: Iterable[Job], report: PartReport, recipe: Recipe, devices: Sequence[str]) -> Parts:
    """The jobs' parts, as they are done. Raises a worker's MilcoError; MilcoError if no worker is left."""
    crew = [_Worker(recipe, device, devices) for device in devices]
    waiting: deque[Job] = deque()
    deaths: Counter[int] = Counter()
    stream = iter(jobs)

    def following() -> Job | None:
        return waiting.popleft() if waiting else next(stream, None)

    try:
        while True:
            for worker in crew:
                worker.fill(following)
            # Who is ready and has nothing in hand was given nothing: there is nothing left to do.
            if any(worker.ready for worker in crew) and not any(worker.jobs for worker in crew):
                return
            for worker in _with_news(crew):
                try:
                    part = worker.receive()
                except EOFError:
                    crew.remove(worker)
                    waiting.extend(_given_up(worker, crew, deaths))
                else:
                    if isinstance(part, PartFile):
                        yield part
                    elif part is not None:
                        report(*part)
    finally:
        for worker in crew:
            worker.stop()


class _Worker:
    """A process with a device, and what it has in hand."""

    def __init__(self, recipe: Recipe, device: str, devices: Sequence[str]) -> None:
        # A forked process could not use CUDA, nor the threads of libraries that are already at work.
        context = multiprocessing.get_context("spawn")
        self.device = device
        self.ready = False
        self.jobs: dict[int, Job] = {}
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, recipe, device, len(devices)), daemon=True)
        with interrupts_held():
            self._process.start()
        theirs.close()

    def fill(self, following: Callable[[], Job | None]) -> None:
        """Give it jobs up to what it can have in hand."""
        while self.ready and len(self.jobs) < _IN_HAND and (job := following()) is not None:
            self.jobs[job[0]] = job
            # Of a worker that has died, receive() will tell.
            with contextlib.suppress(OSError):
                self.connection.send(job)

    def receive(self) -> PartFile | tuple[int, int, int] | None:
        """A part, or what it reports of one; None when it is ready. Raises its error, and EOFError if it has died."""
        try:
            message = self.connection.recv()
        except OSError:
            raise EOFError from None
        if isinstance(message, Exception):
            raise message
        self.ready = True
        if isinstance(message, PartFile):
            del self.jobs[message.number]
        return message

    def stop(self, grace: float = 0) -> str:
        """End the process, after seconds of grace; returns how it ended. It has nothing of its own on disk."""
        self._process.join(grace)
        self._process.kill()
        self._process.join()
        self.connection.close()
        return f"exit code {self._process.exitcode}"


def _serve(connection: Connection, recipe: Recipe, device: str, workers: int) -> None:
    """What a worker does: load the encoder, say so, then take jobs and give back parts until the other side is gone."""
    # Ctrl-C reaches every process of the terminal; the one that gives out the work decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lock = threading.Lock()

    def send(message: object) -> None:
        # Of counts, and in another thread of parts.
        with lock:
            connection.send(message)

    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            _share(device, workers)
            work = recipe.open(device)
            connection.send(None)
            for _ in encode_parts(_received(connection), work, lambda *count: send(count), send):
                pass
        except (MilcoError, OSError) as error:
            connection.send(error)
        finally:
            _hang_up(connection)


def _hang_up(connection: Connection) -> None:
    """End the conversation for the other side, which still gets what was sent, and for a thread that listens here."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _share(device: str, workers: int) -> None:
    """Take this worker's share of the machine."""
    import torch

    if device == "cpu":
        torch.set_num_threads(max(1, torch.get_num_threads() // workers))
    else:
        torch.cuda.set_device(device)


def _received(connection: Connection) -> Iterator[Job]:
    while True:
        yield connection.recv()


def _with_news(crew: Sequence[_Worker]) -> list[_Worker]:
    """The workers that have said something or died, as soon as there is one."""
    heard = wait([worker.connection for worker in crew])
    return [worker for worker in crew if worker.connection in heard]


def _given_up(worker: _Worker, left: Sequence[_Worker], deaths: Counter[int]) -> list[Job]:
    """The jobs of a worker that has died. Raises MilcoError if none is left to do them, or one of them is the cause."""
    ended = f"the process that encoded on {worker.device} has died ({worker.stop(_GRACE)})"
    again = "what is whole stays; run the same command again to go on"
    deaths.update(list(worker.jobs))
    worst = max(worker.jobs, key=lambda number: deaths[number], default=None)
    if worst is not None and deaths[worst] >= _DEATHS:
        raise MilcoError(f"{ended}, as another did before it at part {worst}: {again}")
    if not left:
        raise MilcoError(f"{ended}, and no other is left: {again}")
    say(f"{ended}: the others go on with its work")
    return list(worker.jobs.values())
