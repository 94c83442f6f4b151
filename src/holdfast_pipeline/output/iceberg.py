"""Iceberg tables, with the package ``pyiceberg``: its errors in one line, its catalogues, and tables of existing files.

How it works. A table of a result is not in a catalogue: its metadata are in ``data/_iceberg``, beside the Parquet files
that Spark has written, and ``version-hint.text`` names them. ``StaticTable.from_metadata`` and DuckDB's
``iceberg_scan`` read such a table, and ``register_table`` puts it into any catalogue. Spark's files have no field
numbers, so the table maps names to them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.core.units import database_url
from holdfast.storage.api import StoreUnusable, shown
from holdfast_pipeline.errors import PipelineError, WrongUsage
from holdfast_pipeline.output.folder import Folder, usual_uri

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.schema import Schema

#: The folder of the metadata beside the files of a result. Spark reads no folders whose names begin with ``_``.
TABLE = "_iceberg"
_HINT = "version-hint.text"
#: The name under which a catalogue in a database keeps its rows.
_NAME = "holdfast"


def require_iceberg() -> None:
    """Raise :class:`PipelineError` if the package ``pyiceberg`` is not installed."""
    try:
        import pyiceberg.catalog.sql
    except ImportError as error:
        raise PipelineError(
            "pyiceberg is not installed; Iceberg tables need: pip install 'holdfast[iceberg]'"
        ) from error
    assert pyiceberg


def sql_catalog(url: str) -> SqlCatalog:
    """Return the catalogue in a database, whose tables are created if they do not exist.

    Raises :class:`PipelineError`.
    """
    require_iceberg()
    from pyiceberg.catalog.sql import SqlCatalog

    try:
        place = shown(url)
    except StoreUnusable as error:
        raise WrongUsage(f"--catalog: {error}") from error
    with explained(place):
        return SqlCatalog(_NAME, uri=database_url(url), **storage_of(os.environ))


def storage_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the properties by which PyIceberg finds the server of S3 that the environment names, as Arrow does."""
    names = {"AWS_ENDPOINT_URL": "s3.endpoint", "AWS_DEFAULT_REGION": "s3.region", "AWS_REGION": "s3.region"}
    return {name: environment[variable] for variable, name in names.items() if environment.get(variable)}


def make_table(out: Folder, name: str) -> None:
    """Make an Iceberg table of the Parquet files in the folder ``name``. Raises :class:`PipelineError`."""
    data = usual_uri(out.below(name))
    place = Folder(f"{data}/{TABLE}")
    catalog = sql_catalog("sqlite:///:memory:")
    with explained(data):
        files = [each for each in sorted(out.names(name)) if each.endswith(".parquet")]
        catalog.create_namespace(_NAME)
        table = catalog.create_table(f"{_NAME}.{name}", out.schema_of(f"{name}/{files[0]}"), place.uri)
        table.add_files([f"{data}/{each}" for each in files])
        metadata = table.metadata_location
    Folder(f"{place.uri}/metadata").write(_HINT, metadata.rpartition("/")[2].encode())


def iceberg_schema(columns: pa.Schema) -> Schema:
    """Return the columns as a schema of Iceberg; all are optional."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import (
        BinaryType,
        BooleanType,
        DateType,
        DoubleType,
        IntegerType,
        LongType,
        NestedField,
        StringType,
        TimestamptzType,
    )

    types = {
        pa.string(): StringType(), pa.binary(): BinaryType(), pa.int16(): IntegerType(), pa.int32(): IntegerType(),
        pa.int64(): LongType(), pa.float64(): DoubleType(), pa.bool_(): BooleanType(), pa.date32(): DateType(),
        pa.timestamp("us", "UTC"): TimestamptzType(),
    }  # fmt: skip
    return Schema(
        *(
            NestedField(number, field.name, types[field.type], required=False)
            for number, field in enumerate(columns, start=1)
        )
    )


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn the errors of the package about the table at a URI into :class:`PipelineError`."""
    from pyiceberg import exceptions
    from sqlalchemy.exc import SQLAlchemyError

    own: tuple[type[Exception], ...] = (OSError, *_errors_of(exceptions))
    try:
        yield
    except exceptions.CommitFailedException as error:
        raise PipelineError(
            f"{uri}: another job has changed the table at the same time; run this one again (Iceberg reports: {error})"
        ) from error
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or error
        raise PipelineError(f"{uri}: the catalogue reports: {' '.join(str(reason).split())}") from error
    except own as error:
        raise PipelineError(f"{uri}: Iceberg reports: {' '.join(str(error).split())}") from error


def _errors_of(module: ModuleType) -> list[type[Exception]]:
    """Return the exceptions that a module defines; PyIceberg's have no class in common."""
    return [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Exception)]
