"""Reverse proxies: whose address counts, and what clients behind them may say. The cookies of brokers side by side."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed

from holdfast.admin.call import Answer, Call, Head, RefusedCall, cookie_name
from holdfast.admin.http.request import Forwarding, is_on_loopback
from holdfast.identity.addresses import TrustedProxies
from tests.admin.test_site import HTTPClient

FORWARDING = Forwarding(lambda: TrustedProxies(["127.0.0.1", "10.0.0.0/8", "unix"]))
NOBODY = Forwarding(lambda: TrustedProxies([]))


def sent(*lines: str) -> Head:
    """Return the head of a request from this machine that has these lines."""
    found: list[Head] = []

    def answering(call: Call) -> Deferred[Answer]:
        assert call.head is not None
        found.append(call.head)
        return succeed(Answer())

    line = HTTPClient(answering)
    line.transport.peerAddr = IPv4Address("TCP", "127.0.0.1", 40000)
    line.ask("GET / HTTP/1.1", *lines)
    return found[0]


@pytest.mark.parametrize(
    "line",
    ["X-Forwarded-For: 192.0.2.1", "x-forwarded-for:", "Forwarded: for=192.0.2.1", "Via: 1.1 cache",
     "X-Real-IP: 1.2.3.4", "X-Forwarded-Host: localhost", "X-Forwarded-Proto: https"],
)  # fmt: skip
def test_what_a_proxy_on_this_machine_sends_on_is_not_from_this_machine(line: str) -> None:
    """Whether it is trusted or not. Then its visitors read no metrics without a key."""
    assert is_on_loopback(sent("Host: localhost:18083"))
    head = sent("Host: localhost:18083", line)
    assert not is_on_loopback(head)
    assert not is_on_loopback(NOBODY.unwrap(head))


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        (["192.0.2.7"], "192.0.2.7"),
        (["192.0.2.7, 10.0.0.5"], "192.0.2.7"),
        (["203.0.113.1, 192.0.2.7"], "192.0.2.7"),
        (["not an address, 192.0.2.7,10.1.1.1"], "192.0.2.7"),
        (["203.0.113.1", "192.0.2.7"], "192.0.2.7"),
        (["192.0.2.7:5555"], "192.0.2.7"),
        (["2001:db8::7"], "2001:db8::7"),
        (["[2001:db8::7]:443"], "2001:db8::7"),
        (["::ffff:192.0.2.7"], "192.0.2.7"),
        (["10.0.0.7"], "10.0.0.7"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_trusted_proxy(lines: list[str], address: str) -> None:
    """What comes before it may be the client's own words."""
    head = FORWARDING.unwrap(sent(*(f"X-Forwarded-For: {each}" for each in lines)))
    assert (head.peer.ip, head.peer.is_local) == (ip_address(address), False)


def test_only_trusted_proxies_are_believed() -> None:
    for forwarding in (NOBODY, Forwarding(lambda: TrustedProxies(["10.0.0.0/8"]))):
        head = forwarding.unwrap(sent("X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https"))
        assert (head.peer.ip, head.secure) == (ip_address("127.0.0.1"), False)
    assert FORWARDING.unwrap(sent("X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: HTTPS")).secure
    assert not FORWARDING.unwrap(sent("X-Forwarded-Proto: https")).secure


@pytest.mark.parametrize("value", ["unknown", "192.0.2.7,", "_hidden", "192.0.2", "a.example", "\x7f", "192.0.2.7, x"])
def test_a_trusted_proxy_that_tells_no_address_is_refused(value: str) -> None:
    """Its client would count as nobody."""
    head = sent(f"X-Forwarded-For: {value}")
    with pytest.raises(RefusedCall) as refused:
        FORWARDING.unwrap(head)
    assert (refused.value.status, refused.value.field) == (400, "X-Forwarded-For")
    assert NOBODY.unwrap(head) is head


@given(st.text(max_size=60))
def test_no_list_of_addresses_causes_an_internal_error(text: str) -> None:
    head = Head(method="GET", peer=sent("Via: x").peer, forwarded_for=text)
    with suppress(RefusedCall):
        FORWARDING.unwrap(head)


def test_a_long_list_is_read_from_its_end_only() -> None:
    text = ",".join(["192.0.2.1"] * 1000 + ["10.0.0.1"] * 1000)
    assert FORWARDING.unwrap(sent(f"X-Forwarded-For: {text[-15_000:]}")).peer.ip == ip_address("10.0.0.1")


def test_brokers_on_one_host_have_cookies_of_their_own() -> None:
    """Browsers send the cookies of a host to all its ports. Over TLS no other host can set the cookie."""
    both = "Cookie: holdfast-18083=one; holdfast-28083=two; holdfast=three; other=x"
    assert sent("Host: localhost:18083", both).cookie == "one"
    assert sent("Host: localhost:28083", both).cookie == "two"
    assert sent("Host: localhost", both).cookie == "three"
    assert sent("Host: localhost:1", both).cookie is None
    assert sent("Host: localhost:1", "Cookie: holdfast-1=forged; __Host-holdfast-1=own").cookie == "own"
    assert cookie_name("localhost:18083", secure=False) == "holdfast-18083"
    assert cookie_name("broker.example.org", secure=True) == "__Host-holdfast"
