"""Start Java for Pyserini, and import Pyserini where there is no network."""

import importlib
import io
import json
import sys
import urllib.request
from types import ModuleType
from typing import Any

from milco_pyserini import jvm

# Lists Pyserini's prebuilt indexes.
PREBUILT = "pyserini.prebuilt_index_info"


def start_java() -> None:
    """Start Java for Pyserini, and let Pyserini be imported where there is no network. Call it before that import.

    Pyserini 2.4 looks up names among its prebuilt indexes as it is imported, and downloads the lists. Here it finds
    placeholders, and the lists are downloaded when a command looks up a name.

    Raises:
        MilcoError: Java or Anserini's jar is missing, or Java is already running without the jar.
    """
    jvm.start()
    if PREBUILT in sys.modules:
        return
    names: list[str] = []

    def placeholders(*_: Any, **__: Any) -> io.StringIO:
        fields = ("name", "description", "filename", "urls", "md5", "size")
        return io.StringIO(json.dumps([dict.fromkeys(fields, name) for name in names]))

    download = urllib.request.urlopen
    urllib.request.urlopen = placeholders
    try:
        while PREBUILT not in sys.modules:
            try:
                importlib.import_module(PREBUILT)
            except KeyError as missing:
                if missing.args[0] in names:
                    raise
                names.append(missing.args[0])
    finally:
        urllib.request.urlopen = download
    if names:
        _drop_placeholders(sys.modules[PREBUILT])


def _drop_placeholders(module: ModuleType) -> None:
    """Let the lists be downloaded at the next look-up."""
    module.__dict__["urlopen"] = urllib.request.urlopen
    for value in list(vars(module).values()):
        if hasattr(value, "_info"):
            value._info = None
        for source in getattr(value, "_sources", ()):
            if isinstance(source, dict):
                # Old names of indexes: looked up by the present ones, as Pyserini does with all other old names.
                value._aliases.update({old: placeholder["filename"] for old, placeholder in source.items()})
                source.clear()
