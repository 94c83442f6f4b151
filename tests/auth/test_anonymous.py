"""Clients without authentication: their names, and the listeners that admit them."""

from __future__ import annotations

from holdfast.auth.anonymous import AnonymousAuthenticator, GuestAuthenticator
from holdfast.auth.interfaces import Credentials, Principal
from holdfast.wire.reasons import ReasonCode


def credentials(listener: str) -> Credentials:
    return Credentials("c", "alice", b"secret", listener, 4)


def test_without_authentication_a_client_has_its_own_names() -> None:
    assert AnonymousAuthenticator().authenticate(credentials("any")) == Principal("c", "alice")


def test_with_authentication_only_some_listeners_admit_guests_without_user_names() -> None:
    """Its User Name could be that of a user, without a proof."""
    guests = GuestAuthenticator({"local"})
    assert guests.authenticate(credentials("local")) == Principal("c", None)
    assert guests.authenticate(credentials("public")) is ReasonCode.NOT_AUTHORIZED
