"""10,000 clients with passwords come back, beside a client that pings: after a start, and to a running broker.

The quick relative counts hashes: ``test_a_client_that_returns_costs_no_hash_but_a_wrong_password_always_one``.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.auth.passwords.hashes import HashParameters, new_hash
from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

Brokers = Callable[..., BrokerProcess]

CLIENTS = 10_000
#: milliseconds that the pinging client waits at most
LONGEST_WAIT = 50.0

CONFIGURATION = """
[authentication.passwords]
type = "file"
path = "passwords"
[listeners.door]
endpoint = "tcp:0:interface=127.0.0.1"
[log]
connections = false
"""

_BUSY = 3


class Crowd:
    """Clients that connect all at once. A client that is refused as busy comes again within some seconds."""

    def __init__(self, port: int, count: int) -> None:
        self.port = port
        self.count = count
        self.refusals = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def come(self) -> float:
        """Connect all clients; return the seconds until the last one is admitted."""
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(self.count):
                group.create_task(self._come(number))
        return time.monotonic() - begun

    async def leave(self) -> None:
        """Drop all connections."""
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()
        await asyncio.sleep(1)

    async def _come(self, number: int) -> None:
        connect = encode(p.Connect(f"c{number}", 4, username=f"u{number}", password=b"secret"), 4)
        await asyncio.sleep(random.random())
        while True:
            code = await self._try(connect)
            if code == 0:
                return
            assert code in (_BUSY, None)
            self.refusals += 1
            await asyncio.sleep(1 + 4 * random.random())

    async def _try(self, connect: bytes) -> int | None:
        """Return the code of CONNACK, None if there is none."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(connect)
            connack = await reader.readexactly(4)
        except (OSError, asyncio.IncompleteReadError):
            return None
        if connack[3]:
            writer.close()
        else:
            self.writers.append(writer)
        return connack[3]


class Pinging:
    """The process of the client that pings."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "tests.e2e.pinging", str(port), "bystander", "secret"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "connected\n"

    def waits(self) -> dict[str, float]:
        """End it; return its longest waits."""
        said, _ = self.process.communicate(timeout=30)
        waits: dict[str, float] = json.loads(said)
        return waits


def measure(broker: BrokerProcess, count: int) -> dict[str, object]:
    """Let clients come twice; return the seconds, and the waits of the client that pings."""

    async def both() -> dict[str, object]:
        crowd = Crowd(broker.port, count)
        found: dict[str, object] = {}
        for case in ("after a start", "to a running broker"):
            pinging = Pinging(broker.port)
            crowd.refusals = 0
            seconds = await crowd.come()
            found[case] = {"seconds": round(seconds, 1), "busy": crowd.refusals, **pinging.waits()}
            await crowd.leave()
        return found

    return asyncio.run(both())


def write_users(folder: Path, count: int) -> None:
    """Write a file whose users have one password, and so one hash: to verify it takes as long as another."""
    stored = new_hash(b"secret", HashParameters())
    names = ["bystander", *(f"u{number}" for number in range(count))]
    (folder / "passwords").write_text("".join(f"{name}:{stored}\n" for name in names))
    (folder / "passwords").chmod(0o600)
    (folder / "holdfast.toml").write_text(CONFIGURATION)


def test_ten_thousand_clients_come_back_and_a_connected_one_does_not_notice(broker_in: Brokers, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CLIENTS + 1000:
        pytest.skip(f"needs {CLIENTS + 1000} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CLIENTS + 1000), hard))
    write_users(tmp_path, CLIENTS)
    broker = broker_in("--config", str(tmp_path / "holdfast.toml"), listen=False).start()
    found = measure(broker, CLIENTS)
    print(json.dumps(found))
    for case in found.values():
        assert isinstance(case, dict)
        assert case["longest"] <= LONGEST_WAIT, found
