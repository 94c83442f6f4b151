"""The owner of a Session: the user that may resume it.

A Session belongs to the User Name that its Client has proven. The Session of a guest belongs to nobody, so a user never
resumes it: a stranger may have filled it. Without authentication no name is proven, and all Clients may resume all
Sessions by their Client Identifiers, as the standard has it [MQTT5-3.1.2-5].

    the Session belongs to    a guest       alice         bob
    nobody                    resumes       replaces      replaces
    alice                     is refused    resumes       is refused

A Session that was stored before authentication was configured belongs to the User Name that its Client gave.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from holdfast.auth.interfaces import Principal


class Access(Enum):
    """What a Client may do with the Session of its Client Identifier."""

    RESUMES = "resumes"
    REPLACES = "replaces"  #: the Session ends, and the Client gets a new one
    REFUSED = "refused"


#: answers for the Principal of a Session, and a Principal that connects with its Client Identifier
Ownership = Callable[[Principal, Principal], Access]


class NotTheOwner(Exception):
    """The Session of this Client Identifier belongs to another user."""


def owners_only(of_session: Principal, newcomer: Principal) -> Access:
    """Let only its user resume a Session. For a broker that authenticates its Clients."""
    owner = of_session.username or None  # nobody can prove an empty name
    if owner == newcomer.username:
        return Access.RESUMES
    return Access.REPLACES if owner is None else Access.REFUSED


def names_ignored(_of_session: Principal, _newcomer: Principal) -> Access:
    """Let every Client resume a Session. For a broker without authentication."""
    return Access.RESUMES
