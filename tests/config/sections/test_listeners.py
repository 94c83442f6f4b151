"""Listeners in the configuration: proxies, and listeners that are open to others without authentication."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.config import load
from tests.config.conftest import Problems

PROXIED = '[listeners.x]\nendpoint = "haproxy:tcp:1883:interface=127.0.0.1"\nallow_anonymous = true\n'


def test_a_proxy_on_this_machine_is_trusted_by_default(write: Callable[[str], Path]) -> None:
    assert load(write(PROXIED)).listeners["x"].trusted_proxies == ("127.0.0.0/8", "::1", "unix")


def test_proxies_are_addresses_networks_and_unix_sockets(write: Callable[[str], Path]) -> None:
    config = load(write(PROXIED + 'trusted_proxies = ["10.0.0.5", "2001:db8::/64", "unix"]\n'))
    assert config.listeners["x"].trusted_proxies == ("10.0.0.5", "2001:db8::/64", "unix")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[]", "a list of one or more IP addresses"),
        ('"10.0.0.5"', "a list of one or more IP addresses"),
        ("[5]", "found 5 in the list; allowed: a list of"),
        ('["proxy.example.org"]', 'found "proxy.example.org" in the list; allowed: a list of'),
        ('["10.0.0.5/8"]', 'did you mean "10.0.0.0/8"?'),
        ('["10.0.0.0/33"]', 'found "10.0.0.0/33" in the list; allowed: a list of'),
    ],
)
def test_other_proxies_are_refused_with_the_reason(
    problems_of: Callable[..., Problems], value: str, message: str
) -> None:
    ((line, key, text),) = problems_of(f"{PROXIED}trusted_proxies = {value}\n")
    assert (line, key) == (4, "listeners.x.trusted_proxies")
    assert message in text


def test_proxies_of_a_listener_without_the_proxy_protocol_are_a_problem(problems_of: Callable[..., Problems]) -> None:
    ((line, key, text),) = problems_of(
        '[listeners.x]\nendpoint = "tcp:1883:interface=127.0.0.1"\ntrusted_proxies = ["10.0.0.5"]\n'
    )
    assert (line, key) == (3, "listeners.x.trusted_proxies")
    assert '"haproxy:tcp:1883:interface=127.0.0.1"' in text


@pytest.mark.parametrize("wrapped", ["tcp:1883:interface=127.0.0.1", "tcp:1883", "unix:/run/mqtt.sock"])
def test_the_clients_of_a_proxy_need_authentication_or_permission(
    problems_of: Callable[..., Problems], write: Callable[[str], Path], wrapped: str
) -> None:
    text = f'[listeners.x]\nendpoint = "haproxy:{wrapped}"\n'
    ((line, key, message),) = problems_of(text)
    assert (line, key) == (2, "listeners.x.endpoint")
    assert "takes clients of a proxy, which can be anywhere" in message
    assert "listeners.x.allow_anonymous = true" in message
    assert load(write(text + "allow_anonymous = true\n")).listeners["x"].allow_anonymous
    assert load(write(text + '[authentication]\nscram_file = "users.scram"\n')).authentication.is_configured
