"""What every Network Connection works with: the broker's parts, composed once."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from holdfast.interfaces import IAuthenticator, IAuthorizer, IEnhancedAuthenticator
from holdfast.retained.service import IRetainedMessages
from holdfast.sessions.counters import Counters
from holdfast.sessions.outbox import Turns
from holdfast.sessions.pressure import Pressure
from holdfast.sessions.registry import SessionRegistry
from holdfast.sessions.router import Router
from holdfast.sessions.sys_topics import SysTopics


@frozen
class Services:
    """The parts a connection needs. ``now`` gives milliseconds since the epoch.

    Without an ``enhanced_authenticator`` no Authentication Method is offered.
    """

    clock: IReactorTime
    now: Callable[[], int]
    turns: Turns
    registry: SessionRegistry
    router: Router
    retained: IRetainedMessages
    authenticator: IAuthenticator
    authorizer: IAuthorizer
    pressure: Pressure
    counters: Counters
    sys_topics: SysTopics
    enhanced_authenticator: IEnhancedAuthenticator | None = None
