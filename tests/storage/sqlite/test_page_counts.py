"""A torn log keeps exactly the commits before the damage. Missing pages are noticed."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.checkpoints import missing_pages
from holdfast.storage.sqlite import OnCorruption
from tests.storage.doubles import Bench, result_of
from tests.storage.sqlite.logs import Written, torn, unmoved, written
from tests.storage.sqlite.ruins import (
    FRAME,
    LOG_HEADER,
    PAGE,
    contents,
    copy_of,
    filled,
    fresh_file,
    put,
    store,
    topics,
)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A database with 30 commits in its log, as a crash leaves it."""
    return written(tmp_path_factory.mktemp("crashed"), 30)


def test_a_log_cut_anywhere_keeps_every_commit_before_the_cut(crashed: Written, tmp_path: Path) -> None:
    """The log is torn between, within and before frames, and within its header."""
    chance = random.Random(1)
    cuts = {0, 1, LOG_HEADER - 1, LOG_HEADER, crashed.length - 1, crashed.length}
    cuts |= {end + beside for end in crashed.ends for beside in (-1, 0, 1)}
    cuts |= {chance.randrange(crashed.length) for _ in range(60)}
    for cut in sorted(cuts):
        assert torn(crashed, tmp_path / "torn", cut, b"") == crashed.commits_before(cut), cut


def test_a_log_garbled_anywhere_keeps_every_commit_before(crashed: Written, tmp_path: Path) -> None:
    """Frames after the damage are ignored, even if they are complete."""
    chance = random.Random(2)
    for _ in range(60):
        place = chance.randrange(crashed.length - 8)
        kept = torn(crashed, tmp_path / "torn", place, chance.randbytes(8))
        assert kept == crashed.commits_before(place), place


def test_a_crash_within_a_checkpoint_is_no_damage(tmp_path: Path) -> None:
    """The header counts pages that are only in the log, because no checkpoint was complete."""
    path = filled(fresh_file(tmp_path), 100)
    before = path.read_bytes()
    bench = Bench(path)
    retained = SQLRetainedStore(bench.store)
    with unmoved():
        bench.store.open()
        put(retained, [f"new/{topic}" for topic in topics(2000)], b"y" * 100)
    crashed = copy_of(path, tmp_path / "crashed")
    result_of(bench.store.close())
    after = path.read_bytes()
    assert len(after) > len(before) + 20 * PAGE
    for size in (len(before), len(before) + 7 * PAGE, len(before) + 7 * PAGE + 100, len(after) - PAGE):
        copy = copy_of(crashed, tmp_path / "copy")
        copy.write_bytes(after[:size])
        assert missing_pages(copy) == 0
        opened = store(copy, OnCorruption.REFUSE)
        opened.open()
        result_of(opened.close())
        assert len(contents(copy)) == 2100


@pytest.mark.parametrize("lost", [1, PAGE - 1, PAGE, 10 * PAGE])
def test_missing_pages_are_counted(tmp_path: Path, lost: int) -> None:
    """An incomplete page is missing; a page in the log is not."""
    path = filled(fresh_file(tmp_path), 2000)
    assert missing_pages(path) == 0
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - lost)
    assert missing_pages(path) == -(-lost // PAGE)


def test_pages_in_the_log_of_another_time_do_not_count(tmp_path: Path) -> None:
    """A log that has begun anew has old frames after the new ones."""
    path = filled(fresh_file(tmp_path), 2000)
    pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        file.truncate((pages - 1) * PAGE)
    log = bytearray(LOG_HEADER + FRAME)
    log[16:24] = b"saltsalt"
    log[LOG_HEADER : LOG_HEADER + 4] = pages.to_bytes(4, "big")
    path.with_name("store.db-wal").write_bytes(log)
    assert missing_pages(path) == 1
    log[LOG_HEADER + 8 : LOG_HEADER + 16] = b"saltsalt"
    path.with_name("store.db-wal").write_bytes(log)
    assert missing_pages(path) == 0


def test_a_file_without_a_log_is_as_long_as_it_says(tmp_path: Path) -> None:
    """This is true of a restored backup, and of a file that an old version of SQLite has changed."""
    path = filled(fresh_file(tmp_path), 10)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    assert missing_pages(Path(shutil.copy(path, tmp_path / "copy.db"))) == 0
