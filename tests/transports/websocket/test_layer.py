"""Frames on one connection: what comes of them, what they may cost, and how the connection ends."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.transports import websocket, websocket_frames
from holdfast.transports.protocol import CLOSING_TIME
from holdfast.wire import ReasonCode, encode
from holdfast.wire import packets as p
from tests.transports.test_protocol import CONNACK, CONNECT, HEADER, PROXY
from tests.transports.websocket.client import (
    BINARY,
    CLOSE,
    FIRST,
    LAST,
    MASK,
    MORE,
    PING,
    PONG,
    TEXT,
    WebSocketDoor,
    frame,
    log_lines,
    request,
)
from tests.transports.websocket.client import sent_frames as frames_of

PINGREQ, PINGRESP = b"\xc0\0", b"\xd0\0"
CONNECT_5 = encode(p.Connect("c", 5), 5)
DISCONNECT = b"\xe0\0"
STREAM = CONNECT + encode(p.Subscribe(1, (p.SubscriptionRequest("#", 0),)), 4) + b"".join(
    encode(p.Publish(f"a/{size}", b"x" * size, 0, False), 4) for size in (0, 1, 200, 300, 1)
) + PINGREQ  # fmt: skip


def payload_of(data: bytes) -> bytes:
    return b"".join(payload for first, payload in frames_of(data) if first == BINARY)


def close_of(data: bytes) -> int | None:
    """Return the code of the Close that a broker has sent last."""
    first, payload = frames_of(data)[-1]
    assert first == CLOSE
    return struct.unpack("!H", payload[:2])[0] if payload else None


def test_control_packets_are_served_in_binary_frames() -> None:
    door = WebSocketDoor()
    protocol = door.open()
    assert door.send(protocol, frame(CONNECT)) == b"\x82\4" + CONNACK
    assert door.send(protocol, frame(PINGREQ)) == b"\x82\2" + PINGRESP


def test_answers_of_one_turn_are_sent_in_one_frame() -> None:
    door = WebSocketDoor()
    protocol = door.open()
    door.send(protocol, frame(CONNECT))
    assert door.send(protocol, frame(PINGREQ) * 3) == b"\x82\6" + PINGRESP * 3


def test_a_packet_in_fragments_and_packets_in_one_frame_are_the_same() -> None:
    door = WebSocketDoor()
    protocol = door.open()
    pieces = frame(CONNECT[:1], FIRST) + frame(b"", MORE) + frame(CONNECT[1:] + PINGREQ, LAST) + frame(b"")
    assert payload_of(door.send(protocol, pieces)) == CONNACK + PINGRESP


def test_frames_may_come_with_the_request() -> None:
    door = WebSocketDoor()
    answer = door.send(door.accept(), request() + frame(CONNECT))
    assert answer.partition(b"\r\n\r\n")[2] == b"\x82\4" + CONNACK


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = sorted(draw(st.sets(st.integers(1, len(data) - 1), max_size=12)))
    return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(st.data())
def test_any_cut_into_frames_fragments_and_segments_is_the_plain_stream(data: st.DataObject) -> None:
    """Control Packets need not begin with a frame, nor end with one [MQTT311-6.0.0-2], [MQTT5-6.0.0-2]."""
    plain = WebSocketDoor()
    expected = payload_of(plain.send(plain.open(), frame(STREAM)))
    sent = b""
    for message in data.draw(cut(STREAM)):
        parts = [message] if len(message) < 2 else data.draw(cut(message))
        for number, part in enumerate(parts):
            first = (0x80 if number == len(parts) - 1 else 0) | (0 if number else 2)
            sent += frame(part, first, data.draw(st.binary(min_size=4, max_size=4)))
            if data.draw(st.booleans()):
                sent += frame(b"", PONG)
    door = WebSocketDoor()
    protocol = door.open()
    received = b"".join(door.send(protocol, segment) for segment in data.draw(cut(sent)))
    assert payload_of(received) == expected


def test_a_long_piece_is_sent_in_frames_of_16_bit_lengths() -> None:
    data = bytes(range(256)) * 1000
    frames = frames_of(websocket.binary(data))
    assert [first for first, _ in frames] == [BINARY] * 4
    assert b"".join(payload for _, payload in frames) == data


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_the_length_of_a_sent_frame(size: int) -> None:
    assert b"".join(payload for _, payload in frames_of(websocket.binary(bytes(size)))) == bytes(size)


# --- pings


def test_a_ping_is_answered() -> None:
    door = WebSocketDoor()
    assert door.send(door.open(), frame(b"are you there", PING)) == b"\x8a\x0dare you there"


def test_pings_of_a_client_that_reads_nothing_get_one_answer_in_the_end() -> None:
    door = WebSocketDoor()
    protocol = door.open()
    door.send(protocol, frame(CONNECT))
    protocol.transport.full = True
    for number in range(1000):
        door.send(protocol, frame(b"%d" % number, PING))
    assert protocol.unsent() <= 2 + 125
    protocol.transport.drain()
    assert frames_of(door.settled(protocol)) == [(PONG, b"0"), (PONG, b"999")]


def test_an_answer_to_a_ping_never_comes_within_a_frame() -> None:
    door = WebSocketDoor()
    protocol = door.open()
    door.send(protocol, frame(CONNECT))
    protocol.transport.full = True
    door.send(protocol, frame(PINGREQ))
    door.send(protocol, frame(b"x", PING))
    door.send(protocol, frame(PINGREQ))
    protocol.transport.drain()
    assert frames_of(door.settled(protocol)) == [(BINARY, PINGRESP), (PONG, b"x"), (BINARY, PINGRESP)]


# --- what clients do wrong


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(b"text", TEXT), 1003),
        (frame(b"", TEXT), 1003),
        (frame(b"te", 0x01), 1003),
        (frame(PINGREQ)[:2].replace(b"\x82\x82", b"\x82\x02") + PINGREQ, 1002),  # not masked
        (frame(b"x", LAST), 1002),  # a continuation of nothing
        (frame(b"\x10", FIRST) + frame(b"x"), 1002),  # a new message within another
        (frame(b"x", 0xC2), 1002),  # reserved bits
        (frame(b"x", 0xA2), 1002),
        (frame(b"x", 0x83), 1002),  # reserved opcodes
        (frame(b"x", 0x8B), 1002),
        (frame(b"x", 0x09), 1002),  # a ping in fragments
        (frame(b"x" * 126, PING), 1002),
        (frame(b"x" * 126, CLOSE), 1002),
        (b"\x82\xfe\x00\x05" + MASK, 1002),  # lengths that are not minimal
        (b"\x82\xff" + (5).to_bytes(8, "big") + MASK, 1002),
        (b"\x82\xff" + (1 << 63).to_bytes(8, "big") + MASK, 1002),
        (b"\x82\xff" + ((1 << 63) - 1).to_bytes(8, "big") + MASK, 1009),
        (b"\x82\xff" + (1 << 17).to_bytes(8, "big") + MASK, 1009),
        (frame(b"\x10\xf0\xff\x03" + bytes(40000), FIRST) + frame(bytes(40000), LAST), 1009),
        (frame(b"\3", CLOSE), 1002),
        *(
            (frame(code.to_bytes(2, "big"), CLOSE), 1002)
            for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535)
        ),
        (frame(b"\x03\xe8\xff", CLOSE), 1007),
    ],
)
def test_a_violation_is_closed_with_its_code_and_one_line(data: bytes, code: int) -> None:
    """Text frames are one of them [MQTT311-6.0.0-1], [MQTT5-6.0.0-1]."""
    door = WebSocketDoor(size=1000)
    protocol = door.open()
    with log_lines() as lines:
        answer = door.send(protocol, data + frame(CONNECT))
    assert close_of(answer) == code
    assert protocol.transport.disconnecting
    assert len(lines) == 1
    assert "broke the rules of WebSocket" in lines[0]
    assert not door.broker.counters.connects


def test_packets_before_a_violation_are_served_and_the_will_is_published() -> None:
    door = WebSocketDoor()
    watcher = door.open()
    door.send(watcher, frame(CONNECT + encode(p.Subscribe(1, (p.SubscriptionRequest("will", 0),)), 4)))
    protocol = door.open()
    connect = encode(p.Connect("other", will=p.Will("will", b"gone", 0, False)), 4)
    assert close_of(door.send(protocol, frame(connect) + frame(b"x", TEXT))) == 1003
    assert b"gone" in payload_of(door.settled(watcher))


def test_a_frame_that_is_too_long_is_refused_by_its_header() -> None:
    door = WebSocketDoor()
    protocol = door.open()
    door.send(protocol, frame(CONNECT))
    assert close_of(door.send(protocol, b"\x82\xff" + (1 << 62).to_bytes(8, "big") + MASK)) == 1009


@given(st.binary(min_size=1, max_size=200), st.booleans())
def test_garbage_ends_in_one_line_and_no_traceback(data: bytes, opened: bool) -> None:
    door = WebSocketDoor()
    protocol = door.open() if opened else door.accept()
    with log_lines() as lines:
        door.send(protocol, data)
        door.broker.advance(16)
        door.broker.advance(CLOSING_TIME)
    assert protocol.transport.disconnecting or protocol.transport.aborted
    assert len(lines) <= 1
    assert not any("Traceback" in line for line in lines)


HEADERS = st.dictionaries(
    st.sampled_from(
        ["Host", "Upgrade", "Connection", "Origin", "Sec-WebSocket-Key", "Sec-WebSocket-Version",
         "Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions", "X-Forwarded-For", "Content-Length", ""]
    ),
    st.text(st.characters(max_codepoint=255), max_size=30)
    | st.sampled_from(["websocket", "13", "mqtt", "a:1", "null"]),
)  # fmt: skip


@given(st.text(st.characters(max_codepoint=255), max_size=30), HEADERS)
def test_any_request_gets_one_answer(target: str, headers: dict[str, str]) -> None:
    door = WebSocketDoor()
    protocol = door.accept()
    with log_lines() as lines:
        answer = door.send(protocol, request(f"GET {target} HTTP/1.1", **headers))
    assert answer.startswith(b"HTTP/1.1 ") or protocol.transport.disconnecting
    assert answer.count(b"\r\n\r\n") <= 1
    assert not any("Traceback" in line or "Unhandled" in line for line in lines)


# --- what one client may cost


def test_a_turn_takes_a_bounded_number_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of 64 KiB can have 10,000 frames. The rest of them waits, and the socket is not read meanwhile."""
    parsed = 0
    take = websocket_frames.ReceivedFrames._take_header

    def counted(self: websocket_frames.ReceivedFrames, data: bytes, start: int) -> int:
        nonlocal parsed
        parsed += 1
        return take(self, data, start)

    monkeypatch.setattr(websocket_frames.ReceivedFrames, "_take_header", counted)
    monkeypatch.setattr(websocket_frames.ReceivedFrames, "_take_usual", lambda _self, _data, start: start)
    door = WebSocketDoor()
    protocol = door.open()
    door.send(protocol, frame(CONNECT))
    before = parsed
    protocol.dataReceived(frame(b"") * 10000)
    assert parsed - before <= websocket_frames.FRAMES_OF_A_TURN
    assert protocol.transport.producerState == "paused"
    before = parsed
    door.broker.clock.turn()
    assert 0 < parsed - before <= websocket_frames.FRAMES_OF_A_TURN
    assert door.send(protocol, frame(PINGREQ)) == b"\x82\2" + PINGRESP
    assert parsed == 1 + 10000 + 1
    assert protocol.transport.producerState == "producing"


def test_a_layer_that_goes_on_does_not_read_for_a_connection_that_is_paused() -> None:
    door = WebSocketDoor()
    protocol = door.open()
    protocol.dataReceived(frame(b"") * 1000)
    protocol.pause()
    door.broker.settle()
    assert protocol.transport.producerState == "paused"
    protocol.resume()
    assert protocol.transport.producerState == "producing"


def test_the_unsent_bytes_of_a_frame_are_counted() -> None:
    door = WebSocketDoor()
    protocol = door.open()
    door.send(protocol, frame(CONNECT))
    protocol.transport.full = True
    door.send(protocol, frame(PINGREQ))
    assert protocol.unsent() == len(b"\x82\2" + PINGRESP)


@pytest.mark.parametrize("begun", [b"", b"GET", request()[:-2], request(), request() + frame(CONNECT)[:9]])
def test_a_handshake_that_does_not_end_is_within_the_time_until_connect(begun: bytes) -> None:
    door = WebSocketDoor()
    protocol = door.accept()
    door.broker.advance(10)
    door.send(protocol, begun)
    assert door.acceptance.half_open
    door.broker.advance(4.9)
    assert not protocol.transport.disconnecting
    door.broker.advance(0.2)
    assert door.broker.counters.connections_not_admitted_in_time == 1
    door.broker.advance(CLOSING_TIME)
    assert protocol.transport.disconnecting or protocol.transport.aborted


# --- a proxy in front


@pytest.mark.parametrize("cut_at", [1, len(HEADER), len(HEADER) + 10])
def test_the_header_of_a_proxy_comes_before_the_request(cut_at: int) -> None:
    door = WebSocketDoor(proxies=["127.0.0.1"])
    protocol = door.accept(PROXY)
    data = HEADER + request(X_Forwarded_For="198.51.100.7") + frame(CONNECT)
    answer = door.send(protocol, data[:cut_at]) + door.send(protocol, data[cut_at:])
    assert answer.endswith(b"\x82\4" + CONNACK)
    assert door.acceptance.by_group == {"192.0.2.1": 1}  # what HTTP headers tell is not believed


def test_a_second_header_of_a_proxy_is_no_request() -> None:
    door = WebSocketDoor(proxies=["127.0.0.1"])
    protocol = door.accept(PROXY)
    assert door.send(protocol, HEADER + HEADER + request()) == b""
    assert protocol.transport.disconnecting
    assert door.acceptance.by_group == {"192.0.2.1": 1}


# --- the end


def test_disconnect_is_followed_by_close_and_the_socket_by_the_clients_close() -> None:
    door = WebSocketDoor()
    protocol = door.open()
    door.send(protocol, frame(CONNECT))
    assert close_of(door.send(protocol, frame(DISCONNECT))) == 1000
    assert not protocol.transport.disconnecting
    assert door.send(protocol, frame(b"\x03\xe8", CLOSE)) == b""
    assert protocol.transport.disconnecting


def test_a_client_that_does_not_answer_close_is_aborted() -> None:
    door = WebSocketDoor()
    protocol = door.open()
    door.send(protocol, frame(CONNECT))
    door.send(protocol, frame(DISCONNECT) + frame(CONNECT))
    door.send(protocol, frame(PINGREQ))
    door.broker.clock.advance(CLOSING_TIME - 0.1)
    assert not protocol.transport.aborted
    door.broker.clock.advance(0.1)
    assert protocol.transport.aborted
    assert door.broker.counters.connects == 1


@pytest.mark.parametrize("code", [None, 1000, 1001, 3000, 4999])
def test_a_client_that_closes_without_disconnect_gets_its_close_back_and_its_will_is_published(
    code: int | None,
) -> None:
    door = WebSocketDoor()
    watcher = door.open()
    door.send(watcher, frame(CONNECT + encode(p.Subscribe(1, (p.SubscriptionRequest("will", 0),)), 4)))
    protocol = door.open()
    door.send(protocol, frame(encode(p.Connect("other", will=p.Will("will", b"gone", 0, False)), 4)))
    payload = b"" if code is None else code.to_bytes(2, "big")
    assert frames_of(door.send(protocol, frame(payload, CLOSE))) == [(CLOSE, payload)]
    assert protocol.transport.disconnecting
    assert b"gone" in payload_of(door.settled(watcher))


def test_the_brokers_disconnect_comes_before_its_close() -> None:
    door = WebSocketDoor()
    first, second = door.open(), door.open()
    door.send(first, frame(CONNECT_5))
    door.send(second, frame(CONNECT_5))
    disconnect, close = frames_of(door.settled(first))
    assert disconnect[1][0] == 0xE0
    assert disconnect[1][2] == ReasonCode.SESSION_TAKEN_OVER
    assert close[1] == (1008).to_bytes(2, "big")


def test_a_paused_client_is_read_until_its_close() -> None:
    door = WebSocketDoor()
    protocol = door.open()
    door.send(protocol, frame(CONNECT))
    protocol.pause()
    protocol._above.close(b"", ReasonCode.SUCCESS)
    assert protocol.transport.producerState == "producing"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (ReasonCode.SUCCESS, 1000),
        (ReasonCode.MALFORMED_PACKET, 1002),
        (ReasonCode.PROTOCOL_ERROR, 1002),
        (ReasonCode.PACKET_TOO_LARGE, 1009),
        (ReasonCode.SERVER_SHUTTING_DOWN, 1001),
        (ReasonCode.SERVER_BUSY, 1013),
        (ReasonCode.UNSPECIFIED_ERROR, 1011),
        (ReasonCode.NOT_AUTHORIZED, 1008),
    ],
)
def test_the_close_code_tells_the_reason(reason: ReasonCode, code: int) -> None:
    assert websocket.close_code(reason) == code


@pytest.mark.parametrize("more", [b"", frame(b"", TEXT), frame(b"", CLOSE)])
def test_a_malformed_packet_is_closed_with_1002(more: bytes) -> None:
    door = WebSocketDoor()
    protocol = door.open()
    door.send(protocol, frame(CONNECT))
    assert close_of(door.send(protocol, frame(b"\0\0") + more)) == 1002
    assert protocol.transport.disconnecting is bool(more)


# --- the usual frames are taken without the library

FRAMES = st.one_of(
    st.builds(frame, st.binary(max_size=130), st.just(BINARY), st.binary(min_size=4, max_size=4)),
    st.builds(frame, st.binary(max_size=3), st.sampled_from([FIRST, MORE, LAST, TEXT, PING, PONG, CLOSE, 0xC2, 0x83])),
    st.sampled_from([b"\x82\xfe\0\x05" + MASK, b"\x82\x02xx", b"\x82\xff" + (1 << 63).to_bytes(8, "big") + MASK]),
)


def parsed(data: list[bytes], alone: bool) -> tuple[bytes, bytes | None, object]:
    """Return the payload, the last ping and the end of a connection; ``alone`` lets the library parse every frame."""
    frames = websocket_frames.ReceivedFrames(1 << 16)
    payload = b""
    with pytest.MonkeyPatch.context() as patch:
        if alone:
            patch.setattr(websocket_frames.ReceivedFrames, "_take_usual", lambda _self, _data, start: start)
        for piece in data:
            while piece:
                piece = frames.feed(piece)
                payload += frames.take()
    return payload, frames.ping, frames.end


@given(st.data())
def test_frames_taken_without_the_library_are_those_that_it_would_take(data: st.DataObject) -> None:
    sent = b"".join(data.draw(st.lists(FRAMES, min_size=1, max_size=8)))
    pieces = data.draw(cut(sent)) if len(sent) > 1 else [sent]
    assert parsed(pieces, alone=False) == parsed(pieces, alone=True)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 125, 126, 1000, 65535, 65536])
def test_every_length_is_unmasked(size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    assert parsed([frame(payload)], alone=False) == (payload, None, None)
