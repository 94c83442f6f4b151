"""The authentication methods of a listener, asked in their order.

How it works. Each method accepts the credentials, denies them, or ignores them: it does not know this kind of
credentials, or this user. Then the next method is asked. An example, with a password file and tokens:

    alice, the right password      passwords: accepted
    alice, a wrong password        passwords: denied; tokens are not asked
    bob, a token                   passwords: ignored, since bob is not in the file; tokens: accepted
    carol, any password            passwords: ignored; tokens: ignored; the chain denies
    no User Name, no password      all ignore it; the chain denies, or admits a guest where the listener allows that

Everything else denies too: an exception, no answer in time, an invalid user name. The next method is not asked
then, because the failed one could have denied.

A stranger must not learn which users exist. So all denials of credentials have one Reason Code, and take the same time:
the last method of a chain with passwords spends the time of a wrong password on each unknown user
(:mod:`holdfast.identity.passwords`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attrs import evolve, field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.identity.interfaces import (
    Accepted,
    Answer,
    Credentials,
    Denied,
    IAuthenticationExchange,
    IAuthenticationMethod,
    IAuthenticator,
    IEnhancedAuthenticator,
    Ignored,
    NoAnswer,
    Principal,
    Verdict,
    in_time,
)
from holdfast.watch.log import LastingFailure
from holdfast.wire.reasons import ReasonCode

_WRONG = ReasonCode.BAD_USER_NAME_OR_PASSWORD


@frozen
class Entry:
    """One method of a chain, and its configured name. Of several failures in a row, the first one is logged."""

    name: str
    method: IAuthenticationMethod
    _failures: LastingFailure = field(init=False, eq=False)

    @_failures.default
    def _named_failures(self) -> LastingFailure:
        return LastingFailure(f"authentication.{self.name}", "so it admits nobody", (NoAnswer,))

    def judge(self, credentials: Credentials, clock: IReactorTime) -> Verdict | Deferred[Verdict]:
        """Return the method's verdict. A failure of the method is a denial, and so is no answer in time."""
        try:
            verdict = self.method.judge(credentials)
        except Exception:  # noqa: BLE001 - whatever fails, nobody is admitted
            return self._failed(Failure())
        if isinstance(verdict, Deferred):
            return in_time(verdict, clock).addCallbacks(self._judged, self._failed)
        return self._judged(verdict)

    def _judged(self, verdict: object) -> Verdict:
        """Return the verdict if it is one that can be used."""
        if isinstance(verdict, Accepted):
            if is_no_username(verdict.username):
                return Denied(_WRONG, f"authentication.{self.name} found an invalid user name", method=self.name)
        elif not isinstance(verdict, Denied | Ignored):
            return self._failed(Failure(TypeError(f"a verdict of the type {type(verdict).__name__}")))
        self._failures.succeeded()
        return evolve(verdict, method=self.name) if isinstance(verdict, Denied) else verdict

    def _failed(self, failure: Failure) -> Denied:
        if failure.check(CancelledError):
            return Denied(ReasonCode.SERVER_UNAVAILABLE, "the client has gone", method=self.name)
        self._failures.failed(failure)
        return Denied(ReasonCode.SERVER_UNAVAILABLE, f"authentication.{self.name} failed", method=self.name)


@implementer(IAuthenticator)
class Chain:
    """The methods of one listener. ``guests`` tells whether Clients without any credentials are admitted.

    Without any method, nobody judges User Name and Password: all Clients are guests, or none is admitted.
    """

    def __init__(self, entries: Sequence[Entry], *, guests: bool, clock: IReactorTime) -> None:
        self._entries = entries
        self._guests = guests
        self._clock = clock

    def authenticate(self, credentials: Credentials) -> Answer | Deferred[Answer]:
        """Return the Principal, or the denial, at once or later."""
        if not self._entries:
            return self._guest(credentials)
        if credentials.username is not None and is_no_username(credentials.username):
            return Denied(_WRONG, "the User Name is empty or has control characters")
        return self._ask(credentials, 0)

    def _ask(self, credentials: Credentials, position: int) -> Answer | Deferred[Answer]:
        """Ask the methods from this position on."""
        for number in range(position, len(self._entries)):
            verdict = self._entries[number].judge(credentials, self._clock)
            if isinstance(verdict, Deferred):
                return verdict.addCallback(self._answered, credentials, number)
            if not isinstance(verdict, Ignored):
                return self._answer(verdict, credentials, number)
        return self._end(credentials)

    def _answered(self, verdict: Verdict, credentials: Credentials, number: int) -> Answer | Deferred[Answer]:
        if isinstance(verdict, Ignored):
            return self._ask(credentials, number + 1)
        return self._answer(verdict, credentials, number)

    def _answer(self, verdict: Accepted | Denied, credentials: Credentials, number: int) -> Answer:
        if isinstance(verdict, Denied):
            return verdict
        return Principal(
            credentials.client_id, verdict.username, verdict.groups, credentials.listener, credentials.address,
            verdict.expires_at, self._entries[number].name,
        )  # fmt: skip

    def _end(self, credentials: Credentials) -> Answer:
        """Return the answer to credentials that all methods have ignored."""
        if credentials.username is not None or credentials.password is not None:
            return Denied(_WRONG, "no authentication method knows this user and this kind of credentials")
        return self._guest(credentials)

    def _guest(self, credentials: Credentials) -> Answer:
        """Return the answer to a Client whose credentials nobody judges. A guest has no User Name."""
        if self._guests:
            return Principal(credentials.client_id, None, listener=credentials.listener, address=credentials.address)
        return Denied(ReasonCode.NOT_AUTHORIZED, "the listener does not admit guests")


@implementer(IAuthenticator)
class Chains:
    """The chains of all listeners, by name."""

    def __init__(self, chains: Mapping[str, Chain]) -> None:
        self._chains = chains

    def authenticate(self, credentials: Credentials) -> Answer | Deferred[Answer]:
        """Ask the chain of the Client's listener."""
        chain = self._chains.get(credentials.listener)
        if chain is None:
            return Denied(ReasonCode.NOT_AUTHORIZED, "the listener was removed")
        return chain.authenticate(credentials)


@implementer(IEnhancedAuthenticator)
class EnhancedByListener:
    """The Authentication Methods of listeners, by name of the listener."""

    def __init__(self, authenticators: Mapping[str, IEnhancedAuthenticator]) -> None:
        self._authenticators = authenticators

    def begin(self, method: str, credentials: Credentials) -> IAuthenticationExchange | None:
        """Return a new exchange; None if the Client's listener does not offer this Authentication Method."""
        authenticator = self._authenticators.get(credentials.listener)
        return None if authenticator is None else authenticator.begin(method, credentials)


# The names and credentials that authentication methods can work with.


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
