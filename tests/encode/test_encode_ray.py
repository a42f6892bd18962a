"""--launcher ray writes the store of --launcher local, whichever of its workers die."""

import ctypes
import importlib.util
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from milco_pyserini.cli.encode import main
from milco_pyserini.corpora import Document
from milco_pyserini.encode.parts import EncodedPart
from milco_pyserini.encode.ray_launcher import RayWorker, cluster_devices, fault_handlers_kept
from milco_pyserini.errors import MilcoError

CHECKPOINT = Path(__file__).parents[1] / "data" / "golden" / "ckpt_distillation"
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray: pip install ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray cluster of this machine alone, with two CPUs and no GPU."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    with fault_handlers_kept():
        ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, object_store_memory=100 << 20)
    yield
    with fault_handlers_kept():
        ray.shutdown()


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.slow
@needs_ray
@pytest.mark.integration
def test_the_store_is_that_of_one_process_though_a_worker_dies(
    cluster: None, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers, one of them killed with a part in its hands: byte for byte what one process writes.

    Also with --reuse.
    """
    (tmp_path / "c.tsv").write_text("".join(f"d{number}\told harbour {number}\n" for number in range(12)))
    common = ["--corpus", str(tmp_path / "c.tsv"), "--encoder", str(CHECKPOINT), "--dtype", "float32"]
    common += ["--part-size", "2"]
    assert main([*common, "--device", "cpu", "--output", str(tmp_path / "local")]) == 0
    killed = []
    encode = RayWorker.encode

    def encode_and_die(worker: RayWorker, number: int, records: Sequence[Document]) -> EncodedPart:
        if not killed:
            killed.append(number)
            threading.Timer(0.2, worker.stop).start()
        return encode(worker, number, records)

    monkeypatch.setattr(RayWorker, "encode", encode_and_die)
    assert main([*common, "--launcher", "ray", "--device", "cpu,cpu", "--output", str(tmp_path / "ray")]) == 0
    assert killed and files(tmp_path / "ray") == files(tmp_path / "local")
    (tmp_path / "c.tsv").write_text("".join(f"n{number}\told harbour {number}\n" for number in range(9, 15)))
    assert main([*common, "--output", str(tmp_path / "new")]) == 0
    reuse = ["--launcher", "ray", "--reuse", str(tmp_path / "local"), "--output", str(tmp_path / "reused")]
    assert main([*common, *reuse]) == 0
    assert files(tmp_path / "reused") == files(tmp_path / "new")
    assert main([*common, "--launcher", "ray", "--scale", "2e9", "--output", str(tmp_path / "big")]) == 2
    stderr = capsys.readouterr().err
    assert "error: weight" in stderr and "above 2,147,483,647" in stderr and "Traceback" not in stderr
    assert "threads spin" not in stderr


@needs_ray
@pytest.mark.integration
def test_ray_assigns_devices(cluster: None) -> None:
    """One worker per machine, or as many as were named; a numbered GPU, or one that the cluster lacks, is refused."""
    assert cluster_devices("auto") == cluster_devices("cpu") == ["cpu"]
    assert cluster_devices("cpu,cpu,cpu") == ["cpu"] * 3
    for names, expected in (
        ("cuda:0", "device='cuda:0': Ray assigns devices"),
        ("cuda", "device='cuda': the Ray cluster has no GPU"),
    ):
        with pytest.raises(MilcoError, match=expected):
            cluster_devices(names)


@needs_ray
@pytest.mark.parametrize(
    ("written", "variable"), [(b"Authentication token is missing\n", "RAY_AUTH_MODE"), (b"Failed\n", "RAY_ADDRESS")]
)
def test_a_cluster_that_cannot_be_reached_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, written: bytes, variable: str
) -> None:
    """It names the address and what to set; what Ray writes to stderr is not shown."""
    import ray

    def refused(**_: object) -> None:
        os.write(2, written)
        raise ConnectionError("Failed to connect to Ray cluster at 192.0.2.9:6379\nsecond line")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refused)
    assert main(["--corpus", "sample-sw", "--launcher", "ray", "--output", str(tmp_path / "v")]) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "error: " in line or "Failed" in line]
    assert "at 192.0.2.9:6379. " in line and variable in line


def test_handlers_of_faults_are_restored() -> None:
    """Java finds null references by SIGSEGV, whose handler ray.init would replace."""
    libc = ctypes.CDLL(None)

    def handler() -> bytes:
        action = ctypes.create_string_buffer(256)
        libc.sigaction(signal.SIGSEGV, None, action)
        # The function's address; what follows has padding.
        return action.raw[:8]

    before = handler()
    with fault_handlers_kept():
        libc.signal(signal.SIGSEGV, 1)
        assert handler() != before
    assert handler() == before
