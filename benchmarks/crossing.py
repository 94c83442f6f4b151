"""The time of messages and subscriptions between two members of a cluster, on both buses, and at one member alone.

`python -m benchmarks.crossing` starts members on a Postgres, from a wheel or $HOLDFAST_TEST_POSTGRES: one member alone,
two with the bus in the database, and two with a server of NATS. It prints milliseconds, half of the figures and 99 %
of them being below: ``live`` is the time from the sending of a PUBLISH with QoS 0 at one member to its arrival at a
subscriber of another one, or of the same one if it is alone, with one message under way. ``suback`` is the time from a
SUBSCRIBE with a filter that nobody knows to its SUBACK. A run takes less than a minute.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.nats_server import NatsProcess, running
from tests.postgres import drop, empty_database
from tests.processes import BrokerProcess

ALONE, POSTGRES, NATS = "one member", "postgres", "nats"
_CONFIGURATION = """
node.id = {number}
cluster.name = "bench"
"""
_OVER_NATS = """
cluster.bus = "{url}"
cluster.secret = "file:secret"
"""
#: figures that are left out, while code is run for the first time
_FIRST = 20


def members(folder: Path, url: str, numbers: Sequence[int], nats: NatsProcess | None, ends: ExitStack) -> list[int]:
    """Start members; return their ports when messages cross as they should."""
    brokers = []
    for number in numbers:
        own = folder / str(number)
        own.mkdir()
        text = _CONFIGURATION.format(number=number)
        if nats is not None:
            text += _OVER_NATS.format(url=nats.url)
            secret = own / "secret"
            secret.write_text("0" * 44)
            secret.chmod(0o600)
        (own / "holdfast.toml").write_text(text)
        broker = BrokerProcess(own, "--config", "holdfast.toml", "--storage", url)
        ends.callback(broker.end)
        brokers.append(broker.start())
    ports = [broker.port for broker in brokers]
    if nats is not None:
        for broker in brokers:
            broker.wait_for("answers over NATS")
    return ports


def live(publisher: RawClient, subscriber: RawClient, count: int) -> list[float]:
    """Return the seconds of messages, each sent when the one before has arrived."""
    subscriber.send(p.Subscribe(1, (p.SubscriptionRequest("bench/live"),)))
    arriving = subscriber.packets()
    assert isinstance(next(arriving), p.Suback)
    return _times(count, lambda _: publisher.send(p.Publish("bench/live", b"x" * 20)), lambda: next(arriving))


def subacks(client: RawClient, count: int) -> list[float]:
    """Return the seconds of SUBSCRIBEs, each with a filter of its own, sent when the one before was answered."""
    answers = client.packets()

    def subscribe(number: int) -> None:
        client.send(p.Subscribe(1 + number, (p.SubscriptionRequest(f"bench/{number}/+"),)))

    return _times(count, subscribe, lambda: next(answers))


def _times(count: int, ask: Callable[[int], None], answer: Callable[[], object]) -> list[float]:
    found = []
    for number in range(_FIRST + count):
        begin = time.perf_counter()
        ask(number)
        answer()
        found.append(time.perf_counter() - begin)
    return found[_FIRST:]


def line(name: str, what: str, seconds: list[float]) -> str:
    """Return one line of the table."""
    ordered = sorted(seconds)
    half, most = (1000 * ordered[int(part * (len(ordered) - 1))] for part in (0.5, 0.99))
    return f"{name:12s}{what:8s}{len(seconds):8,d}{half:9.2f}{most:9.2f}"


def measure(name: str, count: int) -> None:
    """Start members with this bus, and print their lines."""
    with TemporaryDirectory() as folder, ExitStack() as ends:
        nats = NatsProcess(Path(folder)) if name == NATS else None
        if nats is not None:
            ends.enter_context(running(nats))
        url = empty_database()
        ends.callback(drop, url)
        ports = members(Path(folder), url, (1,) if name == ALONE else (1, 2), nats, ends)
        publisher, subscriber = RawClient(ports[0], "publisher"), RawClient(ports[-1], "subscriber")
        print(line(name, "live", live(publisher, subscriber, count)), flush=True)
        print(line(name, "suback", subacks(RawClient(ports[-1], "asker"), max(1, count // 5))), flush=True)


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crossing", description=__doc__)
    parser.add_argument("--messages", type=int, default=1000, help="messages of each run; a fifth as many SUBSCRIBEs")
    options = parser.parse_args()
    if options.messages < 1:
        parser.error("--messages is at least 1")
    print(f"{'bus':12s}{'':8s}{'count':>8s}{'p50':>9s}{'p99':>9s}")
    for name in (ALONE, POSTGRES, NATS):
        measure(name, options.messages)


if __name__ == "__main__":
    main()
