"""The stored positions of replays."""

from __future__ import annotations

from holdfast.sessions.delivery.inflight import OVER, Inflight
from holdfast.sessions.delivery.replay_positions import ReplayPosition, ReplayPositions


def sent(position: ReplayPosition, *topics: str) -> list[Inflight]:
    entries = []
    for topic in topics:
        entry = Inflight(b"", 1, 4)
        position.sent(entry, topic)
        entries.append(entry)
    return entries


def changes(positions: ReplayPositions, cursor: str) -> dict[str, str | None]:
    return dict(positions.changes(lambda _: cursor))


def test_a_position_moves_with_the_first_messages_that_are_acknowledged() -> None:
    position = ReplayPosition()
    first, second, third = sent(position, "a", "b", "c")
    second.state = OVER
    assert position.present("c") == ""
    first.state = OVER
    assert position.present("c") == "b"
    third.state = OVER
    assert position.present("d") == "d"


def test_a_replay_is_over_when_its_last_message_is_acknowledged() -> None:
    position = ReplayPosition()
    (last,) = sent(position, "a")
    position.delivered = True
    assert position.present("a") == ""
    last.state = OVER
    assert position.present("a") is None


def test_only_changed_positions_are_stored() -> None:
    positions = ReplayPositions()
    positions.begin("t/#", "")
    assert changes(positions, "") == {}
    assert changes(positions, "t/1") == {"t/#": "t/1"}
    assert changes(positions, "t/1") == {}
    position = positions.get("t/#")
    assert position is not None
    position.delivered = True
    assert changes(positions, "t/1") == {"t/#": None}
    assert not positions


def test_a_resumed_replay_keeps_its_position() -> None:
    positions = ReplayPositions()
    positions.restore("t/#", "t/5")
    assert positions.take_suspended() == {"t/#": "t/5"}
    assert positions.take_suspended() == {}
    positions.begin("t/#", "t/5")
    assert changes(positions, "t/5") == {}
    positions.begin("t/#", "")  # a new SUBSCRIBE
    assert changes(positions, "t/1") == {"t/#": "t/1"}
