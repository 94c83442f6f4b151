"""An Iceberg table that one job keeps, with an SQL catalogue: what :class:`.growing_table.GrowingTable` is for Delta.

How it works. Marks are properties of the table. Each change is one transaction of PyIceberg: the rows, which make a
snapshot, and the marks. The catalogue then takes the new metadata file in place of the old one, or refuses. So after a
crash rows and marks agree. PyIceberg would repeat a refused append on top of the other job's rows, which would double
them. So the tables forbid repetitions (``commit.retry.num-retries``), and a change of marks alone makes a snapshot,
too: then two jobs always get in each other's way, and one of them fails.

A merge deletes the rows of the given keys and appends the new rows. PyIceberg writes files with deleted rows anew, so
readers need not understand delete files. The marks tell which rows are new, so no row is compared.

Iceberg keeps each snapshot until a job expires it, and PyIceberg deletes no files. So :meth:`IcebergTable.vacuum` does
both. Left out: snapshots without files of their own. A table of Delta joins files as a stream; here the joined rows are
in memory, so at most 64 MB of files are joined at once.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.lake.growing_table import STORE, DataFile, Layout
from holdfast_pipeline.output.folder import Folder, usual_uri
from holdfast_pipeline.output.iceberg import explained, iceberg_schema, sql_catalog

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import FileScanTask, Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

#: Bytes of files that are joined at once, and of a new file before compression.
_JOINED, _FILE = 64 << 20, 128 << 20
#: A metadata file names all snapshots, and each commit writes one. More snapshots expire, whatever their age.
_MOST_SNAPSHOTS = 1000
_SETTINGS = {
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.target-file-size-bytes": str(_FILE),
    "write.parquet.compression-codec": "zstd",
    "write.metadata.previous-versions-max": "20",
}
_METADATA = "metadata"


class IcebergCatalog:
    """The tables of one namespace in the SQL catalogue at ``url``; None: ``catalog.db`` in the ``folder`` of the lake.

    Raises :class:`PipelineError` if the catalogue cannot be used, or if a folder that is not local has none.
    """

    def __init__(self, folder: Folder, url: str | None, namespace: str) -> None:
        if url is None:
            if "://" in folder.uri:
                raise PipelineError(
                    f"{folder.uri}: Iceberg tables there need a catalogue; name it by --catalog, as in "
                    "postgresql://user@host/database"
                )
            folder.make()
            url = f"sqlite:///{folder.uri}/catalog.db"
        self._namespace = namespace
        self._catalog = sql_catalog(url)
        with explained(folder.uri):
            self._catalog.create_namespace_if_not_exists(namespace)

    def table(self, folder: Folder, layout: Layout, store: str, keep: float) -> IcebergTable:
        """Return the table in a folder, which gives it its name; it is created if it does not exist."""
        identifier = f"{self._namespace}.{folder.uri.rpartition('/')[2]}"
        return IcebergTable(self._catalog, identifier, folder, layout, store)


class IcebergTable:
    """The table ``identifier`` of a catalogue, in ``folder``, with the rows of the database ``store``.

    Columns that an existing table lacks are added to it; columns that only the table has stay. Raises
    :class:`PipelineError` if the table cannot be used, is elsewhere, belongs to another database, or has a column of
    another type.
    """

    def __init__(self, catalog: Catalog, identifier: str, folder: Folder, layout: Layout, store: str) -> None:
        self.uri = usual_uri(folder.uri)
        self._folder = folder
        with explained(self.uri):
            if not catalog.table_exists(identifier):
                _require_new(folder)
                self._create(catalog, identifier, layout, store)
            self._table: Table = catalog.load_table(identifier)
            if self._table.location() != self.uri:
                raise PipelineError(
                    f"{self.uri}: the catalogue has {identifier} in {self._table.location()}; choose another "
                    "--namespace, or that folder"
                )
            theirs = self._table.properties.get(STORE)
            if theirs != store:
                raise PipelineError(
                    f"{folder.uri}: holds the changes of {theirs or 'no database'}, not of {store}; name another folder"
                )
            self._evolve(layout)

    @property
    def columns(self) -> pa.Schema:
        """The columns, with those that only the table has."""
        return self._table.schema().as_arrow()

    @property
    def metadata(self) -> str:
        """The file that names all files of the newest version."""
        return self._table.metadata_location

    @property
    def rows(self) -> int:
        """The number of rows."""
        with explained(self.uri):
            return int(self._table.scan().count())

    @property
    def files(self) -> list[DataFile]:
        """The files of the newest version."""
        self.refresh()
        with explained(self.uri):
            return [DataFile(task.file.file_size_in_bytes, _part(task)) for task in self._table.scan().plan_files()]

    def refresh(self) -> None:
        """Go to the newest version, which another process may have written."""
        with explained(self.uri):
            self._table.refresh()

    def mark(self, name: str) -> int | None:
        """Return a mark; None before the first change that moved it."""
        found = self._table.properties.get(name)
        return None if found is None else int(found)

    def append(self, rows: pa.Table, marks: Mapping[str, int]) -> None:
        """Add rows, and move marks."""
        with self._change(marks) as change:
            change.append(self._aligned(rows))

    def replace(self, rows: Iterable[pa.RecordBatch], marks: Mapping[str, int]) -> None:
        """Put these rows in place of all rows, and move marks. The rows are never in memory as a whole."""
        columns = self.columns
        with self._change(marks) as change:
            reader = pa.RecordBatchReader.from_batches(
                columns, (batch for each in rows for batch in self._aligned(pa.Table.from_batches([each])).to_batches())
            )
            change.overwrite(reader)

    def merge(
        self, rows: pa.Table, same: Sequence[str], newer: str, kept: str | None, marks: Mapping[str, int]
    ) -> None:  # fmt: skip
        """Update or insert rows, and move marks.

        A row takes the place of the row with the same value in the one column of ``same``. All ``rows`` must be newer
        than those of the table. Where the Boolean column ``kept``, which the table lacks, is false, the row is deleted.
        """
        from pyiceberg.expressions import In

        (key,) = same
        if not len(rows) and all(self.mark(name) == number for name, number in marks.items()):
            return
        stays = rows if kept is None else rows.filter(rows[kept])
        with self._change(marks) as change:
            if len(rows) and self._table.current_snapshot() is not None:
                change.delete(In(key, set(rows[key].to_pylist())))  # type: ignore[call-arg, arg-type]  # mypy sees fields
            change.append(self._aligned(stays))

    def compact(self, part: str | None, size: int) -> None:
        """Join small files of one part of the table (None: a table without parts) to files of ``size`` bytes."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files

        with explained(self.uri):
            small: list[FileScanTask] = []
            held = 0
            for task in self._table.scan().plan_files():
                if _part(task) == part and task.file.file_size_in_bytes < size // 2:
                    held += task.file.file_size_in_bytes
                    if small and held > min(size, _JOINED):
                        break
                    small.append(task)
            if len(small) < 2:
                return
            metadata, io = self._table.metadata, self._table.io
            rows = ArrowScan(metadata, io, self._table.schema(), AlwaysTrue()).to_table(small)
        with self._change({}) as change, change.update_snapshot().overwrite() as joined:
            for task in small:
                joined.delete_data_file(task.file)
            for file in _dataframe_to_data_files(metadata, rows, io, uuid4()):
                joined.append_data_file(file)

    def vacuum(self, keep: float) -> int:
        """Expire versions that were replaced more than ``keep`` seconds ago; delete the files as old that none has.

        Return their number. A reader of the version that was replaced last may have begun just before.
        """
        until = time.time() - keep
        with explained(self.uri):
            newest_first = sorted(self._table.metadata.snapshots, key=_age, reverse=True)
            # Of the versions made before, the first is the one that readers saw then.
            replaced = [one for one in newest_first if one.timestamp_ms < until * 1000][1:]
            old = {one.snapshot_id for one in [*newest_first[_MOST_SNAPSHOTS:], *replaced]}
            if old:
                self._table.maintenance.expire_snapshots().by_ids(list(old)).commit()
                self._table.refresh()
            needed = {name.removeprefix(f"{self.uri}/") for name in self._named()}
        gone = [name for name in self._folder.old_files(until) if name not in needed]
        for name in gone:
            self._folder.remove(name)
        return len(gone)

    def _named(self) -> Iterator[str]:
        """Yield the files that the versions of the table name."""
        yield self._table.metadata_location
        yield from (entry.metadata_file for entry in self._table.metadata.metadata_log)
        inspect = self._table.inspect
        yield from inspect.all_manifests()["path"].to_pylist()
        yield from inspect.all_files()["file_path"].to_pylist()
        yield from (one.manifest_list for one in self._table.metadata.snapshots)

    def _create(self, catalog: Catalog, identifier: str, layout: Layout, store: str) -> None:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import IdentityTransform

        schema = iceberg_schema(layout.columns)
        parts = []
        if layout.divided_by is not None:
            source = schema.find_field(layout.divided_by).field_id
            parts = [PartitionField(source, 1000, IdentityTransform(), layout.divided_by)]
        catalog.create_table_if_not_exists(
            identifier, schema, self.uri, PartitionSpec(*parts), properties={STORE: store, **_SETTINGS}
        )

    def _evolve(self, layout: Layout) -> None:
        """Add the columns that the table lacks."""
        known = {field.name: field.field_type for field in self._table.schema().fields}
        wanted = iceberg_schema(layout.columns).fields
        for field in wanted:
            if known.get(field.name, field.field_type) != field.field_type:
                raise PipelineError(
                    f"{self.uri}: the column {field.name} has the type {known[field.name]}, not {field.field_type}; "
                    "name another folder"
                )
        if new := [field for field in wanted if field.name not in known]:
            with self._table.update_schema() as update:
                for field in new:
                    update.add_column(field.name, field.field_type)

    @contextmanager
    def _change(self, marks: Mapping[str, int]) -> Iterator[Transaction]:
        """Give a transaction that also moves marks, and commit it."""
        with explained(self.uri), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Delete operation did not match any records")
            with self._table.transaction() as change:
                yield change
                if marks:
                    change.set_properties({name: str(number) for name, number in marks.items()})

    def _aligned(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the columns of the table."""
        columns = self.columns
        arrays = [
            rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
            for field in columns
        ]
        return pa.Table.from_arrays(arrays, schema=columns)


def _age(version: Snapshot) -> tuple[int, int]:
    """Return what orders the versions of a table."""
    return version.timestamp_ms, version.sequence_number or 0


def _part(task: FileScanTask) -> str | None:
    values: Any = task.file.partition
    if not len(values):
        return None
    value = values[0]
    return str(pc.cast(pa.scalar(value, pa.int32()), pa.date32()).as_py() if isinstance(value, int) else value)


def _require_new(folder: Folder) -> None:
    """Raise :class:`PipelineError` if a folder has files. The vacuum of a table deletes files that are not its own.

    A creation that was interrupted has left a first metadata file.
    """
    for name in sorted(folder.names("")):
        if name != _METADATA or any(not each.startswith("00000-") for each in folder.names(_METADATA)):
            raise PipelineError(
                f"{folder.uri}: contains {name}, which is no part of a table in the catalogue; name another folder"
            )
