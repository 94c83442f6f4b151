"""``asof``: the history has the retained messages of any time, in the database and in a lake."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.changes.entries import NOT_RECORDED, Rule, Rules, retained_by
from holdfast.changes.history import HistoryLimits
from holdfast.changes.moments import HistoryUnavailable, present_moment
from holdfast.core.messages import ChangeOrigin, RetainedChange
from holdfast.core.topics import EVERY_TOPIC
from holdfast_pipeline import Source
from holdfast_pipeline.cli.options import milliseconds
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.asof import Destination, moment_at, state_at, write_past
from holdfast_pipeline.jobs.sync import Sync
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.sources.lake import Lake
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
        write_past(spark, Source(recorded.url), 1000, Destination(Folder(str(tmp_path / "out"))))
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_topics_that_the_history_does_not_know_are_left_out(
    spark: SparkSession, recorded: Filled, tmp_path: Path
) -> None:
    """By the database, a lake and the format, as by the broker; alone, they are refused.

    The lake was made before the database forgot.
    """
    rules = Rules([Rule("noise/#", NOT_RECORDED), Rule("short/#", 1000)])
    past = Past(recorded.url, rules=rules).open()
    for number in range(4):
        past.wall.now = NOW + 600 * number
        for topic in ("noise/a", "short/a", "plain/a"):
            past.set(topic, b"%d" % number)
    past.wall.now = NOW + 5000
    past.set("plain/b")
    source, then = Source(recorded.url), Destination(Folder(str(tmp_path / "then")), overwrite=True)
    Sync(source, Folder(str(tmp_path / "lake"))).run()
    lake = Lake(str(tmp_path / "lake"))
    past.tend()
    at = NOW + 700
    assert past.as_of(at) == {"plain/a": b"1"}
    manifest = write_past(spark, source, at, then)
    assert (manifest.rows, manifest.left_out) == (1, ["noise/#", "short/#"])
    read = spark.read.format("retained").option("storage", recorded.url).option("as_of", f"{at}")
    assert [row.topic for row in read.load().collect()] == ["plain/a"]
    kept = write_past(spark, lake, at, then)
    assert (kept.rows, kept.left_out) == (2, ["noise/#"])
    refused = "of short/# does not go back to 2023-11-14T22:13:20.700Z; the earliest possible time is"
    with pytest.raises(PipelineError, match=refused):
        write_past(spark, source, at, then, "short/+")
    with pytest.raises(Exception, match=refused):
        read.option("filter", "short/+").load().collect()
    for each in (source, lake):
        with pytest.raises(PipelineError, match="no changes of noise/#, neither old nor new ones"):
            write_past(spark, each, at, then, topic_filter="noise/a")
    past.close()


@pytest.mark.spark
@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_a_lake_and_the_database_give_the_same_states(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    """Also for a Topic Filter, at midnight in UTC, on days without changes, and in days of several files."""
    chance, midnight = random.Random(11), NOW + 6_400_000
    out, then = Folder(str(tmp_path / "lake")), Destination(Folder(str(tmp_path / "then")), overwrite=True)
    source = Source(recorded.url)
    with recorded.store() as store:
        for number in range(60):
            expires_at = NOW + number * 1000 + 5000 if chance.random() < 0.2 else None
            payload = chance.choice([b"", b"%d" % number])
            topic = f"t/{chance.randrange(9)}"
            fill(store, [message(topic, payload, expires_at=expires_at)], NOW + number * 1000)
        fill(store, [message("t/1", b"last")], midnight - 1)
        fill(store, [message("t/1", b"first")], midnight)
        fill(store, [message("later")], NOW + 3 * 86_400_000)
    Sync(source, out, rows=17).run()
    lake = Lake(out.uri)
    moments = (NOW, NOW + 33_000, NOW + 58_500, midnight - 1, midnight, NOW + 86_400_000, NOW + 3 * 86_400_000 - 1)
    of_all, of_one = [(at, "") for at in moments], [(at, "+/1") for at in (midnight - 1, moments[-1])]
    for at, topic_filter in of_all + of_one:
        found = []
        for each in (source, lake):
            manifest = write_past(spark, each, at, then, topic_filter)
            found.append((manifest, sorted(spark.read.parquet(then.out.below("data")).collect())))
        assert found[0] == found[1]
    assert found[0][0].rows == 1
    for at in (NOW - 1, NOW + 3 * 86_400_000):
        with pytest.raises(PipelineError, match="the lake does not cover"):
            write_past(spark, lake, at, then)


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
