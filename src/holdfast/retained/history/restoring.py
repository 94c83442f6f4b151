"""Restoring: what was retained at a moment is published again, slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from attrs import define, frozen
from twisted.internet.defer import Deferred, inlineCallbacks

from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.history.entries import HistoryEvent
from holdfast.retained.history.history import RetainedHistory
from holdfast.retained.history.moments import Moment, check_moment, fetch, present_moment, sets, states
from holdfast.retained.quota.limits import NotRetained, RetainRefused
from holdfast.retained.replay.change_feed import Change
from holdfast.retained.service import RetainedMessages
from holdfast.storage.driver import Cursor
from holdfast.tickets import CommitTicket

#: Topics looked at, and bytes of payloads read, before what they come to is committed.
_TOPICS = 100
_BYTES = 1 << 20

#: Retains a message and hands it to whoever subscribes to it; may raise RetainRefused.
Publish = Callable[[ApplicationMessage, ChangeOrigin], CommitTicket]


@define
class Restored:
    """What a restore has done, or would do, in topics.

    ``restored`` have the older message again; ``cleared`` had none then; ``unchanged`` have the same message as then;
    ``kept`` had none then and were left as they are. Of the ``expired`` the older message has expired since. What
    somebody else has ``changed`` meanwhile stays. What a limit is in the way of is ``refused``; ``reason`` is the first
    one's. Topics after ``after`` are left, unless ``done``.
    """

    restored: int = 0
    cleared: int = 0
    unchanged: int = 0
    kept: int = 0
    expired: int = 0
    changed: int = 0
    refused: int = 0
    reason: str | None = None
    after: str = ""
    done: bool = False

    @property
    def topics(self) -> int:
        """How many topics have been changed, or would be."""
        return self.restored + self.cleared


@frozen
class _Step:
    """A topic: what was retained then, if it is not what is retained now, and whether anything is now."""

    topic: str
    then: HistoryEvent | None
    same: bool
    present: bool


class Restorer:
    """Puts back what was retained. ``now`` returns milliseconds since the epoch."""

    def __init__(
        self, history: RetainedHistory, retained: RetainedMessages, publish: Publish, now: Callable[[], int]
    ) -> None:
        self._history = history
        self._retained = retained
        self._publish = publish
        self._now = now

    @inlineCallbacks
    def restore(
        self,
        topic_filter: str,
        at: int,
        dry_run: bool = False,
        clear: bool = False,
        after: str = "",
        most: int | None = None,
    ) -> Generator[Deferred[Any], Any, Restored]:
        """Publish what was retained at a moment (milliseconds since the epoch) and matches a Topic Filter again.

        These are new changes, of the origin RESTORE, by the publisher of then. With ``clear``, topics that had no
        retained message then are cleared; with ``dry_run``, nothing is changed and only counted. It goes on after a
        topic, and ends when about ``most`` topics have been looked at (None: at the end). Fails with
        HistoryUnavailable, NotRetained where nothing may be stored, or StorageFailure; what has been restored before
        that stays so, and it may be done again.
        """
        if not self._retained.enabled:
            raise NotRetained("retainer.enable is false")
        moment = yield self._history.moment(at)
        counts = Restored(after=after)
        looked_at = 0
        meanwhile: set[str] = set()  # topics that others change between the look at them and the restore
        listening = self._retained.feed.listen(lambda change: _note(meanwhile, change))
        try:
            while not counts.done and (most is None or looked_at < most):
                meanwhile.clear()
                yield self._history.stored()  # the read sees all that has been changed before the set was emptied
                read = partial(self._next, topic_filter=topic_filter, moment=moment, after=counts.after)
                steps, after, done = yield self._history.read(read)
                tickets: list[CommitTicket] = []
                for step in steps:
                    yield from self._take(step, counts, dry_run, clear, meanwhile, tickets)
                yield self._history.stored()
                for ticket in tickets:
                    if ticket.failure is not None:
                        raise ticket.failure
                counts.after, counts.done = after, done
                looked_at += max(len(steps), _TOPICS // 10)  # looking takes its time also where nothing is found
                yield self._history.turn()
        finally:
            self._retained.feed.forget(listening)
        return counts

    def _next(self, cursor: Cursor, topic_filter: str, moment: Moment, after: str) -> tuple[list[_Step], str, bool]:
        """Compare the next topics, then and now, within the bounds of a slice."""
        found = states(cursor, topic_filter, after, (moment, present_moment(cursor)), _TOPICS)
        then = sets(cursor, (seq for _, (seq, _) in found.entries), moment.at)
        now = sets(cursor, (seq for _, (_, seq) in found.entries), self._now())
        steps: list[_Step] = []
        room = _BYTES
        passed, done = found.after, found.done
        for topic, (before, present) in found.entries:
            wanted = [
                seq for seq, alive in ((before, then), (present, now)) if seq is not None and seq in alive
            ]  # fmt: skip
            if before == present and len(wanted) == 2:
                steps.append(_Step(topic, None, True, True))
                continue
            size = sum(then.get(seq, 0) or now.get(seq, 0) for seq in wanted)
            if steps and size > room:
                passed, done = steps[-1].topic, False
                break
            room -= size
            events = fetch(cursor, wanted)
            old = events[before] if before in then else None
            new = events[present] if present in now else None
            steps.append(_Step(topic, old, old is not None and new is not None and _same(old, new), new is not None))
        check_moment(cursor, moment)
        return steps, passed, done

    def _take(
        self,
        step: _Step,
        counts: Restored,
        dry_run: bool,
        clear: bool,
        meanwhile: set[str],
        tickets: list[CommitTicket],
    ) -> Generator[Deferred[Any], Any, None]:
        """Count a topic, and change it where it has to be."""
        message: ApplicationMessage | None = None
        then = step.then
        if step.same:
            counts.unchanged += 1
        elif then is not None and (then.expires_at is None or then.expires_at > self._now()):
            message = ApplicationMessage(
                then.topic, then.payload, then.qos, True, then.client_id, then.username, then.properties,
                then.expires_at,
            )  # fmt: skip
        else:
            counts.expired += then is not None
            if step.present and clear:
                message = ApplicationMessage(step.topic, b"", retain=True)
            elif step.present and then is None:
                counts.kept += 1
        if message is None:
            return
        waiting = None if dry_run else self._retained.undecided(message, by_operator=True)
        if waiting is not None:
            yield waiting
        if step.topic in meanwhile:
            counts.changed += 1
            return
        try:
            if not dry_run:
                tickets.append(self._publish(message, ChangeOrigin.RESTORE))
        except RetainRefused as refusal:  # clears are never refused
            counts.refused += 1
            counts.reason = counts.reason or str(refusal)
            return
        counts.restored += bool(message.payload)
        counts.cleared += not message.payload


def _note(topics: set[str], change: Change) -> None:
    if change.origin is not ChangeOrigin.RESTORE:
        topics.add(change.topic)


def _same(old: HistoryEvent, new: HistoryEvent) -> bool:
    return (old.payload, old.qos, old.properties, old.expires_at) == (
        new.payload, new.qos, new.properties, new.expires_at,
    )  # fmt: skip
