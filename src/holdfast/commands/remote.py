"""Asks a broker for its retained messages over MQTT, with the permissions of an MQTT client.

It answers the calls of the API that ``holdfast retainer get``, ``topics``, ``count`` and ``tree`` make, in the same
shape. It imports no Twisted.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.commands.interfaces import NO_ARGUMENTS, Arguments, Inaccessible
from holdfast.core.topics import ASK_COUNT, ASK_GET, ASK_TREE
from holdfast.wire import PacketParser, Properties, ProtocolError, ReasonCode, encode
from holdfast.wire import packets as p
from holdfast.wire.datatypes import WireError

#: by scheme: the usual port
_PORTS = {"mqtt": 1883, "mqtts": 8883}
#: seconds that the broker may send nothing
_TIMEOUT = 60.0
_READ_SIZE = 1 << 16
_LARGEST = 8 << 20
_SUMMARY = ["qos", "size", "revision", "stored_at", "expires_at", "properties"]


class RemoteBroker:
    """Asks over one connection. ``response_topic`` is where the answers come, None for one of the broker's choice."""

    reaches_subscribers = True

    def __init__(self, connection: socket.socket, url: str, username: str | None, password: bytes | None) -> None:
        self._socket = connection
        self._url = url
        self._parser = PacketParser(_LARGEST, 5)
        self._identifier = 0
        properties = Properties(request_response_information=1, maximum_packet_size=_LARGEST)
        connect = p.Connect("", 5, True, 0, username, password, None, properties)
        self._send(connect)
        answer = self._next()
        if not isinstance(answer, p.Connack) or answer.reason_code:
            reason = answer.reason_code if isinstance(answer, p.Connack) else ReasonCode.PROTOCOL_ERROR
            said = answer.properties.reason_string if isinstance(answer, p.Connack) else None
            raise Inaccessible(f"{url} refuses the connection: {said or f'0x{reason:02x}'}")
        self._information = answer.properties.response_information
        self._response_topic = ""

    def answers_on(self, response_topic: str | None) -> None:
        """Subscribe to the topic of the answers; None for one of the broker's or our choice."""
        if response_topic is None:
            base = (self._information or "holdfast/answers").rstrip("/")
            response_topic = f"{base}/{secrets.token_hex(8)}"
        self._send(p.Subscribe(self._next_identifier(), (p.SubscriptionRequest(response_topic, 1),)))
        suback = self._next()
        if not isinstance(suback, p.Suback) or suback.reason_codes[0] >= ReasonCode.UNSPECIFIED_ERROR:
            raise Inaccessible(
                f"{self._url} does not allow a subscription to {response_topic}, where the answers would come; name "
                "another topic with --response-topic"
            )
        self._response_topic = response_topic

    def call(self, method: str, path: str, arguments: Arguments = NO_ARGUMENTS, body: bytes = b"") -> Any:
        """Answer a call of the API. Raises :class:`Inaccessible`."""
        topic, after = arguments.get("topic"), arguments.get("cursor")
        limit = {"limit": int(arguments["limit"])} if "limit" in arguments else {}
        going_on = {} if after is None else {"after": after}
        if path == "/messages":
            answer = self._ask(ASK_GET, {"filter": topic or "#", "fields": _SUMMARY, **limit, **going_on})
            return _page([_summary(one) for one in answer["messages"]], answer)
        if path == "/tree":
            parent = {} if topic is None else {"topic": topic}
            answer = self._ask(ASK_TREE, {**parent, **limit, **going_on})
            return _page(answer["nodes"], answer)
        assert path == "/count", path
        count = size = 0
        while True:
            answer = self._ask(ASK_COUNT, {"filter": topic or "#", **going_on})
            count, size = count + answer["count"], size + answer["bytes"]
            if answer["after"] is None:
                return {"count": count, "bytes": size, "exact": True}
            going_on = {"after": answer["after"]}

    def pieces(
        self, path: str, arguments: Arguments = NO_ARGUMENTS, method: str = "GET", body: bytes = b""
    ) -> Iterator[bytes]:
        """Yield the line of an export for the message of one topic, if it has one."""
        assert path == "/export", path
        answer = self._ask(ASK_GET, {"filter": arguments["topic"]})
        for one in answer["messages"]:
            if one["payload"] is None:
                raise Inaccessible(f"{one['topic']}: the payload of {one['size']} bytes is too large for an answer")
            yield json.dumps(_record(one), separators=(",", ":")).encode() + b"\n"
        if answer.get("left_out"):
            raise Inaccessible(f"{arguments['topic']}: the message is too large for an answer")

    def _ask(self, topic: str, question: dict[str, Any]) -> Any:
        """Return the answer to one question."""
        identifier = self._next_identifier()
        correlation = identifier.to_bytes(2, "big")
        properties = Properties(response_topic=self._response_topic, correlation_data=correlation)
        payload = json.dumps(question).encode()
        self._send(p.Publish(topic, payload, 1, False, False, identifier, properties))
        while True:
            packet = self._next()
            if isinstance(packet, p.Puback) and packet.packet_identifier == identifier and packet.reason_code >= 0x80:
                said = packet.properties.reason_string or f"0x{packet.reason_code:02x}"
                raise Inaccessible(f"{self._url} refuses the question: {said}")
            if isinstance(packet, p.Publish):
                if packet.qos:
                    self._send(p.Puback(packet.packet_identifier))
                if packet.properties.correlation_data == correlation:
                    answer = json.loads(packet.payload)
                    if "error" in answer:
                        raise Inaccessible(f"{self._url} cannot answer: {answer['reason']}")
                    return answer

    def _next_identifier(self) -> int:
        self._identifier = self._identifier % 65_535 + 1
        return self._identifier

    def _send(self, packet: p.Packet) -> None:
        with self._explained():
            self._socket.sendall(encode(packet, 5))

    def _next(self) -> p.Packet:
        """Return the next packet of the broker."""
        with self._explained():
            while (packet := self._parser.next_packet()) is None:
                data = self._socket.recv(_READ_SIZE)
                if not data:
                    raise ConnectionResetError(0, "the broker has closed the connection")
                self._parser.receive_data(data)
        if isinstance(packet, p.Disconnect):
            said = packet.properties.reason_string or f"0x{packet.reason_code:02x}"
            raise Inaccessible(f"{self._url} ends the connection: {said}")
        return packet

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise Inaccessible(f"{self._url} has sent nothing for {_TIMEOUT:g} seconds") from error
        except OSError as error:
            raise Inaccessible(f"{self._url}: {error.strerror or error}") from error
        except (WireError, ProtocolError) as error:
            raise Inaccessible(f"{self._url} sends what is not MQTT 5: {error}") from error


@contextmanager
def remote(
    url: str, username: str | None, password: bytes | None, ca: Path | None, response_topic: str | None
) -> Iterator[RemoteBroker]:
    """Connect to a broker, ``mqtts://HOST:PORT`` or ``mqtt://HOST:PORT``. ``ca`` has the certificates to trust.

    Raises :class:`Inaccessible`.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise Inaccessible(f"{url}: {error}") from None
    if port is None or not parts.hostname or parts.username or parts.path not in ("", "/"):
        raise Inaccessible(f"{url}: a broker is named as mqtts://HOST or mqtt://HOST, with :PORT where it is not usual")
    try:
        connection = socket.create_connection((parts.hostname, port), _TIMEOUT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a question does not wait behind a PUBACK
        if parts.scheme == "mqtts":
            context = ssl.create_default_context(cafile=ca)
            connection = context.wrap_socket(connection, server_hostname=parts.hostname)
    except ssl.SSLError as error:
        raise Inaccessible(f"{url}: TLS fails: {getattr(error, 'verify_message', '') or error.reason}") from error
    except OSError as error:
        raise Inaccessible(f"{url}: {error.strerror or error}") from error
    with connection:
        broker = RemoteBroker(connection, url, username, password)
        broker.answers_on(response_topic)
        yield broker
        connection.sendall(encode(p.Disconnect(), 5))


def _page(data: list[Any], answer: dict[str, Any]) -> dict[str, Any]:
    return {"data": data, "meta": {"hasnext": answer["after"] is not None, "cursor": answer["after"]}}


def _summary(one: dict[str, Any]) -> dict[str, Any]:
    """Return a message as the API lists it. Its publisher is not told."""
    return {
        "msgid": f"{int(one['revision']):016X}", "topic": one["topic"], "qos": one["qos"],
        "publish_at": one["stored_at"], "from_clientid": None, "from_username": None, "size": one["size"],
        "expiry_at": one["expires_at"], "properties": one["properties"], "revision": one["revision"],
    }  # fmt: skip


def _record(one: dict[str, Any]) -> dict[str, Any]:
    """Return a message as an export has it. Its publisher is not told."""
    return {
        "topic": one["topic"], "payload": one["payload"], "qos": one["qos"], "properties": one["properties"],
        "client_id": None, "username": None, "stored_at": _milliseconds(one["stored_at"]),
        "expires_at": None if one["expires_at"] is None else _milliseconds(one["expires_at"]),
        "revision": one["revision"],
    }  # fmt: skip


def _milliseconds(date: str) -> int:
    return round(datetime.fromisoformat(date).timestamp() * 1000)
