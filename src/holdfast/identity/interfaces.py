"""The interfaces of authentication and authorization, and their values."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from zope.interface import Attribute, Interface, implementer

from holdfast.core.messages import ApplicationMessage
from holdfast.identity.addresses import Peer
from holdfast.wire.reasons import ReasonCode

_UNIX = Peer(None)


@frozen
class PeerCertificate:
    """The certificate of a TLS client, whose chain is verified.

    ``common_name`` is None if the subject has none. ``alternative_names`` has the DNS names, e-mail addresses and URIs.
    ``subject`` is the whole subject as in RFC 4514.
    """

    common_name: str | None
    alternative_names: tuple[str, ...]
    subject: str


@frozen
class Credentials:
    """The credentials of a Client in CONNECT, its listener, its peer (as a trusted proxy tells it) and its verified TLS
    certificate.
    """

    client_id: str
    username: str | None
    password: bytes | None = field(repr=False)
    listener: str
    protocol_version: int
    peer: Peer = _UNIX
    certificate: PeerCertificate | None = None

    @property
    def address(self) -> str:
        """The host that the Client connects from; ``unix`` for a UNIX domain socket."""
        return str(self.peer.ip or "unix")


@frozen
class Principal:
    """The authenticated identity behind a Network Connection.

    With authentication, ``username`` is proven, and None for a guest. Without it, nobody judges the User Name in
    CONNECT. ``address`` is that of :class:`Credentials`. Not part of the identity, and so not of the comparison:
    ``expires_at``, in seconds since the epoch (None for never), and ``method``, the configured name of the
    authentication method that has accepted the Client; and ``names_only``: of the Client of an earlier process, only
    the names are known.
    """

    client_id: str
    username: str | None
    groups: frozenset[str] = frozenset()
    listener: str = ""
    address: str = ""
    expires_at: float | None = field(default=None, eq=False)
    method: str = field(default="", eq=False)
    names_only: bool = field(default=False, eq=False)


@frozen
class OperatorPrincipal(Principal):
    """An operator at the console of the dashboard. The permissions of Clients do not apply to operators.

    ``publishes`` tells whether the operator may publish, too. Every operator may subscribe to everything.
    """

    publishes: bool = field(default=False, eq=False)


#: Client Identifiers of this broker's own bridges begin so; no other Client may have one
BRIDGE_CLIENT = "$bridge/"


@frozen
class BridgePrincipal(OperatorPrincipal):
    """A bridge of this broker. Its lines in the configuration say what it may do."""

    publishes: bool = field(default=True, eq=False)


def stored_principal(client_id: str, username: str | None, listener: str = "") -> Principal:
    """Return the Principal of an earlier process, of which only the names are known."""
    kind = BridgePrincipal if client_id.startswith(BRIDGE_CLIENT) else Principal
    return kind(client_id, username, listener=listener, names_only=True)


@frozen
class Accepted:
    """The credentials are right: the User Name that they prove, its groups, and when the identity ends.

    ``expires_at`` is in seconds since the epoch, None for never.
    """

    username: str
    groups: frozenset[str] = frozenset()
    expires_at: float | None = None


@frozen
class Denied:
    """The credentials are wrong, or cannot be judged now; ``explanation`` is a clause for the log.

    Server unavailable (0x88) and Server busy (0x89) say that the credentials were not judged. Without ``counts``, the
    denial is no failed login: the credentials are real, but their time is over. ``method`` is the configured name of
    the method that denied; empty if none did.
    """

    reason: ReasonCode
    explanation: str
    counts: bool = True
    method: str = field(default="", eq=False)


@frozen
class Ignored:
    """The method does not know this kind of credentials, or this user: the next method in the chain is asked."""


IGNORED = Ignored()

#: what an authentication method says of credentials
Verdict = Accepted | Denied | Ignored

#: what an authenticator says of credentials
Answer = Principal | Denied


class IAuthenticationMethod(Interface):
    """One method in the chain of a listener."""

    def judge(credentials: Credentials) -> Verdict | Deferred[Verdict]:
        """Judge the credentials, at once or later. An exception counts as Denied: the method is unavailable."""


class IAuthenticator(Interface):
    """Authenticates Clients by their CONNECT packet.

    An authenticator that can judge the credentials and finds them wrong denies, and never returns a guest. One that
    does not answer in time refuses: Server unavailable (0x88).
    """

    def authenticate(credentials: Credentials) -> Answer | Deferred[Answer]:
        """Return the Principal, or the denial, at once or later."""


@frozen
class Challenge:
    """The exchange continues: the Server's next Authentication Data to the Client, None for no data."""

    data: bytes | None


@frozen
class Authenticated:
    """The exchange is over: the Client's identity, and the Server's last Authentication Data."""

    principal: Principal
    data: bytes | None = None


#: the answer of an exchange to the Client's Authentication Data
AuthenticationStep = Challenge | Authenticated | ReasonCode


class IAuthenticationExchange(Interface):
    """One exchange of an Authentication Method with one Client."""

    username = Attribute("The User Name that the Client has claimed, None before it has claimed one.")
    explanation = Attribute("Why the last step has refused the Client: a sentence for the log, not for the Client.")

    def step(data: bytes | None) -> AuthenticationStep | Deferred[AuthenticationStep]:
        """Take the Client's next Authentication Data; return the next step, or the Reason Code of the refusal.

        The caller waits for the answer before the next call, and calls again only after a Challenge. The method answers
        any data: an exception counts as a failure of this broker.
        """


class IEnhancedAuthenticator(Interface):
    """Authenticates Clients by Authentication Methods, each an exchange of AUTH packets [MQTT5-4.12]."""

    def begin(method: str, credentials: Credentials) -> IAuthenticationExchange | None:
        """Return a new exchange; None if this Authentication Method is not offered.

        Also called for each re-authentication of a Client, with the same method and credentials as before.
        """


class Grant(Enum):
    """What a Principal gets of the messages that match one Topic Filter."""

    REFUSED = "none of them"
    GRANTED = "all of them, without further questions"
    FILTERED = "those that may_receive allows, which is asked for each delivery"


class IAuthorizer(Interface):
    """Decides about the permissions of a Principal. Every answer is for now; some may come later, as a Deferred.

    No answer in time means False, or REFUSED.
    """

    checks_delivery = Attribute("False if no subscription is ever FILTERED: then deliveries do not call may_receive.")
    effort = Attribute("The steps of long work (holdfast.scheduling.long_work) that all answers have cost so far.")
    epoch = Attribute("A value that changes whenever any answer may change. None if each call may have another answer.")

    def may_publish(
        principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False
    ) -> bool | Deferred[bool]:
        """Tell whether the Principal may publish this, also as a Will Message.

        ``clears`` tells that the message empties a retained one: RETAIN is 1, and its payload is empty.
        """

    def may_subscribe(principal: Principal, topic_filter: str, qos: int) -> Grant | Deferred[Grant]:
        """Tell whether the Principal may subscribe to this Topic Filter (without the prefix $share/NAME/)."""

    def may_receive(principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        """Tell whether the Principal may receive this message. A replayed message does not name its publisher."""

    def may_keep(username: str | None, client_id: str | None, topic: str) -> bool:
        """Tell whether the publisher of a retained message may still retain a message of this topic."""

    keeping = Attribute(
        "What stands for all that may_keep depends on, also in the next process; None if nothing does. It is text."
    )
    keeps_the_published = Attribute(
        "Whether may_keep allows what may_publish allows to retain, as long as the epoch stays the same."
    )

    def receivable(principal: Principal, topic_filter: str) -> Grant:
        """Tell which of the retained messages that match a Topic Filter the Principal may receive now."""

    def receivable_filters(principal: Principal, topic_filter: str) -> tuple[str, ...] | None:
        """Return Topic Filters that match all that :meth:`receivable` may allow of FILTERED messages.

        They spare replays the reading of other messages, and may match more. None: any message may be allowed.
        """


# The time that an authenticator or an authorizer may take for one answer.
#
# Later packets of the Client wait for the answer, and so does memory. An answer that never comes must not hold either
# for ever.


T = TypeVar("T")

#: seconds after which an answer is not awaited any more
ANSWER_PATIENCE = 30.0


class NoAnswer(Exception):
    """An authenticator or an authorizer has not answered in time."""


def in_time(answer: Deferred[T], clock: IReactorTime) -> Deferred[T]:
    """Cancel this answer after :data:`ANSWER_PATIENCE` seconds: then it fails with NoAnswer. Returns it."""
    return answer.addTimeout(ANSWER_PATIENCE, clock, _no_answer)


def _no_answer(_answer: Any, seconds: float) -> Failure:
    return Failure(NoAnswer(f"no answer within {seconds:g} s"))


# The seam to whoever reports denied actions: it is told of each one, and limits its own lines.


#: Takes the Principal, the action and the Topic Name or Topic Filter. The actions are those of the rules: ``publish``,
#: ``retain``, ``clear`` and ``subscribe``. Withheld deliveries are only counted.
OnDenied = Callable[[Principal, str, str], None]


def tell_nobody(_principal: Principal, _action: str, _topic: str) -> None:
    """Report no denied action."""


def action_of(retain: bool, clears: bool) -> str:
    """Return the action of a PUBLISH or Will Message."""
    if clears:
        return "clear"
    return "retain" if retain else "publish"


# A broker without authentication: all clients are admitted, and may do everything.


@implementer(IAuthenticator)
class AnonymousAuthenticator:
    """Admits every Client under its own name. Used if no authentication is configured."""

    def authenticate(self, credentials: Credentials) -> Principal:
        """Return the Principal with the Client's own names."""
        return Principal(
            credentials.client_id, credentials.username, listener=credentials.listener, address=credentials.address
        )


@implementer(IAuthorizer)
class UnrestrictedAuthorizer:
    """Allows everything to everyone."""

    checks_delivery = False
    effort = 0
    epoch: object = 0
    keeping: str | None = None
    keeps_the_published = True

    def may_publish(
        self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False
    ) -> bool | Deferred[bool]:
        """Allow every PUBLISH and Will Message."""
        return True

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant | Deferred[Grant]:
        """Allow every subscription."""
        return Grant.GRANTED

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        """Allow every delivery."""
        return True

    def may_keep(self, username: str | None, client_id: str | None, topic: str) -> bool:
        """Keep every retained message."""
        return True

    def receivable(self, principal: Principal, topic_filter: str) -> Grant:
        """Allow every retained message."""
        return Grant.GRANTED

    def receivable_filters(self, principal: Principal, topic_filter: str) -> tuple[str, ...] | None:
        """Know no bound."""
        return None
