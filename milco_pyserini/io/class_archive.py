"""An archive of Java's classes in the cache directory, with which Java opens an index in half the time.

The first process that searches lists the classes that it loads, and at its end starts a Java that writes the archive.
Java verifies an archive before it uses it. If the archive is damaged, incomplete, or of another Java, Java starts
without it.
"""

import atexit
import contextlib
import os
import subprocess
import tempfile
from hashlib import blake2b
from pathlib import Path

from milco_pyserini.defaults import data_home

# A class that only a search loads.
_OF_A_SEARCH = "ImpactSearcher$Best"
_QUIET = ("-Xlog:cds*=off", "-Xlog:class+path*=off")


def archive_options(home: Path, jar: Path) -> list[str]:
    """Return the options with which Java uses the archive; while there is none, those that list classes for it.

    The list is empty if the cache directory cannot be written, or if the archive belongs to another user.

    Args:
        home: directory of Java.
        jar: first entry of the class path. The archive has no class of the other entries.
    """
    try:
        state, release = jar.stat(), (home / "release").read_bytes()
        key = f"{home.resolve()} {jar.resolve()} {state.st_size} {state.st_mtime_ns}".encode() + release
        archive = data_home() / "java" / f"{blake2b(key, digest_size=8).hexdigest()}.jsa"
        if archive.exists():
            # Windows has no user ids.
            is_own = not hasattr(os, "getuid") or archive.stat().st_uid == os.getuid()
            return [f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", *_QUIET] if is_own else []
        archive.parent.mkdir(parents=True, exist_ok=True)
        handle, classes = tempfile.mkstemp(".classes", dir=archive.parent)
        os.close(handle)
    except OSError:
        return []
    atexit.register(_write, archive, Path(classes), home, jar)
    return [f"-XX:DumpLoadedClassList={classes}"]


def _write(archive: Path, classes: Path, home: Path, jar: Path) -> None:
    """Start a Java that writes the archive of the listed classes, and do not wait for it."""
    with contextlib.suppress(OSError):
        # Java may not have written the end of the last line.
        lines = classes.read_text(encoding="utf-8").rpartition("\n")[0]
        if _OF_A_SEARCH not in lines or archive.exists():
            classes.unlink()
            return
        classes.write_text(f"{lines}\n", encoding="utf-8")
        listed = classes.replace(archive.with_suffix(".classes"))
        command = [str(home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedClassListFile={listed}"]
        command += [f"-XX:SharedArchiveFile={archive}", "-cp", str(jar)]
        null = subprocess.DEVNULL
        subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)
