"""Whether a message may be retained, and when it expires: the size limits, the quotas and the publish rate.

A message with RETAIN 1 is asked about in this order. The first limit that it is over refuses it:

    undecided    a quota may be reached: the caller waits while the ledger reads the store (``quota.py``)
    check        payload size and topic length; the publish rate, for Clients only; the quotas
    expires_at   the Message Expiry Interval, bounded by the options and by the policy of the topic

A refused message was never counted. ``retainer.on_limit`` says what happens to it instead
(:class:`holdfast.retained.limits.OnLimit`); the Sessions do that.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.core.messages import BY_OPERATORS, ApplicationMessage, ChangeOrigin
from holdfast.core.units import Rate, TokenBucket
from holdfast.retained.delayed_writes import DelayedWrites
from holdfast.retained.limits import Limit, PayerLimits, RetainerLimits, RetainRefused, size_refusal
from holdfast.retained.policies import Policies
from holdfast.retained.quota import Ledger
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.watch.lazy_log import LogThrottle
from holdfast.watch.log import client_sentence, client_text


class Admission:
    """The limits on retained messages, the policies of their topics, and what counts against them.

    ``make_room`` removes some expired messages, and fires with whether more may be left.
    """

    _log = Logger()

    def __init__(
        self,
        store: IRetainedStore,
        limits: RetainerLimits,
        delayed: DelayedWrites,
        make_room: Callable[[], Deferred[bool]],
        clock: IReactorTime,
    ) -> None:
        self._store = store
        self._delayed = delayed
        self._make_room = make_room
        self._clock = clock
        self._log_throttle = LogThrottle(self._log, clock.seconds, write=self._log.warn)
        #: messages refused, by limit
        self.refusals = dict.fromkeys(Limit, 0)
        #: by how many milliseconds the clock is about to jump
        self.lead = 0
        self._suspensions = 0
        self._ledger: Ledger | None = None
        rate = limits.max_publish_rate
        self._publishing = None if rate is None else TokenBucket(rate, clock.seconds())
        delayed.change_rate(self._publishing)
        self._use(limits)

    def _use(self, limits: RetainerLimits) -> None:
        """Use these limits and policies. What each message asks is kept here: a look into the policies costs more."""
        self.limits = limits
        policies = limits.policies
        #: whether messages are stored at all
        self.enabled = limits.enable
        self.on_limit = limits.on_limit
        self.policies = policies
        #: tells whether a topic is retained without RETAIN 1; None: no topic is
        self.forces = policies.forces
        self._has_policies = bool(policies.policies)
        #: whether messages of some topics may wait before they are written
        self.delays = policies.longest_wait > 0
        # Whether the ledger has to know of messages of topics without a policy.
        self._counts_all = limits.counts_all
        if self._ledger is None and (self._counts_all or policies.has_quotas):
            self._ledger = Ledger(self._store, limits=limits, sweep=self._make_room, clock=self._clock)
            for _ in range(self._suspensions):  # each of them resumes it
                self._ledger.suspend()

    def change_limits(self, limits: RetainerLimits) -> None:
        """Use other limits. Policies, the publish rate and the quotas of payers stay as they are."""
        kept = self.limits
        limits = evolve(
            limits, policies=kept.policies, max_publish_rate=kept.max_publish_rate, payers=kept.payers,
            control_characters=kept.control_characters,
        )  # fmt: skip
        if self._ledger is not None:
            self._ledger.change_limits(limits)
        self._use(limits)

    def change_policies(self, policies: Policies) -> None:
        """Use other policies for new messages."""
        if self._ledger is not None:
            self._ledger.change_policies(policies)
        self._use(evolve(self.limits, policies=policies))

    def change_publish_rate(self, rate: Rate | None) -> None:
        """Use another rate of messages that clients may have retained. None means unlimited."""
        self.limits = evolve(self.limits, max_publish_rate=rate)
        now = self._clock.seconds()
        if rate is None:
            self._publishing = None
        elif self._publishing is None:
            self._publishing = TokenBucket(rate, now)
        else:
            self._publishing.change(rate, now)  # a new bucket would be full again
        self._delayed.change_rate(self._publishing)

    def change_payers(self, payers: PayerLimits | None) -> None:
        """Use the quotas of other listeners and zones, if payers have had quotas since the start."""
        if self._ledger is not None and payers is not None:
            self._ledger.change_payers(payers)

    def undecided(self, message: ApplicationMessage) -> Deferred[None] | None:
        """Return None if :meth:`check` can decide about the message now.

        Otherwise the store has to be read first: go on when the Deferred fires, in the same turn. A message that was
        not given to this method is refused unless it certainly fits.
        """
        ledger = self._ledger_of(message.topic)
        if ledger is None or not message.payload or not self.enabled:
            return None
        if self._size_refusal(message) is not None or ledger.fits(message):
            return None
        return ledger.look(message)

    def check(self, message: ApplicationMessage, origin: ChangeOrigin) -> None:
        """Count the message against all limits. Raises :class:`RetainRefused` without counting it.

        The publish rate is for clients only, not for operators' calls. It refuses last: a message that waits for it
        fits into the quotas.
        """
        refusal = self._size_refusal(message)
        if refusal is not None:
            raise refusal
        ledger = self._ledger_of(message.topic)
        rate = None if origin in BY_OPERATORS else self._publishing
        answered = message.qos > 0
        if rate is not None and (not self._delayed.may_pass(answered) or rate.wait(1, self._clock.seconds())):
            if ledger is not None:
                ledger.check(message)
            self._delayed.refused(answered)
            raise RetainRefused(Limit.PUBLISH_RATE, f"retainer.max_publish_rate is {self.limits.max_publish_rate}")
        if ledger is not None:
            ledger.charge(message)
        if rate is not None:
            rate.take(1, self._clock.seconds())
            self._delayed.passed(answered)

    def charge(self, message: ApplicationMessage) -> None:
        """Count a message that waits for the publish rate against its quotas."""
        ledger = self._ledger_of(message.topic)
        if ledger is not None:
            ledger.charge(message)

    def cleared(self, topic: str) -> None:
        """Take note that a topic has no message any more: its quotas have room again."""
        ledger = self._ledger_of(topic)
        if ledger is not None:
            ledger.cleared(topic)

    def may_have(self, topic: str) -> bool:
        """Tell whether a topic may have a message, as far as quotas know."""
        return self._ledger is None or self._ledger.holds(topic)

    @property
    def decides_each(self) -> bool:
        """Whether :meth:`check` has to decide about each message: not so for topics without a policy, within a size."""
        return self._counts_all or self._publishing is not None or not self.enabled

    def are_short(self, longest: int, largest: int) -> bool:
        """Tell whether topics of so many characters and payloads of so many bytes are certainly within the limits."""
        limits = self.limits
        return 4 * longest <= limits.max_topic_length and not 0 < limits.max_payload_size < largest

    def is_plain(self, topic: str) -> bool:
        """Tell whether no policy applies to a topic."""
        return not self._has_policies or self.policies.of(topic) is None

    def expires_at(self, wanted: int | None, now: int, topic: str | None = None) -> int | None:
        """Return when a message expires that should expire then (milliseconds), None for never.

        Without a ``topic``, no policy applies. The time is stored with the message, so that delivery and sweep agree
        even if the options change later.
        """
        limits = self.limits
        interval, override = limits.msg_expiry_interval, limits.msg_expiry_interval_override
        policy = self.policies.of(topic) if topic is not None and self._has_policies else None
        if policy is not None:
            if policy.msg_expiry_interval is not None:
                interval = policy.msg_expiry_interval
            if policy.msg_expiry_interval_override is not None:
                override = policy.msg_expiry_interval_override or None
        if wanted is None and interval:
            wanted = now + round(interval * 1000)
        if override is not None and not (wanted is None and limits.allow_never_expire):
            latest = now + round(override * 1000)
            wanted = latest if wanted is None else min(wanted, latest)
        return wanted if wanted is None else wanted + self.lead

    def refused(self, message: ApplicationMessage, refusal: RetainRefused, outcome: str) -> None:
        """Count and log a message that is not retained: one line in ten seconds for each limit.

        ``outcome`` describes its treatment instead.
        """
        self.refusals[refusal.limit] += 1
        self._log_throttle.log(
            refusal.limit.value,
            f"{client_text(message.client_id)} may not retain {client_text(message.topic)}, {outcome}: "
            f"{client_sentence(refusal)}",
        )

    def suspend(self) -> None:
        """Trust no budget until :meth:`resume`: an import changes the store. Calls are counted."""
        self._suspensions += 1
        if self._ledger is not None:
            self._ledger.suspend()

    def resume(self) -> None:
        """End one suspension."""
        self._suspensions -= 1
        if self._ledger is not None:
            self._ledger.resume()

    @property
    def is_suspended(self) -> bool:
        """Whether an import changes the store now."""
        return self._suspensions > 0

    def renew(self) -> None:
        """Ask the store anew: it has counted stored messages for quotas that are new."""
        if self._ledger is not None:
            self._ledger.renew()

    def _ledger_of(self, topic: str) -> Ledger | None:
        """Return the ledger if a quota may count this topic: others cost as much as without quotas."""
        ledger = self._ledger
        return None if ledger is None or not (self._counts_all or self.policies.scope_of(topic)) else ledger

    def _size_refusal(self, message: ApplicationMessage) -> RetainRefused | None:
        policy = self.policies.of(message.topic) if self._has_policies else None
        return size_refusal(self.limits, message.topic, len(message.payload), policy)
