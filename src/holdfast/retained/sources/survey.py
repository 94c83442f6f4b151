"""The survey: it judges the publishers of all stored messages once for each state of the rules, some at a time.

A message that a client retains later was judged when it was published, by the same rules. So after the survey, replays
look only at the messages of withheld stretches (:mod:`.stretches`). A survey begins with the commit of all changes that
were accepted before: those were judged by older rules.

If an earlier process has judged all messages up to some revision by the same rules, and withholds none of them, a
survey judges the newer ones only (:mod:`holdfast.retained.store.dialects.survey_record`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from holdfast.log.lasting_failure import LastingFailure
from holdfast.retained.sources.stretches import Stretches
from holdfast.retained.store import values
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.slice_size import SliceSize
from holdfast.tickets import StorageFailure

#: Tells whether the publisher of a message (User Name, Client Identifier) may still retain a message of this topic.
Judge = Callable[[str | None, str | None, str], bool]

#: Seconds before a survey begins: many changes by operators in a row need one survey, and a start comes first.
DELAY = 1.0
#: Seconds between two steps. A step takes about half a millisecond, so a survey takes a fifth of the reactor at most.
_PAUSE = 0.002
#: seconds until a step that failed is tried again
_AGAIN = 5.0
#: The topics of a step: for a database in threads, and the most for one that is read in the reactor's turn.
_TOPICS, _MOST_TOPICS = 250, 1000
#: the same where most messages pass: of those that are judged, each turn takes as many as above
_TOPICS_PASSED = 10_000


class Survey:
    """One walk through all stored messages. ``guests``: messages without a User Name are judged too.

    Messages up to the revision ``newer_than`` pass. ``done`` is called at the end.
    """

    def __init__(
        self,
        store: IRetainedStore,
        judge: Judge,
        *,
        guests: bool,
        clock: IReactorTime,
        done: Callable[[], None],
        newer_than: int = 0,
    ) -> None:
        self.stretches = Stretches()
        self.newer_than = newer_than
        #: once it has begun: it judges all messages up to this revision
        self.up_to = 0
        #: how many messages were judged, and how many of them are withheld
        self.judged = self.withheld = 0
        self.has_begun = False
        self._store = store
        self._judge = judge
        self._guests = guests
        self._clock = clock
        self._done = done
        self._size = SliceSize()
        self._stopped = False
        self._failure = LastingFailure(
            "judging the publishers of retained messages", "and is tried again", (StorageFailure,)
        )
        self._next: IDelayedCall | None = None

    def start(self) -> None:
        """Begin after a moment."""
        self._next = self._clock.callLater(DELAY, self._begin)

    def skip(self) -> None:
        """Judge nothing: no message is withheld."""
        self.has_begun = True
        self.stretches.surveyed = None

    def stop(self) -> None:
        """Judge nothing more."""
        self._stopped = True
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _begin(self) -> None:
        self._next = None
        self.has_begun = True
        self.up_to = self._store.next_revision()
        self._store.flushed().when_settled(lambda _: self._step())

    def _step(self) -> None:
        self._next = None
        if self._stopped:
            return
        assert self.stretches.surveyed is not None
        few, most = (_TOPICS_PASSED, _TOPICS_PASSED) if self.newer_than else (_TOPICS, _MOST_TOPICS)
        topics = few if self._store.reads_ahead else min(self._size.rows, most)
        began = monotonic()
        reading = self._store.survey(self.stretches.surveyed, topics, self._guests, self.newer_than)
        reading.addCallback(self._take, topics, began)
        reading.addErrback(self._failed)

    def _take(self, survey: values.Survey, topics: int, began: float) -> None:
        if self._stopped:
            return
        self._failure.succeeded()
        self._judge_part(survey)
        self._size.took(topics, 0, monotonic() - began)

    def _judge_part(self, survey: values.Survey) -> None:
        """Judge as many as fit a turn, and go on later."""
        most = _TOPICS if self._store.reads_ahead else _MOST_TOPICS
        part, rest = survey.published[:most], survey.published[most:]
        self._judge_all(part, part[-1][0] if rest else survey.end)
        if rest:
            self._next = self._clock.callLater(_PAUSE, self._judge_part, values.Survey(rest, survey.end))
        elif survey.end is None:
            self._next = None
            self._done()
        else:
            self._next = self._clock.callLater(_PAUSE, self._step)

    def _judge_all(self, published: Sequence[tuple[str, str | None, str | None]], end: str | None) -> None:
        stretches = self.stretches
        before = stretches.surveyed or ""
        last = ""  # of the withheld topics of this part: they form one stretch, so that there are few stretches
        for topic, username, client_id in published:
            if not self._judge(username, client_id, topic):
                self.withheld += 1
                last = topic
            elif not last:
                before = topic
        self.judged += len(published)
        if last:
            stretches.withhold(before, last)
        stretches.surveyed = end

    def _failed(self, failure: Failure) -> None:
        if not self._stopped:
            self._failure.failed(failure)
            self._next = self._clock.callLater(_AGAIN, self._step)
