"""10,000 clients with passwords come back, beside a client that pings: after a start, and to a running broker.

The quick relatives count: ``test_a_client_that_returns_costs_no_hash_but_a_wrong_password_always_one`` the hashes, and
``tests/test_strangers.py`` the clients that one turn of the reactor admits. How long the pings wait is measured by the
scenario ``hostile`` of the benchmarks.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from holdfast.identity.hashes import HashParameters, new_hash
from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

Brokers = Callable[..., BrokerProcess]
#: tells the seconds that a client waits before it tries for the Nth time
Pause = Callable[[int], float]

CLIENTS = 10_000
IMPATIENT = 1_000

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


def as_libraries_do(tries: int) -> float:
    """Return a pause that doubles from one second to eight, and half as much again by chance.

    Paho doubles it up to 120 seconds, MQTT.js waits for one second each time.
    """
    return float(2 ** min(tries, 3)) * (1 + random.random() / 2)


def hardly_at_all(_tries: int) -> float:
    """Return the pause of a client that comes again at once."""
    return random.random() / 20


class Attempt(asyncio.Protocol):
    """One connection of a client, until it is dropped. ``code`` fires with that of CONNACK, None if there is none."""

    def __init__(self, connect: bytes) -> None:
        self._connect = connect
        self.transport: asyncio.Transport | None = None
        self.code: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._connect)

    def data_received(self, data: bytes) -> None:
        assert len(data) == 4
        self.code.set_result(data[3])

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.code.done():
            self.code.set_result(None)


class Crowd:
    """Clients that connect all within a second. One that is refused as busy comes again."""

    def __init__(self, port: int, users: range, pause: Pause) -> None:
        self._port = port
        self._users = users
        self._pause = pause
        self._transports: list[asyncio.Transport] = []
        self.refusals = 0

    async def come(self) -> float:
        """Connect all clients; return the seconds until the last one is admitted."""
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in self._users:
                group.create_task(self._come(number))
        return time.monotonic() - begun

    async def leave(self) -> None:
        """Drop all connections."""
        for transport in self._transports:
            transport.abort()
        self._transports.clear()
        await asyncio.sleep(2)

    async def _come(self, number: int) -> None:
        connect = encode(p.Connect(f"c{number}", 4, username=f"u{number}", password=b"secret"), 4)
        await asyncio.sleep(random.random())
        tries = 0
        while (code := await self._try(connect)) != 0:
            assert code in (_BUSY, None)
            self.refusals += 1
            await asyncio.sleep(self._pause(tries))
            tries += 1

    async def _try(self, connect: bytes) -> int | None:
        """Return the code of CONNACK, None if there is none."""
        loop = asyncio.get_running_loop()
        try:
            transport, attempt = await loop.create_connection(partial(Attempt, connect), "127.0.0.1", self._port)
        except OSError:
            return None
        code = await attempt.code
        if code == 0:
            self._transports.append(transport)
        else:
            transport.close()
        return code


@contextmanager
def pinging(*arguments: str) -> Iterator[list[int]]:
    """Let a process ping; the list has the number of its pings at the end. It fails if one is not answered."""
    command = [sys.executable, "-m", "tests.e2e.pinging", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "connected\n"
        pings: list[int] = []
        yield pings
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        pings.append(int(said))


def come_and_leave(broker: BrokerProcess, users: range, pause: Pause) -> dict[str, float]:
    """Let clients come and leave beside a client that pings; return what was found."""
    crowd = Crowd(broker.port, users, pause)

    async def both() -> float:
        seconds = await crowd.come()
        await crowd.leave()
        return seconds

    with pinging(str(broker.port), "bystander", "secret") as pings:
        seconds = asyncio.run(both())
    return {"seconds": round(seconds, 1), "refusals": crowd.refusals, "pings": pings[0]}


def write_users(folder: Path, count: int) -> None:
    """Write a file whose users have one password, and so one hash: to verify it takes as long as another."""
    stored = new_hash(b"secret", HashParameters())
    names = ["bystander", *(f"u{number}" for number in range(count))]
    (folder / "passwords").write_text("".join(f"{name}:{stored}\n" for name in names))
    (folder / "passwords").chmod(0o600)
    (folder / "holdfast.toml").write_text(CONFIGURATION)


@pytest.mark.nightly
def test_ten_thousand_clients_come_back_and_a_connected_one_is_served_meanwhile(
    broker_in: Brokers, tmp_path: Path
) -> None:
    """All are admitted, none is refused but as too many at once, and each ping of the connected client is answered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CLIENTS + 1000:
        pytest.skip(f"needs {CLIENTS + 1000} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CLIENTS + 1000), hard))
    write_users(tmp_path, CLIENTS + IMPATIENT)
    broker = broker_in("--config", str(tmp_path / "holdfast.toml"), listen=False).start()
    everybody, strangers = range(CLIENTS), range(CLIENTS, CLIENTS + IMPATIENT)
    found = {
        "after a start": come_and_leave(broker, everybody, as_libraries_do),
        "to a running broker": come_and_leave(broker, everybody, as_libraries_do),
        "without a pause": come_and_leave(broker, strangers, hardly_at_all),
    }
    print(json.dumps(found, indent=2))
    assert found["to a running broker"]["refusals"] < found["after a start"]["refusals"]  # their passwords are known
