"""Quarantine: a damaged SQLite file is moved aside, never emptied or overwritten, and another takes its place.

Names beside the database ``NAME``: ``NAME.corrupt-YYYYMMDDTHHMMSS`` is a file in quarantine, ``NAME.salvaged`` the one
that is to take its place, and ``NAME.damaged`` a mark: the running broker has met damage, which a start, that reads
next to nothing, would not.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from enum import Enum
from glob import escape
from pathlib import Path

_COMPANIONS = ("-wal", "-shm", "-journal")


class OnCorruption(Enum):
    """What is to become of a damaged database when the broker starts."""

    REFUSE = "refuse"
    QUARANTINE = "quarantine"


def mark(path: Path) -> Path:
    """Return the name of a database's mark."""
    return _beside(path, ".damaged")


def replacement(path: Path) -> Path:
    """Return the name of the database that takes the place of a damaged one."""
    return _beside(path, ".salvaged")


def quarantined(path: Path) -> list[Path]:
    """Return the files of a database that lie in quarantine beside it, the oldest first."""
    found = path.parent.glob(f"{escape(path.name)}.corrupt-*")
    return sorted(file for file in found if not file.name.endswith(_COMPANIONS))


def set_aside(path: Path, now: int) -> Path:
    """Put the replacement in the place of the database, which goes into quarantine; return the name it has there.

    ``now`` is in milliseconds since the epoch. When this is cut short, :func:`finish` does the rest. Raises OSError.
    """
    moment = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    target = _beside(path, f".corrupt-{moment}")
    number = 1
    while target.exists():
        number += 1
        target = _beside(path, f".corrupt-{moment}-{number}")
    path.rename(target)  # first: a database without its log would pass for a sound one that lacks the last commits
    finish(path)
    return target


def finish(path: Path) -> None:
    """Finish what :func:`set_aside` has begun, if it was cut short; remove a replacement that was not completed.

    Raises OSError.
    """
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
    """Remove a database that nobody needs."""
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
