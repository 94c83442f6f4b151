"""Delivers the events of hooks: one request at a time for each lane, repeated until it is delivered or given up.

A hook has a lane for the changes of retained messages and one for happenings: so a long list of changes does not hold
up an alarm. Each lane waits for its server alone. What it costs the broker is one request and one batch in memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from attrs import define, field, frozen
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from holdfast.changes.watch import NotStored
from holdfast.core.tickets import StorageFailure
from holdfast.hooks.batches import Attempts, Batch, events_body, is_delivered, signed, text_body
from holdfast.hooks.sources import Source
from holdfast.identity.http_client import HTTPClient, RequestFailed
from holdfast.scheduling.waiting import as_deferred
from holdfast.watch.alarms import Alarms, Severity
from holdfast.watch.log import LastingFailure

#: Seconds of failures after which an alarm begins, and until a source that has failed is asked again.
ALARM_AFTER, _AGAIN = 60.0, 5.0
#: Seconds for which the events of a moment are gathered.
_GATHERED = 0.1


@define
class HookFigures:
    """What a hook has done. ``failing_since`` is in seconds since the epoch, None while it delivers."""

    delivered_batches: int = 0
    delivered_events: int = 0
    failed_attempts: int = 0
    dead_batches: int = 0
    dead_events: int = 0
    failing_since: float | None = None
    last_error: str = ""


@frozen(kw_only=True)
class Hook:
    """One configured hook. ``place`` shows its server without secrets; ``key`` signs, None for no signature."""

    name: str
    place: str
    node: int
    format: str
    retry_for: float
    events: Mapping[str, Any]
    client: HTTPClient
    key: bytes | None = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    figures: HookFigures = field(factory=HookFigures)

    @property
    def alarm(self) -> str:
        """The name of its alarm."""
        return f"hook_failing/{self.name}"

    def batch_of(self, events: Sequence[bytes]) -> Batch:
        """Return a new batch."""
        identifier = uuid4().hex
        text = self.format == "text"
        body = text_body(events) if text else events_body(self.name, self.node, identifier, events)
        return Batch(identifier, body, len(events))


class Lane(Service):
    """Delivers the events of one source. ``make`` makes it; ``now`` returns milliseconds since the epoch."""

    def __init__(
        self,
        hook: Hook,
        make: Callable[[], Source],
        alarms: Alarms,
        clock: IReactorTime,
        now: Callable[[], int],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.state = "waiting"
        self._hook = hook
        self._make = make
        self._alarms = alarms
        self._clock = clock
        self._now = now
        self._chance = chance
        self._running: Deferred[None] | None = None
        told = "so its events wait"
        self._failing = LastingFailure(f"hook {hook.name}", told, (RequestFailed, StorageFailure, NotStored))

    def startService(self) -> None:
        """Begin to deliver."""
        Service.startService(self)
        self._running = self._run()
        self._running.addErrback(lambda failure: failure.trap(CancelledError))

    def stopService(self) -> None:
        """Stop, also in the middle of a request: it is repeated at the next start."""
        Service.stopService(self)
        running, self._running = self._running, None
        if running is not None:
            running.cancel()

    @as_deferred
    async def _run(self) -> None:
        source = self._make()
        try:
            while True:
                try:
                    self.state = "waiting"
                    events = await source.next()
                    await self._deliver(source, events)
                    await deferLater(self._clock, _GATHERED)
                except CancelledError:
                    raise
                except Exception:  # noqa: BLE001 - whatever fails, the hook goes on when it can
                    self._failing.failed(Failure())
                    await deferLater(self._clock, _AGAIN)
        finally:
            source.stop()

    async def _deliver(self, source: Source, events: Sequence[bytes]) -> None:
        """Deliver a batch, or give it up."""
        hook, figures = self._hook, self._hook.figures
        batch = hook.batch_of(events)
        attempts = Attempts(hook.retry_for, self._clock.seconds(), self._chance)
        while True:
            self.state = "sending"
            error, status = await self._attempt(batch)
            if error is None:
                self._succeeded(batch)
                await source.confirm()
                return
            self._failed(error)
            pause = attempts.after(status, self._clock.seconds())
            if pause is None:
                figures.dead_batches += 1
                figures.dead_events += batch.events
                await source.confirm()
                return
            self.state = "failing"
            await deferLater(self._clock, pause)
            if not await source.keep():  # another node delivers these events now
                return

    async def _attempt(self, batch: Batch) -> tuple[str | None, int | None]:
        """Send a batch once. Return why it is not delivered, None if it is, and the status of the answer, if any."""
        headers = {**self._hook.headers, **signed(batch, self._hook.key, self._now() / 1000)}
        try:
            answer = await self._hook.client.request(b"POST", headers, batch.body)
        except RequestFailed as failed:
            return str(failed), None
        if is_delivered(answer.status):
            return None, answer.status
        return f"the server has answered {answer.status}", answer.status

    def _succeeded(self, batch: Batch) -> None:
        figures = self._hook.figures
        figures.delivered_batches += 1
        figures.delivered_events += batch.events
        figures.failing_since = None
        self._failing.succeeded()
        self._alarms.end(self._hook.alarm)

    def _failed(self, error: str) -> None:
        hook, figures, now = self._hook, self._hook.figures, self._now() / 1000
        figures.failed_attempts += 1
        figures.last_error = error
        figures.failing_since = figures.failing_since or now
        self._failing.failed(Failure(RequestFailed(f"{hook.place}: {error}")))
        if now - figures.failing_since >= ALARM_AFTER or figures.dead_batches:
            self._alarms.begin(
                hook.alarm, Severity.WARNING,
                f"Hook {hook.name} does not deliver: {error}. Look at its server {hook.place}; events wait meanwhile,"
                " and are given up after retry_for",
                {"hook": hook.name, "since": round(figures.failing_since), "dead_events": figures.dead_events},
            )  # fmt: skip
