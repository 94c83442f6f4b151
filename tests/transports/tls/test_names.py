"""The choice of a certificate by its names, and the names in the certificates of clients."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from holdfast.identity.interfaces import PeerCertificate
from holdfast.transports.tls_contexts import ServerNames
from holdfast.transports.tls_files import peer_certificate
from tests.certificates import CLIENT, Authority


@pytest.mark.parametrize(
    ("host", "found"),
    [
        (None, "first"),
        (b"a.example", "first"),
        (b"A.Example.", "first"),
        (b"x.b.example", "second"),
        (b"b.example", "first"),
        (b"y.x.b.example", "first"),
        (b"exact.b.example", "third"),
        (b".b.example", "first"),
        (b"\xff.b.example", "first"),
        (b"", "first"),
    ],
)
def test_a_host_finds_its_certificate(host: bytes | None, found: str) -> None:
    names = ServerNames([("first", ["a.example"]), ("second", ["*.b.example"]), ("third", ["exact.b.example"])])
    assert names.find(host) == found


LABELS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3).map(".".join)


@given(st.lists(LABELS, min_size=1, max_size=6), st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4))
def test_names_are_found_as_a_search_through_all_of_them_would(names: list[str], labels: list[str]) -> None:
    host = ".".join(labels)

    def matches(name: str) -> bool:
        first, _, parent = name.partition(".")
        return name == host or (first == "*" and bool(parent) and parent == host.partition(".")[2])

    exact = [number for number, name in enumerate(names) if name == host]
    all_matches = [number for number, name in enumerate(names) if matches(name)]
    expected = (exact or all_matches or [0])[0]
    assert ServerNames([(number, [name]) for number, name in enumerate(names)]).find(host.encode()) == expected


AUTHORITY = Authority()
NO_NAMES = PeerCertificate(None, (), "")


def certificate(*attributes: tuple[x509.ObjectIdentifier, str], names: list[Any] | None = None) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    return AUTHORITY.issue(subject, usage=CLIENT, general_names=names or []).certificate


def test_the_names_of_a_client() -> None:
    found = peer_certificate(
        certificate(
            (NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Plant, Inc"), (NameOID.COMMON_NAME, "sensor-1"),
            names=[
                x509.DNSName("s1.example"), x509.RFC822Name("s1@example.org"),
                x509.UniformResourceIdentifier("spiffe://plant/s1"),
            ],
        )
    )  # fmt: skip
    names = ("s1.example", "s1@example.org", "spiffe://plant/s1")
    assert found == PeerCertificate("sensor-1", names, "CN=sensor-1,O=Plant\\, Inc,C=DE")


@pytest.mark.parametrize("bad", ["admin\0.evil", "line\nbreak", "\x7f", "\x85"])
def test_a_name_with_a_control_character_yields_no_name(bad: str) -> None:
    assert peer_certificate(certificate((NameOID.COMMON_NAME, bad))) == NO_NAMES
    assert peer_certificate(certificate((NameOID.COMMON_NAME, "a"), (NameOID.ORGANIZATION_NAME, bad))) == NO_NAMES


def test_a_name_that_is_not_utf8_yields_no_name() -> None:
    made = certificate((NameOID.COMMON_NAME, "admin-xyz"))
    from cryptography.hazmat.primitives.serialization import Encoding

    der = made.public_bytes(Encoding.DER).replace(b"admin-xyz", b"admin\xff\xfe\xfd\xfc")
    assert peer_certificate(x509.load_der_x509_certificate(der)) == NO_NAMES


def test_two_common_names_are_none() -> None:
    found = peer_certificate(certificate((NameOID.COMMON_NAME, "a"), (NameOID.COMMON_NAME, "b")))
    assert found.common_name is None
    assert found.subject == "CN=b,CN=a"
