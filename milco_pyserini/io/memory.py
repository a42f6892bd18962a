"""The memory of this machine."""

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
# Limits of a container, of version 2 and 1. What it uses now includes files that were read, which make room.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def available_memory() -> int | None:
    """Return the bytes of memory that a program can use without swapping; None where the system does not state it."""
    lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines()) if _MEMINFO.is_file() else {}
    found = [1024 * int(lines["MemAvailable"].split()[0])] if "MemAvailable" in lines else []
    found += [int(text) for path in _LIMITS if path.is_file() and (text := path.read_text().strip()).isdigit()]
    return min(found, default=None)
