"""Topics, Topic Filters and messages for Hypothesis, with characters that are special in ranges, GLOB, LIKE and SQL."""

from __future__ import annotations

from hypothesis import strategies as st

from holdfast.core.messages import RetainedMessage
from holdfast.wire.properties import NO_PROPERTIES, Properties

_PLAIN = ["a", "b", "", "aa", "a!", "0", "-", "\x01", "\x7f", "é", "\U0010ffff"]
_TRAPS = ["$", "$SYS", "*", "?", "[", "]", "[a]", "a*", "%", "_", "\\", "'", '"', "^"]

levels = st.sampled_from(_PLAIN) | st.sampled_from(_TRAPS)
topics = st.lists(levels, min_size=1, max_size=5).map("/".join).filter(bool)


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    """A valid, non-shared Topic Filter."""
    wanted = draw(st.lists(st.just("+") | levels, max_size=5))
    if not wanted or draw(st.booleans()):
        wanted.append("#")
    return "/".join(wanted) or "/"


payloads = st.binary(max_size=20) | st.sampled_from([b"", b"\0", b"\xff\xfe\0\xff", b"\xc3", b"x" * 200])

properties = st.just(NO_PROPERTIES) | st.builds(
    Properties,
    content_type=st.none() | st.just("text/plain; é"),
    correlation_data=st.none() | st.just(b"\0\xff"),
    payload_format_indicator=st.none() | st.sampled_from([0, 1]),
    user_properties=st.just(()) | st.just((("k", "v"), ("k", "w"))),
)


@st.composite
def messages(draw: st.DrawFn, topic: str, revision: int, now: int) -> RetainedMessage:
    """A message for a topic; one in three expires, before or after ``now``."""
    expiry = draw(st.sampled_from([None, None, now - 1, now, now + 1, now + 100_000]))
    client_id = draw(st.sampled_from([None, "one", "two"]))
    return RetainedMessage(
        topic,
        draw(payloads),
        draw(st.integers(0, 2)),
        draw(properties),
        client_id,
        draw(st.sampled_from([None, "user"])),
        now,
        expiry,
        revision,
    )
