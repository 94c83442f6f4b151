"""The memory of this process, and the memory that it may have, as Linux tells them."""

from __future__ import annotations

from pathlib import Path
from resource import getpagesize

_PAGE = getpagesize()
_ROOT = Path("/")


class MemoryUnknown(Exception):
    """The system does not tell it. The text says what is missing."""


def resident_bytes(root: Path = _ROOT) -> int:
    """Return the bytes of this process that are in memory. Raises MemoryUnknown."""
    return int(_read(root / "proc/self/statm").split()[1]) * _PAGE


def available_bytes(root: Path = _ROOT) -> int:
    """Return the bytes that this process may have: those of the machine, or fewer in a container or a systemd unit.

    Raises MemoryUnknown.
    """
    most = [1024 * int(line.split()[1]) for line in _read(root / "proc/meminfo").splitlines() if "MemTotal" in line]
    if not most:
        raise MemoryUnknown("/proc/meminfo has no MemTotal")
    # "0::/system.slice/holdfast.service": each group above may have a limit too.
    groups = [Path(line[4:]) for line in _lines(root / "proc/self/cgroup") if line.startswith("0::/")] or [Path()]
    most += [int(limit) for limit in _lines(root / "sys/fs/cgroup/memory/memory.limit_in_bytes") if limit.isdigit()]
    for group in (groups[0], *groups[0].parents):
        for limit in _lines(root / "sys/fs/cgroup" / group.relative_to(group.anchor) / "memory.max"):
            if limit.isdigit():
                most.append(int(limit))
    return min(most)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise MemoryUnknown(f"{path} cannot be read: {error.strerror}") from None
