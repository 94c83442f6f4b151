"""The history survives the same faults as the retained messages, and agrees with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_crash import Storm
from tests.faults.storm import retained
from tests.paho import PahoClient
from tests.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

Brokers = Callable[..., BrokerProcess]


@pytest.fixture
def broker(broker_in: Brokers, tmp_path: Path) -> BrokerProcess:
    """A broker that records, not started."""
    configuration = tmp_path / "history.toml"
    configuration.write_text("[retainer.history]\nenable = true\n")
    return broker_in("--config", str(configuration))


def rows(broker: BrokerProcess, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{broker.directory}/data/holdfast.db?mode=ro", uri=True)
    found = connection.execute(query).fetchall()
    connection.close()
    return found


def test_plain_sql_shows_the_client_of_each_change(broker: BrokerProcess) -> None:
    """The query works while the broker runs, and after a restart."""
    broker.start()
    client = PahoClient(broker.port, 5, "sensor-1")
    for payload in ("1", "2", ""):
        client.publish("a/b", payload, qos=1, retain=True)
    client.close()
    query = "SELECT op, topic, payload, client_id, origin FROM retained_history_events ORDER BY seq"
    expected = [
        ("set", "a/b", b"1", "sensor-1", "publish"),
        ("set", "a/b", b"2", "sensor-1", "publish"),
        ("clear", "a/b", b"", "sensor-1", "publish"),
    ]
    assert rows(broker, query) == expected
    assert broker.stop() == (0, "")
    broker.start()
    assert rows(broker, query) == expected
    assert rows(broker, "SELECT count(*) FROM retained_history_periods WHERE complete_since > 0") == [(1,)]


def test_retained_messages_and_history_agree_after_kill_9(broker: BrokerProcess) -> None:
    """Each acknowledged change is recorded once, and each topic retains its newest change."""
    for cycle in range(3):
        broker.start()
        storms = [Storm(broker.port, f"{cycle}-{number}", cycle * 10 + number) for number in range(2)]
        for storm in storms:
            storm.start()
        for storm in storms:
            assert storm.enough.wait(60)
        broker.kill()
        for storm in storms:
            storm.join(60)
            assert not storm.is_alive()
        broker.start()
        found = retained(broker.port)
        newest = rows(
            broker,
            "SELECT topic, payload FROM retained_history_events WHERE op = 'set' AND seq IN "
            "(SELECT max(seq) FROM retained_history_events GROUP BY topic)",
        )
        assert {topic: int(payload) for topic, payload in newest if topic != "~end"} == found
        twice = "SELECT topic, revision FROM retained_history_events GROUP BY topic, revision HAVING count(*) > 1"
        assert rows(broker, twice) == []
        recorded = dict(rows(broker, "SELECT client_id, count(*) FROM retained_history_events GROUP BY client_id"))
        for number, storm in enumerate(storms):
            sent = max(storm.published.values())
            assert sent - len(storm.sent) <= recorded[f"{cycle}-{number}"] <= sent
        broker.kill()
