"""Publish the results of jobs as a Delta table: in place, or as rows of a table elsewhere.

Rows are added elsewhere once: each publication has a name and a position, and Delta stores the pair in the same commit
as the rows. An export is named by its checksum and has position 1. An archive is named by its database; its position
is the last entry, so that a later publication adds only the entries after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from holdfast_pipeline.archive.coverage import require_coverage
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.delta import Table
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.names import COVERAGE, DATA, MANIFEST
from holdfast_pipeline.output.parquet import PARTITION, File, batches_of, columns_of, files_in

#: The column that tells the exports in one table apart.
TAKEN_AT = "taken_at"
_STREAM = f"{DATA}/_spark_metadata"


@frozen
class Published:
    """A ``table`` at a ``version``, its ``rows``, and the rows and files that this publication added or removed."""

    table: str
    version: int
    rows: int
    rows_added: int
    files_added: int
    files_removed: int


@frozen
class Publication:
    """Files to publish. The data of a ``name`` is complete up to ``upto``; ``taken_at`` is None for an archive."""

    name: str
    upto: int
    files: list[File]
    taken_at: int | None = None

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def divided_by(self) -> list[str]:
        """The columns that divide the files into folders."""
        return [PARTITION] if self.files[0].day is not None else []


def publish_in_place(source: Folder) -> Published:
    """Make a Delta table of the files in ``source``. Raises :class:`PipelineError`."""
    table = Table(source.below(DATA))
    found = publication(source)
    before = table.rows
    added, removed = table.replace_files(found.files, columns_of(found.files), found.divided_by)
    return Published(source.below(DATA), table.version, table.rows, table.rows - before, added, removed)


def publish_to(source: Folder, place: Folder) -> Published:
    """Add the rows of ``source`` to the Delta table in ``place``, each once. Raises :class:`PipelineError`.

    Exports get a column :data:`TAKEN_AT`. An archive adds only the changes after the last publication.
    """
    table = Table(place.uri)
    found = publication(source)
    before, done = table.rows, table.added(found.name)
    if done is not None and done > found.upto:
        raise PipelineError(
            f"{place.uri}: has the changes of this database up to {done}, but {source.uri} ends at {found.upto}: "
            "it is older, or the database has been replaced, perhaps by a backup; name another table"
        )
    if done is None or done < found.upto:
        columns = columns_of(found.files)
        if found.taken_at is not None and TAKEN_AT in columns.names:
            raise PipelineError(
                f"{source.uri}: has a column {TAKEN_AT}, but publish --to adds this column; publish it in place"
            )
        rows = batches_of(source, DATA, found.files, columns)
        if found.taken_at is None:
            table.add(_after(rows, done), columns, found.divided_by, found.name, found.upto)
        else:
            columns = columns.append(pa.field(TAKEN_AT, pa.timestamp("us", "UTC")))
            table.add(_marked(rows, columns, found.taken_at), columns, found.divided_by, found.name, found.upto)
    return Published(place.uri, table.version, table.rows, table.rows - before, 0, 0)


def publication(source: Folder) -> Publication:
    """Return the publication of a folder. Raises :class:`PipelineError` unless a job has completed it."""
    if source.has(COVERAGE):
        return _compacted(source)
    manifest = source.read_json(MANIFEST)
    if not isinstance(manifest, dict) or not manifest.keys() >= {"rows", "checksum", TAKEN_AT}:
        raise PipelineError(
            f"{source.uri}: holds nothing to publish; publish a completed result of export, asof, decode or compact"
        )
    files = files_in(source, DATA)
    found = Publication(f"holdfast {manifest[TAKEN_AT]} {manifest['checksum']}", 1, files, manifest[TAKEN_AT])
    if not files or found.rows != manifest["rows"]:
        raise PipelineError(
            f"{source.uri}: has {found.rows} rows in {len(files)} files, but {MANIFEST} counts {manifest['rows']}; "
            "write it again"
        )
    return found


def _compacted(source: Folder) -> Publication:
    coverage = require_coverage(source)
    if source.has(_STREAM):
        raise PipelineError(
            f"{source.uri}: is an archive that still grows; compact it, and publish the compacted folder"
        )
    files = files_in(source, DATA)
    if not files:
        raise PipelineError(
            f"{source.uri}: has no complete day yet; compact it when there is one, or with --unfinished"
        )
    for file in files:
        if file.rows and (file.last_seq is None or file.last_seq > coverage.last_seq):
            raise PipelineError(f"{source.uri}: {file.path} is not in {COVERAGE} yet; let compact finish first")
    return Publication(f"holdfast {coverage.store}", coverage.last_seq, files)


def _after(rows: Iterator[pa.RecordBatch], seq: int | None) -> Iterator[pa.RecordBatch]:
    """Give the changes after an entry of the history."""
    for batch in rows:
        yield batch if seq is None else batch.filter(pc.greater(batch["seq"], seq))


def _marked(rows: Iterator[pa.RecordBatch], columns: pa.Schema, taken_at: int) -> Iterator[pa.RecordBatch]:
    """Give the rows with the time of their export."""
    when = pa.scalar(datetime.fromtimestamp(taken_at / 1000, UTC), columns.field(TAKEN_AT).type)
    for batch in rows:
        yield pa.RecordBatch.from_arrays([*batch.columns, pa.repeat(when, len(batch))], schema=columns)
