"""Take from milco_pyserini what Windows lacks; other packages keep it, for they have their own ways on Windows.

A program imports this module before it imports milco_pyserini. /proc cannot be opened, a directory cannot be opened or
flushed, and what is open cannot be renamed.
"""

import builtins
import errno
import fcntl
import os
import select
import signal
import sys
import types
from pathlib import Path
from typing import Any

PACKAGE = "milco_pyserini"
MODULES = {"fcntl", "grp", "pwd", "readline", "resource", "termios"}
NAMES = {
    "os": {
        *("chown", "fchmod", "fork", "getegid", "geteuid", "getgid", "getpgid", "getuid", "killpg", "pread", "pwrite"),
        *("sched_getaffinity", "sched_setaffinity", "setsid", "statvfs", "sysconf", "uname", "wait4", "WNOHANG"),
        *("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"),
    },
    "select": {"poll", "epoll"},
    "signal": {
        *("pthread_kill", "pthread_sigmask", "setitimer", "sigwait"),
        *("SIGALRM", "SIGBUS", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1"),
    },
}
# Frames between a call of milco_pyserini and the event of an opened file.
_BETWEEN = {"pathlib", "io", "os", "codecs", "contextlib"}


def open_descriptor(path: Any, flags: int, *rest: Any, **options: Any) -> int:
    """Open a file, as os.open() does."""
    if Path(path).is_dir():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return os.open(path, flags, *rest, **options)


def flush(descriptor: int) -> None:
    """Flush a file that is open for writing."""
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    os.fsync(descriptor)


def stripped(module: types.ModuleType) -> types.ModuleType:
    """Return a copy of a module without the names that are taken away."""
    copy = types.ModuleType(module.__name__)
    vars(copy).update({name: value for name, value in vars(module).items() if name not in NAMES[module.__name__]})
    if module is os:
        vars(copy).update(name="nt", open=open_descriptor, fsync=flush)
    return copy


MODULES_WITHOUT = {module.__name__: stripped(module) for module in (os, select, signal)}
_import, _replace = builtins.__import__, Path.replace


def import_module(name: str, globals: Any = None, *rest: Any, **more: Any) -> types.ModuleType:
    """Import a module, as builtins.__import__() does."""
    if globals and str(globals.get("__name__")).startswith(PACKAGE):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name in MODULES_WITHOUT:
            return MODULES_WITHOUT[name]
    return _import(name, globals, *rest, **more)


def refuse_proc(event: str, arguments: tuple) -> None:
    """Audit hook: /proc does not exist."""
    if event not in ("open", "os.listdir", "os.scandir") or not str(arguments[0]).startswith("/proc"):
        return
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals["__name__"] in _BETWEEN:
        frame = frame.f_back
    if frame.f_globals["__name__"].startswith(PACKAGE):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(arguments[0]))


def replace(path: Path, target: Path) -> Path:
    """Rename a path, as Path.replace() does, unless a file at or below it is open."""
    for descriptor in Path("/proc/self/fd").iterdir():
        if Path(os.path.realpath(descriptor)).is_relative_to(path.resolve()):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return _replace(path, target)


builtins.__import__ = import_module  # type: ignore[assignment]
Path.replace = replace  # type: ignore[assignment, method-assign]
sys.addaudithook(refuse_proc)
