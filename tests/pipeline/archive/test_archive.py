"""The jobs ``archive``, ``compact`` and ``asof``, tested by their files."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast_pipeline import Source, read_history
from holdfast_pipeline.archive.coverage import require_coverage
from holdfast_pipeline.archive.entries import read_archive
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.archive import Archived, archive
from holdfast_pipeline.jobs.asof import asof_archived, moment_at, state_at
from holdfast_pipeline.jobs.compact import Compacted, compact
from holdfast_pipeline.output.folder import Folder
from tests.pipeline.stores import NOW, Filled, fill, message

pytestmark = pytest.mark.spark

DAY = 86_400_000
FIRST, SECOND = "2023-11-14", "2023-11-15"


@pytest.fixture
def out(tmp_path: Path) -> Folder:
    """A folder for an archive."""
    return Folder(str(tmp_path / "archive"))


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_each_run_adds_and_confirms_new_changes(spark: SparkSession, recorded: Filled, out: Folder) -> None:
    """It begins with 0. If a run could not confirm its last batch, the next run does that first."""
    source, told = Source(recorded.url), list[int]()
    recorded.put(*(message(f"t/{number}", b"\x00\xff", client_id="c") for number in range(30)))
    assert archive(spark, source, out, told.append, 20) == Archived(0, 31)
    assert (told[0], told[-1]) == (0, 31)
    assert archive(spark, source, out, told.append) == Archived(31, 31)

    def killed(seq: int) -> None:
        if seq > 31:
            raise PipelineError("killed")

    recorded.put(message("t/0", b""), at=NOW + DAY)
    with pytest.raises(PipelineError, match="killed"):
        archive(spark, source, out, killed)
    told.clear()
    assert archive(spark, source, out, told.append) == Archived(32, 32)
    assert told == [32]
    found = sorted(read_archive(spark, out).collect())
    assert [tuple(row)[:-1] for row in found] == [tuple(row) for row in sorted(read_history(spark, source).collect())]
    assert {str(row.date) for row in found} == {FIRST, SECOND}
    assert [row.topic for row in read_archive(spark, out, "+/1").collect()] == ["t/1"]


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_changes_of_another_database_are_refused(
    spark: SparkSession, recorded: Filled, out: Folder, tmp_path: Path
) -> None:
    """Also of an older backup of the same database."""
    recorded.put(message("a"), message("b"))
    source = Source(recorded.url)
    archive(spark, source, out, lambda _seq: None)
    path, copy = recorded.url.removeprefix("sqlite:///"), tmp_path / "copy.db"
    shutil.copy(path, copy)
    with pytest.raises(PipelineError, match=r"holds the archive of sqlite:.*name another folder"):
        archive(spark, Source(f"sqlite:///{copy}"), out, lambda _seq: None)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE retained_history_state SET last_seq = 1")
        connection.execute("DELETE FROM retained_history WHERE seq > 1")
    with pytest.raises(
        PipelineError, match="entries up to 3, but the history ends at 1: the database has been replaced"
    ):
        archive(spark, source, out, lambda _seq: None)
    recorded.put(*(message(f"c/{number}") for number in range(9)), at=NOW + 1)  # the archive continues with them
    with pytest.raises(PipelineError, match="ends at entry 3, but this entry in the database is younger"):
        archive(spark, source, out, lambda _seq: None)
    assert require_coverage(out).last_seq == 3


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_complete_days_are_compacted_once(
    spark: SparkSession, recorded: Filled, out: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sorted file per day; the next run completes a killed one; the last day is left out."""
    silver = Folder(str(tmp_path / "silver"))
    with pytest.raises(PipelineError, match="holds no archive of a history"):
        compact(spark, out, silver)
    with recorded.store() as store:
        for number in range(40):
            fill(store, [message(f"t/{number % 7}", b"%d" % number)], NOW + number)
        fill(store, [message("t/9")], NOW + DAY)
    archive(spark, Source(recorded.url), out, lambda _seq: None, 10)
    for wrong in (out, Folder(out.below("data")), Folder(str(tmp_path))):
        with pytest.raises(PipelineError, match="name a folder apart from it"):
            compact(spark, out, wrong)
    assert compact(spark, out, silver) == Compacted([FIRST], 40, 41, SECOND)
    (file,) = (tmp_path / "silver/data" / f"date={FIRST}").glob("*.parquet")
    rows = [(row.topic, row.seq) for row in spark.read.parquet(str(file)).collect()]
    assert rows == sorted(rows)
    assert compact(spark, out, silver) == Compacted([], 0, 41, SECOND)
    (tmp_path / "silver/archive.json").unlink()  # as if killed after the files and before their record
    file.unlink()
    half = tmp_path / "silver/data/.spark-staging-1/date=2023-11-14"
    half.mkdir(parents=True)
    assert compact(spark, out, silver) == Compacted([FIRST], 40, 41, SECOND)
    assert not half.parent.exists()
    assert compact(spark, out, silver, unfinished=True) == Compacted([SECOND], 1, 42, SECOND)
    assert compact(spark, out, silver, unfinished=True) == Compacted([SECOND], 1, 42, SECOND)
    assert sorted(read_archive(spark, silver).collect()) == sorted(read_archive(spark, out).collect())
    with recorded.store() as store:
        fill(store, [message("t/10")], NOW + DAY + 9)
    archive(spark, Source(recorded.url), out, lambda _seq: None)
    with monkeypatch.context() as patched:
        patched.setattr("holdfast_pipeline.jobs.compact._sweep", killed)  # Spark removes a day, then puts it anew
        with pytest.raises(PipelineError, match="killed"):
            compact(spark, out, silver, unfinished=True)
    told = require_coverage(silver)
    assert (told.last_seq, told.last_day.isoformat(), told.days) == (41, SECOND, [FIRST])
    with pytest.raises(PipelineError, match="does not cover 2023-11-15"):
        told.moment(NOW + DAY)
    assert told.moment(NOW + 3)
    assert compact(spark, out, silver, unfinished=True) == Compacted([SECOND], 2, 43, SECOND)
    assert require_coverage(silver).moment(NOW + DAY)


def killed(*_: object) -> None:
    """End before the coverage is written."""
    raise PipelineError("killed")


@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_an_archive_and_the_database_give_the_same_states(
    spark: SparkSession, recorded: Filled, out: Folder, tmp_path: Path
) -> None:
    """Compacted or not, also after the database has forgotten; other times are refused."""
    chance = random.Random(11)
    with recorded.store() as store:
        for number in range(60):
            expires_at = NOW + number * 1000 + 5000 if chance.random() < 0.2 else None
            payload = chance.choice([b"", b"%d" % number])
            topic = f"t/{chance.randrange(9)}"
            fill(store, [message(topic, payload, expires_at=expires_at)], NOW + number * 1000)
        fill(store, [message("later")], NOW + DAY)
    source, silver = Source(recorded.url), Folder(str(tmp_path / "silver"))
    archive(spark, source, out, lambda _seq: None)
    compact(spark, out, silver)
    ask = partial(asof_archived, spark, out=Folder(str(tmp_path / "then")), overwrite=True)
    for at in (NOW, NOW + 33_000, NOW + 58_500):
        expected = sorted(state_at(spark, source, moment_at(source, at)).collect())
        for folder in (out, silver):
            assert ask(folder, at).rows == len(expected)
            assert sorted(spark.read.parquet(str(tmp_path / "then/data")).collect()) == expected
    assert ask(out, NOW + DAY - 1, topic_filter="later").rows == 0
    for folder, at in ((out, NOW + DAY), (silver, NOW + DAY - 1), (out, NOW - 1)):
        with pytest.raises(PipelineError, match="does not cover"):
            ask(folder, at)
    assert require_coverage(silver).days == [FIRST]
