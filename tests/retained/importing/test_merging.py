"""Merging a staging area part by part, on both databases: each part is committed as a whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from attrs import define, evolve
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast.core.messages import ApplicationMessage, ChangeOrigin, RetainedChange, RetainedMessage, stored_size
from holdfast.retained import importing
from holdfast.retained.feed import Change
from holdfast.retained.import_jobs import OtherJob, read_job
from holdfast.retained.importing import ImportJob, Merger, Reject
from holdfast.retained.limits import RetainerLimits, RetainRefused
from holdfast.retained.service import RetainedMessages
from holdfast.retained.staging import (
    FILE_INSERT,
    FILE_SCHEMA,
    TABLE_COPY,
    TABLE_SCHEMA,
    TABLE_TYPES,
    NotStaged,
    StagedFiles,
    StagedTable,
    Staging,
)
from holdfast.retained.store.rows import Row, row_of
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.values import RetainedStatistics
from holdfast.retained.verdicts import LEAST_ROWS, MOST_ROWS, PART_SECONDS, Merge, PartSize
from tests.pipeline.stores import MAKES, NOW, Filled, database, fill, message
from tests.storage.doubles import result_of

OLDER, NEWER = NOW - 10, NOW + 10


def staged(*messages: RetainedMessage) -> list[Row]:
    """Return messages as rows ready to be merged."""
    return [
        row_of(RetainedChange(one.topic, one.revision, one.stored_at, one, one.client_id, one.username))
        for one in messages
    ]


@define
class Place:
    """A database and a folder for its staging areas."""

    filled: Filled
    folder: Path
    files: int = 0

    def stage(self, *attempts: Sequence[Row]) -> Staging:
        """Stage the rows of several task attempts, which all count."""
        self.files += 1
        if self.filled.url.startswith("sqlite"):
            paths = []
            for number, rows in enumerate(attempts):
                path = self.folder / f"staged-{self.files}-{number}.db"
                with closing(sqlite3.connect(path)) as connection, connection:
                    connection.execute(FILE_SCHEMA)
                    connection.executemany(FILE_INSERT, rows)
                paths.append(str(path))
            return StagedFiles(paths)
        table = f"holdfast_staging_{self.files:08x}"
        with psycopg.connect(self.filled.url.replace("+psycopg", "")) as postgres, postgres.cursor() as cursor:
            cursor.execute(TABLE_SCHEMA.format(table))
            with cursor.copy(TABLE_COPY.format(table)) as copy:
                copy.set_types(TABLE_TYPES)
                for number, rows in enumerate(attempts):
                    for row in rows:
                        copy.write_row((number, *row))
        return StagedTable(table, range(len(attempts)))

    @contextmanager
    def opened(self, limits: RetainerLimits | None = None, rows: int = importing.FIRST_ROWS) -> Iterator[Desk]:
        """Open the database as a broker does."""
        with self.filled.store() as store:
            retained = RetainedMessages(store, clock=Clock(), now=lambda: NOW, limits=limits or RetainerLimits())
            yield Desk(
                store, retained, Merger(retained, store, now=lambda: NOW, pause=lambda: succeed(None), rows=rows)
            )


@define
class Desk:
    """An open store and its merger."""

    store: SQLRetainedStore
    retained: RetainedMessages
    merger: Merger

    def merge(
        self, staging: Staging, merge: Merge = Merge.NEWER, job: str = "j"
    ) -> tuple[dict[str, int], list[Reject]]:
        """Merge all; return the counts that are not zero, and the rejects."""
        rejects: list[Reject] = []
        for _ in range(10_000):
            progress = result_of(self.merger.step(ImportJob(job, staging, merge)))
            rejects += progress.rejects
            if progress.job.is_done:
                staging.close()
                return {name: count for name, count in progress.job.counts.items() if count}, rejects
        raise AssertionError("it never ends")

    def get(self, topic: str) -> RetainedMessage | None:
        """Return the retained payload of a topic."""
        found: RetainedMessage | None = result_of(self.store.get(topic))
        return None if found is None else evolve(found, revision=0, payload=bytes(found.payload))


@pytest.fixture(params=MAKES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with database(request.param, tmp_path) as filled:
        yield Place(filled, tmp_path)


@pytest.fixture(params=MAKES)
def recorded_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with database(request.param, tmp_path, recorded=True) as filled:
        yield Place(filled, tmp_path)


def test_every_field_of_a_message_is_imported_and_the_totals_are_right(place: Place) -> None:
    """The revision alone is new. The totals are right at once, and after the store is opened again."""
    full = message("a/b", b"\x00\xff", qos=2, client_id="c", username="u", stored_at=OLDER, expires_at=2**41)
    plain = message("c", b"yz")
    sizes = [stored_size(one.topic, one.properties, len(one.payload)) for one in (full, plain)]
    expected = RetainedStatistics(2, sum(sizes))
    with place.opened() as desk:
        assert desk.merge(place.stage(staged(full), staged(plain))) == ({"imported": 2}, [])
        assert desk.get("a/b") == full
        assert desk.get("c") == plain
        assert desk.store.statistics() == expected
    with place.opened() as desk:
        assert desk.store.statistics() == expected


@pytest.mark.parametrize(
    ("merge", "older", "newer"),
    [(Merge.NEWER, "kept", "imported"), (Merge.REPLACE, "imported", "imported"), (Merge.KEEP, "kept", "kept")],
)
def test_the_rule_decides_between_a_retained_and_a_staged_message(
    place: Place, merge: Merge, older: str, newer: str
) -> None:
    """A cleared topic gets a message only if the clear is older, or the rule says so."""
    place.filled.put(message("older"), message("newer"), message("same"), message("gone"), message("gone", b""))
    rows = staged(
        message("older", b"z", stored_at=OLDER),
        message("newer", b"z", stored_at=NEWER),
        message("same"),
        message("gone", b"z", stored_at=OLDER),
        message("late", b"z", expires_at=NOW),
    )
    with place.opened() as desk:
        counts, rejects = desk.merge(place.stage(rows), merge)
        gone = "cleared" if merge is Merge.NEWER else "imported"
        expected: dict[str, int] = {}
        for verdict in (older, newer, gone, "unchanged", "expired"):
            expected[verdict] = expected.get(verdict, 0) + 1
        assert (counts, rejects) == (expected, [])
        won = older == "imported"
        assert desk.get("older") == message("older", b"z" if won else b"x", stored_at=OLDER if won else NOW)
        assert (desk.get("gone") is None) is (merge is Merge.NEWER)


def test_the_newest_row_of_a_topic_staged_twice_counts(place: Place) -> None:
    """In one task or in several, in any order."""
    first = staged(message("t", b"1", stored_at=OLDER), message("t", b"3", stored_at=NEWER))
    second = staged(message("t", b"2"), message("s", b"b"), message("s", b"a"))
    with place.opened() as desk:
        assert desk.merge(place.stage(first, second)) == ({"imported": 2}, [])
        assert desk.get("t") == message("t", b"3", stored_at=NEWER)
        assert desk.get("s") == message("s", b"b")


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("most_bytes", [1, 20, 1000])
def test_the_newest_row_counts_for_every_size_of_a_chunk(
    place: Place, monkeypatch: pytest.MonkeyPatch, rows: int, most_bytes: int
) -> None:
    """Also when one topic is staged more often than a part has messages."""
    monkeypatch.setattr(importing, "MOST_BYTES", most_bytes)
    ages = {f"t/{number}": [OLDER - 2, NEWER, OLDER, OLDER - 1, NOW][: number + 1] for number in range(5)}
    given = [message(topic, b"at %d" % age, stored_at=age) for topic, all_of in ages.items() for age in all_of]
    with place.opened(rows=rows) as desk:
        assert desk.merge(place.stage(staged(*given[::2]), staged(*given[1::2]))) == ({"imported": len(ages)}, [])
        for topic, all_of in ages.items():
            assert desk.get(topic) == message(topic, b"at %d" % max(all_of), stored_at=max(all_of))


@pytest.mark.parametrize("stop_after", [0, 1, 2, 3])
def test_an_interrupted_job_continues_and_counts_each_row_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    """After any part. The second staging may divide the rows among other attempts."""
    messages = [message(f"t/{number}", b"%d" % number) for number in range(10)]
    with place.opened(rows=3) as desk:
        staging = place.stage(staged(*messages))
        for _ in range(stop_after):
            result_of(desk.merger.step(ImportJob("j", staging, Merge.NEWER)))
        staging.close()
    with place.opened() as desk:
        again = place.stage(staged(*messages[::2]), staged(*messages[1::2]))
        assert desk.merge(again) == ({"imported": 10}, [])
        assert desk.store.statistics().count == 10


@pytest.mark.parametrize(
    ("rows", "taken", "seconds", "then"),
    [
        (250, 250, PART_SECONDS, 250),
        (250, 250, 2 * PART_SECONDS, 125),
        (250, 250, PART_SECONDS / 50, 500),  # no more than twice as many at once
        (250, 250, 0.0, 500),
        (250, 250, 9.0, LEAST_ROWS),
        (1900, 1900, PART_SECONDS / 5, MOST_ROWS),
        (250, 10, PART_SECONDS / 50, 250),  # the last ones, or large ones: they say nothing of more
        (250, 10, 2 * PART_SECONDS, LEAST_ROWS),
        (250, 0, 0.1, 250),
    ],
)
def test_the_size_of_a_chunk_follows_the_time_of_the_last_chunk(
    rows: int, taken: int, seconds: float, then: int
) -> None:
    """Within bounds."""
    size = PartSize(rows, PART_SECONDS)
    size.took(taken, seconds)
    assert size.rows == then


def test_chunks_grow_until_they_take_the_intended_time(place: Place) -> None:
    """If a message takes a 250th of that time, a part soon has 250 messages, for any size of the first part."""
    passed = [0.0]
    take = PART_SECONDS / 250 * 0.999999  # no rounding makes it 249

    def now() -> int:
        return NOW

    with place.filled.store() as store:
        retained = RetainedMessages(store, clock=Clock(), now=now, limits=RetainerLimits())
        merger = Merger(
            retained,
            store,
            now=now,
            pause=lambda: succeed(None),
            rows=100,
            hold=PART_SECONDS,
            seconds=lambda: passed[0],
        )
        staging = place.stage(staged(*(message(f"t/{number:03}") for number in range(800))))
        whole, sizes = staging.take, []

        def slow(*arguments: Any) -> Sequence[Row]:
            rows = whole(*arguments)
            passed[0] += take * len(rows)
            sizes.append(len(rows))
            return rows

        staging.take = slow  # type: ignore[method-assign, assignment]
        for _ in range(20):
            if result_of(merger.step(ImportJob("j", staging, Merge.NEWER))).job.is_done:
                break
        staging.close()
    assert sizes == [100, 200, 250, 250, 0]


def test_a_repeated_job_does_nothing_if_it_is_done(place: Place) -> None:
    """It reports the same counts; a topic cleared since then stays cleared."""
    rows = staged(message("t"))
    with place.opened() as desk:
        assert desk.merge(place.stage(rows), Merge.REPLACE) == ({"imported": 1}, [])
        fill(desk.store, [message("t", b"")])
        assert desk.merge(place.stage(rows), Merge.REPLACE) == ({"imported": 1}, [])
        assert desk.get("t") is None


def test_a_job_keeps_its_rule(place: Place) -> None:
    """A job merged half by one rule and half by another would follow neither."""
    with place.opened() as desk:
        desk.merge(place.stage(staged(message("t"))), Merge.KEEP)
        with pytest.raises(OtherJob, match="begun with merge = keep"):
            desk.merge(place.stage(staged(message("t"))), Merge.REPLACE)


def test_a_failing_chunk_leaves_nothing_behind(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither rows nor a position: the transaction is one."""
    with place.opened() as desk:
        staging = place.stage(staged(message("t")))

        def broken(*_: object) -> None:
            raise ValueError("broken")

        with monkeypatch.context() as patched:
            patched.setattr(importing, "advance", broken)
            with pytest.raises(ValueError, match="broken"):
                result_of(desk.merger.step(ImportJob("j", staging, Merge.NEWER)))
        assert desk.get("t") is None
        assert desk.store.statistics().count == 0
        assert desk.merge(staging) == ({"imported": 1}, [])


def test_chunks_are_bounded_in_bytes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large payloads make small parts, one row at least."""
    monkeypatch.setattr(importing, "MOST_BYTES", 252)
    rows = staged(*(message(f"t/{number}", b"p" * size) for number, size in enumerate((100, 100, 100, 300, 10, 240))))
    with place.opened() as desk:
        staging = place.stage(rows)
        positions = []
        done = False
        while not done:
            progress = result_of(desk.merger.step(ImportJob("j", staging, Merge.NEWER)))
            positions.append(progress.job.position)
            done = progress.job.is_done
        assert positions == ["t/1", "t/2", "t/3", "t/5", "t/5"]


def test_a_message_over_a_limit_is_rejected_with_the_reason(place: Place) -> None:
    """Rejects come in topic order. A message that replaces another needs no room in a quota of messages."""
    place.filled.put(message("t/0"))
    limits = RetainerLimits(max_payload_size=5, max_topic_length=4, max_retained_messages=2)
    rows = staged(
        message("t/0", b"new", stored_at=NEWER), message("t/1"), message("t/2"), message("t/large", b"x"),
        message("u", b"toolarge"),
    )  # fmt: skip
    with place.opened(limits) as desk:
        counts, rejects = desk.merge(place.stage(rows))
        assert counts == {"imported": 2, "rejected": 3}
        assert rejects == [
            Reject("t/2", "retainer.max_retained_messages = 2 is reached"),
            Reject("t/large", "the topic has 7 bytes, at most 4 are retained"),
            Reject("u", "the payload has 8 bytes, retainer.max_payload_size is 5"),
        ]


def test_a_limit_reached_by_an_import_is_reached_for_publishers(place: Place) -> None:
    """Although the quota of publishers did not see the import's changes."""
    with place.opened(RetainerLimits(max_retained_messages=2)) as desk:
        publish = ApplicationMessage("new", b"x", 0, True)
        desk.merge(place.stage(staged(message("a"), message("b"))))
        with pytest.raises(RetainRefused):
            desk.retained.retain(publish, ChangeOrigin.PUBLISH)


def test_each_changed_topic_is_announced_after_its_commit(place: Place) -> None:
    """Other topics are not announced: replays read announced topics again."""
    place.filled.put(message("kept"))
    heard: list[Change] = []
    with place.opened() as desk:
        desk.retained.feed.listen(heard.append)
        desk.merge(place.stage(staged(message("kept", b"z", stored_at=OLDER), message("new"))))
    assert [(change.topic, change.origin, change.live, change.ticket.settled) for change in heard] == [
        ("new", ChangeOrigin.IMPORT, False, True)
    ]


def test_the_history_has_the_time_of_the_import(recorded_place: Place) -> None:
    """One entry for each change, in its transaction, at the time of the import and not of the message."""
    with recorded_place.opened() as desk:
        desk.merge(recorded_place.stage(staged(message("a", stored_at=OLDER), message("b", expires_at=1))))
        events = result_of(
            desk.store._parts.readers.read(
                lambda connection: (
                    connection.cursor()
                    .execute("SELECT topic, op, origin, changed_at FROM retained_history ORDER BY seq")
                    .fetchall()
                )
            )
        )
    assert [tuple(event) for event in events] == [("a", "set", "import", NOW)]


def test_a_caller_that_stops_waiting_stops_no_chunk(place: Place) -> None:
    """The totals, the change feed and the job are right without the caller."""
    with place.opened() as desk:
        waiting: list[Deferred[None]] = []
        merger = Merger(
            desk.retained, desk.store, now=lambda: NOW,
            pause=lambda: waiting.append(Deferred()) or waiting[-1],  # type: ignore[func-returns-value]
        )  # fmt: skip
        step = merger.step(ImportJob("j", place.stage(staged(message("t"))), Merge.NEWER))
        step.addErrback(lambda _: None)
        step.cancel()
        assert desk.store.statistics().count == 1
        job = result_of(desk.store._parts.readers.read(lambda connection: read_job(connection.cursor(), "j")))
        assert job.position == "t"


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_files_closed_during_a_read_do_not_end_the_job(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller of the merge has gone. The job is not done, and continues when it is repeated."""
    with place.opened() as desk:
        files = place.stage(staged(message("t")))
        open_them = StagedFiles._go_to

        def interrupted(self: StagedFiles, after: str) -> None:
            open_them(self, after)
            self.close()  # as the reactor's thread may at any point

        with monkeypatch.context() as patched:
            patched.setattr(StagedFiles, "_go_to", interrupted)
            with pytest.raises(NotStaged, match="was closed before its end"):
                result_of(desk.merger.step(ImportJob("j", files, Merge.NEWER)))
        progress = result_of(desk.merger.step(ImportJob("j", place.stage(staged(message("t"))), Merge.NEWER)))
        assert progress.job.counts["imported"] == 1


@pytest.mark.parametrize("path", ["relative.db", "/nowhere/at/all.db"])
def test_missing_files_are_refused(path: str) -> None:
    """The refusal names the path."""
    with pytest.raises(NotStaged, match=path):
        StagedFiles([path])


def test_other_files_are_refused(tmp_path: Path) -> None:
    """Also a damaged database."""
    (tmp_path / "x.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(NotStaged, match="cannot be read as staging files"):
        StagedFiles([str(tmp_path / "x.db")]).take(None, "", 1, 1)  # type: ignore[arg-type]  # files need no cursor


@pytest.mark.parametrize(
    "name", ["retained", "holdfast_staging_", "holdfast_staging_0000000g; DROP TABLE retained", ""]
)
def test_no_other_table_is_read(name: str) -> None:
    """Only names of staging tables are accepted."""
    with pytest.raises(NotStaged):
        StagedTable(name, [1])
