"""Sessions, Subscriptions and messages for clients in the two databases of mosquitto.

Both give the same entries, and each client before its Subscriptions and messages. A message for a client names the
stored message by its number; :meth:`SessionSource.message` returns its fields. mosquitto's states become four stages:

==============  ===================================================  ===================
stage           the message                                          mosquitto's states
==============  ===================================================  ===================
``QUEUED``      was not sent to the client yet                       1, 2, 4, 11
``SENT``        was sent, and the client has not answered            3, 5
``RELEASED``    QoS 2: the client has it, its PUBCOMP is missing     6, 9
``INCOMING``    QoS 2: comes from the client, its PUBREL is missing  all of the way in
==============  ===================================================  ===================
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

from holdfast.retained.formats import mosquitto_sqlite
from holdfast.retained.formats.file_entry import UnreadableFile
from holdfast.retained.formats.mosquitto_db import BadChunk, MosquittoFile
from holdfast.wire.datatypes import MalformedPacket, ProtocolError
from holdfast.wire.property_codec import decode_properties

_DELIVERY, _SUBSCRIPTION, _CLIENT = 3, 5, 6
_NEVER = 0xFFFF_FFFF
_OUT = 1
_NO_LOCAL, _AS_PUBLISHED = 0x04, 0x08
#: The fixed fields behind ids and times, in versions 5 and 6: of a client (in version 6 with two more, and padding), of
#: a delivery, of a subscription (with padding).
_OLD_CLIENT, _NEW_CLIENT = struct.Struct(">IHH"), struct.Struct(">IHHHH4x")
_DELIVERY_FIELDS, _SUBSCRIPTION_FIELDS = struct.Struct(">HHBBBB"), struct.Struct(">IHHBB2x")
_FIXED_FIRST, _WITH_USERNAME = 5, 6


class Stage(Enum):
    """How far a message is."""

    QUEUED = "queued"
    SENT = "sent"
    RELEASED = "released"
    INCOMING = "incoming"


_STAGES = {1: Stage.QUEUED, 2: Stage.QUEUED, 3: Stage.SENT, 4: Stage.QUEUED, 5: Stage.SENT, 6: Stage.RELEASED,
           9: Stage.RELEASED, 11: Stage.QUEUED}  # fmt: skip


@frozen
class FoundClient:
    """A client with a Session. ``expiry_interval`` is in seconds, None for never; ``expires_at`` in milliseconds."""

    client_id: str
    username: str | None
    port: int
    expiry_interval: int | None
    expires_at: int | None


@frozen
class FoundSubscription:
    """A Subscription of a client."""

    client_id: str
    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int | None = None


@frozen
class FoundDelivery:
    """A message for a client; ``number`` is that of the stored message."""

    client_id: str
    number: int
    qos: int
    retain: bool
    stage: Stage
    packet_identifier: int
    identifiers: tuple[int, ...] = ()


@frozen
class Unusable:
    """A place without an entry, and the reason."""

    reason: str


Found = FoundClient | FoundSubscription | FoundDelivery | Unusable


class SessionSource(Protocol):
    """The Sessions of one file. Its methods raise :class:`UnreadableFile`."""

    def entries(self) -> Iterator[Found]:
        """Yield all entries."""

    def message(self, number: int) -> Mapping[str, Any] | str | None:
        """Return the fields of a stored message, None if it is not in the file, or the problem with it."""


@contextmanager
def sessions_of_db(path: Path) -> Iterator[SessionSource]:
    """Open a ``mosquitto.db``. Raises :class:`UnreadableFile`."""
    with path.open("rb") as file, closing(MosquittoFile(file, path.stat().st_size)) as found:
        yield _OfFile(found)


@contextmanager
def sessions_of_sqlite(path: Path) -> Iterator[SessionSource]:
    """Open a database of the persist-sqlite plugin. Raises :class:`UnreadableFile`."""
    with mosquitto_sqlite.opened(path) as connection:
        yield _OfDatabase(connection)


class _OfFile:
    def __init__(self, found: MosquittoFile) -> None:
        self._found = found

    def entries(self) -> Iterator[Found]:
        fixed_first = self._found.version >= _FIXED_FIRST
        readers = {
            _CLIENT: self._client if fixed_first else self._old_client,
            _SUBSCRIPTION: self._subscription if fixed_first else self._old_subscription,
            _DELIVERY: self._delivery if fixed_first else self._old_delivery,
        }
        for chunk in self._found.chunks():
            if chunk.kind not in readers:
                continue
            try:
                yield readers[chunk.kind](self._found.read(chunk.body, chunk.length))
            except (struct.error, UnicodeDecodeError, MalformedPacket, ProtocolError, ValueError) as error:
                yield Unusable(f"byte {chunk.place}: this entry is damaged ({error})")

    def message(self, number: int) -> Mapping[str, Any] | str | None:
        try:
            found = self._found.message(number)
        except BadChunk as error:
            return str(error)
        return None if found is None else found[1]

    def _client(self, data: bytes) -> Found:
        expires = self._found.number(data[:8])
        if self._found.version >= _WITH_USERNAME:
            interval, _, size, port, user_size = _NEW_CLIENT.unpack_from(data, 8)
            start = 8 + _NEW_CLIENT.size
        else:
            interval, _, size = _OLD_CLIENT.unpack_from(data, 8)
            port = user_size = 0
            start = 8 + _OLD_CLIENT.size
        client, user = _part(data, start, size), _part(data, start + size, user_size)
        return _client_of(client, user, port, interval, expires)

    def _old_client(self, data: bytes) -> Found:
        return FoundClient(_string(data, 0)[0], None, 0, None, None)

    def _subscription(self, data: bytes) -> Found:
        identifier, size, topic_size, qos, options = _SUBSCRIPTION_FIELDS.unpack_from(data)
        start = _SUBSCRIPTION_FIELDS.size
        client, topic = _part(data, start, size), _part(data, start + size, topic_size)
        return _subscription_of(client, topic, qos | options, identifier)

    def _old_subscription(self, data: bytes) -> Found:
        client, at = _string(data, 0)
        topic, at = _string(data, at)
        return _subscription_of(client, topic, struct.unpack_from(">B", data, at)[0], 0)

    def _delivery(self, data: bytes) -> Found:
        number = self._found.number(data[:8])
        packet_identifier, size, qos, state, flags, direction = _DELIVERY_FIELDS.unpack_from(data, 8)
        start = 8 + _DELIVERY_FIELDS.size
        client = _part(data, start, size)
        block = data[start + size :]
        identifiers = decode_properties(block).subscription_identifiers if block else ()
        return _delivery_of(client, number, qos, bool(flags >> 4), direction, state, packet_identifier, identifiers)

    def _old_delivery(self, data: bytes) -> Found:
        client, at = _string(data, 0)
        number = self._found.number(data[at : at + 8])
        packet_identifier, qos, retain, direction, state = struct.unpack_from(">HBBBB", data, at + 8)
        return _delivery_of(client, number, qos, bool(retain), direction, state, packet_identifier, ())


class _OfDatabase:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def entries(self) -> Iterator[Found]:
        tables = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for name in ("clients", "subscriptions", "client_msgs"):
            if name not in tables:
                raise UnreadableFile(f"there is no table {name}, so there are no Sessions in this database")
        for client, user, port, interval, expires in self._connection.execute(
            "SELECT CAST(client_id AS TEXT), CAST(username AS TEXT), listener_port, session_expiry_interval, "
            "session_expiry_time FROM clients ORDER BY client_id"
        ):
            interval = interval & _NEVER if isinstance(interval, int) else 0  # the plugin binds it as a signed number
            yield _client_of(client, user or "", _whole(port), interval, _whole(expires))
        for client, topic, options, identifier in self._connection.execute(
            "SELECT CAST(client_id AS TEXT), CAST(topic AS TEXT), subscription_options, subscription_identifier "
            "FROM subscriptions ORDER BY client_id, topic"
        ):
            yield _subscription_of(client, topic, _whole(options), _whole(identifier))
        for client, number, qos, retain, direction, state, packet_identifier, identifier in self._connection.execute(
            "SELECT CAST(client_id AS TEXT), store_id, qos, retain, direction, state, mid, subscription_identifier "
            "FROM client_msgs ORDER BY client_id, cmsg_id, rowid"
        ):
            identifiers = (identifier,) if _whole(identifier) else ()
            yield _delivery_of(
                client, _whole(number), _whole(qos), bool(retain), _whole(direction), _whole(state),
                _whole(packet_identifier), identifiers,
            )  # fmt: skip

    def message(self, number: int) -> Mapping[str, Any] | str | None:
        found = mosquitto_sqlite.message(self._connection, number)
        return found if found is None else found.problem or found.fields


def _client_of(client: str, user: str, port: int, interval: int, expires: int) -> Found:
    if not interval:
        return Unusable("the Session ended with its connection")
    return FoundClient(
        client,
        user or None,
        port,
        None if interval == _NEVER else interval,
        expires * 1000 if expires > 0 and interval != _NEVER else None,
    )


def _subscription_of(client: str, topic: str, options: int, identifier: int) -> Found:
    return FoundSubscription(
        client,
        topic,
        options & 0x03,
        bool(options & _NO_LOCAL),
        bool(options & _AS_PUBLISHED),
        options >> 4 & 0x03,
        identifier or None,
    )


def _delivery_of(
    client: str, number: int, qos: int, retain: bool, direction: int, state: int, mid: int, identifiers: tuple[int, ...]
) -> Found:
    stage = _STAGES.get(state) if direction == _OUT else Stage.INCOMING
    if stage is None:
        return Unusable(f"a message has the unknown state {state}")
    return FoundDelivery(client, number, qos, retain, stage, mid, identifiers)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _part(data: bytes, start: int, size: int) -> str:
    if start + size > len(data):
        raise ValueError("it is cut short")
    return data[start : start + size].decode()


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">H", data, at)
    return _part(data, at + 2, size), at + 2 + size
