"""Clients as other rooms see them: what operators are shown of them, and who pays for what they leave in the broker."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from hashlib import sha256
from typing import Generic, TypeVar

from attrs import define, field, frozen

# Clients, their Sessions and their messages as operators see them: plain values, true at one moment.
#
# Times are in milliseconds since the epoch, sizes in bytes. None: it is not known, or there is none.


T = TypeVar("T")
K = TypeVar("K")


class ConnState(Enum):
    """Whether a Client is connected."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"


@frozen(kw_only=True)
class ConnectionView:
    """The connection of a Client. ``port`` is None for a UNIX domain socket."""

    port: int | None
    keep_alive: int | None
    protocol_version: int
    clean_start: bool | None
    bridge: bool
    will: bool
    unsent_bytes: int


@frozen(kw_only=True)
class ClientView:
    """A Session and its Client.

    ``expiry_interval`` is in seconds, None for never. ``since`` is when the Client came or went. ``conflated`` counts
    the messages that newer ones have replaced, since the Session was made or restored.
    """

    client_id: str
    username: str | None
    address: str | None
    listener: str
    groups: tuple[str, ...]
    method: str
    connection: ConnectionView | None
    created_at: int | None
    since: int | None
    expiry_interval: float | None
    inflight: int
    inflight_max: int
    awaiting_rel: int
    awaiting_rel_max: int
    queued: int
    queued_bytes: int
    queued_max: int | None
    conflated: int
    subscriptions: int
    subscriptions_max: int | None


@frozen(kw_only=True)
class SubscriptionView:
    """A subscription. ``topic_filter`` is the one in SUBSCRIBE, with its share.

    ``conflate`` is the interval of conflation in milliseconds that the Client has asked for.
    """

    client_id: str
    topic_filter: str
    share: str | None
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int | None
    conflate: int | None


@frozen(kw_only=True)
class WaitingMessage:
    """A message that waits in a queue (``packet_identifier`` None), or one in flight with its ``state``.

    Of a message whose PUBREC has come only the Packet Identifier is kept: its topic and payload are None.
    """

    topic: str | None
    payload: bytes | None
    qos: int
    retain: bool
    publisher: str | None = None
    username: str | None = None
    expires_at: int | None = None
    packet_identifier: int | None = None
    state: str | None = None


@frozen(kw_only=True)
class ClientSearch:
    """The conditions of a search for clients, all of which must hold. None: no condition."""

    client_id: str | None = None
    like_client_id: str | None = None
    username: str | None = None
    like_username: str | None = None
    address: str | None = None
    state: ConnState | None = None
    listener: str | None = None


@frozen(kw_only=True)
class SubscriptionSearch:
    """The conditions of a search for subscriptions, all of which must hold. None: no condition.

    ``topic_filter`` is the whole filter, with or without its share. ``matching`` is a Topic Name, for the subscriptions
    that match it, or a Topic Filter with wildcards, for the subscriptions to no other topics.
    """

    client_id: str | None = None
    topic_filter: str | None = None
    matching: str | None = None
    share: str | None = None
    qos: int | None = None


@define
class Found(Generic[T, K]):
    """A page of a search: what was found, and the key behind which the next page begins; None if this is the last.

    A page may have less than its limit, or nothing, and not be the last: a search ends after so many looks.
    """

    items: list[T] = field(factory=list)
    after: K | None = None


@frozen
class Waiting:
    """A page of waiting messages, and the position at which the next page begins; None if this is the last.

    ``unlisted`` is the number of messages in flight of which only the Packet Identifiers are kept.
    """

    messages: Sequence[WaitingMessage]
    next_position: int | None
    unlisted: int = 0


# Whom the broker charges for what a Client leaves in it: its *payer*.
#
# The payer is the User Name if it is proven, and the Client Identifier otherwise: of a guest, and of every Client of a
# broker without authentication, where anybody may claim any name. A stranger can take many Client Identifiers, so all
# guests together are a payer too.
#
#     alice, proven            user alice
#     a guest, sensor-1        client sensor-1, and guests
#     an operator              nobody


#: all guests together
GUESTS = "guests"

#: A longer name is replaced by its digest: an index of Postgres takes at most 2.7 KB.
_LONGEST = 512
_CLIENT = "client "


def payer_of(username: str | None, client_id: str | None, names_proven: bool) -> str | None:
    """Return the payer of a Client's own limits; None for an operator, who has neither name."""
    if username and names_proven:
        return _named("user ", username)
    return _named(_CLIENT, client_id) if client_id else None


def payers_of(username: str | None, client_id: str | None, names_proven: bool) -> tuple[str, ...]:
    """Return all payers: for a guest, also all guests together."""
    payer = payer_of(username, client_id, names_proven)
    if payer is None:
        return ()
    return (payer, GUESTS) if is_guest(payer) else (payer,)


def is_guest(payer: str) -> bool:
    """Tell whether the payer is one guest."""
    return payer.startswith(_CLIENT)


def _named(kind: str, name: str) -> str:
    return kind + (name if len(name) <= _LONGEST else f"sha256:{sha256(name.encode()).hexdigest()}")
