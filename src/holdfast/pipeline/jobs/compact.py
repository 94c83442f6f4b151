"""Compacting an archive: of each day one sorted file, in a folder that any reader of Parquet may be pointed at."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING

from attrs import evolve, frozen
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from holdfast.pipeline.archive.coverage import Coverage, read_coverage, require_coverage, write_coverage
from holdfast.pipeline.archive.entries import read_archive
from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.output.folder import Folder
from holdfast.pipeline.output.names import DATA
from holdfast.pipeline.output.overwriting import UNFINISHED, require_compaction_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@frozen
class Compacted:
    """So many ``entries`` of these ``days`` were written; there is everything up to the entry ``last_seq``.

    ``unfinished`` is the day of the last entry archived, to which more may be added; None where nothing is archived.
    """

    days: list[str]
    entries: int
    last_seq: int
    unfinished: str | None


def compact(spark: SparkSession, archive: Folder, out: Folder, unfinished: bool = False) -> Compacted:
    """Write the days of ``archive`` that are complete and not in ``out`` yet, sorted by topic and seq.

    A day is complete once the archive has an entry of a later one; with ``unfinished``, the last day is written too,
    and again by the next run. Raises :class:`PipelineError`.
    """
    _check_apart(archive, out)
    require_compaction_target(out)
    there = require_coverage(archive)
    done = read_coverage(out) or Coverage(there.store)
    if done.store != there.store or done.last_seq > there.last_seq:
        raise PipelineError(f"{out.uri}: was not compacted from {archive.uri}; name another folder")
    covered = there if unfinished else there.complete()
    last_day = F.lit(there.last_day)
    upto = F.col("date") <= last_day if unfinished else F.col("date") < last_day
    entries = read_archive(spark, archive).where(upto & (F.col("seq") <= there.last_seq))
    missing = entries.where(~F.col("date").isin(done.days)) if done.days else entries
    expected = _counted(missing)
    if expected:
        _withdraw(out, done, expected)
        _sweep(out)
        sorted_days = missing.repartition("date").sortWithinPartitions("date", "topic", "seq")
        writer = sorted_days.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("date")
        writer.parquet(out.below(DATA))
        written = _counted(read_archive(spark, out).where(F.col("date").isin(list(expected))))
        if written != expected:
            raise PipelineError(
                f"{out.uri}: what was written is not what was read; was {archive.uri} changed? Run again"
            )
    days = sorted({*done.days, *(day for day in expected if day < str(there.last_day))})
    last_seq = max([done.last_seq, *(last for _, _, last, _ in expected.values())])
    write_coverage(out, evolve(covered, last_seq=last_seq, last_at=max(done.last_at, covered.last_at), days=days))
    entries_written = sum(count for count, _, _, _ in expected.values())
    return Compacted(sorted(expected), entries_written, last_seq, str(there.last_day) if there.last_at else None)


def _counted(frame: DataFrame) -> dict[str, tuple[int, int, int, int]]:
    """Return how many entries there are of each day, the first and the last of them, and the sum of their places."""
    counts = frame.groupBy("date").agg(F.count("*"), F.min("seq"), F.max("seq"), F.sum("seq")).collect()
    return {str(row[0]): (row[1], row[2], row[3], row[4]) for row in counts}


def _withdraw(out: Folder, done: Coverage, expected: Mapping[str, tuple[int, int, int, int]]) -> None:
    """Answer no more for days that are about to be written again: Spark removes what is there first."""
    day, (_, first, _, _) = min(expected.items())
    if first <= done.last_seq:
        write_coverage(out, done.until(date.fromisoformat(day), first - 1))


def _sweep(out: Folder) -> None:
    """Remove what a run that was killed had not put in its place."""
    for name in out.names(DATA):
        if name.startswith(UNFINISHED):
            out.remove(f"{DATA}/{name}")


def _check_apart(archive: Folder, out: Folder) -> None:
    """An archive counts its own files: what is put among them breaks it."""
    first, second = f"{archive.uri}/", f"{out.uri}/"
    if first.startswith(second) or second.startswith(first):
        raise PipelineError(f"{out.uri}: is in the archive, or the archive is in it; name a folder apart from it")
