"""From CONNECT to CONNACK: the limits, the authenticator and the authorizer judge; then the Client gets a Session.

Each of them may answer at once or with a Deferred. The steps, in order:

    bans              is the address or the Client Identifier banned?
    draining          is this node being emptied?
    memory            has the process memory for one more Client?
    Handshake         the limits and the standard: may this CONNECT be accepted at all?
    authenticator     is the Client genuine? (or an :class:`Authentication` in several steps)
    failures          a failed login is counted, and its answer may wait
    authorizer        may the Client publish its Will Message?
    dismissals        has the identity ended meanwhile?
    before_connect    in a cluster: another node may have the Session, and gives it to this one
    registry.connect  give the Client its Session, and end its other connection (unless it is another user's)
    commit            the new Session is durable: send CONNACK, then begin the exchange
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attrs import evolve
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.core.tickets import StorageFailure
from holdfast.identity.failed_logins import FAILED_LOGIN, WaitingRefusals
from holdfast.identity.interfaces import (
    BRIDGE_CLIENT,
    Answer,
    BridgePrincipal,
    Credentials,
    Denied,
    IAuthenticator,
    OperatorPrincipal,
    Principal,
    action_of,
)
from holdfast.sessions.accounts import OverLimit
from holdfast.sessions.connection.acknowledgements import failure_reason
from holdfast.sessions.connection.connection import Admit, Connection
from holdfast.sessions.connection.link import NO_ACTIONS
from holdfast.sessions.counters import Counters
from holdfast.sessions.draining import TOLD
from holdfast.sessions.exchange.authentication import CONNACK, Authentication, credentials_of, failure_code
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.exchange.exchange import Exchange
from holdfast.sessions.exchange.handshake import ConnectRefused, Handshake
from holdfast.sessions.registry import NotTheOwner, Unavailable
from holdfast.watch.audit import BANNED, CONNECTED, REFUSED
from holdfast.watch.log import client_text
from holdfast.wire import ReasonCode
from holdfast.wire.packets import Connect, Will

#: what a refused Client is told: the same for each user, whether or not there is one
NOT_ALLOWED = "the connection is not allowed"
_TOLD = {
    ReasonCode.SERVER_BUSY: "too many clients connect now; try again later",
    ReasonCode.SERVER_UNAVAILABLE: "credentials cannot be verified now; try again later",
}

#: outcomes of logins; FAILED ones were not judged, since a service was away or busy
ACCEPTED, DENIED, FAILED = "accepted", "denied", "failed"
#: stands for the method where none has judged, as for guests, and for dialogues of AUTH packets that are refused
NO_METHOD, ENHANCED = "none", "enhanced"

_FOREIGN = "this Client Identifier belongs to another user"
_RESERVED = f"Client Identifiers that begin with {BRIDGE_CLIENT} belong to this broker's own bridges"
_BUSY = "the broker is short of memory; try again later"

_NO_ANSWER = Denied(ReasonCode.SERVER_UNAVAILABLE, "its credentials could not be verified")


def count_login(counters: Counters, method: str, reason: ReasonCode | None) -> None:
    """Count a judged login by its method, which is a name of the configuration, and its outcome. None: accepted."""
    outcome = ACCEPTED if reason is None else DENIED if reason in FAILED_LOGIN else FAILED
    counters.tallies.logins[method, outcome] += 1


def admit(parts: BrokerParts, link: Connection, packet: Connect) -> None:
    """Judge the CONNECT of one Network Connection, now or later."""
    link.client_log.client_id = packet.client_id or None
    parts.traces.connecting(link, packet)
    if packet.client_id.startswith(BRIDGE_CLIENT) and not isinstance(parts.authenticator, _ProvenBridge):
        reject(parts, link, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, _RESERVED, _RESERVED)
        return
    if _is_of_banned_address(parts, link):
        return
    if parts.draining.is_on:
        reason, server = parts.draining.refusal(link.protocol_version)
        _log_refusal(parts, link, reason, "this node drains", False)
        link.finish(link.explanations.refusal(reason, TOLD, server), None, reason=reason)
        return
    if parts.memory is not None and parts.memory.refuses:
        parts.counters.connections_over_memory += 1
        reject(
            parts, link, ReasonCode.SERVER_BUSY, _BUSY, f"limits.memory is nearly reached, on listener {link.listener}"
        )
        return
    try:
        handshake = Handshake(packet, link.limits)
    except ConnectRefused as refused:
        reject(parts, link, refused.reason, str(refused), str(refused))
        return
    link.client_log.client_id = handshake.client_id
    if handshake.participates:
        link.participant = True
    if parts.bans.has_client(handshake.client_id):
        reject(parts, link, ReasonCode.BANNED, "this Client Identifier is banned", "its Client Identifier is banned")
        return
    _Admission(parts, link, handshake).authenticate()


class _Admission:
    """Judges one CONNECT that the limits allow."""

    def __init__(self, parts: BrokerParts, link: Connection, handshake: Handshake) -> None:
        self._parts = parts
        self._link = link
        self._handshake = handshake
        self._dismissals = parts.registry.dismissals.count

    def authenticate(self) -> None:
        """Ask the authenticator, or begin the exchange of the Authentication Method in CONNECT."""
        if self._handshake.packet.properties.authentication_method is not None:
            Authentication(self._link, self._parts, self._handshake, self._authenticated).begin()
            return
        answer = self._parts.authenticator.authenticate(credentials_of(self._link, self._handshake))
        if isinstance(answer, Deferred):
            self._link.ask(answer, _NO_ANSWER, self._judged)
        else:
            self._judged(answer)

    def _judged(self, answer: Answer) -> None:
        """Take the authenticator's answer. The log tells its explanation, the Client only the usual sentence."""
        if isinstance(answer, Principal):
            self._authenticated(answer)
            return
        count_login(self._parts.counters, answer.method or NO_METHOD, answer.reason)
        if not _is_of_banned_address(self._parts, self._link):
            self._failed(answer.reason, _TOLD.get(answer.reason, NOT_ALLOWED), answer.explanation, answer.counts)

    def _authenticated(self, answer: Principal | ReasonCode, explanation: str = NOT_ALLOWED) -> None:
        if isinstance(answer, Principal):
            count_login(self._parts.counters, answer.method or NO_METHOD, None)
        else:  # only a dialogue of AUTH packets is refused here
            count_login(self._parts.counters, ENHANCED, answer)
        if _is_of_banned_address(self._parts, self._link):  # since CONNECT; not even right credentials help now
            return
        if not isinstance(answer, Principal):
            self._failed(answer, explanation, explanation)
            return
        if answer.username is not None:
            self._parts.failures.succeeded(self._link.peer, answer.username)
        if self._parts.bans.has_user(answer.username):  # told only to whoever has proved to be this user
            self._reject(ReasonCode.BANNED, "this user is banned")
            return
        if self._handshake.drops_bridge_state:
            self._parts.counters.messages_dropped_bridge_state += 1
        will = self._handshake.packet.will
        if will is None:
            self._admit(answer)
            return
        if self._parts.router.is_own(will.topic):  # only the broker publishes there
            self._will_decided(False, answer)
            return
        allowed = self._parts.authorizer.may_publish(
            answer, will.topic, will.qos, will.retain, will.retain and not will.payload
        )
        if isinstance(allowed, Deferred):
            self._link.ask(allowed, False, lambda result: self._will_decided(result, answer))
        else:
            self._will_decided(allowed, answer)

    def _failed(self, reason: ReasonCode, told: str, explanation: str, counts: bool = True) -> None:
        """Refuse the Client, now or after its delay."""
        delay = 0.0
        if reason in FAILED_LOGIN and counts:
            self._link.client_log.username = self._handshake.claimed_username
            self._parts.counters.logins_failed += 1
            delay = self._parts.failures.failed(self._link.peer, self._handshake.claimed_username)
            if self._parts.bans.has_peer(self._link.peer):
                self._parts.counters.addresses_banned += 1
                self._link.client_log.warn("its address is banned", "after too many failed logins (failed_logins)")
                self._link.client_log.audit(BANNED, {})
        if not delay:
            self._reject(reason, told, explanation, failed_login=reason in FAILED_LOGIN and counts)
            return
        self._parts.counters.logins_delayed += 1
        cause = f"{self._cause(explanation)}; its answer waits for {delay:g} s"
        _log_refusal(self._parts, self._link, reason, cause, failed_login=True)
        refuse = partial(_answer_refusal, self._link, reason, told)
        DelayedRefusal(self._link, self._parts.failures.waiting, refuse).begin(delay)

    def _will_decided(self, allowed: bool, principal: Principal) -> None:
        if allowed:
            self._admit(principal)
        else:
            will = self._handshake.packet.will
            assert will is not None
            self._parts.denied(principal, action_of(will.retain, will.retain and not will.payload), will.topic)
            self._reject(ReasonCode.NOT_AUTHORIZED, "the Will Message is not allowed")

    def _admit(self, principal: Principal) -> None:
        """Give the Client its Session, once the Wills of the last process allow it and the store can take it."""
        overdue = self._parts.registry.before_admission()
        if overdue is not None:
            self._link.wait_for(overdue, None, lambda _: self._admit(principal))
            return
        stored = self._handshake.expiry_interval != 0 or self._handshake.packet.will is not None
        if stored and self._parts.pressure.active:
            self._link.wait_for(self._parts.pressure.relief(self._link), None, lambda _: self._find(principal))
        else:
            self._find(principal)

    def _find(self, principal: Principal) -> None:
        """Attach the Session, once this node of a cluster has it."""
        handshake = self._handshake
        found = self._parts.registry.before_connect(
            self._link, principal, clean_start=handshake.packet.clean_start, expiry_interval=handshake.expiry_interval
        )
        if found is None:
            self._connect(principal)
        else:
            self._link.wait_for(found, Unavailable(), lambda why_not: self._found(principal, why_not))

    def _found(self, principal: Principal, why_not: Unavailable | None) -> None:
        if why_not is None:
            self._connect(principal)
        elif why_not.is_foreign:
            self._reject(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, _FOREIGN)
        else:
            self._reject(ReasonCode.SERVER_UNAVAILABLE, "another node has the Session; try again later")

    def _connect(self, principal: Principal) -> None:
        """Attach the Session. CONNACK follows once the Session is durable."""
        link = self._link
        handshake = self._handshake
        registry = self._parts.registry
        dismissal = registry.dismissals.refusal(principal, self._dismissals)
        if dismissal is not None:
            self._reject(failure_code(dismissal.reason, CONNACK), dismissal.explanation)
            return
        try:
            session, present, ticket = registry.connect(
                link,
                principal,
                clean_start=handshake.packet.clean_start,
                expiry_interval=handshake.expiry_interval,
                window=handshake.window,
                will=handshake.packet.will,
                untold=handshake.untold,
            )
        except OverLimit as over:
            self._parts.counters.connections_over_limits += 1
            self._reject(ReasonCode.QUOTA_EXCEEDED, str(over))
            return
        except NotTheOwner:
            self._reject(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, _FOREIGN)
            return
        exchange = Exchange(link, session, self._parts, handshake)
        # Attached before CONNACK: if the connection ends during the commit, the exchange must leave the Session.
        link.attach(exchange, exchange.has_room)
        link.hold()

        def settled(failure: StorageFailure | None) -> None:
            if link.is_closed:
                return
            with link.guard:
                if failure is not None:
                    # An older Session stays as it was. A new one must not outlive its refused connection.
                    if not present:
                        registry.rejected(session)
                    self._reject(failure_reason(failure), "the Session cannot be stored")
                else:
                    link.establish(handshake.keep_alive)
                    self._log(principal, present)
                    link.send(handshake.accepted(present))
                    exchange.begin()
            link.release()

        ticket.when_settled(settled)

    def _log(self, principal: Principal, present: bool) -> None:
        user = () if principal.username is None else (principal.username,)

        def connected() -> str:
            version = {3: "3.1", 4: "3.1.1"}.get(self._link.protocol_version, "5.0")
            return (
                f"is connected: MQTT {version}, {'user {}' if user else 'no user name'}, "
                f"{'its Session' if present else 'a new Session'}, Keep Alive {self._handshake.keep_alive} s"
            )

        log = self._link.client_log
        log.coming(connected, *user)
        log.username = principal.username
        certificate = self._link.certificate
        fields = {
            "protocol": self._link.protocol_version,
            "method": principal.method or self._handshake.packet.properties.authentication_method,
            "session_present": present,
        }
        log.audit(CONNECTED, fields, certificate=None if certificate is None else certificate.subject)

    def _reject(self, reason: ReasonCode, told: str, explanation: str = "", *, failed_login: bool = False) -> None:
        self._link.client_log.username = self._handshake.claimed_username
        reject(self._parts, self._link, reason, told, self._cause(explanation or told), failed_login=failed_login)

    def _cause(self, explanation: str) -> str:
        """Return the clause for the log, with the listener and the claimed user."""
        username = self._handshake.claimed_username
        user = "without a user name" if username is None else f"as user {client_text(username)}"
        return f"{explanation}, on listener {self._link.listener} {user}"


def reject(
    parts: BrokerParts, link: Connection, reason: ReasonCode, told: str, cause: str, *, failed_login: bool = False
) -> None:
    """Refuse a CONNECT: with CONNACK where the Client's protocol version has a code for the reason.

    ``told`` is the Reason String for the Client, ``cause`` the clause for the log. ``failed_login`` tells whether this
    counts as a failed login.
    """
    _log_refusal(parts, link, reason, cause, failed_login)
    _answer_refusal(link, reason, told)


def _log_refusal(parts: BrokerParts, link: Connection, reason: ReasonCode, cause: str, failed_login: bool) -> None:
    parts.counters.connections_refused += 1
    parts.counters.tallies.refusals[reason.name.lower()] += 1
    link.client_log.info("is refused", f"{reason.name}, {cause}")
    fields = {"failed_login": failed_login, "reason": reason.name, "code": int(reason)}
    link.client_log.audit(REFUSED, fields, cause=cause)


def _answer_refusal(link: Connection, reason: ReasonCode, told: str) -> None:
    link.finish(link.explanations.refusal(reason, told), None, reason=reason)


def _is_of_banned_address(parts: BrokerParts, link: Connection) -> bool:
    """Close the connection of a banned address without an answer, as if the ban had come before the connection."""
    if not parts.bans.has_peer(link.peer):
        return False
    parts.counters.connections_of_banned_addresses += 1
    link.client_log.info("is banned", "its address was banned after it had connected")
    link.finish(b"", None, reason=ReasonCode.BANNED)
    return True


# The admission of operators at the console of the dashboard, who have proved who they are before CONNECT.
#
# An operator's Session ends with its connection, and has a Client Identifier of the broker's choice. So an operator
# takes over no Client's Session, whatever the console sends.


_OWN_NAME = "the console has no Client Identifier of its own: send an empty one"
_NO_EXPIRY = "the Session of the console ends with its connection: send no Session Expiry Interval"


@implementer(IAuthenticator)
class _ProvenOperator:
    """Answers with one operator, whatever the credentials in CONNECT."""

    def __init__(self, name: str, publishes: bool) -> None:
        self._name = name
        self._publishes = publishes

    def authenticate(self, credentials: Credentials) -> Answer | Deferred[Answer]:
        """Return the operator. The method names the operator, for the audit log."""
        return OperatorPrincipal(
            credentials.client_id, None, listener=credentials.listener, address=credentials.address,
            method=f"dashboard, {self._name}", publishes=self._publishes,
        )  # fmt: skip


def operator_admission(parts: BrokerParts, name: str, publishes: bool) -> Admit:
    """Return what judges the CONNECT of this operator."""
    own = evolve(parts, authenticator=_ProvenOperator(name, publishes), enhanced_authenticator=None)
    return partial(_admit, own)


def _admit(parts: BrokerParts, link: Connection, packet: Connect) -> None:
    problem = None
    if packet.client_id:
        problem = _OWN_NAME
    elif packet.properties.session_expiry_interval:
        problem = _NO_EXPIRY
    if problem is None:
        admit(parts, link, packet)
    else:
        reject(parts, link, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, problem, problem)


# The admission of this broker's own bridges: connections within the process, which prove nothing.


@implementer(IAuthenticator)
class _ProvenBridge:
    """Answers with one bridge.

    Its Principal is the same in each process and at each connection, so permissions are never asked about anew.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def authenticate(self, credentials: Credentials) -> Answer | Deferred[Answer]:
        """Return the bridge."""
        return BridgePrincipal(credentials.client_id, None, method=f"bridge {self._name}")


def bridge_admission(parts: BrokerParts, name: str) -> Admit:
    """Return what judges the CONNECT of this bridge."""
    return partial(admit, evolve(parts, authenticator=_ProvenBridge(name), enhanced_authenticator=None))


# The refusal of a failed login that waits for its time (:mod:`holdfast.identity.failed_logins`).


class _NoMessages:
    """The queue of a Client without a Session."""

    bytes = 0

    def __len__(self) -> int:
        return 0


def _nothing() -> None:
    """Do nothing when there is room for messages: there are none."""


class DelayedRefusal:
    """A Client that waits for its refusal. ``refuse`` sends it, and ends the connection.

    It takes the place of an admitted Client at its connection, and so hears of the connection's end.
    """

    actions = NO_ACTIONS
    will: Will | None = None
    queue = _NoMessages()
    keep_alive = 0
    clean_start = True

    def __init__(self, link: Connection, waiting: WaitingRefusals, refuse: Callable[[], None]) -> None:
        self._link = link
        self._group = link.peer.group
        self._waiting = waiting
        self._refuse = refuse

    def begin(self, seconds: float) -> None:
        """Wait, or refuse at once if too many wait already. Packets of the Client wait meanwhile."""
        if not self._waiting.enter(self._group, self.answer):
            self._refuse()
            return
        self._link.attach(self, _nothing)
        self._link.hold()
        self._link.answer_after(seconds, self.answer)

    def answer(self) -> None:
        """Refuse now."""
        with self._link.guard:
            self._refuse()

    def end(self, _will: Will | None) -> None:
        """Wait no longer: the connection is over."""
        self._waiting.leave(self._group, self.answer)
