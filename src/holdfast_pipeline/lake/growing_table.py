"""Delta tables that one job keeps and others read.

A mark is a name with a number, such as "the history is in this table up to ``seq`` 288965". Delta stores marks as
application transactions. After a crash the table itself tells where to go on, so no row is lost or doubled. If two jobs
move the same mark at once, Delta refuses one of the commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.delta import delta_package, explained
from holdfast_pipeline.output.folder import Folder, usual_uri

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


#: The property of a table that names the database of its rows.
STORE = "holdfast.store"
_LOG = "_delta_log"
#: Rows that a reader of a part of a file reads together. More of them would make files a little smaller.
_ROW_GROUP = 20_000


@frozen
class Layout:
    """The columns of a table, and the column that divides its files into folders, if any."""

    columns: pa.Schema
    divided_by: str | None = None


@frozen
class DataFile:
    """A file of a table: its size in bytes, and the value of the column that divides the files."""

    size: int
    part: str | None


class _DeltaTable:
    """A Delta table of a job: its marks, and its rows."""

    def __init__(self, uri: str, table: DeltaTable) -> None:
        self.uri = uri
        self._table = table

    def refresh(self) -> None:
        """Go to the newest version, which another process may have written."""
        with explained(self.uri):
            self._table.update_incremental()

    def mark(self, name: str) -> int | None:
        """Return a mark; None before the first change that moved it."""
        with explained(self.uri):
            return self._table.transaction_version(name)

    def read(self, columns: Sequence[str], where: pc.Expression | None) -> pa.Table:
        """Return the rows that meet a condition (None: all rows); files without such rows are not read."""
        with explained(self.uri):
            return self._table.to_pyarrow_dataset().to_table(list(columns), filter=where)


class GrowingTable(_DeltaTable):
    """The table in ``folder`` with the rows of the database ``store``. It is created if it does not exist.

    ``keep`` (seconds) is how long the log of a new table keeps old versions. Columns that an existing table lacks are
    added to it; columns that only the table has stay, without values in new rows. Raises :class:`PipelineError` if the
    table cannot be used, belongs to another database, or has a column of another type.
    """

    def __init__(self, folder: Folder, layout: Layout, store: str, keep: float) -> None:
        uri = usual_uri(folder.uri)
        self._lake = delta_package()
        if "://" not in uri and set(uri) & set("[]%"):
            raise PipelineError(f"{folder.uri}: Delta tables cannot be in a folder with one of [ ] % in its name")
        with explained(uri):
            if not self._lake.DeltaTable.is_deltatable(uri):
                _require_empty(folder)
                self._create(uri, layout, store, keep)
            super().__init__(uri, self._lake.DeltaTable(uri))
            theirs = self._table.metadata().configuration.get(STORE)
            if theirs != store:
                raise PipelineError(
                    f"{folder.uri}: holds the changes of {theirs or 'no database'}, not of {store}; name another folder"
                )
            self._evolve(layout)
            self._columns = pa.schema(self._table.schema().to_arrow())

    @property
    def columns(self) -> pa.Schema:
        """The columns, with those that only the table has."""
        return self._columns

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._table.count()

    @property
    def version(self) -> int:
        """The number of the last commit."""
        return self._table.version()

    @property
    def files(self) -> list[DataFile]:
        """The files of the newest version."""
        self.refresh()
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        name = next(iter(self._table.metadata().partition_columns), None)
        return [DataFile(row["size_bytes"], str(row[f"partition.{name}"]) if name else None) for row in actions]

    def append(self, rows: pa.Table, marks: Mapping[str, int]) -> None:
        """Add rows, and move marks."""
        if len(rows):
            self._write(rows.to_batches(), "append", marks)
        else:
            self._move(marks)

    def replace(self, rows: Iterable[pa.RecordBatch], marks: Mapping[str, int]) -> None:
        """Put these rows in place of all rows, and move marks. The rows are never in memory as a whole."""
        self._write(rows, "overwrite", marks)

    def merge(
        self, rows: pa.Table, same: Sequence[str], newer: str, kept: str | None, marks: Mapping[str, int]
    ) -> None:  # fmt: skip
        """Update or insert rows, and move marks.

        A row takes the place of the row with the same values in the columns ``same``, if its value in the column
        ``newer`` is higher. Where the Boolean column ``kept``, which the table lacks, is false, the row is deleted;
        None: no row is.
        """
        if len(rows):
            self._merge(rows, same, newer, kept, marks)
        if any(self.mark(name) != number for name, number in marks.items()):
            self._move(marks)  # nothing has changed, and then Delta makes no commit

    def _merge(
        self, rows: pa.Table, same: Sequence[str], newer: str, kept: str | None, marks: Mapping[str, int]
    ) -> None:  # fmt: skip
        values = {_quoted(name): f"s.{_quoted(name)}" for name in self._columns.names if name in rows.column_names}
        later = f"s.{_quoted(newer)} > t.{_quoted(newer)}"
        with explained(self.uri):
            merger = self._table.merge(
                rows, " AND ".join(f"s.{_quoted(name)} = t.{_quoted(name)}" for name in same), "s", "t",
                commit_properties=self._properties(marks), writer_properties=_compressed(self._lake),
            )  # fmt: skip
            if kept is None:
                merger = merger.when_matched_update(values, later).when_not_matched_insert(values)
            else:
                stays = f"s.{_quoted(kept)}"
                merger = merger.when_matched_delete(f"{later} AND NOT {stays}")
                merger = merger.when_matched_update(values, f"{later} AND {stays}")
                merger = merger.when_not_matched_insert(values, stays)
            merger.execute()
            self._table.update_incremental()

    def compact(self, part: str | None, size: int) -> None:
        """Join the small files of one part of the table (None: a table without parts) to files of ``size`` bytes."""
        name = next(iter(self._table.metadata().partition_columns), None)
        with explained(self.uri):
            only = [(name, "=", part)] if name and part is not None else None
            self._table.optimize.compact(
                only, target_size=size, max_concurrent_tasks=1, writer_properties=_compressed(self._lake)
            )

    def vacuum(self, keep: float) -> int:
        """Delete files that no version of the last ``keep`` seconds has, also those of killed writers; count them."""
        with explained(self.uri):
            gone = self._table.vacuum(
                int(keep // 3600), dry_run=False, enforce_retention_duration=False, full=True
            )  # fmt: skip
            return len(gone)

    def _create(self, uri: str, layout: Layout, store: str, keep: float) -> None:
        self._lake.DeltaTable.create(
            uri, schema=layout.columns, mode="ignore",
            partition_by=[layout.divided_by] if layout.divided_by else None,
            configuration={STORE: store, "delta.logRetentionDuration": f"interval {max(1, int(keep // 3600))} hours"},
            raise_if_key_not_exists=False,  # Delta does not know the first one
        )  # fmt: skip

    def _evolve(self, layout: Layout) -> None:
        """Add the columns that the table lacks."""
        known = {field.name: field.type for field in self._table.schema().fields}
        new = []
        for field in self._lake.Schema.from_arrow(layout.columns).fields:
            if field.name not in known:
                new.append(field)
            elif known[field.name] != field.type:
                raise PipelineError(
                    f"{self.uri}: the column {field.name} has the type {known[field.name]}, not {field.type}; name "
                    "another folder"
                )
        if new:
            self._table.alter.add_columns(new)
            self._table.update_incremental()

    def _write(self, rows: Iterable[pa.RecordBatch], mode: str, marks: Mapping[str, int]) -> None:
        with explained(self.uri):
            reader = pa.RecordBatchReader.from_batches(self._columns, (self._aligned(batch) for batch in rows))
            write: Any = self._lake.write_deltalake
            write(
                self._table, reader, mode=mode, commit_properties=self._properties(marks),
                writer_properties=_compressed(self._lake),
            )  # fmt: skip

    def _aligned(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns of the table."""
        present = batch.schema.names
        arrays = [
            batch.column(field.name).cast(field.type) if field.name in present else pa.nulls(len(batch), field.type)
            for field in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns)

    def _move(self, marks: Mapping[str, int]) -> None:
        """Move marks in a commit without rows."""
        with explained(self.uri):
            parts = self._table.metadata().partition_columns
            self._table.create_write_transaction(
                [], "append", self._table.schema(), parts, commit_properties=self._properties(marks)
            )
            self._table.update_incremental()

    def _properties(self, marks: Mapping[str, int]) -> CommitProperties:
        moved = [self._lake.Transaction(name, number) for name, number in marks.items()]
        made: CommitProperties = self._lake.CommitProperties(app_transactions=moved)
        return made


def _require_empty(folder: Folder) -> None:
    """Raise :class:`PipelineError` if a folder has files. The vacuum of a table deletes files that are not its own."""
    for name in _visible(folder.names("")):
        raise PipelineError(f"{folder.uri}: contains {name}, which is no part of a Delta table; name another folder")


def _visible(names: Iterable[str]) -> Iterator[str]:
    yield from sorted(name for name in names if name != _LOG)


def _compressed(lake: Any) -> Any:
    return lake.WriterProperties(compression="ZSTD", max_row_group_size=_ROW_GROUP)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Reading a table that another job keeps: its marks, and parts of its rows.


class TableReader(_DeltaTable):
    """The table in a folder. Raises :class:`PipelineError` if there is none, or if no job of Holdfast keeps it."""

    def __init__(self, folder: Folder) -> None:
        uri = usual_uri(folder.uri)
        lake = delta_package()
        with explained(uri):
            if folder.has("metadata"):
                raise PipelineError(
                    f"{folder.uri}: is an Iceberg table; roll-ups read Delta tables: holdfast-pipeline sync --format "
                    "delta, to another folder"
                )
            if not lake.DeltaTable.is_deltatable(uri):
                raise PipelineError(f"{folder.uri}: is not a Delta table; make one: holdfast-pipeline sync --to")
            super().__init__(uri, lake.DeltaTable(uri))
            store = self._table.metadata().configuration.get(STORE)
        if store is None:
            raise PipelineError(f"{folder.uri}: was not made by holdfast-pipeline sync")
        #: The database of the rows.
        self.store = store

    def first_after(self, name: str, number: int) -> int | None:
        """Return a number above ``number`` up to which a column has no value above ``number``; None if it has none.

        Files tell the lowest and the highest value of a column, so no rows are read.
        """
        with explained(self.uri):
            files = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        later = [
            max(number + 1, file[f"min.{name}"])
            for file in files
            if file.get(f"max.{name}") is not None and file[f"max.{name}"] > number
        ]
        return min(later, default=None)
