"""The judge of repeats allows what the rule for resumed replays allows, and nothing else."""

from __future__ import annotations

import pytest

from holdfast.wire.packets import Publish
from tests.e2e.never_stale.ledger import Ledger
from tests.e2e.never_stale.plan import Kind
from tests.e2e.never_stale.repeats import Repeats


class Scene:
    """A Session whose replay of ``t/#`` was granted, and a publication of ``t/1`` by the same node."""

    def __init__(self, qos: int = 1, kind: Kind = Kind.SET, publisher: str = "p", node: int = 0) -> None:
        self.ledger = Ledger.of_nodes(2)
        self.repeats = Repeats(self.ledger, 0)
        self.repeats.subscribe(1, "t/#", 1, True)
        self.repeats.granted(1)
        self.made = self.ledger.publish("t/1", kind, qos, publisher, node, True)

    def came(self, retain: bool, dup: bool = False) -> bool:
        return self.repeats.take(Publish("t/1", b"1 ", 1, retain, dup, 1 if dup else 0), self.made)


def test_what_was_queued_is_not_replayed() -> None:
    """Not even on the next connection."""
    scene = Scene()
    assert scene.came(retain=False)
    scene.repeats.connected()
    assert not scene.came(retain=True)


def test_a_message_is_sent_again_with_dup() -> None:
    scene = Scene()
    assert scene.came(retain=False)
    assert scene.came(retain=False, dup=True)


@pytest.mark.parametrize(
    "scene", [Scene(qos=0), Scene(kind=Kind.CLEAR), Scene(kind=Kind.EXPIRING), Scene(publisher=""), Scene(node=1)]
)
def test_what_is_never_queued_or_can_be_lost_may_be_replayed(scene: Scene) -> None:
    assert scene.came(retain=False)
    assert scene.came(retain=True)


def test_a_newer_replay_may_repeat() -> None:
    """From the moment of its SUBSCRIBE on, whether its SUBACK has come or not; also one for another Topic Filter."""
    scene = Scene()
    assert scene.came(retain=False)
    scene.repeats.subscribe(2, "+/1", 2, True)
    assert scene.came(retain=True)
    scene.repeats.granted(2)
    assert scene.came(retain=True)


def test_without_a_new_replay_the_lower_qos_counts() -> None:
    scene = Scene()
    assert scene.came(retain=False)
    scene.repeats.subscribe(2, "t/#", 2, False)
    assert not scene.came(retain=True)
    scene.repeats.subscribe(3, "t/#", 0, False)
    assert scene.came(retain=True)


def test_a_tool_s_quiet_change_allows_repeats() -> None:
    """While it is under way and afterwards, but only on its own node."""
    scene = Scene()
    assert scene.came(retain=False)
    with scene.ledger.quietly(1):
        assert not scene.came(retain=True)
    with scene.ledger.quietly(0):
        assert scene.came(retain=True)
    assert scene.came(retain=True)
