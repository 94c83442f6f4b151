"""Helpers for the tests of single statements: packets as bytes, refusals, lasting Sessions, authorization."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from zope.interface import implementer

from holdfast.core.messages import ApplicationMessage
from holdfast.identity.interfaces import (
    Answer,
    Credentials,
    Denied,
    Grant,
    IAuthenticator,
    IAuthorizer,
    Principal,
    UnrestrictedAuthorizer,
)
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode, encode_properties, encode_variable_byte_integer
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker

#: for Clients that want no Reason Strings
TERSE = Properties(request_problem_information=0)

VERSIONS = pytest.mark.parametrize("version", [3, 4, 5])


def string(data: bytes) -> bytes:
    """Return a field with its two-byte length. The content is not checked."""
    return len(data).to_bytes(2, "big") + data


def packet(first: int, body: bytes) -> bytes:
    """Return a Control Packet with this first byte."""
    return bytes((first,)) + encode_variable_byte_integer(len(body)) + body


def block(version: int, properties: Properties = NO_PROPERTIES) -> bytes:
    """Return a property block, which MQTT 3 does not have."""
    return encode_properties(properties) if version == 5 else b""


def connect(version: int, flags: int = 2, payload: bytes = string(b"c"), name: bytes = b"", level: int = 0) -> bytes:
    """Return a CONNECT with these Connect Flags and this payload."""
    head = string(name or (b"MQIsdp" if version == 3 else b"MQTT")) + bytes((level or version, flags))
    return packet(0x10, head + b"\0\0" + block(version) + payload)


def refused(client: Client, reason: ReasonCode) -> None:
    """Expect that the connection is closed. In MQTT 5, DISCONNECT or CONNACK had this Reason Code."""
    answers = [one for one in client.packets() if isinstance(one, p.Disconnect | p.Connack)]
    assert client.network.closed
    assert [one.reason_code for one in answers] == ([reason] if client.version == 5 else [])


def lasting(
    broker: MemoryBroker, client_id: str, version: int, properties: Properties = NO_PROPERTIES, **connect: Any
) -> Client:
    """Return a Client with a resumed Session that outlives its connection."""
    if version == 5:
        properties = attrs.evolve(properties, session_expiry_interval=1000)
    return broker.client(client_id, version, clean=False, properties=properties, **connect)


def resent(client: Client) -> list[p.Publish]:
    """Return the PUBLISH packets directly after CONNACK."""
    return [one for one in client.backlog if isinstance(one, p.Publish)]


def payloads(client: Client) -> list[bytes]:
    """Return the payloads that arrive, and acknowledge them."""
    return [payload for _, payload, _, _ in client.messages()]


def codes(client: Client, *requests: p.SubscriptionRequest) -> tuple[int, ...]:
    """Subscribe with one packet, and return the codes of its SUBACK."""
    client.send(p.Subscribe(77, requests))
    (suback,) = client.got(p.Suback)
    assert suback.packet_identifier == 77
    return tuple(suback.reason_codes)


@implementer(IAuthenticator)
class Door:
    """Admits all Clients if ``answer`` is None, else refuses them with it. Remembers their credentials."""

    def __init__(self, answer: ReasonCode | None = None) -> None:
        self.answer = answer
        self.shown: list[Credentials] = []

    def authenticate(self, credentials: Credentials) -> Answer:
        self.shown.append(credentials)
        if self.answer is None:
            return Principal(credentials.client_id, credentials.username)
        return Denied(self.answer, "the door is closed")


@implementer(IAuthorizer)
class Forbidding(UnrestrictedAuthorizer):
    """Denies all actions on these topics."""

    def __init__(self, *topics: str) -> None:
        self.topics = set(topics)

    def may_publish(self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False) -> bool:
        return topic not in self.topics

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant:
        return Grant.REFUSED if topic_filter in self.topics else Grant.GRANTED

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool:
        return message.topic not in self.topics
