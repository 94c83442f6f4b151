"""Facts in the User Properties of packets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.extensions import ALL_FACTS
from holdfast.core.messages import RetainedMessage
from holdfast.retained.store.rows import with_facts
from holdfast.wire import PacketParser, encode
from holdfast.wire.packets import Publish
from tests.retained.strategies import messages, topics

stored_messages = st.builds(lambda topic, revision: (topic, revision), topics, st.integers(0, 2**63 - 1)).flatmap(
    lambda key: messages(*key, 1_700_000_000_000)
)
NAMES = {fact: f"holdfast-{fact}" for fact in ALL_FACTS}


@given(
    st.lists(stored_messages, max_size=4), st.sets(st.sampled_from(ALL_FACTS)).map(lambda asked: tuple(sorted(asked)))
)
def test_packets_gain_the_facts_and_nothing_else(stored: list[RetainedMessage], facts: tuple[str, ...]) -> None:
    """The facts come behind a message's own User Properties; everything else stays as it is."""
    packets = [Publish(one.topic, one.payload, retain=True, properties=one.properties) for one in stored]
    told = [(one.stored_at, one.revision, one.client_id) for one in stored]
    joined = with_facts(b"".join(encode(packet, 5) for packet in packets), facts, told)
    parser = PacketParser(1 << 28, 5)
    parser.receive_data(joined)
    for one, packet in zip(stored, packets, strict=True):
        found = parser.next_packet()
        assert isinstance(found, Publish)
        own = len(packet.properties.user_properties)
        assert found.properties.user_properties[:own] == packet.properties.user_properties
        added = dict(found.properties.user_properties[own:])
        wanted = {NAMES[fact] for fact in facts} - ({"holdfast-publisher"} if one.client_id is None else set())
        assert added.keys() == wanted
        assert added.get("holdfast-revision", str(one.revision)) == str(one.revision)
        assert added.get("holdfast-publisher", one.client_id) == one.client_id
        assert (found.topic, found.payload, found.retain) == (packet.topic, packet.payload, True)
    assert parser.next_packet() is None
