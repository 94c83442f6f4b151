"""A write-ahead log with many commits, and the rest of it after tearing."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

from attrs import frozen

from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.checkpoints import OwnCheckpoints
from holdfast.storage.database import Durability
from holdfast.storage.sqlite import OnCorruption
from tests.storage.doubles import Bench, result_of
from tests.storage.sqlite.ruins import clear, contents, copy_of, fresh_file, put, store


@frozen
class Written:
    """A crashed database at ``path``; length of the log, newest revision and retained messages after each commit."""

    path: Path
    ends: list[int]
    revisions: list[int]
    states: list[dict[str, bytes]]

    @property
    def length(self) -> int:
        """The length of the log in bytes."""
        return self.ends[-1]

    def commits_before(self, place: int) -> int:
        """Return the number of commits that are complete before a position in the log."""
        return bisect_right(self.ends, place)


def written(directory: Path, commits: int) -> Written:
    """Commit sets and clears of a few topics, each acknowledged; leave the files as a crash leaves them.

    No checkpoint comes between: it moves only what is on the disk for good, so no fault tears the log in front of it.
    """
    with unmoved():
        return _written(directory, commits)


@contextmanager
def unmoved() -> Iterator[None]:
    """Let the writer make no checkpoints."""

    def begin(_checkpoints: OwnCheckpoints, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA wal_autocheckpoint=0")

    with patch.object(OwnCheckpoints, "begin", begin), patch.object(OwnCheckpoints, "maintain"):
        yield


def _written(directory: Path, commits: int) -> Written:
    path = fresh_file(directory)
    bench = Bench(path, Durability.FULL)
    retained = SQLRetainedStore(bench.store)
    bench.store.open()
    log = path.with_name(path.name + "-wal")
    ends: list[int] = []
    revisions: list[int] = []
    states: list[dict[str, bytes]] = []
    current: dict[str, bytes] = {}
    for number in range(commits):
        topic, value = f"t/{number * 7 % 12}", b"%d " % number * (1 + number % 5 * 300)
        if number % 4:
            put(retained, [topic], value)
            current[topic] = value
        else:
            clear(retained, topic)
            current.pop(topic, None)
        ends.append(log.stat().st_size)
        revisions.append(_newest_revision(path))
        states.append(dict(current))
    crashed = copy_of(path, directory / "crashed")
    result_of(bench.store.close())
    return Written(crashed, ends, revisions, states)


def torn(crashed: Written, directory: Path, place: int, garbage: bytes) -> int:
    """Cut a copy of the log or write garbage into it; return the number of commits that are left.

    The store must open, with exactly the retained messages after one of the commits.
    """
    path = copy_of(crashed.path, directory)
    with path.with_name(path.name + "-wal").open("r+b") as log:
        if garbage:
            log.seek(place)
            log.write(garbage[: crashed.length - place])
        else:
            log.truncate(place)
    opened = store(path, OnCorruption.REFUSE)
    opened.open()
    result_of(opened.close())
    found = contents(path)
    commits = [0, *crashed.revisions].index(_newest_revision(path))
    assert found == [{}, *crashed.states][commits], place
    return commits


def _newest_revision(path: Path) -> int:
    """Return the revision of the newest set or clear in the database, 0 for none."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT coalesce(max(revision), 0) FROM retained").fetchone()[0])
