"""The disk of the data directory: its room, its kind, and how long it takes to sync."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from holdfast.config import Config
from holdfast.doctor.finding import Finding, advice, problem

#: bytes: with less, a busy broker fills the disk before anybody looks
_ROOM = 1 << 30
_SYNCS = 15
_PAGE = b"\0" * 4096
#: seconds: a PUBACK waits for one sync, unless other publishers share it
_SLOW_SYNC = 0.02
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "glusterfs", "ceph"}
_MOUNTS = Path("/proc/self/mounts")


def room(config: Config) -> Iterator[Finding]:
    """Yield a finding if the disk is nearly full."""
    folder = _existing(config.data_dir)
    usage = shutil.disk_usage(folder)
    if usage.free < _ROOM:
        yield problem(
            folder,
            f"its disk has {usage.free / (1 << 20):,.0f} MB left; on a full disk, changes are refused",
            "make room, or move node.data_dir to another disk",
        )


def kind(config: Config, mounts: Path = _MOUNTS) -> Iterator[Finding]:
    """Yield a finding if an SQLite database is on a network's file system, where its locks may fail."""
    if not config.storage.url.startswith("sqlite:") or not mounts.exists():
        return
    folder = _existing(config.data_dir)
    system = _file_system(folder, mounts.read_text())
    if system in _NETWORK:
        yield problem(
            folder,
            f"it is on a file system of type {system}, where locks can fail: the database can be damaged",
            "move node.data_dir to a local disk, or use Postgres",
        )


def sync_time(config: Config, measure: Callable[[Path], float] | None = None) -> Iterator[Finding]:
    """Yield a finding if a sync takes long. It writes a small file into the data directory, and deletes it."""
    folder = config.data_dir
    if config.storage.durability != "full" or not folder.is_dir() or not os.access(folder, os.W_OK):
        return
    seconds = (measure or _sync_time)(folder)
    if seconds > _SLOW_SYNC:
        yield advice(
            folder,
            f"a sync of its disk takes {seconds * 1000:.0f} ms: each commit, and its acknowledgements, waits for one",
            'use a faster disk, or storage.durability = "process" if a power failure may lose the last commits',
        )


def _sync_time(folder: Path) -> float:
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_SYNCS):
            started = perf_counter()
            file.write(_PAGE)
            file.flush()
            os.fsync(file.fileno())
            times.append(perf_counter() - started)
    return median(times)


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    return next(each for each in (path, *path.parents) if each.exists())


def _file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system that a path is on."""
    found = [line.split() for line in mounts.splitlines()]
    above = [words for words in found if len(words) > 2 and path.is_relative_to(words[1].replace("\\040", " "))]
    return max(above, key=lambda words: len(words[1]), default=["", "", ""])[2]
