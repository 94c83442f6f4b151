"""Faults between any two statements of the writer: a kill, a closed connection, a lost answer, or an error."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
from attrs import define, field
from psycopg import errors

from holdfast.storage import store
from holdfast.storage.maintenance import open_database
from holdfast.storage.store import OpenStore
from tests.faults.oracle import Facts, examine
from tests.faults.results import Result
from tests.faults.workload import Workload
from tests.postgres import administer, drop, fresh_database
from tests.storage.doubles import Faults, FaultyConnection, FaultyCursor, InjectedError, fresh_file


@define
class Killing(Faults):
    """Kills its own process instead of raising an error."""

    def strike(self) -> None:
        """Count a call, or kill the process before the call ``fail_at``."""
        if self.calls == self.fail_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1


@define
class Cutting(Faults):
    """Closes the server's side of the connection before the call ``fail_at``."""

    connection: psycopg.Connection[Any] | None = None

    def strike(self) -> None:
        """Count a call, and close the connection before the call ``fail_at``."""
        self.calls += 1
        if self.calls - 1 == self.fail_at and self.connection is not None:
            administer(f"SELECT pg_terminate_backend({self.connection.info.backend_pid})")


@define
class LostAnswer(Cutting):
    """Lets the commit ``fail_at`` succeed and loses the answer, so that the writer does not know the outcome."""

    commits: int = 0

    def strike(self) -> None:
        """Do nothing: statements have no fault."""

    def committed(self) -> None:
        """Count a commit, and close the connection after the commit ``fail_at``."""
        self.calls += 1
        if self.calls - 1 == self.fail_at and self.connection is not None:
            self.connection.close()
            raise errors.AdminShutdown("terminating connection due to administrator command")


class _Connection(FaultyConnection):
    """A connection with faults."""

    def __init__(self, connection: Any, faults: Faults) -> None:
        super().__init__(connection, faults)
        if isinstance(faults, Cutting):
            faults.connection = connection

    def cursor(self) -> FaultyCursor:
        return FaultyCursor(self._connection.cursor(), self._faults)

    def commit(self) -> None:
        super().commit()
        if isinstance(self._faults, LostAnswer):
            self._faults.committed()


def run(url: str, faults: Faults, facts: Facts | None = None, journal: Path | None = None) -> None:
    """Do the work on a database whose writer has the faults; note the facts in ``facts`` or in the ``journal``."""
    note: Callable[..., None]
    if journal is None:
        note = (facts or Facts()).note
    else:
        descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def note(*fact: Any) -> None:
            os.write(descriptor, json.dumps(fact).encode() + b"\n")

    workload = Workload(url, note)

    def give_faults(database: Any) -> Any:
        """Give the writer's connections the faults."""
        connect = database.connect
        database.connect = lambda: _Connection(connect(), faults)
        return database

    def give_faults_now(parts: OpenStore) -> None:
        give_faults(parts.database)
        committer = parts.writer._committer
        committer._connection = _Connection(committer._connection, faults)

    # An error during the start ends the start with a message. So only kills are tried from the first statement on.
    if isinstance(faults, Killing):
        with patch.object(store, "open_database", lambda *arguments: give_faults(open_database(*arguments))):
            workload.open()
    else:
        workload.durable._users.insert(0, give_faults_now)
        workload.open()
    workload.run()


def count(url: str, faults: Faults) -> int:
    """Return the number of positions for a fault."""
    run(url, faults)
    return faults.calls


def killed(url: str, at: int, journal: Path) -> Facts:
    """Do the work in a process that is killed before a call to the database; return its facts."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            run(url, Killing(at), journal=journal)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"the process was not killed, and ended with status {status}"
    assert os.WTERMSIG(status) == signal.SIGKILL
    facts = Facts()
    for line in journal.read_bytes().splitlines():
        facts.note(*json.loads(line))
    return facts


@define
class Bench:
    """Fresh databases of one make."""

    store: str
    directory: Path
    _made: list[str] = field(factory=list)

    def url(self) -> str:
        """Create a database with a current schema; return its URL."""
        if self.store == "sqlite":
            self._made.append(f"sqlite:///{fresh_file(self.directory, f'{len(self._made)}.db')}")
        else:
            self._made.append(fresh_database())
        return self._made[-1]

    def done(self) -> None:
        """Remove the last database."""
        url = self._made[-1]
        if self.store == "sqlite":
            for companion in ("", "-wal", "-shm"):
                Path(url.removeprefix("sqlite:///") + companion).unlink(missing_ok=True)
        else:
            drop(url)


def kills(bench: Bench, positions: Callable[[int], Iterable[int]]) -> Result:
    """Kill the writer's process at each of these positions."""
    result = Result("killed between two statements", bench.store)
    calls = count(bench.url(), Killing(None))
    bench.done()
    for position in positions(calls):
        url = bench.url()
        facts = killed(url, position, bench.directory / f"{position}.journal")
        result.tried += 1
        result.broken += [f"statement {position}: {wrong}" for wrong in examine(url, facts)]
        bench.done()
    result.figures["statements"] = calls
    return result


def failures(
    name: str,
    bench: Bench,
    make: Callable[[int | None], Faults],
    positions: Callable[[int], Iterable[int]],
    whole: bool,
) -> Result:
    """Cause a fault at each of these positions; with ``whole``, all work must be stored in the end."""
    result = Result(name, bench.store)
    calls = count(bench.url(), make(None))
    bench.done()
    for position in positions(calls):
        url, facts, faults = bench.url(), Facts(), make(position)
        run(url, faults, facts)
        result.tried += 1
        result.broken += [f"call {position}: {wrong}" for wrong in examine(url, facts)]
        if whole:
            unsettled = [key for key in facts.values if key[0] == "retained" and len(facts.possible(key)) != 1]
            result.expect(not unsettled, f"call {position}: never stored: {unsettled}")
        bench.done()
    result.figures["calls"] = calls
    return result


def errors_of(store: str) -> Callable[[int | None], Faults]:
    """Return a function that returns faults with a typical error of the database."""
    if store == "sqlite":
        return lambda at: Faults(at, InjectedError())
    return lambda at: Faults(at, errors.DiskFull("could not extend file: No space left on device"))
