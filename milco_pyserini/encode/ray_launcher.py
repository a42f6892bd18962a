"""Workers on a Ray cluster: on this machine, or on the cluster that `ray start` or RAY_ADDRESS names."""

import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from milco_pyserini import threads
from milco_pyserini.console import captured_stderr, log, shows_messages
from milco_pyserini.corpora import Document, Query
from milco_pyserini.encode.devices import validate_devices
from milco_pyserini.encode.launch import IN_FLIGHT, Launcher, PartWorker, WorkerDiedError
from milco_pyserini.encode.parts import EncodedPart, PartEncoder
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import Message, MilcoError, ParameterError, parameter, require_package

# At least the size of struct sigaction on any Linux.
_SIGACTION_BYTES = 256


def validate_ray() -> None:
    """Raise MilcoError if Ray is not installed, or this is Windows."""
    if sys.platform == "win32":
        raise ParameterError("launcher", "ray", "needs Linux or macOS", "Omit it.")
    require_package("ray", "ray", parameter("launcher", "ray"))


def cluster_devices(names: str) -> list[str]:
    """Return the device type, "cuda" or "cpu", of each worker.

    Args:
        names: "cuda" for all GPUs of the cluster; "cpu" for one worker per machine; "auto" for the GPUs if there are
            any; or one name per worker, as in "cpu,cpu".

    Raises:
        MilcoError: a numbered GPU is named, or the cluster has none.
    """
    chosen = names.split(",")
    if set(chosen) - {"auto", "cpu", "cuda"} or len(set(chosen)) > 1:
        raise ParameterError("device", names, "Ray assigns devices itself. Use auto, cpu or cuda")
    ray = _connect()
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if chosen[0] == "cuda" and not gpus:
        raise ParameterError("device", names, "the Ray cluster has no GPU", Message("Use {device}.", device="cpu"))
    device = "cuda" if gpus and chosen[0] != "cpu" else "cpu"
    if len(chosen) > 1:
        return [device] * len(chosen)
    return [device] * (gpus if device == "cuda" else len(_cpus_per_machine(ray)))


def worker_resources(devices: Sequence[str]) -> dict[str, Any]:
    """Return what each worker requests from Ray: a GPU, or its share of the CPUs of a machine."""
    if devices[0] == "cuda":
        return {"num_gpus": 1, "num_cpus": 1}
    machines = _cpus_per_machine(_connect())
    share = len(machines) * min(machines) // len(devices)
    return {"num_cpus": max(1, min(share, *machines)), "scheduling_strategy": "SPREAD"}


class RayWorker:
    """A PartWorker on a Ray cluster."""

    def __init__(self, plan: EncodePlan, weight_hash: str, resources: dict[str, Any], device: str) -> None:
        self._ray = _connect()
        # Set before the worker imports torch.
        variables = {name: os.environ.get(name, value) for name, value in threads.SETTINGS.items()}
        actor = self._ray.remote(PartWorker).options(
            **resources, max_concurrency=IN_FLIGHT + 1, runtime_env={"env_vars": variables}
        )
        self._actor = actor.remote(plan, device, weight_hash=weight_hash, with_messages=shows_messages())
        self._asked: Any = None

    def encode(self, number: int, records: Sequence[Document | Query]) -> EncodedPart:
        """Return the file of a part."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(self._actor.encode.remote(number, records))
        except errors.RayTaskError as error:
            if isinstance(error.cause, MilcoError | OSError):
                raise error.cause from None
            raise
        except errors.RayError as error:
            raise WorkerDiedError(f"a Ray worker has died ({type(error).__name__})") from error

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return the progress of the parts that the worker has sent by now; a worker that starts does not answer."""
        if self._asked is None:
            self._asked = self._actor.progress.remote()
        if not self._ray.wait([self._asked], timeout=0)[0]:
            return {}
        asked, self._asked = self._asked, None
        # encode() reports that a worker has died.
        with contextlib.suppress(self._ray.exceptions.RayError):
            return self._ray.get(asked)
        return {}

    def stop(self) -> None:
        """End the worker."""
        self._ray.kill(self._actor)


class RayLauncher(Launcher):
    """Encodes in workers of a Ray cluster."""

    validate, devices = staticmethod(validate_devices), staticmethod(cluster_devices)
    require = staticmethod(validate_ray)

    def own(self, plan: EncodePlan, devices: Sequence[str]) -> tuple[EncodePlan, str]:
        """Return the plan with the precision of GPUs, which this machine may lack, and the CPU."""
        return replace(plan, dtype="bfloat16") if devices[0] == "cuda" and plan.dtype == "auto" else plan, "cpu"

    def workers(self, plan: EncodePlan, encoder: PartEncoder, devices: Sequence[str]) -> Callable[[str], RayWorker]:
        """Return what starts a worker on a device."""
        return partial(RayWorker, plan, encoder.encoder.hashes["weight_hash"], worker_resources(devices))


def _connect() -> Any:
    validate_ray()
    # Read when Ray is imported: no usage statistics are sent unless the user asks for it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "RAY_ADDRESS" in os.environ:
        # Otherwise a cluster that does not answer is asked for a quarter of an hour.
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    import ray

    if not ray.is_initialized():
        with fault_handlers_kept(), captured_stderr() as captured:
            try:
                ray.init(include_dashboard=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
                captured.seek(0)
                hint = "Start it (ray start), or correct RAY_ADDRESS."
                if "token" in f"{error} {captured.read()!r}":
                    hint = (
                        "Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to what `ray get-auth-token` prints on its head."
                    )
                reason = str(error).splitlines()[0].split(". ")[0]
                raise ParameterError("launcher", "ray", f"{reason}", hint) from None
        log(f"Ray listens on {ray.util.get_node_ip_address()}: block its ports on untrusted networks")
    return ray


@contextlib.contextmanager
def fault_handlers_kept() -> Iterator[None]:
    """Restore this process's handlers of SIGSEGV and other faults at the end.

    ray.init replaces them and ray.shutdown does not restore them. Java in the same process needs its own, by which it
    finds null references.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    faults = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
    kept = {number: ctypes.create_string_buffer(_SIGACTION_BYTES) for number in faults}
    for number, action in kept.items():
        libc.sigaction(number, None, action)
    try:
        yield
    finally:
        for number, action in kept.items():
            libc.sigaction(number, action, None)


def _cpus_per_machine(ray: Any) -> list[int]:
    """Return the number of CPUs of each machine that accepts work."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [int(machine["CPU"]) for machine in resources if machine.get("CPU", 0) >= 1] or [1]
