"""Restoring: the retained messages of a moment are published again, some topics at a time.

How it works. For each topic the restorer compares two entries of the history: the newest one at the moment, and the
newest one now. An example with ``clear``::

    topic  then            now             result
    a      entry 5 (set)   entry 5 (set)   unchanged
    b      entry 6 (set)   entry 9 (set)   the message of entry 6 is published again
    c      none            entry 8 (set)   cleared
    d      entry 7 (set)   none            the message of entry 7 is published, unless it has expired since

Topics that the history does not know, then or now, stay as they are (``left_out``). A restore with conditions takes
only topics whose present message meets them: the topics that a search with these conditions shows.

The invariant: a change that a client makes during the restore stays. A read of the history shows the past, so the
restorer listens to the change feed while it reads, and leaves out each topic that changes in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attrs import define, frozen

from holdfast.changes.entries import HistoryEvent, retained_by
from holdfast.changes.history import RetainedHistory
from holdfast.changes.moments import Moment, check_moment, fetch, present_moment, states_at, still_retained
from holdfast.core.messages import ApplicationMessage, ChangeOrigin, has_expired
from holdfast.core.tickets import CommitTicket
from holdfast.retained.administration import IPublisher
from holdfast.retained.feed import Change
from holdfast.retained.limits import NotRetained, RetainRefused
from holdfast.retained.service import RetainedMessages
from holdfast.retained.store.values import Search
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.driver import Cursor

#: The topics compared, and the bytes of payload read, between two commits.
_TOPICS = 100
_BYTES = 1 << 20
#: A restore of a limited number of topics ends after this many milliseconds, before its call is late.
_MOST_TIME = 5_000


@define
class Restored:
    """The result of a restore, or of a dry run, in numbers of topics.

    ``restored`` topics have the older message again. ``cleared`` and ``kept`` topics had no message then; ``kept``
    topics still have their present message. ``unchanged`` topics have the same message as then. The older message of
    ``expired`` topics has expired. ``changed`` topics were changed by others during the restore, and stay. Limits
    refused the messages of ``refused`` topics; ``reason`` names the first limit. The history does not know the topics
    of the Topic Filters ``left_out``, then or now, and the restore neither changes nor counts them. The next part
    begins after the topic ``after``, unless ``done``.
    """

    restored: int = 0
    cleared: int = 0
    unchanged: int = 0
    kept: int = 0
    expired: int = 0
    changed: int = 0
    refused: int = 0
    reason: str | None = None
    left_out: tuple[str, ...] = ()
    after: str = ""
    done: bool = False

    @property
    def topics(self) -> int:
        """The number of topics that the restore changed, or would change."""
        return self.restored + self.cleared


@frozen
class _Step:
    """A topic: its message then, unless it has the same message now, and whether it has a message now."""

    topic: str
    then: HistoryEvent | None
    same: bool
    present: bool


class Restorer:
    """Restores retained messages. ``now`` returns milliseconds since the epoch."""

    def __init__(
        self, history: RetainedHistory, retained: RetainedMessages, publisher: IPublisher, now: Callable[[], int]
    ) -> None:
        self._history = history
        self._retained = retained
        self._publisher = publisher
        self._now = now

    @as_deferred
    async def restore(
        self,
        topic_filter: str,
        at: int,
        dry_run: bool = False,
        clear: bool = False,
        after: str = "",
        most: int | None = None,
        progress: Callable[[Restored], None] = lambda _: None,
        operator: str | None = None,
        search: Search | None = None,
    ) -> Restored:
        """Publish the retained messages of a time (milliseconds since the epoch) that match a Topic Filter again.

        These are new changes of the origin RESTORE, by the publisher of that time. With ``clear``, topics without a
        message then are cleared; with ``dry_run``, topics are only counted. The restore begins after the topic
        ``after``. It ends after about ``most`` topics, or earlier if subscribers are slow (None: at the end).
        ``progress`` is told the numbers after each part. The history names the ``operator``.
        With a ``search``, topics without a present message that meets its conditions stay, and are not counted.
        Fails with HistoryUnavailable, NotRetained if the retainer is off, or StorageFailure. Topics restored before a
        failure stay restored, and the restore may be repeated.
        """
        if not self._retained.admission.enabled:
            raise NotRetained("retainer.enable is false")
        moment = await self._history.moment(at, topic_filter)
        counts = Restored(after=after)
        looked_at = 0
        ends_at = None if most is None else self._now() + _MOST_TIME
        meanwhile: set[str] = set()  # topics that others change between the comparison and the restore
        listening = self._retained.feed.listen(lambda change: _note(meanwhile, change))
        try:
            while not counts.done and (most is None or looked_at < most) and not self._is_late(ends_at):
                meanwhile.clear()
                await self._history.stored()  # so the read includes every change made before the set was emptied
                read = partial(
                    self._next, topic_filter=topic_filter, moment=moment, after=counts.after,
                    search=None if search is None or search.plain else search,
                )  # fmt: skip
                steps, counts.left_out, after, done = await self._history.read(read)
                tickets: list[CommitTicket] = []
                for step in steps:
                    await self._take(step, counts, dry_run, clear, meanwhile, tickets, operator)
                    if self._is_late(ends_at) and step is not steps[-1]:
                        after, done = step.topic, False
                        break
                await self._history.stored()
                for ticket in tickets:
                    if ticket.failure is not None:
                        raise ticket.failure
                counts.after, counts.done = after, done
                progress(counts)
                looked_at += max(len(steps), _TOPICS // 10)  # a read takes time even if it finds no topic
                await self._history.turn()
        finally:
            self._retained.feed.forget(listening)
        return counts

    def _is_late(self, ends_at: int | None) -> bool:
        return ends_at is not None and self._now() >= ends_at

    def _next(
        self, cursor: Cursor, topic_filter: str, moment: Moment, after: str, search: Search | None
    ) -> tuple[list[_Step], tuple[str, ...], str, bool]:
        """Compare the next topics, then and now, up to the bounds of one part."""
        today = present_moment(cursor)
        found = states_at(cursor, topic_filter, after, (moment, today), _TOPICS)
        then = still_retained(cursor, (seq for _, (seq, _) in found.entries), moment.at)
        now = still_retained(cursor, (seq for _, (_, seq) in found.entries), self._now())
        steps: list[_Step] = []
        left = _BYTES
        passed, done = found.after, found.done
        looked_at = None
        for topic, (before, present) in found.entries:
            if not (moment.knows(topic) and today.knows(topic)) or (search is not None and present not in now):
                continue
            wanted = [
                seq for seq, alive in ((before, then), (present, now)) if seq is not None and seq in alive
            ]  # fmt: skip
            if before == present and len(wanted) == 2 and search is None:
                steps.append(_Step(topic, None, True, True))
                continue
            size = sum(then.get(seq, 0) or now.get(seq, 0) for seq in wanted)
            if looked_at is not None and size > left:
                passed, done = looked_at, False
                break
            left -= size
            looked_at = topic
            events = fetch(cursor, wanted)
            old = events[before] if before in then else None
            new = events[present] if present in now else None
            if search is not None and not (new is not None and _is_selected(search, new)):
                continue
            steps.append(_Step(topic, old, old is not None and new is not None and _same(old, new), new is not None))
        check_moment(cursor, moment)
        left_out = dict.fromkeys((*moment.left_out(topic_filter), *today.left_out(topic_filter)))
        return steps, tuple(left_out), passed, done

    async def _take(
        self,
        step: _Step,
        counts: Restored,
        dry_run: bool,
        clear: bool,
        meanwhile: set[str],
        tickets: list[CommitTicket],
        operator: str | None,
    ) -> None:
        """Count a topic, and publish the change that it needs, if any."""
        message: ApplicationMessage | None = None
        then = step.then
        if step.same:
            counts.unchanged += 1
        elif then is not None and not has_expired(then.expires_at, self._now()):
            message = ApplicationMessage(
                then.topic, then.payload, then.qos, True, then.client_id, then.username, then.properties,
                then.expires_at, operator=operator,
            )  # fmt: skip
        else:
            counts.expired += then is not None
            if step.present and clear:
                # with QoS 1: see Administration.clear
                message = ApplicationMessage(step.topic, b"", 1, retain=True, username=operator, operator=operator)
            elif step.present and then is None:
                counts.kept += 1
        if message is None:
            return
        room = None if dry_run else self._publisher.room(message.topic)
        if room is not None:
            await room
        waiting = None if dry_run else self._retained.admission.undecided(message)
        if waiting is not None:
            await waiting
        if step.topic in meanwhile:
            counts.changed += 1
            return
        try:
            if not dry_run:
                tickets.append(self._publisher.publish(message, ChangeOrigin.RESTORE))
        except RetainRefused as refusal:  # clears are never refused
            counts.refused += 1
            counts.reason = counts.reason or str(refusal)
            return
        counts.restored += bool(message.payload)
        counts.cleared += not message.payload


def _note(topics: set[str], change: Change) -> None:
    # Changes of other nodes may be told here long after they were stored.
    if change.origin is not ChangeOrigin.RESTORE and not change.is_foreign:
        topics.add(change.topic)


def _is_selected(search: Search, event: HistoryEvent) -> bool:
    message = retained_by(event)
    size = len(message.payload)
    return search.selects(message.topic, message.client_id, message.username, message.stored_at, size)


def _same(old: HistoryEvent, new: HistoryEvent) -> bool:
    return (old.payload, old.qos, old.properties, old.expires_at) == (
        new.payload, new.qos, new.properties, new.expires_at,
    )  # fmt: skip
