"""The parts of one store encoded over Ray: on this machine, or on the cluster that `ray start` or RAY_ADDRESS names.

As in workers.py, this process alone reads the corpus and writes the store, so workers need no file system in common;
one that dies is started again by Ray, and its part is done again.
"""

import contextlib
import ctypes
import importlib.util
import logging
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from milco_pyserini.console import say
from milco_pyserini.corpora import Document, Query
from milco_pyserini.encode.devices import device_names
from milco_pyserini.encode.parts import Job, PartFile, PartReport, Parts, Work, encode_part, part_file, tokenise
from milco_pyserini.encode.workers import Recipe
from milco_pyserini.errors import MilcoError

# Parts that a worker has at a time: while the network is at work on one, others are tokenised and written.
_IN_HAND = 2
# How often a part is begun again, and a worker started again, when a process or a machine fails.
_RETRIES = 3
# Seconds after which the workers are asked how far they are.
_ASKED = 1.0
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
# At least what struct sigaction takes on any Linux.
_SIGACTION_BYTES = 256


def check_ray() -> None:
    """Raise MilcoError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise MilcoError("--engine ray needs Ray: pip install 'milco-pyserini[ray]'")


def cluster_devices(names: str) -> list[str]:
    """The kind of device, "cuda" or "cpu", of each worker: of as many as were named.

    "auto" and "cuda" are all the cluster's GPUs; "auto" without one, and "cpu", a worker for each machine. Raises
    MilcoError for a GPU by its number, which Ray gives out itself, and where there is none.
    """
    chosen = device_names(names)
    if set(chosen) - {"auto", "cpu", "cuda"} or len(set(chosen)) > 1:
        raise MilcoError(f"--device {names}: Ray gives out the devices itself, so say auto, cpu or cuda")
    ray = _connected()
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if chosen[0] == "cuda" and not gpus:
        raise MilcoError(f"--device {names}: Ray sees no GPU in its cluster; use --device cpu")
    kind = "cuda" if gpus and chosen[0] != "cpu" else "cpu"
    alone = gpus if kind == "cuda" else len(_machines(ray))
    return [kind] * (len(chosen) if len(chosen) > 1 else alone)


def encode_with_ray(
    jobs: Iterable[Job], report: PartReport, recipe: Recipe, devices: Sequence[str], weight_hash: str
) -> Parts:
    """The jobs' parts, as they are done, by one worker for each of the devices.

    weight_hash: of the encoder that the workers must have. Raises a worker's MilcoError; MilcoError if a part's worker
    dies again and again.
    """
    ray = _connected()
    share = _share(ray, devices)
    worker = ray.remote(_Worker).options(
        **share, max_restarts=_RETRIES, max_task_retries=_RETRIES, max_concurrency=_IN_HAND + 1
    )
    crew = [worker.remote(recipe, device, weight_hash) for device in devices]
    stream, pending = iter(jobs), {}
    idle = [each for each in crew for _ in range(_IN_HAND)]
    try:
        while True:
            while idle and (job := next(stream, None)) is not None:
                free = idle.pop(0)
                pending[free.encode.remote(*job)] = free, job[0]
            if not pending:
                return
            finished = ray.wait(list(pending), timeout=_ASKED)[0]
            # Of one that has died, its part's result will tell.
            with contextlib.suppress(ray.exceptions.RayError):
                for counts in ray.get([each.counts.remote() for each in crew], timeout=_ASKED):
                    for count in counts:
                        report(*count)
            for done in finished:
                free, number = pending.pop(done)
                idle.append(free)
                yield _result(ray, done, number)
    finally:
        for each in crew:
            ray.kill(each)


class _Worker:
    """What Ray runs beside a device. The encoder is loaded with the first part, so that its errors are a part's."""

    def __init__(self, recipe: Recipe, device: str, weight_hash: str) -> None:
        self._recipe = recipe
        self._device = device
        self._weight_hash = weight_hash
        self._opened: Work | None = None
        self._lock = threading.Lock()
        self._counts: list[tuple[int, int, int]] = []

    def encode(self, number: int, records: Sequence[Document | Query]) -> PartFile:
        """One part's file."""
        work = self._work()
        part = tokenise(number, records, work)
        with self._lock:
            vectors = encode_part(part, work, lambda *count: self._counts.append(count))
        return part_file(part, vectors, work)

    def counts(self) -> list[tuple[int, int, int]]:
        """What has been encoded since the last call."""
        counts, self._counts = self._counts, []
        return counts

    def _work(self) -> Work:
        with self._lock:
            if self._opened is None:
                opened = self._recipe.open(self._device)
                if opened.encoder.weight_hash != self._weight_hash:
                    raise MilcoError(f"encoder {self._recipe.encoder} is another one on a machine of the Ray cluster")
                self._opened = opened
            return self._opened


def _result(ray: Any, done: Any, number: int) -> PartFile:
    try:
        return ray.get(done)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MilcoError | OSError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise MilcoError(
            f"the Ray workers that encoded part {number} have died {_RETRIES + 1} times ({type(error).__name__}): "
            "what is whole stays; run the same command again to go on"
        ) from error


def _connected() -> Any:
    check_ray()
    # Read when Ray is imported: no figures of a user's work go to its makers unless the user says so.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    if not ray.is_initialized():
        with fault_handlers_kept():
            ray.init(include_dashboard=False, logging_level=logging.ERROR)
        say(f"Ray listens at {ray.util.get_node_ip_address()}: keep its ports from networks that you do not trust")
    return ray


@contextlib.contextmanager
def fault_handlers_kept() -> Iterator[None]:
    """Give this process its handlers of faults of memory and arithmetic back at the end.

    ray.init puts its own in their place, and ray.shutdown none. Java, where it runs beside Ray, needs its own: it finds
    null references by them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    kept = {number: ctypes.create_string_buffer(_SIGACTION_BYTES) for number in _FAULTS}
    for number, action in kept.items():
        libc.sigaction(number, None, action)
    try:
        yield
    finally:
        for number, action in kept.items():
            libc.sigaction(number, action, None)


def _machines(ray: Any) -> list[int]:
    """How many CPUs each machine has that may be given work."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [int(each["CPU"]) for each in resources if each.get("CPU", 0) >= 1] or [1]


def _share(ray: Any, devices: Sequence[str]) -> dict[str, Any]:
    """What each worker asks Ray for: a GPU, or the CPUs of its machine."""
    if devices[0] == "cuda":
        return {"num_gpus": 1, "num_cpus": 1}
    machines = _machines(ray)
    each = len(machines) * min(machines) // len(devices)
    return {"num_cpus": max(1, min(each, min(machines))), "scheduling_strategy": "SPREAD"}
