"""User names and passwords that a checker of ``twisted.cred`` verifies, named by a strcred description.

A checker may answer later with a Deferred, so it is called in the reactor's thread. Twisted's own checkers of files and
of the system's users read files for each login instead: they are called in a thread, one at a time. At most
:data:`MOST_CALLS_WAITING` logins wait. Further Clients are told that the broker is busy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from twisted.cred.checkers import ANONYMOUS, FilePasswordDB, ICredentialsChecker
from twisted.cred.credentials import IUsernamePassword, UsernamePassword
from twisted.cred.error import LoginFailed
from twisted.cred.strcred import (
    AuthOptionMixin,
    InvalidAuthArgumentString,
    InvalidAuthType,
    findCheckerFactories,
    makeChecker,
)
from twisted.internet.defer import Deferred, DeferredLock, maybeDeferred
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.identity.chain import password_of, wrong
from holdfast.identity.interfaces import IGNORED, Accepted, Credentials, Denied, IAuthenticationMethod, Verdict
from holdfast.wire.reasons import ReasonCode

#: calls that may wait for the thread
MOST_CALLS_WAITING = 200


class UnusableChecker(ValueError):
    """The description names no usable checker. The text says why."""


#: calls a function, in the reactor's thread or in another one, and returns its result later
Run = Callable[[Callable[[], Any]], "Deferred[Any]"]


def checker_of(description: str) -> ICredentialsChecker:
    """Return the checker of a description such as ``file:/path``. Raises UnusableChecker."""
    kind = description.partition(":")[0]
    try:
        checker: ICredentialsChecker = makeChecker(description)
    except InvalidAuthType:
        known = ", ".join(sorted(factory.authType for factory in findCheckerFactories()))
        raise UnusableChecker(f"there is no checker {kind}; found here: {known}") from None
    except InvalidAuthArgumentString as error:
        raise UnusableChecker(f"the checker {kind} does not take these arguments: {error}") from None
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        raise UnusableChecker(f"the checker {kind} cannot be made: {error}") from None
    if not any(interface.isOrExtends(IUsernamePassword) for interface in checker.credentialInterfaces):
        raise UnusableChecker(f"the checker {kind} takes no user name with a password")
    if isinstance(checker, FilePasswordDB):
        _check_file(checker)
    return checker


def blocks(checker: ICredentialsChecker) -> bool:
    """Tell whether a checker reads files while it is called, and never answers with an unfinished Deferred."""
    return isinstance(checker, FilePasswordDB) or type(checker).__module__ == "twisted.plugins.cred_unix"


def one_at_a_time() -> Run:
    """Return what calls functions in a thread of the reactor's pool, one after the other."""
    lock = DeferredLock()
    return lambda function: lock.run(deferToThread, _finished, function)


def _finished(function: Callable[[], Any]) -> Any:
    """Return the result of a checker that answers at once, in whatever form."""
    found: list[Any] = []
    maybeDeferred(function).addBoth(found.append)
    if not found:
        raise TypeError("a checker that is called in a thread has no answer yet")
    if isinstance(found[0], Failure):
        found[0].raiseException()
    return found[0]


@implementer(IAuthenticationMethod)
class CheckerMethod:
    """Judges credentials by a checker. ``run`` calls it: at once by default, in a thread if it :func:`blocks`."""

    def __init__(self, checker: ICredentialsChecker, run: Run | None = None) -> None:
        self._checker = checker
        self._run: Run = maybeDeferred if run is None else run
        self._waiting = 0

    def judge(self, credentials: Credentials) -> Verdict | Deferred[Verdict]:
        """Return the identity later. Ignore a Client without User Name and Password."""
        said = password_of(credentials)
        if said is None:
            return IGNORED
        if self._waiting >= MOST_CALLS_WAITING:
            return Denied(ReasonCode.SERVER_BUSY, "too many logins wait for the checker")
        username, password = said
        self._waiting += 1
        offered = UsernamePassword(username.encode(), password)
        answer: Deferred[Any] = self._run(lambda: self._ask(offered))
        return answer.addBoth(self._answered).addCallbacks(_accepted, _refused)

    def _ask(self, offered: UsernamePassword) -> Any:
        if isinstance(self._checker, FilePasswordDB):
            _check_file(self._checker)
        return self._checker.requestAvatarId(offered)

    def _answered(self, answer: Any) -> Any:
        self._waiting -= 1
        return answer


def _accepted(avatar: object) -> Verdict:
    """Return the identity of an avatar, which is the user name in bytes or text."""
    if avatar is ANONYMOUS:
        return IGNORED
    if isinstance(avatar, bytes):
        try:
            return Accepted(avatar.decode())
        except UnicodeDecodeError:
            return wrong("the checker names the user in bytes that are not UTF-8")
    if isinstance(avatar, str):
        return Accepted(avatar)
    raise TypeError(f"the checker names the user by a {type(avatar).__name__}")


def _refused(failure: Failure) -> Denied | Failure:
    """Return a denial if the checker has refused the login; all other failures are its own."""
    if failure.check(LoginFailed):
        return wrong("the checker denies it")
    if failure.check(UnicodeError):
        return wrong("the checker does not take these characters")
    return failure


def _check_file(checker: FilePasswordDB) -> None:
    """Raise UnusableChecker if the file cannot be read. The checker itself would deny all users."""
    try:
        with open(checker.filename, "rb"):
            pass
    except OSError as error:
        raise UnusableChecker(f"the file {checker.filename} cannot be read: {error.strerror}") from None


# The help about checkers of ``twisted.cred`` for the command line, as other programs of Twisted show it.


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
