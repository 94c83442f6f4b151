"""The broker's parts that serve every admitted Client, composed once."""

from __future__ import annotations

from collections.abc import Callable

from attrs import Factory, define
from twisted.internet.interfaces import IReactorTime

from holdfast.identity.bans import IBans
from holdfast.identity.failed_logins import IFailures
from holdfast.identity.interfaces import IAuthenticator, IAuthorizer, IEnhancedAuthenticator, OnDenied, tell_nobody
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.connection.pressure import Pressure
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.draining import Draining
from holdfast.sessions.leases import Leases
from holdfast.sessions.memory_guard import MemoryGuard
from holdfast.sessions.questions import Questions
from holdfast.sessions.registry import SessionRegistry
from holdfast.sessions.router import Router
from holdfast.sessions.sys_topics import SysTopics
from holdfast.sessions.tracing import Traces
from holdfast.wire import TopicPool


@define(kw_only=True, eq=False)
class BrokerParts:
    """The parts that admission and exchange work with. ``now`` returns milliseconds since the epoch.

    Without an ``enhanced_authenticator`` no Authentication Method is offered. ``denied`` is told of denied actions. A
    reload replaces the authenticators and ``failures``.
    """

    clock: IReactorTime
    long_work: LongWork
    now: Callable[[], int]
    registry: SessionRegistry
    router: Router
    retained: RetainedMessages
    replays: ReplayRegistry
    authenticator: IAuthenticator
    authorizer: IAuthorizer
    pressure: Pressure
    counters: Counters
    sys_topics: SysTopics
    failures: IFailures
    bans: IBans
    traces: Traces
    questions: Questions
    leases: Leases
    draining: Draining
    enhanced_authenticator: IEnhancedAuthenticator | None = None
    denied: OnDenied = tell_nobody
    memory: MemoryGuard | None = None
    topic_pool: TopicPool = Factory(TopicPool)

    def note_lease(self, session: Session, topic: str) -> None:
        """Note the new lease of a message that was just retained. Its publisher may be gone by now."""
        self.leases.given(session, topic, self.registry.link_of(session.client_id) is not None)
