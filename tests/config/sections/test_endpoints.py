"""Server endpoint strings: valid ones, invalid ones, and those that only this machine can reach."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.endpoints import _parse, quoteStringArgument

from holdfast.config.options import InvalidValue
from holdfast.config.sections.endpoints import EndpointString, parse_endpoint
from holdfast.config.sections.listeners import ListenerConfig


@pytest.mark.parametrize(
    ("endpoint", "loopback"),
    [
        ("tcp:1883:interface=127.0.0.1", True),
        ("tcp:1883:127.0.0.1", True),
        ("tcp:port=1883:interface=127.8.9.10:backlog=10", True),
        ("tcp:1883:interface=localhost", True),
        (r"tcp:1883:interface=\:\:1", True),
        ("tcp:1883", False),
        ("tcp:1883:interface=", False),
        ("tcp:1883:interface=0.0.0.0", False),
        (r"tcp:1883:interface=\:\:", False),
        ("tcp:1883:interface=192.168.1.2", False),
        ("tcp:1883:interface=example.org", False),
        ("tcp:1883:interface=localhost.example.org", False),
        ("unix:/run/mqtt.sock", True),
        ("unix:/run/mqtt.sock:mode=660:lockfile=0", True),
        ("systemd:domain=INET:index=0", False),
        ("systemd:domain=UNIX:name=mqtt", False),
        ("haproxy:tcp:1883:interface=127.0.0.1", False),  # the clients of the proxy can be anywhere
        ("haproxy:tcp:1883", False),
        ("haproxy:unix:/run/mqtt.sock", False),
    ],
)
def test_an_endpoint_is_parsed_and_loopback_or_not(endpoint: str, loopback: bool) -> None:
    assert EndpointString().read(endpoint) == endpoint
    assert ListenerConfig(endpoint=endpoint).is_loopback is loopback


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("ssl:8883", "tcp:, unix:, systemd: or haproxy:"),
        ("1883", "tcp:, unix:, systemd: or haproxy:"),
        ("", "tcp:, unix:, systemd: or haproxy:"),
        ("port=1883", "tcp:, unix:, systemd: or haproxy:"),
        ("haproxy:ssl:8883", "tcp:, unix:, systemd: or haproxy:"),
        ("haproxy:haproxy:tcp:1", "tcp:, unix:, systemd: or haproxy:"),
        ("haproxy", "haproxy: needs the endpoint it wraps"),
        ("tcp", "needs a port from 0 to 65535"),
        ("tcp:", "needs a port from 0 to 65535"),
        ("tcp:mqtt", "needs a port from 0 to 65535"),
        ("tcp:65536", "needs a port from 0 to 65535"),
        ("tcp:-1", "needs a port from 0 to 65535"),
        ("tcp:\u0661", "needs a port from 0 to 65535"),
        ("tcp:1883:interface=::1", "at most 2 parameters without a name"),
        ("tcp:1883:port=1884", "the parameter port is given twice"),
        ("tcp:1883:backlog=1:backlog=2", "the parameter backlog is given twice"),
        ("tcp:1883:interfaces=127.0.0.1", 'has no parameter "interfaces", but port, interface, backlog'),
        ("tcp:1883:backlog=many", "backlog is an integer"),
        ("unix", "unix: needs a path"),
        ("unix:/run/mqtt.sock:mode=rw", "mode is octal"),
        ("unix:/run/mqtt.sock:mode=888", "mode is octal"),
        ("systemd:domain=INET", "either index or name"),
        ("systemd:domain=INET:index=0:name=mqtt", "either index or name"),
        ("systemd:index=0", "needs domain"),
        ("systemd:domain=INET:index=first", "index is an integer"),
        ("tcp:1883\\", "the backslash at its end escapes nothing"),
    ],
)
def test_other_endpoints_are_refused_with_the_reason(endpoint: str, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        EndpointString().read(endpoint)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "unproxied"),
    [
        ("tcp:1883", "tcp:port=1883:backlog=1024"),
        ("tcp:1883:127.0.0.1", "tcp:port=1883:interface=127.0.0.1:backlog=1024"),
        (r"haproxy:tcp:1883:interface=\:\:1", r"tcp:port=1883:interface=\:\:1:backlog=1024"),
        ("tcp:1883:backlog=7", "tcp:port=1883:backlog=7"),
        ("haproxy:unix:/run/mqtt.sock:mode=660", "unix:address=/run/mqtt.sock:mode=660:backlog=1024"),
        ("systemd:domain=INET:index=0", "systemd:domain=INET:index=0"),
    ],
)
def test_the_endpoint_that_is_opened_has_a_long_backlog_unless_it_names_one(endpoint: str, unproxied: str) -> None:
    assert parse_endpoint(endpoint).unproxied(1024) == unproxied


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1))
def test_the_endpoint_that_is_opened_has_the_same_parameters(address: str) -> None:
    endpoint = parse_endpoint(f"haproxy:unix:address={quoteStringArgument(address)}:mode=660")
    assert _parse(endpoint.unproxied(5)) == (["unix"], {"address": address, "mode": "660", "backlog": "5"})


def test_port_0_is_a_free_port() -> None:
    assert parse_endpoint("tcp:0").takes_free_port
    assert not parse_endpoint("tcp:1883").takes_free_port
    assert not parse_endpoint("unix:/run/mqtt.sock").takes_free_port


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1))
def test_parameters_are_unescaped_as_twisted_does(address: str) -> None:
    text = f"unix:address={quoteStringArgument(address)}"
    assert parse_endpoint(text).parameters["address"] == address
    assert _parse(text) == (["unix"], {"address": address})


@given(st.text(alphabet="tcpunix:=\\0189interface. "))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        endpoint = parse_endpoint(text)
    except InvalidValue:
        return
    assert endpoint.type in ("tcp", "unix", "systemd")
