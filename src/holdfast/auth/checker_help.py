"""The help about checkers of ``twisted.cred`` for the command line, as other programs of Twisted show it."""

from __future__ import annotations

import sys
from typing import NoReturn

from twisted.cred.credentials import IUsernamePassword
from twisted.cred.strcred import AuthOptionMixin


class _Help(AuthOptionMixin):
    supportedInterfaces = (IUsernamePassword,)
    authOutput = sys.stdout


def show_types() -> NoReturn:
    """List the types of checkers that take a user name and a password, and end with status 0."""
    _Help().opt_help_auth()  # type: ignore[no-untyped-call]
    raise SystemExit(0)


def show_type(name: str) -> NoReturn:
    """Describe one type of checkers, and end with status 0. Raises UsageError for an unknown type."""
    _Help().opt_help_auth_type(name)  # type: ignore[no-untyped-call]
    raise SystemExit(0)
