"""The unfinished replays of a Session: their stored positions, and their order."""

from __future__ import annotations

from holdfast.sessions.delivery.inflight import OVER, Inflight
from holdfast.sessions.delivery.replay_positions import ReplayPosition, ReplayPositions
from holdfast.sessions.state import ReplayProgress


def sent(position: ReplayPosition, *topics: str) -> list[Inflight]:
    entries = []
    for topic in topics:
        entry = Inflight(b"", 1, 4)
        position.sent(entry, topic)
        entries.append(entry)
    return entries


def changes(positions: ReplayPositions, cursor: str) -> dict[str, ReplayProgress | None]:
    return dict(positions.changes(lambda _: cursor))


def running(*topic_filters: str) -> ReplayPositions:
    positions = ReplayPositions()
    for cut, topic_filter in enumerate(topic_filters, 1):
        positions.add(topic_filter, ReplayPosition(cut, 1))
        assert positions.next() is not None
    return positions


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
    positions = running("t/#")
    assert changes(positions, "") == {}
    assert changes(positions, "t/1") == {"t/#": ReplayProgress("t/1", 1)}
    assert changes(positions, "t/1") == {}
    positions.delivered("t/#", is_stored=True)
    assert changes(positions, "t/1") == {"t/#": None}
    assert not positions


def test_the_end_of_one_replay_looks_at_no_other() -> None:
    """Thousands may await their last acknowledgements: each end of a replay must not cost a look at all of them."""
    positions = running("a", "b", "c")
    assert list(positions.change("b", "b/1")) == [("b", ReplayProgress("b/1", 2))]
    assert list(positions.change("b", "b/1")) == []
    positions.delivered("b", is_stored=True)
    assert list(positions.change("b", "")) == [("b", None)]
    assert list(positions.change("b", "")) == []
    assert list(changes(positions, "z")) == ["a", "c"]


def test_nothing_is_kept_of_a_delivered_replay_whose_session_is_not_stored() -> None:
    positions = running("t/#")
    positions.delivered("t/#", is_stored=False)
    assert not positions


def test_waiting_replays_have_their_turns_in_order_and_cost_no_saving() -> None:
    positions = running("a")
    for topic_filter in ("b", "c", "b"):  # the last one is a new SUBSCRIBE
        positions.add(topic_filter, ReplayPosition(5, 1))
    assert list(changes(positions, "z")) == ["a"]
    assert [positions.next()[0] for _ in "bc"] == ["c", "b"]  # type: ignore[index]
    assert positions.next() is None


def test_interrupted_replays_come_before_the_waiting_ones() -> None:
    positions = running("a", "b")
    positions.add("c", ReplayPosition(5, 1))
    positions.interrupt(lambda topic_filter: topic_filter + "/1")
    assert [(key, position.cursor) for key, position in positions.waiting.items()] == [
        ("a", "a/1"),
        ("b", "b/1"),
        ("c", ""),
    ]


def test_the_newest_cut_is_known() -> None:
    positions = running("a", "b")
    assert positions.newest_cut == 2
    found = positions.get("a")
    assert found is not None
    positions.recut(found, 9)
    assert (positions.newest_cut, found.cut) == (9, 9)
