"""Compact an archive: one sorted file for each day, in a folder that any reader of Parquet can open.

An archive has many small files, and Spark's own list of them. The compacted folder has one file for each complete day.
Its ``archive.json`` covers only days whose files are in place. Before a day is written again, it is taken out of the
coverage: Spark removes the old file before it moves the new one there, and a job may be killed in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING

from attrs import evolve, frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.archive.coverage import Coverage, read_coverage, require_coverage, write_coverage
from holdfast_pipeline.archive.entries import read_archive
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.names import DATA
from holdfast_pipeline.output.overwriting import UNFINISHED, require_compaction_target
from holdfast_pipeline.progress.phases import phase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@frozen
class Compacted:
    """The written ``days`` and the number of their ``entries``. The folder is complete up to the entry ``last_seq``.

    ``unfinished`` is the day of the last archived entry; more entries may follow. It is None for an empty archive.
    """

    days: list[str]
    entries: int
    last_seq: int
    unfinished: str | None


def compact(spark: SparkSession, archive: Folder, out: Folder, unfinished: bool = False) -> Compacted:
    """Write the complete days of ``archive`` that are not in ``out`` yet, sorted by topic and seq.

    A day is complete once the archive has an entry of a later day. With ``unfinished``, the last day is written too;
    the next run writes it again. Raises :class:`PipelineError`.
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
    with phase("counting"):
        expected = _counted(missing)
    if expected:
        _withdraw(out, done, expected)
        _sweep(out)
        sorted_days = missing.repartition("date").sortWithinPartitions("date", "topic", "seq")
        writer = sorted_days.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("date")
        total = sum(count for count, _, _, _ in expected.values())
        with phase("writing", total, "changes"):
            writer.parquet(out.below(DATA))
        written = _counted(read_archive(spark, out).where(F.col("date").isin(list(expected))))
        if written != expected:
            raise PipelineError(
                f"{out.uri}: the entries written differ from the entries read; was {archive.uri} changed? Run again"
            )
    days = sorted({*done.days, *(day for day in expected if day < str(there.last_day))})
    last_seq = max([done.last_seq, *(last for _, _, last, _ in expected.values())])
    write_coverage(out, evolve(covered, last_seq=last_seq, last_at=max(done.last_at, covered.last_at), days=days))
    entries_written = sum(count for count, _, _, _ in expected.values())
    return Compacted(sorted(expected), entries_written, last_seq, str(there.last_day) if there.last_at else None)


def _counted(frame: DataFrame) -> dict[str, tuple[int, int, int, int]]:
    """Return for each day the number of entries, the first and the last ``seq``, and the sum of all ``seq``."""
    counts = frame.groupBy("date").agg(F.count("*"), F.min("seq"), F.max("seq"), F.sum("seq")).collect()
    return {str(row[0]): (row[1], row[2], row[3], row[4]) for row in counts}


def _withdraw(out: Folder, done: Coverage, expected: Mapping[str, tuple[int, int, int, int]]) -> None:
    """Take the days out of the coverage that are about to be written again: Spark removes their files first."""
    day, (_, first, _, _) = min(expected.items())
    if first <= done.last_seq:
        write_coverage(out, done.until(date.fromisoformat(day), first - 1))


def _sweep(out: Folder) -> None:
    """Remove the unfinished folders of a killed run."""
    for name in out.names(DATA):
        if name.startswith(UNFINISHED):
            out.remove(f"{DATA}/{name}")


def _check_apart(archive: Folder, out: Folder) -> None:
    """Raise :class:`PipelineError` if one folder is inside the other: an archive counts its own files."""
    first, second = f"{archive.uri}/", f"{out.uri}/"
    if first.startswith(second) or second.startswith(first):
        raise PipelineError(f"{out.uri}: is in the archive, or the archive is in it; name a folder apart from it")
