"""Outages of a database: the answers to clients, the live messages meanwhile, and the state afterwards."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sqlalchemy.engine import make_url

from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.faults.results import Result
from tests.faults.storm import retained
from tests.postgres import administer, drop, empty_database
from tests.processes import PATIENCE, BrokerProcess

LAUNCHER = Path(__file__).parent / "launcher.py"
#: the lowest Reason Code of a refusal
ACCEPTED = 0x80
#: so large that the database has to allocate pages
LARGE = b"1" + b" " * 50_000

#: causes an outage of a running broker until the end of the context
Outage = Callable[[BrokerProcess], AbstractContextManager[None]]


def refused(name: str, broker: BrokerProcess, outage: Outage, reason: ReasonCode, said: str, rounds: int = 3) -> Result:
    """Expect that retained messages are refused with this Reason Code, and stored again after the outage."""
    result = Result(name, "sqlite")
    try:
        broker.start()
        with _Clients(broker, result) as clients:
            for number in range(rounds):
                clients.stored(f"before/{number}")
                with outage(broker):
                    answer = clients.answered(f"during/{number}")
                    result.expect(answer == reason, f"the answer in MQTT 5 is {answer}, not {reason}")
                    result.expect(clients.closed("old"), "a connection of MQTT 3.1.1 is not closed without PUBACK")
                    clients.live()
                clients.stored(f"after/{number}")
                result.tried += 1
            broker.wait_for(said)
            _restart(broker, result, {f"{when}/{number}" for when in ("before", "after") for number in range(rounds)})
    finally:
        broker.end()
    return result


def waits(name: str, store: str, broker: BrokerProcess, outage: Outage, said: str, rounds: int = 3) -> Result:
    """Expect that retained messages are not answered during the outage, and stored after it."""
    result = Result(name, store)
    try:
        broker.start()
        with _Clients(broker, result) as clients:
            for number in range(rounds):
                clients.stored(f"before/{number}")
                with outage(broker):
                    clients.sent(f"during/{number}")
                    clients.live()
                    broker.wait_for(said)
                result.expect(clients.answer() < ACCEPTED, "a message is refused")
                clients.stored(f"after/{number}")
                result.tried += 1
            _restart(broker, result, {f"{when}/{n}" for when in ("before", "during", "after") for n in range(rounds)})
    finally:
        broker.end()
    return result


def _restart(broker: BrokerProcess, result: Result, expected: set[str]) -> None:
    """Kill the broker, and expect exactly the acknowledged messages after a restart."""
    broker.kill()
    broker.start()
    found = set(retained(broker.port))
    result.expect(found == expected, f"retained: {sorted(found)}, acknowledged: {sorted(expected)}")
    status, errors = broker.stop()
    result.expect((status, errors) == (0, ""), f"the broker ends with status {status} and prints {errors[:300]!r}")
    result.expect("Traceback" not in "\n".join(broker.lines), "the log has a traceback")


class _Clients:
    """A publisher of retained messages with MQTT 5, and a publisher and a subscriber of live messages."""

    def __init__(self, broker: BrokerProcess, result: Result) -> None:
        self._broker = broker
        self._result = result
        self._publisher = RawClient(broker.port, "publisher", 5)
        self._answers = self._publisher.packets()
        self._listener = RawClient(broker.port, "listener")
        self._heard = self._listener.packets()
        self._listener.send(p.Subscribe(1, (p.SubscriptionRequest("live"),)))
        assert isinstance(next(self._heard), p.Suback)
        self._talker = RawClient(broker.port, "talker")

    def __enter__(self) -> _Clients:
        return self

    def __exit__(self, *_: object) -> None:
        for client in (self._publisher, self._listener, self._talker):
            client.close()

    def sent(self, topic: str) -> None:
        """Publish a message with RETAIN 1."""
        self._publisher.send(p.Publish(topic, LARGE, 1, True, False, 1))

    def answer(self) -> int:
        """Wait for the next PUBACK, and return its Reason Code."""
        packet = next(self._answers)
        assert isinstance(packet, p.Puback)
        return packet.reason_code

    def answered(self, topic: str) -> int:
        """Publish, and return the Reason Code of the PUBACK."""
        self.sent(topic)
        return self.answer()

    def stored(self, topic: str) -> None:
        """Publish, and expect that the message is stored."""
        answer = self.answered(topic)
        self._result.expect(answer < ACCEPTED, f"{topic} is refused with {answer}")

    def closed(self, topic: str) -> bool:
        """Publish with MQTT 3.1.1, and tell whether the connection is closed without an answer."""
        client = RawClient(self._broker.port, "older")
        client.send(p.Publish(topic, LARGE, 1, True, False, 1))
        packets = list(client.packets())
        client.close()
        return packets == []

    def live(self) -> None:
        """Expect that live messages are delivered."""
        self._talker.send(p.Publish("live", b"goes on"))
        self._result.expect(isinstance(next(self._heard), p.Publish), "live messages are not delivered")


# --- the outages ----------------------------------------------------------------------------------------------------


def faulty(directory: Path) -> tuple[BrokerProcess, Callable[[str], Outage]]:
    """Return a broker that can have the launcher's faults, and a function that returns an outage by name."""
    switch = directory / "fault"
    switch.write_text("")
    broker = BrokerProcess(
        directory,
        program=(sys.executable, str(LAUNCHER), "-n", "--pidfile=", "holdfast"),
        environment={"HOLDFAST_TEST_FAULT": str(switch)},
    )

    def outage(name: str) -> Outage:
        @contextmanager
        def during(_broker: BrokerProcess) -> Iterator[None]:
            switch.write_text(name)
            yield
            switch.write_text("")

        return during

    return broker, outage


@contextmanager
def file_too_large(broker: BrokerProcess) -> Iterator[None]:
    """Forbid the process to let any file grow, like a file-size limit or a disk quota."""
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    sizes = [file.stat().st_size for file in (broker.directory / "data").iterdir() if file.name.endswith("-wal")]
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (max(sizes), hard))
    yield
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def locked(broker: BrokerProcess) -> Iterator[None]:
    """Lock the database like another program."""
    other = sqlite3.connect(broker.directory / "data" / "holdfast.db", isolation_level=None, timeout=PATIENCE)
    other.execute("BEGIN EXCLUSIVE")
    yield
    other.execute("ROLLBACK")
    other.close()


def read_only(url: str) -> Outage:
    """Return an outage in which a Postgres database is read-only, as after a failover."""
    name = make_url(url).database

    @contextmanager
    def during(_broker: BrokerProcess) -> Iterator[None]:
        administer(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        _end_connections(name)
        yield
        administer(f"ALTER DATABASE {name} RESET default_transaction_read_only")

    return during


def _end_connections(name: str | None) -> None:
    administer(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


def all_outages(directory: Path) -> Iterator[Result]:
    """Cause each outage."""
    for name, reason, said in (
        ("full", ReasonCode.QUOTA_EXCEEDED, r"changes not stored \(full\)"),
        ("readonly", ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, r"changes not stored \(unavailable\).*readonly"),
    ):
        (directory / name).mkdir()
        broker, outage = faulty(directory / name)
        title = {"full": "disk full", "readonly": "read-only"}[name]
        yield refused(title, broker, outage(name), reason, said)
    (directory / "limit").mkdir()
    yield refused(
        "file cannot grow", BrokerProcess(directory / "limit"), file_too_large,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, r"changes not stored \(unavailable\).*disk I/O error",
    )  # fmt: skip
    (directory / "locked").mkdir()
    waiting = "changes wait for the database"
    yield waits(
        "locked by another program", "sqlite", BrokerProcess(directory / "locked"), locked, f"{waiting}.*locked"
    )
    (directory / "postgres").mkdir()
    url = empty_database()
    try:
        broker = BrokerProcess(directory / "postgres", "--storage", url)
        yield waits("read-only", "postgresql", broker, read_only(url), f"{waiting}.*read-only")
    finally:
        with contextlib.suppress(Exception):
            drop(url)
