"""A fault between any two statements of the writer: it is killed, its connection cut, an answer lost, or an error."""

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
from holdfast.storage.engine import open_database
from holdfast.storage.store import OpenStore
from tests.faults.oracle import Facts, examine
from tests.faults.results import Result
from tests.faults.workload import Workload
from tests.postgres import administer, drop, fresh_database
from tests.storage.doubles import Faults, FaultyConnection, FaultyCursor, InjectedError, fresh_file


@define
class Killing(Faults):
    """Kills this very process instead of failing."""

    def strike(self) -> None:
        """Count a call; the one named, and all after it, are never made."""
        if self.calls == self.fail_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1


@define
class Cutting(Faults):
    """Ends the server's side of the connection before the call that is named."""

    connection: psycopg.Connection[Any] | None = None

    def strike(self) -> None:
        """Count a call; the one named finds nobody at the other end."""
        self.calls += 1
        if self.calls - 1 == self.fail_at and self.connection is not None:
            administer(f"SELECT pg_terminate_backend({self.connection.info.backend_pid})")


@define
class LostAnswer(Cutting):
    """Lets the commit that is named succeed, and loses the answer: nobody knows what became of it."""

    commits: int = 0

    def strike(self) -> None:
        """Statements are left alone."""

    def committed(self) -> None:
        """Count a commit, and cut the connection behind the one that is named."""
        self.calls += 1
        if self.calls - 1 == self.fail_at and self.connection is not None:
            self.connection.close()
            raise errors.AdminShutdown("terminating connection due to administrator command")


class _Connection(FaultyConnection):
    """A connection on which faults happen."""

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
    """Do the work on a database whose writer meets the faults; facts are noted in either place."""
    note: Callable[..., None]
    if journal is None:
        note = (facts or Facts()).note
    else:
        descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def note(*fact: Any) -> None:
            os.write(descriptor, json.dumps(fact).encode() + b"\n")

    workload = Workload(url, note)

    def meet(database: Any) -> Any:
        """Let the writer's connections meet the faults."""
        connect = database.connect
        database.connect = lambda: _Connection(connect(), faults)
        return database

    def meet_now(parts: OpenStore) -> None:
        meet(parts.database)
        batches = parts.writer._committer
        batches._connection = _Connection(batches._connection, faults)

    # A start that fails says so, and is over: only being killed is tried from its first statement on.
    if isinstance(faults, Killing):
        with patch.object(store, "open_database", lambda *arguments: meet(open_database(*arguments))):
            workload.open()
    else:
        workload.durable._users.insert(0, meet_now)
        workload.open()
    workload.run()


def count(url: str, faults: Faults) -> int:
    """Return how many places there are for a fault."""
    run(url, faults)
    return faults.calls


def killed(url: str, at: int, journal: Path) -> Facts:
    """Do the work in a process that is killed before a call to the database; return the facts it has noted."""
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
    assert os.WIFSIGNALED(status), f"it ended by itself, with status {status}"
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
        """Make a database with a current schema; return its URL."""
        if self.store == "sqlite":
            self._made.append(f"sqlite:///{fresh_file(self.directory, f'{len(self._made)}.db')}")
        else:
            self._made.append(fresh_database())
        return self._made[-1]

    def done(self) -> None:
        """Remove the database made last."""
        url = self._made[-1]
        if self.store == "sqlite":
            for companion in ("", "-wal", "-shm"):
                Path(url.removeprefix("sqlite:///") + companion).unlink(missing_ok=True)
        else:
            drop(url)


def kills(bench: Bench, places: Callable[[int], Iterable[int]]) -> Result:
    """Kill the writer's process at each of these places."""
    result = Result("killed between two statements", bench.store)
    calls = count(bench.url(), Killing(None))
    bench.done()
    for place in places(calls):
        url = bench.url()
        facts = killed(url, place, bench.directory / f"{place}.journal")
        result.tried += 1
        result.broken += [f"statement {place}: {wrong}" for wrong in examine(url, facts)]
        bench.done()
    result.figures["statements"] = calls
    return result


def failures(
    name: str, bench: Bench, make: Callable[[int | None], Faults], places: Callable[[int], Iterable[int]], whole: bool
) -> Result:
    """Let a fault happen at each of these places; where work is to be ``whole``, everything is stored in the end."""
    result = Result(name, bench.store)
    calls = count(bench.url(), make(None))
    bench.done()
    for place in places(calls):
        url, facts, faults = bench.url(), Facts(), make(place)
        run(url, faults, facts)
        result.tried += 1
        result.broken += [f"call {place}: {wrong}" for wrong in examine(url, facts)]
        if whole:
            unsettled = [key for key in facts.values if key[0] == "retained" and len(facts.possible(key)) != 1]
            result.expect(not unsettled, f"call {place}: never stored: {unsettled}")
        bench.done()
    result.figures["calls"] = calls
    return result


def errors_of(store: str) -> Callable[[int | None], Faults]:
    """Return how to make a call fail with an error of the database's own."""
    if store == "sqlite":
        return lambda at: Faults(at, InjectedError())
    return lambda at: Faults(at, errors.DiskFull("could not extend file: No space left on device"))
