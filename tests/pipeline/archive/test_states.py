"""``asof`` and ``audit``: the history has the retained messages of any time, and of now."""

from __future__ import annotations

import random
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.changes.entries import NOT_RECORDED, Rule, Rules, retained_by
from holdfast.changes.history import HistoryLimits
from holdfast.changes.moments import HistoryUnavailable, present_moment
from holdfast.core.messages import ChangeOrigin, RetainedChange
from holdfast.core.topics import EVERY_TOPIC
from holdfast_pipeline import Source, snapshot_of
from holdfast_pipeline.cli.options import milliseconds
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.archive import archive
from holdfast_pipeline.jobs.asof import asof, asof_archived, moment_at, state_at
from holdfast_pipeline.jobs.audit import AuditResult, audit
from holdfast_pipeline.output.folder import Folder
from tests.changes.history.past import Past
from tests.pipeline.stores import NOW, Filled, fill, message
from tests.storage.doubles import Wall, result_of


@pytest.mark.spark
def test_asof_gives_the_same_as_a_dictionary_of_the_changes(spark: SparkSession, recorded: Filled) -> None:
    """Random sets, clears and expiries, compared at several times."""
    chance = random.Random(7)
    now, states = NOW, {}
    plain: dict[str, tuple[bytes, int | None]] = {}
    with recorded.store() as store:
        for number in range(120):
            now += 1000
            topic, payload = f"t/{chance.randrange(12)}", chance.choice([b"", b"%d" % number])
            expires_at = now + 5000 if payload and chance.random() < 0.2 else None
            fill(store, [message(topic, payload, expires_at=expires_at)], now)
            plain.pop(topic, None)
            if payload:
                plain[topic] = (payload, expires_at)
            if number % 40 == 39:
                states[now] = {key: value for key, (value, end) in plain.items() if end is None or end > now}
    source = Source(recorded.url)
    for at, expected in states.items():
        found = state_at(spark, source, moment_at(source, at), partitions=2).collect()
        assert {row.topic: bytes(row.payload) for row in found} == expected


@pytest.mark.spark
def test_the_pipeline_and_the_broker_agree_about_any_moment(spark: SparkSession, recorded: Filled) -> None:
    """Both see the same messages for all kinds of entries: baseline, clients, imports, overrides of expiry."""
    chance, topics = random.Random(11), [f"t/{number}" for number in range(10)]
    before = Past(recorded.url, limits=HistoryLimits()).open(started=False)
    for topic in topics[:5]:
        before.set(topic, b"before the history")
    before.close()
    past = Past(recorded.url, wall=Wall(before.wall.now + 60_000)).open()
    moments = [past.wall.now]
    for _ in range(60):
        past.wall.now += 1000
        topic = chance.choice(topics)
        match chance.randrange(5):
            case 0:
                past.clear(topic)
            case 1:
                past.set(topic, b"%d" % chance.randrange(9), expires_at=past.wall.now + chance.choice([4000, 90_000]))
            case 2:
                past.set(topic, b"%d" % chance.randrange(9))
            case 3:
                imported = message(topic, stored_at=past.wall.now - 5000, revision=past.store.next_revision())
                past.store.put(
                    RetainedChange(topic, imported.revision, past.wall.now, imported, origin=ChangeOrigin.IMPORT)
                )
            case 4:
                lifetime = chance.choice([10_000, 50_000])
                result_of(past.store.cap_expiry(lifetime, chance.random() < 0.5, "", 100))
        moments.append(past.wall.now)
    origins = {event.origin for event in past.events()}
    assert origins >= {ChangeOrigin.BASELINE, ChangeOrigin.OVERRIDE, ChangeOrigin.IMPORT}
    source = Source(recorded.url)
    for at in [*chance.sample(moments, 5), past.wall.now]:
        of_broker = [retained_by(event) for event in past.messages(at, EVERY_TOPIC)]
        of_pipeline = state_at(spark, source, moment_at(source, at)).collect()
        assert {
            row.topic: (bytes(row.payload), millis(row.stored_at), millis(row.expires_at)) for row in of_pipeline
        } == {one.topic: (one.payload, one.stored_at, one.expires_at) for one in of_broker}
    past.close()


def millis(time: datetime | None) -> int | None:
    """Return a time of Spark's in milliseconds since the epoch."""
    return None if time is None else round(time.timestamp() * 1000)


@pytest.mark.spark
def test_a_time_before_the_history_is_refused_with_the_earliest_time(
    spark: SparkSession, recorded: Filled, tmp_path: Path
) -> None:
    """Nothing is written then."""
    recorded.put(message("a"))
    with pytest.raises(PipelineError, match="the earliest possible time is"):
        asof(spark, Source(recorded.url), 1000, Folder(str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
def test_an_audit_finds_rows_that_were_changed_by_hand(spark: SparkSession, recorded: Filled) -> None:
    """Before, it finds no difference."""
    recorded.put(*(message(f"t/{number}") for number in range(6)), message("t/5", b""))
    with snapshot_of(recorded.url) as snapshot:
        assert audit(spark, snapshot, partitions=2) == AuditResult(same=5)
    Filled(recorded.url).put(message("t/0", b"changed"), message("t/1", b""), message("new"))
    with snapshot_of(recorded.url) as snapshot:
        found = audit(spark, snapshot, partitions=2)
    assert found == AuditResult(same=3, only_live=1, only_history=1, differs=1)


@pytest.mark.spark
@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_topics_that_the_history_does_not_know_are_left_out(
    spark: SparkSession, recorded: Filled, tmp_path: Path
) -> None:
    """By the database, an archive, the format and the audit, as by the broker; alone, they are refused.

    The archive was made before the database forgot.
    """
    rules = Rules([Rule("noise/#", NOT_RECORDED), Rule("short/#", 1000)])
    past = Past(recorded.url, rules=rules).open()
    for number in range(4):
        past.wall.now = NOW + 600 * number
        for topic in ("noise/a", "short/a", "plain/a"):
            past.set(topic, b"%d" % number)
    past.wall.now = NOW + 5000
    past.set("plain/b")
    source, bronze, then = Source(recorded.url), Folder(str(tmp_path / "bronze")), Folder(str(tmp_path / "then"))
    archive(spark, source, bronze, lambda _seq: None)
    past.tend()
    at = NOW + 700
    assert past.as_of(at) == {"plain/a": b"1"}
    manifest = asof(spark, source, at, then)
    assert (manifest.rows, manifest.left_out) == (1, ["noise/#", "short/#"])
    read = spark.read.format("retained").option("storage", recorded.url).option("as_of", f"{at}")
    assert [row.topic for row in read.load().collect()] == ["plain/a"]
    archived = asof_archived(spark, bronze, at, then, overwrite=True)
    assert (archived.rows, archived.left_out) == (2, ["noise/#"])
    refused = "of short/# does not go back to 2023-11-14T22:13:20.700Z; the earliest possible time is"
    with pytest.raises(PipelineError, match=refused):
        asof(spark, source, at, then, "short/+", overwrite=True)
    with pytest.raises(Exception, match=refused):
        read.option("filter", "short/+").load().collect()
    for ask in (partial(asof, spark, source), partial(asof_archived, spark, bronze)):
        with pytest.raises(PipelineError, match="no changes of noise/#, neither old nor new ones"):
            ask(at, then, topic_filter="noise/a", overwrite=True)
    past.close()
    with snapshot_of(recorded.url) as snapshot:
        assert audit(spark, snapshot, Folder(str(tmp_path / "audit"))) == AuditResult(same=3, not_recorded=1)


@pytest.mark.parametrize(
    "text", ["2023-11-14T22:13:20Z", "2023-11-14 22:13:20", "2023-11-14T23:13:20+01:00", "1700000000000"]
)
def test_times_may_be_written_in_several_forms(text: str) -> None:
    """In UTC without a zone."""
    assert milliseconds(text) == NOW


@pytest.mark.parametrize("text", ["yesterday", "", "10:00", "2023-13-01"])
def test_an_invalid_time_is_refused_with_the_valid_forms(text: str) -> None:
    """No form is guessed."""
    with pytest.raises(PipelineError, match="is not a time; write it as"):
        milliseconds(text)


def test_a_database_without_a_history_is_refused_with_the_key_that_begins_one(filled: Filled) -> None:
    """A message without that key would let the operator wait for a history that no broker writes."""
    with pytest.raises(PipelineError, match=r"there is no history: .*retainer\.history\.enable = true"):
        moment_at(Source(filled.url), NOW)
    with (
        Source(filled.url).transaction() as transaction,
        pytest.raises(HistoryUnavailable, match=r"there is no history: .*retainer\.history\.enable = true"),
    ):
        present_moment(transaction.connection.cursor())
