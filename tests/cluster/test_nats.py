"""The parser of NATS: any cut of the bytes gives the same events, and nothing but NatsError comes of other bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster import nats
from holdfast.cluster.nats import (
    Accepted,
    Event,
    Info,
    Message,
    NatsError,
    NatsParser,
    Pinged,
    Ponged,
    Refused,
    TooLarge,
)

_LARGEST = 50


def _all(chunks: Iterable[bytes]) -> tuple[list[Event], str | None]:
    """Return the events of these bytes, and the sentence of the error that ends them."""
    parser = NatsParser(_LARGEST)
    events: list[Event] = []
    try:
        for chunk in chunks:
            events += parser.feed(chunk)
    except NatsError as error:
        return events + error.events, str(error)
    return events, None


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted(cut % (len(data) + 1) for cut in cuts)
    return [data[begin:end] for begin, end in zip([0, *places], [*places, len(data)], strict=True)]


_WORDS = st.text("abcXYZ0189._-$>*é", min_size=1, max_size=12)
_PAYLOADS = st.binary(max_size=_LARGEST + 20)


@st.composite
def said(draw: st.DrawFn) -> bytes:
    """What a server says at once: a line, with its payload."""
    kind = draw(st.sampled_from(["PING", "PONG", "+OK", "-ERR", "INFO", "MSG", "HMSG"]))
    if kind in ("PING", "PONG", "+OK"):
        return f"{kind}\r\n".encode()
    if kind == "-ERR":
        return f"-ERR '{draw(_WORDS)}'\r\n".encode()
    if kind == "INFO":
        return b"INFO %b \r\n" % json.dumps({"max_payload": draw(st.integers(0, 9)), "server_name": "a"}).encode()
    reply = draw(st.sampled_from(["", f"{draw(_WORDS)} "]))
    payload = draw(_PAYLOADS)
    before = b"NATS/1.0\r\n\r\n"
    if kind == "MSG":
        return f"MSG {draw(_WORDS)} 1 {reply}{len(payload)}\r\n".encode() + payload + b"\r\n"
    lengths = f"{len(before)} {len(before) + len(payload)}"
    return f"HMSG {draw(_WORDS)} 1 {reply}{lengths}\r\n".encode() + before + payload + b"\r\n"


@given(st.lists(said(), max_size=8), st.lists(st.integers(0, 2**20), max_size=20))
def test_any_cut_gives_the_same_events(parts: list[bytes], cuts: list[int]) -> None:
    """One event for each line of the server, however the bytes arrive."""
    data = b"".join(parts)
    whole = _all([data])
    assert whole[1] is None
    assert len(whole[0]) == len(parts)
    assert _all(_cut(data, cuts)) == whole
    assert _all(data[at : at + 1] for at in range(len(data))) == whole


@given(
    st.lists(
        st.one_of(
            said(), st.binary(max_size=30),
            st.sampled_from([b"\r\n", b"MSG a 1 ", b"HMSG a 1 5 3\r\n", b"INFO [1]\r\n", b"INFO {", b"-ERR\r\n"]),
        ),
        max_size=6,
    ),
    st.lists(st.integers(0, 2**20), max_size=20),
)  # fmt: skip
def test_other_bytes_raise_one_error(parts: list[bytes], cuts: list[int]) -> None:
    """The same one for any cut, after the same events."""
    data = b"".join(parts)
    assert _all(_cut(data, cuts)) == _all([data])


def test_the_lines_of_a_server() -> None:
    """One event of each kind."""
    data = (
        b'INFO {"server_name":"n","version":"2","max_payload":100,"tls_required":true,"connect_urls":["a:1",7],'
        b"\"ldm\":true}\r\nPING\r\npong\r\n+OK\r\n-ERR 'Authorization Violation'\r\n"
        b"MSG a.b 1 5\r\nhello\r\nMSG a.b 1 answer.to 5\r\nhe\r\no\r\nHMSG a.b 2 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    )
    assert NatsParser().feed(data) == [
        Info("n", "2", 100, needs_tls=True, urls=("a:1",), is_leaving=True),
        Pinged(), Ponged(), Accepted(), Refused("Authorization Violation"),
        Message("a.b", "1", b"hello"), Message("a.b", "1", b"he\r\no"), Message("a.b", "2", b"hi"),
    ]  # fmt: skip


def test_a_message_that_is_too_large_is_passed_over() -> None:
    """Whoever may publish cannot end the connection, nor fill the memory."""
    parser = NatsParser(10)
    assert parser.feed(b"MSG a 1 1000000\r\n" + b"x" * 900_000) == [TooLarge("a", "1", 1_000_000)]
    assert parser.feed(b"x" * 100_000 + b"\r\nPING\r\n") == [Pinged()]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "no line of NATS: 'HTTP/1.1 400 Bad Request'"),
        (b"x" * 40_000, "a line has more than 32768 bytes"),
        (b"MSG a 1 -5\r\n", "no length of a message: '-5'"),
        (b"MSG a 1 9999999999\r\n", "no length of a message"),
        (b"MSG a\r\n", "no line of a message"),
        (b"MSG a 1 2\r\nabcd", "a payload does not end where its length says"),
        (b"HMSG a 1 5 3\r\n", "headers are longer than their message"),
        (b"INFO {\r\n", "INFO has no JSON: '{'"),
        (b"INFO []\r\n", "INFO has no object"),
        (b"INFO " + b"[" * 20_000 + b"\r\n", "INFO has no JSON"),
    ],
)
def test_each_error_says_what_was_found(data: bytes, sentence: str) -> None:
    """And bytes after an error raise it again."""
    parser = NatsParser()
    with pytest.raises(NatsError, match=sentence) as caught:
        parser.feed(b"PING\r\n" + data)
    assert caught.value.events == [Pinged()]
    with pytest.raises(NatsError, match=sentence):
        parser.feed(b"PING\r\n")


def test_the_lines_of_a_client() -> None:
    """A subject or a login cannot end its line."""
    assert nats.publish("a.b", b"\r\nhello") == b"PUB a.b 7\r\n\r\nhello\r\n"
    assert nats.subscribe("a", 1) + nats.unsubscribe(1) == b"SUB a 1\r\nUNSUB 1\r\n"
    assert nats.connect({"user": "a\r\nPUB", "pass": "ü"}) == b'CONNECT {"user":"a\\r\\nPUB","pass":"\\u00fc"}\r\n'
    for subject in ("", "a b", "a\r\n", "a\tb"):
        with pytest.raises(ValueError, match="a subject of NATS"):
            nats.publish(subject, b"")


@given(st.text(max_size=20), st.text(max_size=20))
def test_each_name_is_one_part_of_a_subject(one: str, other: str) -> None:
    """Two names are two parts."""
    for name in (one, other):
        assert not set(nats.token(name)) & set(" .*>\r\n\t")
    assert (nats.token(one) == nats.token(other)) is (one == other)
