"""Whom the broker charges for what a Client leaves in it: its *payer*.

The payer is the User Name if it is proven, and the Client Identifier otherwise: of a guest, and of every Client of a
broker without authentication, where anybody may claim any name. A stranger can take many Client Identifiers, so all
guests together are a payer too.

    alice, proven            user alice
    a guest, sensor-1        client sensor-1, and guests
    an operator              nobody
"""

from __future__ import annotations

from hashlib import sha256

#: all guests together
GUESTS = "guests"

#: A longer name is replaced by its digest: an index of Postgres takes at most 2.7 KB.
_LONGEST = 512
_CLIENT = "client "


def payer_of(username: str | None, client_id: str | None, names_proven: bool) -> str | None:
    """Return the payer of a Client's own limits; None for an operator, who has neither name."""
    if username and names_proven:
        return _named("user ", username)
    return _named(_CLIENT, client_id) if client_id else None


def payers_of(username: str | None, client_id: str | None, names_proven: bool) -> tuple[str, ...]:
    """Return all payers: for a guest, also all guests together."""
    payer = payer_of(username, client_id, names_proven)
    if payer is None:
        return ()
    return (payer, GUESTS) if is_guest(payer) else (payer,)


def is_guest(payer: str) -> bool:
    """Tell whether the payer is one guest."""
    return payer.startswith(_CLIENT)


def _named(kind: str, name: str) -> str:
    return kind + (name if len(name) <= _LONGEST else f"sha256:{sha256(name.encode()).hexdigest()}")
