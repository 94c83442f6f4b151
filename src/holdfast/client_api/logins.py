"""Logins of MQTT clients over HTTP: the rights of CONNECT, for calls that clients make.

How it works. The header Authorization has what a CONNECT would have. The same authentication methods judge it: those of
the listener in ``admin.clients_of``.

    Basic USER:PASSWORD    User Name and Password
    Bearer TOKEN           a Password without a User Name: a signed token
    no header              a CONNECT without either: a guest, if the listener admits guests

Failures count together with those of CONNECT, for the same address and User Name. Such a client has no Client
Identifier: rules with ``%c`` and ``clients`` never match it. It has no Session. While a long answer goes on,
:meth:`ClientLogin.over` tells whether a CONNECT would still be admitted.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import Callable
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.call import Call, RefusedCall, not_found, unauthorized, unavailable
from holdfast.admin.http.identities import Identities
from holdfast.core.messages import ApplicationMessage
from holdfast.identity.addresses import Peer
from holdfast.identity.failed_logins import FAILED_LOGIN
from holdfast.identity.interfaces import Answer, Credentials, Denied, Grant, NoAnswer, Principal, in_time
from holdfast.retained.rules import Subscriber
from holdfast.scheduling.waiting import as_deferred
from holdfast.sessions.exchange.admission import NO_METHOD, count_login
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.limits import Limits
from holdfast.watch.log import LastingFailure

#: the version whose CONNECT the credentials would be in
_VERSION = 5
_UNJUDGED = "credentials cannot be verified now; try again later"
_WRONG = "wrong user name or password, or a token that is not accepted"


@frozen(eq=False)
class ClientLogin:
    """A client that has logged in. ``dismissals`` is how many there had been before."""

    principal: Principal
    peer: Peer
    limits: Limits
    dismissals: int
    _parts: BrokerParts
    _failing: LastingFailure

    @property
    def name(self) -> str:
        """What limits count it by: its proven user, or its address."""
        user = self.principal.username
        return f"user {user}" if user is not None else f"address {self.peer.group}"

    @property
    def epoch(self) -> object:
        """A value that changes whenever the client's permissions may change."""
        return self._parts.authorizer.epoch

    def grant(self, topic_filter: str) -> Grant:
        """Tell which of the messages that match a Topic Filter the client may receive now."""
        return Grant.REFUSED if self.over() else Subscriber(self._parts.authorizer, self.principal).grant(topic_filter)

    def may_receive(self, topic: str) -> bool | Deferred[bool]:
        """Tell whether the client may receive messages of a topic now. No answer in time means False."""
        answer = Subscriber(self._parts.authorizer, self.principal).may_receive(ApplicationMessage(topic, b""))
        if isinstance(answer, Deferred):
            in_time(answer, self._parts.clock).addErrback(self._denied_by_error)
        return answer

    @as_deferred
    async def may_subscribe(self, topic_filter: str) -> bool:
        """Tell whether a SUBSCRIBE of the client would be granted; count and report a denial."""
        parts = self._parts
        asked = parts.authorizer.may_subscribe(self.principal, topic_filter, 0)
        answer: object = asked
        if isinstance(asked, Deferred):
            waiting: Deferred[Any] = in_time(asked, parts.clock)
            answer = await waiting.addErrback(self._denied_by_error)
        if answer in (Grant.GRANTED, Grant.FILTERED):
            return True
        parts.counters.subscriptions_not_authorized += 1
        parts.denied(self.principal, "subscribe", topic_filter)
        return False

    def _denied_by_error(self, failure: Failure) -> bool:
        self._failing.failed(failure)
        return False

    def over(self) -> str | None:
        """Return why a CONNECT would not be admitted any more, None if it would."""
        parts = self._parts
        dismissal = parts.registry.dismissals.refusal(self.principal, self.dismissals)
        if dismissal is not None:
            return dismissal.explanation
        if parts.bans.has_user(self.principal.username):
            return "this user is banned"
        return "this address is banned" if parts.bans.has_peer(self.peer) else None


class ClientLogins:
    """Logs clients in. ``listener`` returns the listener whose clients they are like, "" while they may not log in."""

    def __init__(
        self,
        parts: BrokerParts,
        identities: Identities,
        listener: Callable[[], str],
        limits_of: Callable[[str], Limits],
    ) -> None:
        self._parts = parts
        self._identities = identities
        self._listener = listener
        self._limits_of = limits_of
        self._failing = LastingFailure("authorizing clients over HTTP", "so they get nothing", (NoAnswer,))

    @as_deferred
    async def login(self, call: Call) -> ClientLogin:
        """Return the client that makes a call. Raises RefusedCall."""
        parts, listener, head = self._parts, self._listener(), call.head
        if not listener:
            raise not_found("clients cannot read retained messages over HTTP here: admin.clients_of names no listener")
        if head is None:
            raise unauthorized("this call is for clients over HTTP; operators list messages and follow /events")
        if parts.memory is not None and parts.memory.refuses:
            raise unavailable("the broker is short of memory; try again later")
        username, password = _credentials(head.authorization)
        dismissals = parts.registry.dismissals.count
        answering = parts.authenticator.authenticate(Credentials("", username, password, listener, _VERSION, head.peer))
        try:
            answer: Answer = await in_time(answering, parts.clock) if isinstance(answering, Deferred) else answering
        except NoAnswer:
            raise unavailable(_UNJUDGED) from None
        if parts.bans.has_peer(head.peer):  # since the request; not even right credentials help now
            raise RefusedCall(http.FORBIDDEN, "BANNED", "the address of this connection is banned")
        if isinstance(answer, Denied):
            raise self._refusal(answer, head.peer, username)
        count_login(parts.counters, answer.method or NO_METHOD, None)
        if answer.username is not None:
            self._identities.right(head.peer, answer.username)
        login = ClientLogin(answer, head.peer, self._limits_of(listener), dismissals, parts, self._failing)
        why = login.over()
        if why is not None:
            raise RefusedCall(http.FORBIDDEN, "FORBIDDEN", why)
        call.prove()
        return login

    def _refusal(self, denied: Denied, peer: Peer, username: str | None) -> RefusedCall:
        count_login(self._parts.counters, denied.method or NO_METHOD, denied.reason)
        if denied.reason not in FAILED_LOGIN:
            return unavailable(_UNJUDGED)
        if not denied.counts:
            return unauthorized("the credentials are not valid at this time")
        return self._identities.wrong(peer, username or "", _WRONG)


def _credentials(authorization: str | None) -> tuple[str | None, bytes | None]:
    """Return User Name and Password of a header. Raises RefusedCall."""
    if authorization is None:
        return None, None
    kind, _, text = authorization.strip().partition(" ")
    text = text.strip()
    match kind.lower():
        case "basic":
            try:
                user, found, password = b64decode(text, validate=True).partition(b":")
                if found:
                    return user.decode(), password
            except (Error, ValueError):
                pass  # as without a colon: refused below
        case "bearer":
            if text:
                return None, text.encode("utf-8", "surrogatepass")
    raise unauthorized("the header Authorization is Basic with user name and password, or Bearer with a token")
