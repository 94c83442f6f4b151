"""Tells the database which entries of its history are in a lake. The broker prunes no other entries."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.changes.api import confirm
from holdfast.commands.api import Inaccessible, access_to
from holdfast.storage.api import DirectoryUnusable, Durability, StoreUnusable, database_at, file_of, parsed
from holdfast_pipeline.database.connection import Source
from holdfast_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from holdfast.config import Config


def confirm_in_lake(config: Config, seq: int) -> None:
    """Record that a lake has all entries up to ``seq``; 0 if it has none.

    Only its broker writes an SQLite file: a running broker is asked to do it. If none runs, this process takes the lock
    of the data directory while it writes. Raises :class:`PipelineError`.
    """
    try:
        database = database_at(config.storage.url, Durability.FULL, 0, 5.0)
        if not database.remote:
            with access_to(config) as access:
                access.call("POST", "/history/archived", body=json.dumps({"seq": str(seq)}).encode())
            return
        with database.explaining_errors(), closing(database.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(database.begin_statement)
            last_seq = confirm(cursor, seq).last_seq
            connection.commit()
    except (Inaccessible, StoreUnusable, DirectoryUnusable) as error:
        done = f"the lake has all entries up to {seq}, but this" if seq else "nothing was read: a new lake"
        raise PipelineError(f"{done} could not be confirmed: {error}") from error
    if seq > last_seq:
        raise PipelineError(f"the history ends at {last_seq}, the lake has {seq}: it belongs to another database")


def broker_of(url: str, config: str | None) -> Config:
    """Return the configuration of the broker of a database: in a file, or one whose data directory has the database.

    Raises :class:`PipelineError`.
    """
    from holdfast.config import ConfigError, default, load

    try:
        if config is not None:
            return load(Path(config), allow_anonymous=True)
        file = file_of(url) or parsed(url).database or ""
        folder = str(Path(file).parent) if Source(url).is_sqlite else None
        return default().override([], folder, url, allow_anonymous=True, cwd=Path.cwd())
    except ConfigError as error:
        raise PipelineError(str(error)) from error
