"""The Sessions of a file of mosquitto, imported while no broker runs."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.commands.common import Failed
from holdfast.commands.interfaces import Access
from holdfast.commands.stand_in import StandIn
from holdfast.retained.formats.mosquitto_sessions import sessions_of_db, sessions_of_sqlite
from holdfast.retained.formats.recognition import FileKind
from holdfast.sessions.importing import SessionImport
from holdfast.storage.committer import add_node, raise_revision_mark, read_totals
from holdfast.storage.revisions import RevisionClock

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.storage.driver import Connection

_OPENERS = {FileKind.MOSQUITTO_DB: sessions_of_db, FileKind.MOSQUITTO_SQLITE: sessions_of_sqlite}
_RUNNING = "Sessions are imported while the broker does not run: stop it, run this again, and start it"


class _Undone(Exception):
    """Ends the transaction of a dry run without a commit."""


def check_sessions(access: Access, kind: FileKind) -> StandIn:
    """Return the stand-in if Sessions can be imported from such a file now. Raises Failed or StoreUnusable."""
    if kind not in _OPENERS:
        raise Failed(
            f"--sessions: {kind.value} has no Sessions; they are in mosquitto.db and in persist-sqlite's database"
        )
    if not isinstance(access, StandIn):
        raise Failed(_RUNNING)
    assert access.durable.parts is not None
    database = access.durable.parts.database
    if database.remote:  # a broker of another machine may use it; an SQLite file is this process's alone
        with database.explaining_errors(), database.exclusive_engine().begin():
            pass
    return access


def import_sessions(
    stand_in: StandIn, config: Config, path: Path, kind: FileKind, dry: bool
) -> tuple[Counter[str], Counter[str]]:
    """Import the Sessions of a file; return the numbers taken over by kind, and those left out by reason.

    A ``dry`` import changes nothing. Raises :class:`holdfast.commands.interfaces.Inaccessible`, or
    :class:`holdfast.retained.formats.file_entry.UnreadableFile`; then nothing is changed.
    """
    done: list[SessionImport] = []
    bulk = stand_in.durable.bulk
    node = config.node.id

    def write(connection: Connection) -> None:
        cursor = connection.cursor()
        add_node(connection, node)
        clock = RevisionClock(node, read_totals(cursor).revision_mark, lambda: time.time_ns() // 1_000_000)
        with _OPENERS[kind](path) as source:
            one = SessionImport(cursor, bulk, clock.next_revision, _listener_at(config), time.time_ns() // 1_000_000)
            one.run(source)
        raise_revision_mark(cursor, node, clock.latest)
        done[:] = [one]
        if dry:
            raise _Undone

    with suppress(_Undone):
        stand_in.run(write)
    (one,) = done
    return one.taken, one.left_out


def _listener_at(config: Config) -> Callable[[int], str]:
    """Return a function that names the listener with a port, the first one if none has it."""
    names = list(config.listeners)
    ports = {
        int(found[1]): name
        for name, each in config.listeners.items()
        if (found := re.search(r"(?:tcp|ssl|tls):(\d+)", each.endpoint))
    }
    return lambda port: ports.get(port, names[0] if names else "")
