"""The admission of operators at the console of the dashboard, who have proved who they are before CONNECT.

An operator's Session ends with its connection, and has a Client Identifier of the broker's choice. So an operator takes
over no Client's Session, whatever the console sends.
"""

from __future__ import annotations

from functools import partial

from attrs import evolve
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.auth.interfaces import Answer, Credentials, IAuthenticator, OperatorPrincipal
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.connection.connection import Admit
from holdfast.sessions.exchange.admission import admit, reject
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.wire import ReasonCode
from holdfast.wire.packets import Connect

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


def _admit(parts: BrokerParts, link: IClientLink, packet: Connect) -> None:
    problem = None
    if packet.client_id:
        problem = _OWN_NAME
    elif packet.properties.session_expiry_interval:
        problem = _NO_EXPIRY
    if problem is None:
        admit(parts, link, packet)
    else:
        reject(parts, link, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, problem, problem)
