"""The options of TLS, and the permission to take passwords without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from attrs import frozen

from holdfast.config import ConfigError, load
from holdfast.config.options import Section
from holdfast.config.reader import KeyProblem
from holdfast.config.sections.authentication import AuthenticationConfig, ScramConfig, plaintext_problems
from holdfast.config.sections.listeners import ListenerConfig
from holdfast.config.sections.tls import TLSConfig

Write = Callable[[str], Path]


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path)
    return [f"{problem.line}: {problem.key}: {problem.message}" for problem in caught.value.problems]


def test_an_inline_table_and_a_table_mean_the_same(write: Write) -> None:
    inline = load(write('[listeners.a]\ntls = { certificate = "c.pem", client = "required", client_ca = "ca.pem" }\n'))
    table = load(write('[listeners.a.tls]\ncertificate = "c.pem"\nclient = "required"\nclient_ca = "ca.pem"\n'))
    assert inline.listeners == table.listeners
    assert inline.listeners["a"].tls == TLSConfig(certificate="c.pem", client="required", client_ca="ca.pem")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("", "1: listeners.a.tls.certificate: is missing"),
        ('certificate = "c"\nclient = "optional"', '3: listeners.a.tls.client: "optional" needs client_ca'),
        ('certificate = "c"\nclient_ca = "ca"', "3: listeners.a.tls.client_ca: has no effect"),
        ('certificate = "c"\ncrl = "crl"', "3: listeners.a.tls.crl: has no effect"),
        ('certificate = "c"\nminimum = "1.1"', '3: listeners.a.tls.minimum: found "1.1"; allowed: "1.2" or "1.3"'),
        ('certificate = "c"\ncertificates.b.key = "k"', "listeners.a.tls.certificates.b.certificate: is missing"),
        ('cert = "c"', "listeners.a.tls.cert: unknown key"),
    ],
)
def test_problems_name_the_key(write: Write, options: str, told: str) -> None:
    assert any(told in problem for problem in problems(write(f"[listeners.a.tls]\n{options}\n")))


@frozen
class Passwords(Section):
    """A method whose clients send a secret."""


AUTHENTICATION = AuthenticationConfig(methods={"passwords": Passwords(), "scram": ScramConfig("users")})


def told(listener: ListenerConfig, authentication: AuthenticationConfig = AUTHENTICATION) -> list[KeyProblem]:
    listeners: Mapping[str, ListenerConfig] = {"a": listener}
    return list(plaintext_problems(listeners, authentication))


@pytest.mark.parametrize(
    ("listener", "refused"),
    [
        (ListenerConfig(endpoint="tcp:1883"), True),
        (ListenerConfig(endpoint="haproxy:tcp:1883:interface=127.0.0.1"), True),
        (ListenerConfig(endpoint="systemd:domain=INET:index=0"), True),
        (ListenerConfig(endpoint="tcp:1883", allow_anonymous=True), True),
        (ListenerConfig(endpoint="tcp:1883", allow_plaintext=True), False),
        (ListenerConfig(endpoint="tcp:1883", tls=TLSConfig(certificate="c")), False),
        (ListenerConfig(endpoint="tcp:1883", authentication=("scram",)), False),
        (ListenerConfig(endpoint="tcp:1883:interface=127.0.0.1"), False),
        (ListenerConfig(endpoint="unix:/run/mqtt.sock"), False),
    ],
)
def test_passwords_from_other_machines_need_tls_or_a_permission(listener: ListenerConfig, refused: bool) -> None:
    found = told(listener)
    assert bool(found) is refused
    for problem in found:
        assert problem.path == ("listeners", "a", "endpoint")
        assert "listener a" in problem.message
        assert "authentication.passwords" in problem.message
        assert "listeners.a.allow_plaintext = true" in problem.message
        assert "listeners.a.tls" in problem.message


def test_without_authentication_nobody_sends_a_password() -> None:
    assert told(ListenerConfig(endpoint="tcp:1883"), AuthenticationConfig(scram_file="users")) == []
    assert told(ListenerConfig(endpoint="tcp:1883"), AuthenticationConfig()) == []
