"""The jobs in rows, events or topics per second, beside plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from benchmarks.pipeline import plain
from benchmarks.pipeline.databases import CHANGES, database, fill
from benchmarks.pipeline.figures import Figure, best
from holdfast.changes.periods import read_state
from holdfast.retained.limits import FlowSettings
from holdfast_pipeline.database import Source
from holdfast_pipeline.filters import of_lines
from holdfast_pipeline.jobs.asof import Destination, moment_at, state_at, write_past, write_present
from holdfast_pipeline.jobs.imports import import_messages
from holdfast_pipeline.jobs.report import filters
from holdfast_pipeline.jobs.sync import Sync
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.sink import Target
from holdfast_pipeline.sources.lake import Lake
from holdfast_pipeline.sources.snapshot import snapshot_of
from holdfast_pipeline.sources.tables import read_retained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILTERS = 2000
_names = count()


@dataclass(frozen=True)
class Databases:
    """A database of retained messages, one with their history, and a folder for output."""

    spark: SparkSession
    rows: int
    repeat: int
    postgres: bool
    folder: Path
    retained: str
    recorded: str

    def new(self) -> Folder:
        """Return a new folder."""
        return Folder(str(self.folder / f"out-{next(_names)}"))

    def rate(self, case: str, unit: str, amount: int, work: Callable[[], object], by_hand: Callable[[], object] | None,
             note: str = "") -> Figure:  # fmt: skip
        """Time the work, and the same work in plain Python."""
        slow = None if by_hand is None else amount / best(by_hand, self.repeat)
        return Figure(case, amount / best(work, self.repeat), unit, slow, note)


@contextmanager
def databases_of(
    spark: SparkSession, rows: int, repeat: int, postgres: bool, folder: Path, only: set[str]
) -> Iterator[Databases]:
    """Fill the databases that the cases need."""
    with database(postgres, folder, "retained") as retained, database(postgres, folder, "recorded") as recorded:
        fill(retained, rows)
        if only & {"asof", "asof-lake", "sync"}:
            fill(recorded, rows, CHANGES, recorded=True)
        yield Databases(spark, rows, repeat, postgres, folder, retained, recorded)


def read(here: Databases) -> Figure:
    """All retained messages, from a snapshot, with as many tasks as cores."""

    def work() -> None:
        with snapshot_of(here.retained) as snapshot:
            read_retained(here.spark, snapshot).write.format("noop").mode("overwrite").save()

    return here.rate("read", "rows/s", here.rows, work, lambda: plain.read(here.retained, plain.RETAINED))


def scan(here: Databases) -> Figure:
    """The same from an existing snapshot."""
    with snapshot_of(here.retained) as snapshot:
        frame = read_retained(here.spark, snapshot)
        work = lambda: frame.write.format("noop").mode("overwrite").save()  # noqa: E731
        return here.rate("scan", "rows/s", here.rows, work, lambda: plain.read(here.retained, plain.RETAINED))


def presenting(here: Databases) -> Figure:
    """The same, written to Parquet and read again for the checksum."""

    def work() -> None:
        with snapshot_of(here.retained) as snapshot:
            write_present(here.spark, snapshot, Destination(here.new()))

    by_hand = lambda: plain.read(here.retained, plain.RETAINED)  # noqa: E731
    return here.rate("present", "rows/s", here.rows, work, by_hand, "plain Python only reads")


def importing(here: Databases) -> Figure:
    """A result of asof into an empty database without a broker."""
    out = here.new()
    with snapshot_of(here.retained) as snapshot:
        write_present(here.spark, snapshot, Destination(out))

    def work() -> None:
        with database(here.postgres, here.folder, f"target-{uuid4().hex}") as target:
            fill(target, 0)
            import_messages(here.spark, out.uri, "parquet", Target(target, None))

    def by_hand() -> None:
        with database(here.postgres, here.folder, f"target-{uuid4().hex}") as target:
            plain.copy(here.retained, target)

    return here.rate(
        "import", "rows/s", here.rows, work, by_hand, "plain Python copies four columns, and checks nothing"
    )


def asof(here: Databases) -> Figure:
    """The messages that were retained at the end of the history, which has several entries for each topic."""
    source = Source(here.recorded)
    with source.transaction() as transaction:
        last_at = read_state(transaction.connection.cursor()).last_at

    def work() -> None:
        frame = state_at(here.spark, source, moment_at(source, last_at))
        frame.write.format("noop").mode("overwrite").save()

    by_hand = lambda: plain.read(here.recorded, plain.LATEST)  # noqa: E731
    return here.rate("asof", "events/s", here.rows * CHANGES, work, by_hand, "plain Python queries the database")


def asof_lake(here: Databases) -> Figure:
    """The same from a lake: Spark reads the Parquet files itself."""
    out = here.new()
    Sync(Source(here.recorded), out).run()
    lake = Lake(out.uri)

    def work() -> None:
        write_past(here.spark, lake, lake.coverage.last_at - 1, Destination(here.new()))

    return here.rate("asof-lake", "events/s", here.rows * CHANGES, work, None, "written to Parquet, and read again")


def filtering(here: Databases) -> Figure:
    """Two thousand Topic Filters of eight shapes over all topics."""
    shapes = (
        "site/{}/#", "site/{}/dev/+/temp", "site/+/dev/{}/temp", "+/{}/dev/#", "site/{}/+/+/temp", "+/+/dev/{}/+",
        "site/+/+/{}/#", "site/{}/dev/+/+",
    )  # fmt: skip
    asked = of_lines(shapes[number % len(shapes)].format(number) for number in range(FILTERS))

    def work() -> None:
        with snapshot_of(here.retained) as snapshot:
            filters(here.spark, snapshot, asked, FlowSettings())

    return here.rate("filters", "topics/s", here.rows, work, None, f"{FILTERS} Topic Filters")


def syncing(here: Databases) -> Figure:
    """The history into the tables of a lake, from its beginning to its end. It needs no Spark."""
    work = lambda: Sync(Source(here.recorded), here.new()).run()  # noqa: E731
    by_hand = lambda: plain.read(here.recorded, plain.HISTORY)  # noqa: E731
    return here.rate("sync", "events/s", here.rows * CHANGES, work, by_hand, "plain Python only reads")


CASES: dict[str, Callable[[Databases], Figure]] = {
    "read": read,
    "scan": scan,
    "present": presenting,
    "import": importing,
    "asof": asof,
    "asof-lake": asof_lake,
    "filters": filtering,
    "sync": syncing,
}
