"""What members tell each other over the bus, as bytes.

| message | says |
|---|---|
| :class:`Interest` | changes of the Topic Filters and groups of this node's Sessions, up to a version |
| :class:`Applied` | the other node's interest has effect here up to this version |
| :class:`Hint` | a row with this number is committed, and all runs before it are sent |
| :class:`Run` | messages with QoS 0, behind a row |
| :class:`Release` | a client has connected here: give its Session |
| :class:`Released` | the answer |
| :class:`Connected` | these clients have connected here: end their other connections |

Each begins with a byte for its kind. Integers are big-endian; texts and bytes have their length before them. Whoever
can write to the bus could send anything, so :func:`decode` takes nothing for granted, and raises :class:`Malformed`,
also for Topic Names and Topic Filters that no Client may use. The properties of a message stay encoded: whoever
delivers it decodes them.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct, error

from holdfast.core.topics import check_topic_filter, check_topic_name, split_shared
from holdfast.hot_values import hot_frozen

_BYTE, _LONG, _NUMBER = Struct(">B"), Struct(">I"), Struct(">Q")
_INTEREST, _APPLIED, _HINT, _RUN, _RELEASE, _RELEASED, _CONNECTED, _QUESTION, _REPLY = range(1, 10)
#: the ends of a part of an answer: more parts follow, it is the last one, there is no answer
MORE, LAST, NO_ANSWER = range(3)
#: in place of a QoS: no Session has this Topic Filter any more
ENDED = 3
#: what is not there: a text, or a time
_NONE = 0xFFFFFFFF
#: more than any text has: each node has checked the levels of its own Clients
_MOST_LEVELS = 1 << 32


class Malformed(ValueError):
    """These bytes are no message of a member."""


@hot_frozen
class Wanted:
    """The most QoS of a Topic Filter (0..2), :data:`ENDED` if no Session has it any more."""

    topic_filter: str
    qos: int


@hot_frozen
class Members:
    """How many members of a group are connected to the node, and how many are away."""

    shared_filter: str
    online: int
    away: int


@hot_frozen
class Interest:
    """Changes of the interest of a node. With ``is_whole``, this message ends all of its interest."""

    version: int
    changes: tuple[Wanted | Members, ...]
    is_whole: bool = False


@hot_frozen
class Applied:
    """The interest of the other node has effect up to this version."""

    version: int


@hot_frozen
class Hint:
    """A row with this number is committed. 0 asks for the hint of the other node's last row."""

    number: int


@hot_frozen
class CrossingMessage:
    """A message with QoS 0. ``properties`` is the encoded block, ``expires_at`` in milliseconds since the epoch."""

    topic: str
    payload: bytes
    properties: bytes
    client_id: str | None
    username: str | None
    expires_at: int | None
    share: str | None


@hot_frozen
class Run:
    """Messages with QoS 0, to be delivered behind the row of this number (0: of none)."""

    behind: int
    messages: tuple[CrossingMessage, ...]


class Outcome(Enum):
    """What has become of a Session that another node has asked for."""

    MOVED = 1  #: it belongs to the other node now
    GONE = 2  #: this node has none, and no Will of its client any more
    REFUSED = 3  #: it belongs to another user
    LATER = 4  #: it cannot move yet, or its subscriptions have changed: look again


@hot_frozen
class Release:
    """Asks a node for the Session of a client.

    ``number`` stands for the question: if it is sent again, it has the same number. ``username`` is that of the client.
    With ``ends``, the client begins a new Session. ``digest`` is that of the Topic Filters that the other node expects
    messages for (:func:`.adopting.digest_of`).
    """

    number: int
    client_id: str
    username: str | None
    ends: bool
    digest: int


@hot_frozen
class Released:
    """The answer to the :class:`Release` with this number."""

    number: int
    outcome: Outcome


@hot_frozen
class Connected:
    """The clients that have connected to this node, each with a revision: the highest one is the last connection.

    ``is_repeated``: they have not connected just now.
    """

    clients: tuple[tuple[str, int], ...]
    is_repeated: bool = False


@hot_frozen
class Question:
    """A question to the other node: ``subject`` names what it is about, the answer has its ``number``."""

    number: int
    subject: str
    body: bytes


@hot_frozen
class Reply:
    """A part of an answer, counted from 0. ``end`` is :data:`MORE`, :data:`LAST` or :data:`NO_ANSWER`."""

    number: int
    part: int
    end: int
    body: bytes


Message = Interest | Applied | Hint | Run | Release | Released | Connected | Question | Reply


def encode(message: Message) -> bytes:
    """Return the bytes of a message."""
    parts: list[bytes] = []
    add = parts.append
    if isinstance(message, Run):
        add(_BYTE.pack(_RUN) + _NUMBER.pack(message.behind) + _LONG.pack(len(message.messages)))
        for each in message.messages:
            _add_text(parts, each.topic)
            _add_bytes(parts, each.payload)
            _add_bytes(parts, each.properties)
            _add_text(parts, each.client_id)
            _add_text(parts, each.username)
            add(_NUMBER.pack(each.expires_at or 0))
            _add_text(parts, each.share)
    elif isinstance(message, Interest):
        add(_BYTE.pack(_INTEREST) + _NUMBER.pack(message.version) + _BYTE.pack(message.is_whole))
        add(_LONG.pack(len(message.changes)))
        for change in message.changes:
            if isinstance(change, Wanted):
                add(_BYTE.pack(change.qos))
                _add_text(parts, change.topic_filter)
            else:
                add(_BYTE.pack(ENDED + 1))
                _add_text(parts, change.shared_filter)
                add(_LONG.pack(change.online) + _LONG.pack(change.away))
    elif isinstance(message, Applied):
        add(_BYTE.pack(_APPLIED) + _NUMBER.pack(message.version))
    elif isinstance(message, Release):
        add(_BYTE.pack(_RELEASE) + _NUMBER.pack(message.number) + _BYTE.pack(message.ends))
        add(_NUMBER.pack(message.digest))
        _add_text(parts, message.client_id)
        _add_text(parts, message.username)
    elif isinstance(message, Released):
        add(_BYTE.pack(_RELEASED) + _NUMBER.pack(message.number) + _BYTE.pack(message.outcome.value))
    elif isinstance(message, Connected):
        add(_BYTE.pack(_CONNECTED) + _BYTE.pack(message.is_repeated) + _LONG.pack(len(message.clients)))
        for client_id, revision in message.clients:
            _add_text(parts, client_id)
            add(_NUMBER.pack(revision))
    elif isinstance(message, Question):
        add(_BYTE.pack(_QUESTION) + _NUMBER.pack(message.number))
        _add_text(parts, message.subject)
        _add_bytes(parts, message.body)
    elif isinstance(message, Reply):
        add(_BYTE.pack(_REPLY) + _NUMBER.pack(message.number) + _LONG.pack(message.part) + _BYTE.pack(message.end))
        _add_bytes(parts, message.body)
    else:
        add(_BYTE.pack(_HINT) + _NUMBER.pack(message.number))
    return b"".join(parts)


def _add_bytes(parts: list[bytes], value: bytes) -> None:
    parts.append(_LONG.pack(len(value)))
    parts.append(value)


def _add_text(parts: list[bytes], value: str | None) -> None:
    if value is None:
        parts.append(_LONG.pack(_NONE))
    else:
        _add_bytes(parts, value.encode())


def decode(data: bytes) -> Message:
    """Return the message of these bytes. Raises :class:`Malformed`."""
    reader = _Reader(data)
    try:
        message = _read(reader)
    except Malformed:
        raise
    except (error, ValueError) as wrong:  # ValueError: a text, a Topic Name or a Topic Filter
        raise Malformed(f"no message of a member: {wrong}") from None
    if reader.place != len(data):
        raise Malformed("bytes behind the end of a message")
    return message


def _read(reader: _Reader) -> Message:
    kind = reader.byte()
    if kind == _RUN:
        behind, count = reader.number(), reader.count(25)
        return Run(behind, tuple(_read_crossing(reader) for _ in range(count)))
    if kind == _HINT:
        return Hint(reader.number())
    if kind == _APPLIED:
        return Applied(reader.number())
    if kind == _INTEREST:
        version, is_whole = reader.number(), reader.flag()
        count = reader.count(5)
        return Interest(version, tuple(_read_change(reader) for _ in range(count)), is_whole)
    if kind == _RELEASE:
        number, ends, digest = reader.number(), reader.flag(), reader.number()
        return Release(number, reader.text(), reader.text_or_none(), ends, digest)
    if kind == _RELEASED:
        number, outcome = reader.number(), reader.byte()
        if not 1 <= outcome <= len(Outcome):
            raise Malformed(f"no outcome has the number {outcome}")
        return Released(number, Outcome(outcome))
    if kind == _CONNECTED:
        is_repeated = bool(reader.byte())
        return Connected(tuple((reader.text(), reader.number()) for _ in range(reader.count(12))), is_repeated)
    if kind == _QUESTION:
        return Question(reader.number(), reader.text(), reader.block())
    if kind == _REPLY:
        number, part, end = reader.number(), reader.long(), reader.byte()
        if end > NO_ANSWER:
            raise Malformed("a part of an answer is the last one, or is not")
        return Reply(number, part, end, reader.block())
    raise Malformed(f"no message has the kind {kind}")


def _read_change(reader: _Reader) -> Wanted | Members:
    qos = reader.byte()
    if qos <= ENDED:
        topic_filter = reader.text()
        check_topic_filter(topic_filter, _MOST_LEVELS)
        return Wanted(topic_filter, qos)
    if qos > ENDED + 1:
        raise Malformed(f"no change has the kind {qos}")
    return Members(_shared(reader.text()), reader.long(), reader.long())


def _read_crossing(reader: _Reader) -> CrossingMessage:
    topic = reader.text()
    check_topic_name(topic, _MOST_LEVELS)
    payload, properties = reader.block(), reader.block()
    client_id, username = reader.text_or_none(), reader.text_or_none()
    expires_at, share = reader.number() or None, reader.text_or_none()
    return CrossingMessage(
        topic, payload, properties, client_id, username, expires_at, None if share is None else _shared(share)
    )


def _shared(shared_filter: str) -> str:
    """Return a shared subscription. Raises ValueError if it is none."""
    group, topic_filter = split_shared(shared_filter)
    if group is None:
        raise Malformed("a group has a shared subscription")
    check_topic_filter(topic_filter, _MOST_LEVELS)
    return shared_filter


class _Reader:
    """Reads values from bytes, each behind the one before. Raises :class:`Malformed`, struct.error."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def byte(self) -> int:
        """Read a byte."""
        return int(self._take(_BYTE))

    def flag(self) -> bool:
        """Read a byte that is 0 or 1."""
        flag = self.byte()
        if flag > 1:
            raise Malformed("a flag is 0 or 1")
        return bool(flag)

    def long(self) -> int:
        """Read an integer of 32 bits."""
        return int(self._take(_LONG))

    def number(self) -> int:
        """Read an integer of 64 bits."""
        return int(self._take(_NUMBER))

    def count(self, least: int) -> int:
        """Read how many values follow, each of ``least`` bytes or more."""
        count = self.long()
        if count * least > len(self._data) - self.place:
            raise Malformed("a message is cut short")
        return count

    def block(self) -> bytes:
        """Read bytes with their length."""
        return self._bytes(self.long())

    def text(self) -> str:
        """Read a text."""
        return self.block().decode()

    def text_or_none(self) -> str | None:
        """Read a text that may not be there."""
        length = self.long()
        return None if length == _NONE else self._bytes(length).decode()

    def _bytes(self, length: int) -> bytes:
        end = self.place + length
        if end > len(self._data):
            raise Malformed("a message is cut short")
        value = self._data[self.place : end]
        self.place = end
        return value

    def _take(self, form: Struct) -> int:
        (value,) = form.unpack_from(self._data, self.place)
        self.place += form.size
        return int(value)
