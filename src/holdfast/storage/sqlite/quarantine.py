"""Quarantine: a damaged SQLite file is renamed, never emptied or overwritten, and a new file takes its place.

Names beside the database ``NAME``: ``NAME.corrupt-YYYYMMDDTHHMMSS`` is a file in quarantine. ``NAME.salvaged`` is the
replacement. ``NAME.damaged`` is a mark: the running broker has found damage that a start, which reads almost nothing,
would not find.

The steps are in an order that can be interrupted anywhere. The next start sees which files exist, and goes on:

1. the replacement is complete and synced: ``NAME.salvaged``
2. ``NAME`` is renamed to ``NAME.corrupt-...`` (first: without its log, the file would look like a sound database that
   lacks the last commits)
3. its log and the other companions are renamed likewise; the mark is removed
4. ``NAME.salvaged`` is renamed to ``NAME``
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from enum import Enum
from glob import escape
from pathlib import Path

_COMPANIONS = ("-wal", "-shm", "-journal")


class OnCorruption(Enum):
    """What the broker does with a damaged database when it starts."""

    REFUSE = "refuse"
    QUARANTINE = "quarantine"


def mark(path: Path) -> Path:
    """Return the path of a database's mark."""
    return _beside(path, ".damaged")


def replacement(path: Path) -> Path:
    """Return the path of the database that will replace a damaged one."""
    return _beside(path, ".salvaged")


def quarantined(path: Path) -> list[Path]:
    """Return the files in quarantine beside a database, the oldest first."""
    found = path.parent.glob(f"{escape(path.name)}.corrupt-*")
    return sorted(file for file in found if not file.name.endswith(_COMPANIONS))


def set_aside(path: Path, now: int) -> Path:
    """Move the database into quarantine and put its replacement in its place; return its new path.

    ``now`` is in milliseconds since the epoch. After an interruption, :func:`finish` does the rest. Raises OSError.
    """
    moment = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    target = _beside(path, f".corrupt-{moment}")
    number = 1
    while target.exists():
        number += 1
        target = _beside(path, f".corrupt-{moment}-{number}")
    path.rename(target)  # step 2
    finish(path)
    return target


def finish(path: Path) -> None:
    """Complete an interrupted :func:`set_aside`; remove a replacement that is not complete. Raises OSError."""
    new = replacement(path)
    if path.exists():
        discard(new)
        return
    if not new.exists():
        return
    target = quarantined(path)[-1]
    for companion in _COMPANIONS:
        file = _beside(path, companion)
        if file.exists():
            file.rename(_beside(target, companion))
    mark(path).unlink(missing_ok=True)
    _sync(path.parent)
    new.rename(path)
    _sync(path.parent)


def discard(path: Path) -> None:
    """Remove a database and its companions."""
    for companion in ("", *_COMPANIONS):
        _beside(path, companion).unlink(missing_ok=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
