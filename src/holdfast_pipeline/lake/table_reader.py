"""Reading a table that another job keeps: its marks, and parts of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.lake.growing_table import STORE, rows_of
from holdfast_pipeline.output.delta import delta_package, explained
from holdfast_pipeline.output.folder import Folder, usual_uri

if TYPE_CHECKING:
    from deltalake import DeltaTable


class TableReader:
    """The table in a folder. Raises :class:`PipelineError` if there is none, or if no job of Holdfast keeps it."""

    def __init__(self, folder: Folder) -> None:
        self.uri = usual_uri(folder.uri)
        lake = delta_package()
        with explained(self.uri):
            if folder.has("metadata"):
                raise PipelineError(
                    f"{folder.uri}: is an Iceberg table; roll-ups read Delta tables: holdfast-pipeline sync --format "
                    "delta, to another folder"
                )
            if not lake.DeltaTable.is_deltatable(self.uri):
                raise PipelineError(f"{folder.uri}: is not a Delta table; make one: holdfast-pipeline sync --to")
            self._table: DeltaTable = lake.DeltaTable(self.uri)
            store = self._table.metadata().configuration.get(STORE)
        if store is None:
            raise PipelineError(f"{folder.uri}: was not made by holdfast-pipeline sync")
        #: The database of the rows.
        self.store = store

    def refresh(self) -> None:
        """Go to the newest version."""
        with explained(self.uri):
            self._table.update_incremental()

    def mark(self, name: str) -> int | None:
        """Return a mark; None before the first change that moved it."""
        with explained(self.uri):
            return self._table.transaction_version(name)

    def read(self, columns: Sequence[str], where: pc.Expression) -> pa.Table:
        """Return the rows that meet a condition."""
        with explained(self.uri):
            return rows_of(self._table, columns, where)

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
