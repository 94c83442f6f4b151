"""The check of sources: replays withhold a retained message whose publisher may no longer retain it, or is banned.

The publisher of each stored message is judged again (:class:`holdfast.retained.rules.PublisherRule`): by a survey in
the background, once for each state of the rules, and until it is done, by the replays that deliver the message.

If a survey withholds nothing, the database keeps that with a fingerprint of the rules. The next start by the same rules
surveys nothing after a clean stop. After a crash it surveys only what was stored since the survey began: whatever the
verdict on a message was when it was published, a start never trusts it without a clean stop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from time import monotonic

from attrs import evolve, frozen
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.core.tickets import StorageFailure
from holdfast.core.topics import behind_time
from holdfast.retained.rules import KeepRule, NoBans, PublisherRule, UserBans
from holdfast.retained.store import values
from holdfast.retained.store.bounded_read import SliceSize
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.slices import emptied, only, packets_of
from holdfast.retained.store.values import EarlierSurvey, Slice
from holdfast.watch.log import LastingFailure

# What a survey has found out about the topics so far, as stretches in topic order. Pure.
#
# How it works. A survey judges the publishers of all retained messages in topic order. It notes only where it withholds
# messages: a *withheld stretch* begins behind one topic and ends with another. All other topics up to the position of
# the survey are *clear*: their messages need no look at their publishers.
#
#     topics           a    b    c    d    e    f    g        the survey is at f
#     judged           yes  yes  no   no   yes  yes
#     stretches        .... a    (b .. d]       e    f|       g is not surveyed yet
#
# A replay that reads behind ``a`` reads the messages up to ``b`` as they are. From there up to ``d`` it looks at each
# publisher, then reads as they are again up to ``f``. Each look asks the rules anew, so a message in a withheld stretch
# whose publisher has changed is delivered if the new publisher may retain it.


@frozen
class Stretch:
    """The topics from a position up to and including ``until`` (None: to the end).

    ``looked`` tells that each message in it has to be judged by its publisher.
    """

    looked: bool
    until: str | None = None


#: all topics, without and with a look at each publisher
CLEAR, JUDGED = Stretch(False), Stretch(True)


class Stretches:
    """The withheld stretches, and how far the survey is. Topics are added in their order."""

    def __init__(self) -> None:
        #: The last topic that was surveyed; "" for none, None for all topics, also for those that come later.
        self.surveyed: str | None = ""
        self._before: list[str] = []
        self._last: list[str] = []

    def withhold(self, before: str, last: str) -> None:
        """Add a stretch behind the topic ``before`` up to ``last``. It may follow the last one without a gap."""
        if self._last and before <= self._last[-1]:
            self._last[-1] = last
        else:
            self._before.append(before)
            self._last.append(last)

    def at(self, low: str) -> Stretch:
        """Return the stretch of the topics from ``low`` on."""
        number = bisect_left(self._last, low)
        if number < len(self._last):
            before = self._before[number]
            return Stretch(True, self._last[number]) if before < low or not before else Stretch(False, before)
        if self.surveyed is None or (self.surveyed and low <= self.surveyed):
            return Stretch(False, self.surveyed)
        return JUDGED

    def __len__(self) -> int:
        return len(self._last)


class SourceCheck:
    """Surveys the publishers of the stored messages, and tells replays which messages are withheld."""

    _log = Logger()

    def __init__(
        self,
        store: IRetainedStore,
        rule: KeepRule,
        *,
        guests: bool,
        clock: IReactorTime,
        enabled: bool = True,
        bans: UserBans | None = None,
    ) -> None:
        self.rule = PublisherRule(rule, enabled, guests, NoBans() if bans is None else bans)
        #: how many messages replays have withheld since the start
        self.withheld = 0
        #: how many stored messages the last whole survey has found that are withheld; None before the first one
        self.stored_withheld: int | None = None
        self._store = store
        self._clock = clock
        self._epoch: object = None
        self._survey: Survey | None = None
        self._running = False
        self._earlier: EarlierSurvey | None = None  # while the first survey is prepared
        self._fingerprint: str | None = None  # of the present survey

    def change(self, *, enabled: bool, guests: bool) -> None:
        """Judge from now on or not, with or without guests. Stored messages are surveyed anew if that is a change."""
        rule = self.rule
        if (enabled, guests) == (rule.enabled, rule.guests):
            return
        rule.enabled, rule.guests = enabled, guests
        self._give_up_survey()
        self.follow_rules()

    def start(self) -> None:
        """Begin to survey the stored messages. Until then, and while none is done, replays look at each message."""
        self._running = True
        self._earlier = self._store.earlier_survey
        self.follow_rules()
        self._earlier = None  # later, messages may have been stored that nobody has judged

    def stop(self) -> None:
        """Survey nothing more. No message is stored any more: the next start may trust all that are."""
        if self._is_all_clear() and self.rule.authorizer.keeps_the_published:
            self._keep(None)
        self._running = False
        if self._survey is not None:
            self._survey.stop()
            self._survey = None

    def stretch(self, low: str) -> Stretch:
        """Return the stretch of the topics from ``low`` on: whether replays have to look at each publisher there."""
        self.follow_rules()
        if not self.rule.judges:
            return CLEAR
        # Without an epoch, each call may have another answer: nothing is known in advance.
        return JUDGED if self._survey is None else self._survey.stretches.at(low)

    @property
    def unsurveyed(self) -> Stretch:
        """The stretch of messages that no survey looks at, such as those of the past."""
        return JUDGED if self.rule.judges else CLEAR

    def added(self, username: str | None) -> None:
        """Note that messages of this publisher (None: of none with a User Name) were stored without being judged."""
        if username is not None or self.rule.guests:
            self.renew()

    def left(self, username: str | None) -> None:
        """Note that a message was stored for a user that is gone, perhaps because the user is banned."""
        if self.rule.bans.has_user(username):
            self.renew()

    def renew(self) -> None:
        """Survey again: messages that nobody has judged were stored, or are about to be."""
        if self._survey is not None and self._survey.has_begun:
            self._begin()

    def kept(self, messages: Slice, protocol_version: int) -> Slice:
        """Return a slice that was read with its publishers without the messages that are withheld. Counts them."""
        withheld = self._withheld(messages, protocol_version)
        self.withheld += len(withheld)
        kept = [number for number in range(messages.count) if number not in withheld]
        return evolve(only(messages, kept, protocol_version), publishers=())

    def kept_or_cleared(self, messages: Slice, protocol_version: int) -> Slice:
        """Return a slice that was read with its publishers, with empty messages for those that are withheld.

        Counts them.
        """
        withheld = self._withheld(messages, protocol_version)
        self.withheld += len(withheld)
        return evolve(emptied(messages, withheld, protocol_version), publishers=())

    def _withheld(self, messages: Slice, protocol_version: int) -> set[int]:
        """Return the numbers of the messages whose publishers may not retain them any more. Clears are none of them."""
        topics = (topic for _, _, topic in packets_of(messages, protocol_version))
        return {
            number
            for number, (topic, publisher) in enumerate(zip(topics, messages.publishers, strict=True))
            if publisher is not None and not self.rule.may_stay(*publisher, behind_time(topic))
        }

    @property
    def all_stay(self) -> bool:
        """Whether no stored message is withheld now, so that nobody has to be judged."""
        self.follow_rules()
        return not self.rule.judges or self._is_all_clear()

    def follow_rules(self) -> None:
        """Survey anew if the rules or the bans have changed. Replays look at that too; others need not wait for one."""
        if not self._running:
            return
        if not self.rule.judges:
            self._give_up_survey()
            return
        epoch, has_epoch = self.rule.epoch, self.rule.authorizer.epoch is not None
        if has_epoch and self._survey is not None and epoch == self._epoch:
            return
        self._epoch = epoch
        if has_epoch:
            self._begin()
        else:
            self._give_up_survey()

    def _give_up_survey(self) -> None:
        if self._survey is not None:
            self._survey.stop()
            self._survey = None
        if not self.rule.judges:
            self.stored_withheld = None

    def _begin(self) -> None:
        if self._survey is not None:
            self._survey.stop()
        self._fingerprint = self.rule.fingerprint
        earlier = self._earlier
        if earlier is not None and earlier.fingerprint != self._fingerprint:
            earlier = None
        newer_than = 0 if earlier is None else earlier.newer_than
        survey = self._survey = Survey(
            self._store,
            self.rule.may_stay,
            guests=self.rule.guests and self.rule.enabled,
            clock=self._clock,
            done=self._surveyed,
            newer_than=newer_than or 0,
        )
        if newer_than is None:
            survey.skip()
            self.stored_withheld = 0
            self._log.info("no publisher of a retained message is judged again: all were, by the same rules")
        else:
            survey.start()

    def _is_all_clear(self) -> bool:
        """Tell whether the present rules withhold no stored message."""
        survey = self._survey
        return (
            survey is not None
            and survey.stretches.surveyed is None
            and not survey.withheld
            and self.rule.epoch == self._epoch
            and self.rule.fingerprint == self._fingerprint
        )

    def _keep(self, judged: int | None) -> None:
        if self._fingerprint is not None:
            kept = self._store.keep_survey(self._fingerprint, judged)
            kept.addErrback(
                lambda failure: self._log.warn(
                    "that no retained message is withheld could not be noted, so the next start judges all publishers: "
                    "{reason}",
                    reason=failure.getErrorMessage(),
                )
            )

    def _surveyed(self) -> None:
        survey = self._survey
        assert survey is not None
        if self.rule.epoch != self._epoch:  # some messages were judged by older rules
            self.follow_rules()
            return
        newer = " newer" if survey.newer_than else ""  # than those that an earlier process has judged
        if survey.withheld or survey.withheld != (self.stored_withheld or 0):
            self._log.warn(
                "{withheld} of {judged}{newer} retained messages are withheld from replays: their publishers may no "
                "longer retain them (authorization.check_retain_source), or are banned",
                withheld=survey.withheld,
                judged=survey.judged,
                newer=newer,
            )
        elif survey.judged and self.stored_withheld is None:
            self._log.info(
                "the publishers of all {judged}{newer} retained messages may retain them",
                judged=survey.judged,
                newer=newer,
            )
        self.stored_withheld = survey.withheld
        if self._is_all_clear():
            self._keep(survey.up_to)


# The survey: it judges the publishers of all stored messages once for each state of the rules, some at a time.
#
# A message that a client retains later was judged when it was published, by the same rules. So after the survey,
# replays look only at the messages of withheld stretches. A survey begins with the commit of all
# changes that were accepted before: those were judged by older rules.
#
# If an earlier process has judged all messages up to some revision by the same rules, and withholds none of them, a
# survey judges the newer ones only (:mod:`holdfast.retained.store.statements`).


#: Tells whether the publisher of a message (User Name, Client Identifier) may still retain a message of this topic.
Judge = Callable[[str | None, str | None, str], bool]

#: Seconds before a survey begins: many changes by operators in a row need one survey, and a start comes first.
SURVEY_DELAY = 1.0
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
        self._next = self._clock.callLater(SURVEY_DELAY, self._begin)

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
