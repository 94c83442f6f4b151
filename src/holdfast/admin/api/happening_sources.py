"""The sources of happenings: connections of clients, replays, alarms, and the newest figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.interfaces import IReactorTime

from holdfast.admin.api.happenings import Source, Tell
from holdfast.admin.api.watching import alarm_fields
from holdfast.core.units import date_of
from holdfast.replay.interfaces import ReplayStatus
from holdfast.replay.registry import ReplayRegistry
from holdfast.replay.replay import Replay
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.watch.alarms import Alarm, Alarms
from holdfast.watch.audit import BANNED, CONNECTED, DISCONNECTED, LONGEST, REFUSED, OverheardAudit
from holdfast.watch.ring import Ring

#: The replays whose progress is told in a second: the oldest ones.
_REPLAYS = 20
_COMINGS = {CONNECTED: "connected", DISCONNECTED: "disconnected", REFUSED: "refused", BANNED: "refused"}


def clients(audit: OverheardAudit, now: Callable[[], int]) -> Source:
    """Return the source of clients that connect, disconnect and are refused. ``now`` returns milliseconds."""

    def begin(tell: Tell) -> Callable[[], None]:
        def heard(kind: str, fields: Mapping[str, object], texts: Mapping[str, str | None]) -> None:
            event = _COMINGS.get(kind)
            if event is None:
                return
            shown: dict[str, Any] = {
                "event": event,
                "clientid": _cut(texts.get("client_id")),
                "username": _cut(texts.get("user")),
                "ip_address": fields.get("address"),
                "port": fields.get("port"),
                "listener": fields.get("listener"),
                "at": date_of(now()),
            }
            if kind == CONNECTED:
                shown |= {"protocol": fields.get("protocol"), "session_present": fields.get("session_present")}
            else:
                shown["reason"] = "BANNED" if kind == BANNED else _cut(texts.get("cause")) or fields.get("reason")
            if "code" in fields:
                shown["code"] = fields["code"]
            tell(shown)

        audit.listener = heard

        def stop() -> None:
            audit.listener = None

        return stop

    return begin


def replays(registry: ReplayRegistry, clock: IReactorTime) -> Source:
    """Return the source of replays: their beginnings, their progress each second, and their ends."""

    def begin(tell: Tell) -> Callable[[], None]:
        def told(replay: Replay, begins: bool) -> None:
            status = replay.status()
            if begins:
                tell(_replay("began", status))
            else:
                tell({**_replay("ended", status), "complete": replay.is_complete})

        def progress() -> None:
            for replay in list(registry.running.values())[:_REPLAYS]:
                if replay.age >= 1:
                    tell(_replay("progress", replay.status()))

        job = PeriodicJob(progress, name="telling the progress of replays", interval=1, clock=clock)
        job.start(1)
        registry.told = told

        def stop() -> None:
            job.stop()
            registry.told = None

        return stop

    return begin


def alarms(table: Alarms, now: Callable[[], int], node: int) -> Source:
    """Return the source of alarms that begin and end."""

    def begin(tell: Tell) -> Callable[[], None]:
        def told(alarm: Alarm) -> None:
            event = "raised" if alarm.is_active else "ended"
            tell({"event": event, **alarm_fields(alarm, now(), str(node))})

        return table.subscribe(told)

    return begin


def monitor(ring: Ring, clock: IReactorTime) -> Source:
    """Return the source of the newest figures, each second."""

    def begin(tell: Tell) -> Callable[[], None]:
        def newest() -> None:
            record = ring.current()
            if record["time_stamp"] is not None:  # else there is none yet
                tell(record)

        job = PeriodicJob(newest, name="telling the newest figures", interval=1, clock=clock)
        job.start(0)
        return job.stop

    return begin


def _replay(event: str, status: ReplayStatus) -> dict[str, Any]:
    return {
        "event": event,
        "id": status.number,
        "clientid": _cut(status.client_id),
        "topic": _cut(status.topic_filter),
        "sent": status.delivered,
        "state": status.state.name.lower(),
        "age": round(status.age, 3),
    }


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:LONGEST]
