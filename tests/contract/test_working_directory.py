"""Nothing that the working directory holds is executed: it may be data that somebody else wrote."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic_stores import synthetic_batch, write_store

from milco_pyserini.cli import doctor
from milco_pyserini.index import build_index, find_engine
from milco_pyserini.sparse import open_store

INSTALLED = ("milco_pyserini", "numpy", "seismic", "jnius", "pyserini", "torch")
# The installed command milco, with work that a library does in another process.
COMMAND = """
import multiprocessing, subprocess, sys
from milco_pyserini.cli import program
def main():
    worker = multiprocessing.get_context("spawn").Process(target=print)
    worker.start()
    worker.join()
    subprocess.run([sys.executable, "-c", "import milco_pyserini, calendar"])
if __name__ == "__main__":
    sys.exit(program.start(main))
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a directory that has a file for every module, and fail if one of them is executed."""
    directory, executed = tmp_path / "planted", tmp_path / "executed"
    directory.mkdir()
    for name in (*sys.stdlib_module_names, *INSTALLED):
        (directory / f"{name}.py").write_text(f"open({str(executed)!r}, 'a').write('{name} ')")
    monkeypatch.chdir(directory)
    yield tmp_path
    assert not executed.exists(), executed.read_text()


def test_seismic_is_built_without_the_working_directory(planted: Path) -> None:
    """The process that builds imports only what is installed."""
    pytest.importorskip("seismic")
    store = open_store(write_store(planted / "vectors", *synthetic_batch(20)))
    assert (build_index(store, find_engine("seismic"), planted / "index").path / "index.seismic").exists()


@pytest.mark.integration
def test_doctor_starts_java_without_the_working_directory(planted: Path) -> None:
    """So does the process that starts Java."""
    assert {state for state, *_ in doctor.java()} == {doctor.GOOD}


def test_processes_of_a_command_start_without_the_working_directory(planted: Path) -> None:
    """Workers of multiprocessing, and every Python process that a library starts."""
    (planted / "milco").write_text(COMMAND)
    assert subprocess.run([sys.executable, planted / "milco"], timeout=60, check=False).returncode == 0
