"""Builds the streams of events."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from holdfast.admin.events import sources
from holdfast.admin.events.events import EventCalls
from holdfast.admin.events.happenings import Happenings
from holdfast.alarms.alarms import Alarms
from holdfast.audit.overheard import OverheardAudit
from holdfast.metrics.ring import Ring
from holdfast.retained.changes.interfaces import IChangesSince
from holdfast.retained.replay.replay_registry import ReplayRegistry


def compose_events(
    changes: IChangesSince,
    *,
    reactor: IReactorTime,
    now: Callable[[], int],
    audit: OverheardAudit,
    replays: ReplayRegistry,
    alarms: Alarms,
    ring: Ring,
    node: int,
) -> EventCalls:
    """Return the calls that stream events. ``now`` returns milliseconds since the epoch."""
    happenings = Happenings(
        reactor,
        {
            "client": sources.clients(audit, now),
            "replay": sources.replays(replays, reactor),
            "alarm": sources.alarms(alarms, now, node),
            "monitor": sources.monitor(ring, reactor),
        },
    )
    return EventCalls(changes, happenings, reactor)
