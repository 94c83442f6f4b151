"""The folder for the files of the tests: in memory, where there is enough of it.

On a disk, each commit of a database waits for the disk, and the tests make tens of thousands of commits. No test cuts
the power, and what a killed process has written stays, in memory as on a disk. So the tests show the same.

The process that hands out the tests makes the folder and names it in ``TMPDIR``, which all processes of the run
inherit. The folder stays after the run, to look at the files of failed tests; the next run removes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

#: the file system in memory that Linux has
MEMORY = Path("/dev/shm")
#: Bytes that must be free there; a run needs a part of it. Containers often have 64 MB.
_ROOM = 2 << 30
#: Short, because the path of a socket has at most 107 bytes.
_PREFIX = "hf-"


def use_memory(parent: Path = MEMORY) -> Path | None:
    """Let temporary files go to memory, unless ``TMPDIR`` names a folder. Returns the folder, if it made one."""
    if "TMPDIR" in os.environ or not _is_fit(parent):
        return None
    _remove_abandoned(parent)
    folder = parent / f"{_PREFIX}{os.getpid()}"
    if folder.exists():  # another user's, who left it behind
        return None
    folder.mkdir(0o700)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # it may have been asked for before
    return folder


def _is_fit(parent: Path) -> bool:
    """Tell whether there is room for files, and whether programs may run there: the benchmarks compile some."""
    if not os.access(parent, os.W_OK | os.X_OK):
        return False
    found = os.statvfs(parent)
    return found.f_bavail * found.f_frsize >= _ROOM and not found.f_flag & os.ST_NOEXEC


def _remove_abandoned(parent: Path) -> None:
    """Remove this user's folders of runs that have ended."""
    for folder in parent.glob(f"{_PREFIX}[0-9]*"):
        pid = folder.name.removeprefix(_PREFIX)
        if folder.stat().st_uid == os.getuid() and (pid == str(os.getpid()) or not Path(f"/proc/{pid}").exists()):
            shutil.rmtree(folder, ignore_errors=True)
