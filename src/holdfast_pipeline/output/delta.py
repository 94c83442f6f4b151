"""Delta tables, with the package ``deltalake``: existing files become a table, or rows are added to a table.

Each change is one commit of the table. The table's log lists its files and its application transactions, so a repeated
change finds itself there and does nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.parquet import File

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COLOURED_ARROW = re.compile(r"\s*\x1b\[[0-9;]*m↳\x1b\[0m")


class Table:
    """The Delta table in a folder; ``partition_by`` are the columns that name its subfolders.

    Raises :class:`PipelineError` if it cannot be used.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._lake = delta_package()

    @property
    def version(self) -> int:
        """The number of its last commit; -1 without a table."""
        table = self._table()
        return -1 if table is None else table.version()

    @property
    def rows(self) -> int:
        """The number of rows."""
        table = self._table()
        return 0 if table is None else table.count()

    def replace_files(self, files: Sequence[File], columns: pa.Schema, partition_by: Sequence[str]) -> tuple[int, int]:
        """Make the table consist of these files in its folder; return the numbers of added and removed files."""
        with self._explained():
            table = self._table() or self._created(columns, partition_by)
            self._check(table, columns)
            known = {unquote(row["path"]): row for row in pa.table(table.get_add_actions()).to_pylist()}
            now = time.time_ns() // 1_000_000
            wanted = {file.path: file for file in files}
            added = [_added(self._lake, file) for path, file in wanted.items() if path not in known]
            removed = [
                self._lake.transaction.RemoveAction(row["path"], True, now, row["size_bytes"], _partition(path))
                for path, row in known.items()
                if path not in wanted
            ]
            if added or removed:
                table.create_write_transaction([*removed, *added], "append", table.schema(), list(partition_by))
        return len(added), len(removed)

    def added(self, name: str) -> int | None:
        """Return the number up to which the data of a name was added; None before that."""
        with self._explained():
            table = self._table()
            return None if table is None else table.transaction_version(name)

    def add(
        self, rows: Iterable[pa.RecordBatch], columns: pa.Schema, partition_by: Sequence[str], name: str, upto: int
    ) -> None:
        """Add rows, and note in the same commit that the data of a name was added up to a number."""
        with self._explained():
            table = self._table() or self._created(columns, partition_by)
            self._check(table, columns)
            reader = pa.RecordBatchReader.from_batches(columns, rows)
            properties = self._lake.CommitProperties(app_transactions=[self._lake.Transaction(name, upto)])
            self._lake.write_deltalake(table, reader, mode="append", commit_properties=properties)

    def _table(self) -> DeltaTable | None:
        with self._explained():
            exists = self._lake.DeltaTable.is_deltatable(self._uri)
            return self._lake.DeltaTable(self._uri) if exists else None

    def _created(self, columns: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
        table: DeltaTable = self._lake.DeltaTable.create(
            self._uri, schema=columns, partition_by=list(partition_by), mode="ignore"
        )
        return table

    def _check(self, table: DeltaTable, columns: pa.Schema) -> None:
        meant = self._lake.Schema.from_arrow(columns)
        if table.schema() != meant:
            theirs = ", ".join(f"{field.name} {_kind(field.type)}" for field in table.schema().fields)
            ours = ", ".join(f"{field.name} {_kind(field.type)}" for field in meant.fields)
            raise PipelineError(
                f"{self._uri}: the table has other columns ({theirs}) than the published data ({ours}); "
                "name another table"
            )

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self._uri)


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn the errors of the package about the table at a URI into :class:`PipelineError`."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        text = _in_one_line(error)
        raise PipelineError(
            f"{uri}: another job has changed the table at the same time; run this one again (Delta reports: {text})"
        ) from error
    except (DeltaError, OSError) as error:
        raise PipelineError(f"{uri}: Delta reports: {_in_one_line(error)}") from error


def _in_one_line(error: Exception) -> str:
    """Return the text of an error without the lines and the colours in which Delta shows its causes."""
    return " ".join(_COLOURED_ARROW.sub(":", str(error)).split())


def delta_package() -> ModuleType:
    """Return the package ``deltalake``. Raises :class:`PipelineError` if it is not installed."""
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ImportError as error:
        raise PipelineError("deltalake is not installed; Delta tables need: pip install 'holdfast[delta]'") from error
    return deltalake


def _added(lake: ModuleType, file: File) -> Any:
    stats = json.dumps({"numRecords": file.rows})
    return lake.transaction.AddAction(file.path, file.size, _partition(file.path), file.written_at, True, stats)


def _partition(path: str) -> dict[str, str | None]:
    name, named, value = path.partition("/")[0].partition("=")
    return {name: value} if named else {}


def _kind(kind: Any) -> str:
    return str(getattr(kind, "type", kind))
