"""Operators during an outage of the database: each call has an answer in time, and what was accepted is stored."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.commands.access import SocketConnection
from holdfast.config import default
from tests.postgres import own_url
from tests.processes import PATIENCE, BrokerProcess, unmeasured

pytestmark = pytest.mark.e2e


HOLDFAST = str(Path(sys.executable).parent / "holdfast")
MESSAGES = "/api/v5/mqtt/retainer/messages"


class Operator:
    """Asks a broker over its control socket, and runs commands."""

    def __init__(self, broker: BrokerProcess, *options: str) -> None:
        self._folder = broker.directory
        self._options = ("--data-dir", "data", *options)

    def ask(self, method: str, path: str, body: object = None, prefer: str = "wait=1") -> tuple[int, Any, Any]:
        """Make a call; return status, content and headers."""
        config = default().override([], str(self._folder / "data"), None, allow_anonymous=True, cwd=self._folder)
        with closing(SocketConnection(config)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), {"Prefer": prefer})
            response = connection.getresponse()
            found = response.read()
            return response.status, json.loads(found) if found else None, response.headers

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for an event."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def is_available(self) -> bool:
        """Ask whether the broker reaches its database."""
        return bool(self.ask("GET", "/api/v5/mqtt/retainer/info")[1]["available"])

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run a command of the retainer."""
        done = subprocess.run(
            [HOLDFAST, "retainer", *words, *self._options],
            cwd=self._folder, capture_output=True, text=True, timeout=PATIENCE, check=False, env=unmeasured(),
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr


@contextmanager
def handed_over(operator: Operator) -> Iterator[None]:
    """Hand a change over while the database is away; in the end, the database is back. Check what both are told."""
    status, job, headers = operator.ask("POST", MESSAGES, {"topic": "handed over", "payload": "1"})
    assert (status, job["state"], job["kind"]) == (202, "running", "call")
    operator.until(lambda: not operator.is_available())
    status, problem, refused = operator.ask("POST", MESSAGES, {"topic": "refused", "payload": "1"})
    assert (status, refused["Retry-After"]) == (503, "5"), problem
    status, said, _ = operator.run("info")
    assert status == 3
    assert "the database is away or locked" in said
    status, _, errors = operator.run("set", "refused", "1")
    assert status == 1
    assert "nothing was changed" in errors
    yield
    operator.until(lambda: operator.ask("GET", headers["Location"])[1]["state"] != "running")
    job = operator.ask("GET", headers["Location"])[1]
    assert (job["state"], job["result"]) == ("done", {"status": 204})
    operator.until(operator.is_available)
    listed = operator.ask("GET", MESSAGES, prefer="wait=60")[1]
    assert [each["topic"] for each in listed["data"]] == ["before", "handed over"]


def test_no_call_hangs_while_postgres_is_away(broker_in: Callable[..., BrokerProcess], server: Any) -> None:
    """With the default ``when_unavailable``."""
    url = own_url(server)
    broker = broker_in("--storage", url).start()
    operator = Operator(broker, "--storage", url)
    assert operator.ask("POST", MESSAGES, {"topic": "before", "payload": "1"}, "wait=60")[0] == 204
    server.stop()
    with handed_over(operator):
        status, problem, refused = operator.ask("GET", MESSAGES)
        assert (status, refused["Retry-After"]) == (503, "5"), problem
        server.start()
    assert broker.stop()[0] == 0


def test_no_change_hangs_while_sqlite_is_locked(broker_in: Callable[..., BrokerProcess]) -> None:
    """Reads go on: SQLite answers them from the last commit."""
    broker = broker_in().start()
    operator = Operator(broker)
    assert operator.ask("POST", MESSAGES, {"topic": "before", "payload": "1"}, "wait=60")[0] == 204
    with closing(sqlite3.connect(broker.directory / "data" / "holdfast.db", isolation_level=None, timeout=30)) as other:
        other.execute("BEGIN IMMEDIATE")
        with handed_over(operator):
            assert [each["topic"] for each in operator.ask("GET", MESSAGES, prefer="wait=60")[1]["data"]] == ["before"]
            other.execute("ROLLBACK")
    assert broker.stop()[0] == 0
