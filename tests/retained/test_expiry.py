"""The expiry of retained messages: their own interval, the default, the override. Sweep and deliveries agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.retained.limits import RetainerLimits
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file


def retained(broker: MemoryBroker, topic_filter: str = "#") -> dict[str, int | None]:
    """Return the topics that a new subscriber gets, with the rest of their Message Expiry Intervals."""
    client = broker.client("look", 5)
    found = [m for m in client.subscribe(topic_filter) if isinstance(m, p.Publish)]
    client.send(p.Disconnect())
    return {message.topic: message.properties.message_expiry_interval for message in found}


def publish(broker: MemoryBroker) -> None:
    """Retain messages that expire in 10 s, in 1000 s, and never."""
    client = broker.client("c", 5)
    for name, interval in (("short", 10), ("long", 1000), ("never", None)):
        client.publish(name, b"x", 1, True, Properties(message_expiry_interval=interval))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (RetainerLimits(), {"short": 10, "long": 1000, "never": None}),
        (RetainerLimits(msg_expiry_interval=50), {"short": 10, "long": 1000, "never": 50}),
        (RetainerLimits(msg_expiry_interval_override=100), {"short": 10, "long": 100, "never": None}),
        (
            RetainerLimits(msg_expiry_interval_override=100, msg_expiry_interval=500),
            {"short": 10, "long": 100, "never": 100},
        ),
        (
            RetainerLimits(msg_expiry_interval_override=100, allow_never_expire=False),
            {"short": 10, "long": 100, "never": 100},
        ),
        (RetainerLimits(allow_never_expire=False), {"short": 10, "long": 1000, "never": None}),
    ],
)
def test_which_interval_counts(limits: RetainerLimits, expected: dict[str, int | None]) -> None:
    """The message's own before the default, and none longer than the override. The subscriber gets the rest of it."""
    broker = MemoryBroker(retainer=limits)
    publish(broker)
    assert retained(broker) == expected
    broker.advance(4)
    assert retained(broker) == {name: None if left is None else left - 4 for name, left in expected.items()}


@pytest.mark.parametrize("limits", [RetainerLimits(msg_expiry_interval_override=100, msg_clear_interval=0)])
@pytest.mark.parametrize("topic_filter", ["#", "long", "+"])
def test_an_expired_message_is_not_delivered_before_the_sweep(limits: RetainerLimits, topic_filter: str) -> None:
    """Delivery and sweep use the same moment, for exact filters and for wildcards."""
    broker = MemoryBroker(retainer=limits)
    publish(broker)
    broker.advance(99.999)
    assert "long" in retained(broker, topic_filter)
    broker.advance(0.001)
    assert "long" not in retained(broker, topic_filter)


@pytest.mark.parametrize("allow_never_expire", [True, False])
def test_the_override_applies_to_messages_stored_before(tmp_path: Path, allow_never_expire: bool) -> None:
    """It counts from when they were stored. The sweep then removes them."""
    broker = RestartableBroker(fresh_file(tmp_path))
    publish(broker)
    broker.commit()
    broker._options = {
        "retainer": RetainerLimits(msg_expiry_interval_override=100, allow_never_expire=allow_never_expire)
    }
    broker = broker.restart(after=50)
    never = None if allow_never_expire else 50
    assert retained(broker) == {"long": 50, "never": never}
    broker.advance(120)
    assert retained(broker) == ({"never": None} if allow_never_expire else {})
    assert broker.retained.totals.refreshed().count == (1 if allow_never_expire else 0)


def test_an_expired_message_is_replaced_like_any_other() -> None:
    """Before the sweep and after it."""
    broker = MemoryBroker(retainer=RetainerLimits(msg_expiry_interval=5, max_retained_messages=1))
    client = broker.client("c", 5)
    for wait in (0, 6, 60):
        broker.advance(wait)
        client.publish("t", b"x", 1, True)
        assert retained(broker) == {"t": 5}
    assert broker.retained.totals.refreshed().count == 1
