"""The names and credentials that authentication methods can work with."""

from __future__ import annotations

import re

from holdfast.auth.interfaces import Credentials, Denied
from holdfast.wire.reasons import ReasonCode

#: the most characters of a user name
LONGEST_NAME = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: JSON can escape them, UTF-8 has none
_SURROGATE = re.compile(r"[\ud800-\udfff]")
#: separates levels, or is a wildcard
_TOPIC = re.compile(r"[+#/]")


def is_no_username(name: str) -> bool:
    """Tell whether no user can have this name: it is empty, or it has control characters."""
    return not name or _CONTROL.search(name) is not None


def name_problem(name: str) -> str | None:
    """Return why a certificate or a token cannot name a user so; None if it can.

    A name with ``+``, ``#`` or ``/`` would be more than one literal level in a rule with ``%u``.
    """
    if not name:
        return "is empty"
    if len(name) > LONGEST_NAME:
        return f"has more than {LONGEST_NAME} characters"
    if is_no_username(name) or _SURROGATE.search(name):
        return "has control characters"
    if _TOPIC.search(name):
        return "has one of the characters + # /"
    return None


def password_of(credentials: Credentials) -> tuple[str, bytes] | None:
    """Return the User Name and the Password of CONNECT. None if one of them is absent or empty.

    Many services take an empty password for a wish to be a guest, and compare an absent one with what they do not know.
    """
    if not credentials.username or not credentials.password:
        return None
    return credentials.username, credentials.password


def wrong(explanation: str) -> Denied:
    """Return the denial of wrong credentials. All have one Reason Code, which tells a stranger nothing."""
    return Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD, explanation)


def out_of_time(explanation: str) -> Denied:
    """Return the denial of real credentials at the wrong time. The Client hears the same; it is no failed login."""
    return Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD, explanation, counts=False)


def unavailable(explanation: str) -> Denied:
    """Return the denial of credentials that could not be judged. It is no failed login."""
    return Denied(ReasonCode.SERVER_UNAVAILABLE, explanation)
