"""Creating the database of an import, as the first start of a broker does."""

from __future__ import annotations

from pathlib import Path

from holdfast.storage.api import Durability, StoreUnusable, database_at, file_of, open_database, own_version, prepare
from holdfast_pipeline.errors import PipelineError


def create_missing(url: str, make_folder: bool) -> str | None:
    """Create the database at a URL if there is none, or build the schema of an empty one; return what was created.

    None: the database exists. An SQLite file is created in a folder that exists; with ``make_folder``, the folder is
    created, too. A Postgres server must have the database. A broker that starts meanwhile does no harm: the schema is
    built in one transaction, which looks first. Raises :class:`PipelineError`.
    """
    file = file_of(url)
    try:
        database = database_at(url, Durability.FULL)
        if file is None or Path(file).exists():
            database.check_present()
            with database.explaining_errors(), database.reading_engine().begin() as connection:
                if own_version(connection.connection, database) is not None:
                    return None
        elif not make_folder and not Path(file).parent.is_dir():
            raise PipelineError(
                f"{file}: cannot be created, because there is no folder {Path(file).parent}; create the folder, or "
                "name the broker's own database with --config or --storage"
            )
        prepare(open_database(url, Durability.FULL))
    except StoreUnusable as error:
        raise PipelineError(str(error)) from error
    return database.location
