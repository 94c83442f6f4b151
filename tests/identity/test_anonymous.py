"""A broker without authentication."""

from __future__ import annotations

from holdfast.identity.interfaces import AnonymousAuthenticator, Credentials, Principal


def credentials(listener: str) -> Credentials:
    return Credentials("c", "alice", b"secret", listener, 4)


def test_without_authentication_a_client_has_its_own_names() -> None:
    assert AnonymousAuthenticator().authenticate(credentials("any")) == Principal(
        "c", "alice", listener="any", address="unix"
    )
