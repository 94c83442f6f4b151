"""The codec of what members say: whatever it encodes it decodes, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.cluster.messages import (
    ENDED,
    NO_ANSWER,
    Applied,
    CrossingMessage,
    Hint,
    Interest,
    Malformed,
    Members,
    Message,
    Question,
    Reply,
    Run,
    Wanted,
    decode,
    encode,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(0, 2**64 - 1)
COUNTS = st.integers(0, 2**32 - 1)
CROSSING = st.builds(
    CrossingMessage,
    TEXTS,
    st.binary(max_size=50),
    st.binary(max_size=10),
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.none() | st.integers(1, 2**63),
    st.none() | TEXTS,
)
CHANGES = st.builds(Wanted, TEXTS, st.integers(0, ENDED)) | st.builds(Members, TEXTS, COUNTS, COUNTS)
MESSAGES = st.one_of(
    st.builds(Applied, NUMBERS),
    st.builds(Hint, NUMBERS),
    st.builds(Interest, NUMBERS, st.lists(CHANGES, max_size=4).map(tuple), st.booleans()),
    st.builds(Run, NUMBERS, st.lists(CROSSING, max_size=4).map(tuple)),
    st.builds(Question, NUMBERS, TEXTS, st.binary(max_size=50)),
    st.builds(Reply, NUMBERS, COUNTS, st.integers(0, NO_ANSWER), st.binary(max_size=50)),
)


@given(MESSAGES)
def test_a_message_is_decoded_as_it_was(message: Message) -> None:
    """Each kind, with texts, bytes and times that are there or not."""
    assert decode(encode(message)) == message


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x04" + b"\0" * 8 + b"\xff\xff\xff\xff")
def test_other_bytes_are_malformed(data: bytes) -> None:
    """Bytes of any kind are a message, the same one when it is encoded again, or are refused as malformed."""
    try:
        message = decode(data)
    except Malformed:
        return
    assert decode(encode(message)) == message


@given(MESSAGES, st.data())
def test_a_message_that_is_cut_or_followed_is_malformed(message: Message, data: st.DataObject) -> None:
    """There is no message within a message, and none with bytes behind it."""
    encoded = encode(message)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for changed in (encoded[:cut], encoded + b"\0"):
        with pytest.raises(Malformed):
            decode(changed)
