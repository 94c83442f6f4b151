"""Hostile packets: one packet or a flood for each class of published vulnerabilities of MQTT brokers.

The bytes of a case are sent before CONNECT (``version`` None) or after it. ``answer`` is the Reason Code for an MQTT 5
Client, in the last packet or, if the connection stays open, in an acknowledgement.
"""

from __future__ import annotations

from attrs import frozen

from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p


@frozen
class Hostile:
    """One case; ``like`` names vulnerabilities of the same class."""

    name: str
    like: str
    version: int | None
    data: bytes
    answer: ReasonCode | None = None
    closes: bool = True


def _subscribe(topic_filter: str, version: int) -> bytes:
    return encode(p.Subscribe(1, (p.SubscriptionRequest(topic_filter),)), version)


def _publish(topic: str, version: int, **fields: object) -> bytes:
    return encode(p.Publish(topic, b"", **fields), version)  # type: ignore[arg-type]


LONG = "CVE-2017-7651, CVE-2023-0809, CVE-2026-25627"
DEEP = "CVE-2019-11779, CVE-2021-33176, CVE-2026-95844"
SHARE = "CVE-2026-95843"
_MANY = Properties(user_properties=(("k", "v"),) * 20_000)
#: one more User Property than allowed, and a few that are longer than allowed
_ONE_TOO_MANY = Properties(user_properties=(("k", "v"),) * 65)
_LONG = Properties(user_properties=(("k", "v" * 33_000),) * 2)
_SLASHES = "/" * 65_000

#: all cases, with the expected refusals
CASES = [
    Hostile("a lying length before connect", LONG, None, bytes.fromhex("10 ffffff7f 00")),
    Hostile("a lying length, then half a connect", LONG, None, bytes.fromhex("10 ffffff7f 0004 4d515454 05 02")),
    Hostile("five bytes of length before connect", "CVE-2026-21888", None, bytes.fromhex("10 8080808080")),
    Hostile("publish before connect", "CVE-2023-0809", None, bytes.fromhex("30 05 0001 74 6869")),
    Hostile("1 MB of publish before connect", "CVE-2021-33175", None, bytes.fromhex("30 808040 0001 74") + b"x" * 64),
    Hostile("nothing but zeros", "", None, bytes(64)),
    Hostile("an HTTP request", "", None, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    Hostile("a TLS hello", "", None, bytes.fromhex("16 0301 0200 0100 01fc 0303") + bytes(64)),
    Hostile("a connect with a will that is cut short", "CVE-2017-7654", None, bytes.fromhex(
        "10 10 0004 4d515454 04 06 003c 0001 61 ffff 77")),
    Hostile("connack from a client", "CVE-2021-28166", 5, bytes.fromhex("20 03 000000"), ReasonCode.PROTOCOL_ERROR),
    Hostile("suback from a client", "CVE-2021-28166", 5, bytes.fromhex("90 04 0001 00 00"), ReasonCode.PROTOCOL_ERROR),
    Hostile("pingresp from a client", "CVE-2021-28166", 5, bytes.fromhex("d0 00"), ReasonCode.PROTOCOL_ERROR),
    Hostile("connect twice", "CVE-2021-34431", 5, encode(p.Connect("again", 5), 5), ReasonCode.PROTOCOL_ERROR),
    Hostile("auth without an authentication method", "", 5, bytes.fromhex("f0 00"), ReasonCode.PROTOCOL_ERROR),
    Hostile("a lying length after connect", LONG, 5, bytes.fromhex("30 ffffff7f 0001"), ReasonCode.PACKET_TOO_LARGE),
    Hostile("an empty topic", "CVE-2021-34432", 5, _publish("", 5), ReasonCode.PROTOCOL_ERROR),
    Hostile("a topic of dollars and wildcards", "CVE-2018-12543", 5, _publish("$/#", 5), ReasonCode.TOPIC_NAME_INVALID),
    Hostile("a topic of 65,000 levels", DEEP, 5, _publish(_SLASHES, 5), ReasonCode.TOPIC_NAME_INVALID),
    Hostile("a filter of 65,000 levels", DEEP, 5, _subscribe(_SLASHES, 5), ReasonCode.TOPIC_FILTER_INVALID, False),
    Hostile("a filter of 32,000 wildcards", "GHSA-2hjf-7455-w946", 5, _subscribe("+/" * 32_000 + "#", 5),
            ReasonCode.TOPIC_FILTER_INVALID, False),
    Hostile("half a wildcard", "CVE-2026-95843", 5, _subscribe("a+/b", 5), ReasonCode.PROTOCOL_ERROR),
    Hostile("a share without a name", SHARE, 5, _subscribe("$share//t", 5), ReasonCode.PROTOCOL_ERROR),
    Hostile("a share without a filter", SHARE, 5, _subscribe("$share/g", 5), ReasonCode.PROTOCOL_ERROR),
    Hostile("a share of everything", SHARE, 5, _subscribe("$share/#/t", 5), ReasonCode.PROTOCOL_ERROR),
    Hostile("QoS 2 that is never released", "CVE-2023-28366", 5, b"".join(
        _publish("t", 5, qos=2, packet_identifier=number) for number in range(1, 3000)),
        ReasonCode.RECEIVE_MAXIMUM_EXCEEDED),
    Hostile("140 KB of user properties", "CVE-2021-41039", 5, _publish("t", 5, qos=1, packet_identifier=1,
            properties=_MANY), ReasonCode.QUOTA_EXCEEDED, False),
    Hostile("65 user properties", "CVE-2021-41039", 5, _publish("t", 5, qos=1, packet_identifier=1,
            properties=_ONE_TOO_MANY), ReasonCode.QUOTA_EXCEEDED, False),
    Hostile("66 KB of two user properties", "CVE-2021-41039", 5, _publish("t", 5, qos=1, packet_identifier=1,
            properties=_LONG), ReasonCode.QUOTA_EXCEEDED, False),
    Hostile("66 KB of user properties in a subscribe", "CVE-2021-41039", 5, encode(p.Subscribe(1, (
            p.SubscriptionRequest("t"),), _LONG), 5), ReasonCode.QUOTA_EXCEEDED, False),
    Hostile("66 KB of user properties without an acknowledgement", "CVE-2021-41039", 5, _publish("t", 5,
            properties=_LONG), ReasonCode.QUOTA_EXCEEDED),
    Hostile("acknowledgements of nothing", "CVE-2026-22040", 5, b"".join(
        encode(kind(number), 5) for kind in (p.Puback, p.Pubcomp) for number in range(1, 2000))
        + encode(p.Publish("t", b"", 1, packet_identifier=1), 5), ReasonCode.SUCCESS, False),
]  # fmt: skip
