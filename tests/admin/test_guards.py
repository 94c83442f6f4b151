"""Host and Origin: what hostile web pages may make an operator's browser ask."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.admin.call import Head, RefusedCall
from holdfast.admin.http.request import Guards, is_on_loopback
from holdfast.identity.addresses import Peer

GUARDS = Guards(lambda: ("broker.example.org",))
HERE, ELSEWHERE = Peer(ip_address("127.0.0.1")), Peer(ip_address("192.0.2.7"))


def head(host: str | None, method: str = "GET", **fields: Any) -> Head:
    return Head(**{"method": method, "peer": HERE, "host": host, **fields})


def status(asked: Head) -> int:
    """Return 200, or the status of the refusal."""
    try:
        GUARDS.check(asked)
    except RefusedCall as refused:
        return refused.status
    return 200


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:18083", "localhost", "LOCALHOST:1", "a.localhost", "[::1]:18083", "192.0.2.1", "broker.example.org:443",
     "Broker.Example.org.", "localhost:"],
)  # fmt: skip
def test_own_names_are_served(host: str) -> None:
    assert status(head(host)) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "broker.example.org.evil.example"]
)
def test_a_name_that_somebody_else_has_made_mean_this_address_is_refused(host: str) -> None:
    """DNS rebinding: the page's own name leads to the broker, so its origin would be right."""
    assert status(head(host)) == 421
    assert status(head(host, "POST", origin=f"http://{host}")) == 421


@pytest.mark.parametrize(
    "host",
    [None, "", ":80", "[::1", "a b@", "evil@localhost", "evil:x@127.0.0.1", "localhost:99999", "localhost:0",
     "localhost:+1", "localhost:\uff11", "localhost/x", "localhost?x", "localhost#x", "[127.0.0.1]", "[::1]x", "::1",
     "localhost,evil.example", "localhost\t"],
)  # fmt: skip
def test_a_request_needs_a_host(host: str | None) -> None:
    """One that is no name and no address is refused, whatever a parser of URLs finds in it."""
    assert status(head(host)) == 400


@pytest.mark.parametrize("origin", ["null", "http://localhost:99999", "http://evil@localhost", "HTTP://localhost", ""])
def test_two_things_that_are_no_origins_are_not_the_same(origin: str) -> None:
    assert status(head("localhost", "POST", origin=origin)) == 403
    assert status(head("localhost:99999", "POST", origin=origin)) == 400


def test_a_unix_domain_socket_needs_no_host() -> None:
    """No browser reaches it."""
    assert status(head(None, peer=Peer(None))) == 200
    assert status(head(None, peer=Peer(None, proxied=True))) == 400


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:18083", 200),
        ("https://127.0.0.1:18083", 200),  # a proxy that ends TLS
        ("http://127.0.0.1:18084", 403),
        ("http://localhost:18083", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
        ("file://", 403),
    ],
)
def test_pages_of_other_origins_change_nothing_and_use_no_cookie(origin: str, expected: int) -> None:
    assert status(head("127.0.0.1:18083", "POST", origin=origin)) == expected
    assert status(head("127.0.0.1:18083", cookie="x", origin=origin)) == expected
    assert status(head("127.0.0.1:18083", origin=origin)) == 200


def test_a_page_without_tls_is_another_origin_than_one_with() -> None:
    asked = head("127.0.0.1:18083", "POST", origin="http://127.0.0.1:18083", secure=True)
    assert status(asked) == 403


def test_a_program_without_an_origin_may_call() -> None:
    assert status(head("127.0.0.1:18083", "DELETE")) == 200


def test_what_a_proxy_on_this_machine_forwards_is_not_from_this_machine() -> None:
    assert is_on_loopback(head("localhost:18083"))
    assert not is_on_loopback(head("broker.example.org"))
    assert not is_on_loopback(head("127.0.0.1", peer=ELSEWHERE))
    for ip in (HERE.ip, None):
        assert not is_on_loopback(head("localhost:18083", peer=Peer(ip, proxied=True)))


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_host_or_origin_causes_an_internal_error(host: str, origin: str) -> None:
    assert status(head(host, "POST", origin=origin)) in (200, 400, 403, 421)


def test_a_health_check_of_http_1_0_needs_no_host() -> None:
    """No browser leaves it out. Such a request does not count as one of this machine."""
    asked = head(None, is_without_host=True)
    assert status(asked) == 200
    assert not is_on_loopback(asked)
