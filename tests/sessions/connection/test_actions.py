"""The actions of a connection are made with the first packet of their type, and an idle connection is small."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

from holdfast.sessions.connection.link import NO_ACTIONS, Action, Actions
from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.transports.test_protocol import Door


def test_an_action_is_made_once() -> None:
    made: list[type] = []

    def find(packet_type: type[Any]) -> Action | None:
        made.append(packet_type)
        return None if packet_type is p.Auth else made.append

    actions = Actions(find=find)
    assert actions[p.Publish] == actions[p.Publish] == made.append
    assert actions[p.Auth] is None
    assert made == [p.Publish, p.Auth]
    assert list(actions) == [p.Publish]


def test_closed_actions_find_none() -> None:
    actions = Actions({p.Pingreq: print}, lambda _: print)
    actions.close()
    assert actions[p.Pingreq] is None
    assert NO_ACTIONS[p.Connect] is None


def _tracked() -> Counter[str]:
    gc.collect()
    return Counter(type(one).__qualname__ for one in gc.get_objects())


def test_an_idle_connection_has_few_objects() -> None:
    """Each of ten thousand sensors has them all. What most clients never need is made when it is needed."""
    door = Door()
    # Python remembers some questions about classes when they are first asked, here while a collection runs.
    kept = [door.accept()]
    door.send(kept[0], encode(p.Connect("first", 4, clean_start=True), 4))
    _tracked()
    before = _tracked()
    for number in range(20):
        kept.append(door.accept())
        door.send(kept[-1], encode(p.Connect(f"c{number}", 4, clean_start=True), 4))
    grown = _tracked() - before
    assert not {"deque", "OrderedDict", "Publishing", "Subscribing", "UnreadAnswers"} & set(grown)
    assert sum(grown.values()) <= 20 * 55
