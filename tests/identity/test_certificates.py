"""The name in a client's certificate is its user name, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.identity.certificates import CertificateMethod, NamePart
from holdfast.identity.interfaces import IGNORED, Accepted, Credentials, Denied, PeerCertificate
from holdfast.wire.reasons import ReasonCode

CERTIFICATE = PeerCertificate("sensor-7", ("sensor-7.example", "ops@example.com"), "CN=sensor-7,O=Plant")
COMMON_NAME, SAN, SUBJECT = NamePart.COMMON_NAME, NamePart.ALTERNATIVE_NAME, NamePart.SUBJECT


def credentials(certificate: PeerCertificate | None, username: str | None = None) -> Credentials:
    return Credentials("c", username, b"any", "tls", 5, certificate=certificate)


def named(name: str | None, *alternatives: str) -> PeerCertificate:
    return PeerCertificate(name, alternatives, f"CN={name}")


@pytest.mark.parametrize(
    ("part", "said", "name"),
    [
        (COMMON_NAME, None, "sensor-7"),
        (COMMON_NAME, "sensor-7", "sensor-7"),
        (SAN, "ops@example.com", "ops@example.com"),
        (SAN, "sensor-7.example", "sensor-7.example"),
        (SUBJECT, None, "CN=sensor-7,O=Plant"),
    ],
)
def test_the_name_in_the_certificate(part: NamePart, said: str | None, name: str) -> None:
    assert CertificateMethod(part).judge(credentials(CERTIFICATE, said)) == Accepted(name)


def test_without_a_verified_certificate_the_next_method_is_asked() -> None:
    assert CertificateMethod(COMMON_NAME).judge(credentials(None, "sensor-7")) is IGNORED


@pytest.mark.parametrize("part", NamePart)
@pytest.mark.parametrize("said", ["admin", "", "SENSOR-7", "sensor-7 "])
def test_another_user_name_is_denied(part: NamePart, said: str) -> None:
    """Else a device could act as any user whose name it knows."""
    verdict = CertificateMethod(part).judge(credentials(CERTIFICATE, said))
    assert isinstance(verdict, Denied)
    assert verdict.reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_another_user_name_may_be_ignored_but_never_counts() -> None:
    method = CertificateMethod(COMMON_NAME, ignores_username=True)
    assert method.judge(credentials(CERTIFICATE, "admin")) == Accepted("sensor-7")


def test_of_several_alternative_names_none_is_guessed() -> None:
    assert isinstance(CertificateMethod(SAN).judge(credentials(CERTIFICATE)), Denied)
    assert CertificateMethod(SAN).judge(credentials(named("x", "only"))) == Accepted("only")


@pytest.mark.parametrize("part", NamePart)
def test_a_certificate_without_such_a_name_is_denied(part: NamePart) -> None:
    assert isinstance(CertificateMethod(part).judge(credentials(PeerCertificate(None, (), ""))), Denied)


@given(st.text(max_size=20), st.sampled_from("+#/\x00\n\x7f\x85"), st.text(max_size=20))
def test_a_name_that_is_more_than_one_level_of_a_topic_is_denied(before: str, bad: str, after: str) -> None:
    """CVE-2017-7650: a name with a wildcard would be a pattern in rules with %u."""
    name = before + bad + after
    for method in (CertificateMethod(COMMON_NAME), CertificateMethod(COMMON_NAME, ignores_username=True)):
        assert isinstance(method.judge(credentials(named(name), name)), Denied)
    assert isinstance(CertificateMethod(SAN).judge(credentials(named("fine", name), name)), Denied)


def test_a_name_that_is_too_long_is_denied() -> None:
    assert isinstance(CertificateMethod(COMMON_NAME).judge(credentials(named("x" * 256))), Denied)
