"""The bytes that members send each other: all messages survive the way, and nothing else is taken for one."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.cluster.messages import (
    ENDED,
    NO_ANSWER,
    Applied,
    Connected,
    CrossingMessage,
    Hint,
    Interest,
    Malformed,
    Members,
    Message,
    Outcome,
    Question,
    Release,
    Released,
    Reply,
    Run,
    Wanted,
    decode,
    encode,
)
from tests.strategies import topic_filters, topic_names

numbers = st.integers(0, 2**64 - 1)
longs = st.integers(0, 2**32 - 1)
texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)
shared_filters = topic_filters().map(lambda topic_filter: f"$share/g/{topic_filter}")
changes = st.one_of(
    st.builds(Wanted, topic_filters(), st.integers(0, ENDED)), st.builds(Members, shared_filters, longs, longs)
)
crossing_messages = st.builds(
    CrossingMessage, topic_names(), st.binary(max_size=20), st.binary(max_size=20), st.none() | texts,
    st.none() | texts, st.none() | st.integers(1, 2**64 - 1), st.none() | shared_filters,
)  # fmt: skip
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Interest, numbers, st.lists(changes, max_size=5).map(tuple), st.booleans()),
    st.builds(Applied, numbers),
    st.builds(Hint, numbers),
    st.builds(Run, numbers, st.lists(crossing_messages, max_size=5).map(tuple)),
    st.builds(Release, numbers, texts, st.none() | texts, st.booleans(), numbers),
    st.builds(Released, numbers, st.sampled_from(Outcome)),
    st.builds(Connected, st.lists(st.tuples(texts, numbers), max_size=4).map(tuple), st.booleans()),
    st.builds(Question, numbers, texts, st.binary(max_size=50)),
    st.builds(Reply, numbers, longs, st.integers(0, NO_ANSWER), st.binary(max_size=50)),
)
TEXT = pack(">I", 1) + b"a"


def decoded(data: bytes) -> Message | None:
    """Return the message of these bytes, None if they are malformed. Anything else raised is a fault."""
    try:
        return decode(data)
    except Malformed:
        return None


@given(messages)
def test_a_message_survives_the_way(message: Message) -> None:
    """Each value, also an empty text and a text that is not there, is the same behind it."""
    assert decode(encode(message)) == message


@given(messages)
def test_no_part_of_a_message_is_one(message: Message) -> None:
    """A message that is cut short, or with more bytes behind it, is refused."""
    data = encode(message)
    for end in range(len(data)):
        with pytest.raises(Malformed):
            decode(data[:end])
    with pytest.raises(Malformed):
        decode(data + b"\0")


@given(st.binary(max_size=80))
@example(b"")
@example(b"\x04" + b"\0" * 8 + b"\xff" * 4)
def test_arbitrary_bytes_are_refused_or_a_message(data: bytes) -> None:
    """Nothing but Malformed is raised. What is taken survives the way as well."""
    message = decoded(data)
    assert message is None or decode(encode(message)) == message


@given(messages, st.data())
def test_changed_bytes_are_refused_or_a_message(message: Message, data: st.DataObject) -> None:
    """Some bytes of a message are others, are left out or are put in."""
    wrong = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(wrong)))
        wrong[start : start + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    found = decoded(bytes(wrong))
    assert found is None or decode(encode(found)) == found


@pytest.mark.parametrize("kind", [1, 4], ids=["interest", "run"])
def test_a_count_is_not_believed(kind: int) -> None:
    """A few bytes that promise four thousand million values are refused before any is read."""
    head = bytes([kind]) + pack(">Q", 1) + (b"\0" if kind == 1 else b"")
    with pytest.raises(Malformed, match="cut short"):
        decode(head + pack(">I", 0xFFFFFFFE) + b"\0" * 100)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" + b"\0" * 8,
        b"\x05" + b"\0" * 8,
        b"\x01" + pack(">QBI", 1, 2, 0),
        b"\x01" + pack(">QBIB", 1, 0, 1, 5) + TEXT + pack(">II", 1, 1),
        b"\x01" + pack(">QBIB", 1, 0, 1, 1) + pack(">I", 1) + b"\xff",
    ],
    ids=["kind 0", "kind 5", "flag 2", "change 5", "no UTF-8"],
)
def test_unknown_values_are_refused(data: bytes) -> None:
    """A later version may send them; this one does not guess."""
    with pytest.raises(Malformed):
        decode(data)


def crossing(topic: str = "a", share: str | None = None) -> Run:
    """Return a run of one message."""
    return Run(0, (CrossingMessage(topic, b"", b"\0", None, None, None, share),))


@pytest.mark.parametrize(
    "message",
    [
        crossing(topic=""),
        crossing(topic="a/#"),
        crossing(topic="a\0b"),
        crossing(share="a"),
        crossing(share="$share/g"),
        crossing(share="$share/g/a#"),
        Interest(1, (Wanted("a/#/b", 1),)),
        Interest(1, (Wanted("", 1),)),
        Interest(1, (Members("a", 1, 0),)),
        Interest(1, (Members("$share/+/a", 1, 0),)),
    ],
    ids=str,
)
def test_topics_that_no_client_may_use_are_refused(message: Message) -> None:
    """A Client that got such a Topic Name would have to end its connection."""
    with pytest.raises(Malformed):
        decode(encode(message))
