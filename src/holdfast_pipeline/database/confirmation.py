"""Tells the database which entries of its history are archived. The broker prunes no other entries."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.changes.api import confirm
from holdfast.commands.api import Inaccessible, access_to
from holdfast.storage.api import DirectoryUnusable, Durability, StoreUnusable, database_at
from holdfast_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from holdfast.config import Config


def confirm_archived(config: Config, seq: int) -> None:
    """Record that all entries up to ``seq`` are archived; 0 if none is.

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
        done = f"all entries up to {seq} are archived, but this" if seq else "nothing is archived: a new archive"
        raise PipelineError(f"{done} could not be confirmed: {error}") from error
    if seq > last_seq:
        raise PipelineError(f"the history ends at {last_seq}, the archive has {seq}: it belongs to another database")
