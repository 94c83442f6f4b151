"""The rules of retained messages: which of them a Client receives.

Whoever gives retained messages to a Client asks three questions, in this order:

1. *Has it expired?* :func:`holdfast.core.messages.has_expired`, and :func:`holdfast.retained.store.rows.unexpired`
   in SQL. A message may expire after it was read, because the Client had no room for it.
2. *May its publisher still retain it?* :class:`PublisherRule`. A message was judged when it was published. Rules
   change, users are removed, and a database may be older than its rules. An operator may have banned a user. (A ban of
   a Client Identifier or an address withholds nothing: it proves no origin.)
3. *May the subscriber receive it?* :class:`Subscriber`. The answer to all messages of a Topic Filter is asked for
   once in each epoch; where it is "some of them", each message is asked about.

| reader | 1 | 2 | 3 |
|---|---|---|---|
| replay of now, or of changes since a token | when it is read, before its slice is sent, when its packet is rewritten | ``Replay._deliver`` | ``ReplayDelivery.deliver`` |
| X | at the time that it asks for | ``Replay._deliver``, each message | ``ReplayDelivery.deliver``, without the time in its topic |
| questions | when it is read | ``PermittedMessages.permits`` | ``PermittedMessages.permits`` |
| operators | when it is read | no: they see withheld messages | no: their scope is asked once |

Question 2 costs a replay nothing where a survey has judged all messages before (:mod:`holdfast.retained.source_check`).
Every answer is for now: when an epoch changes, a replay gives up what it holds, reads it again and asks anew.
"""  # noqa: E501 - a table

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast.core.extensions import Facts
from holdfast.core.messages import ApplicationMessage
from holdfast.core.topics import PUBLISHERS, behind_time, is_of_past
from holdfast.identity.interfaces import BRIDGE_CLIENT, Grant, IAuthorizer, Principal
from holdfast.watch.log import LastingFailure

# The subscriber.


@frozen
class Permission:
    """The part of the messages of a Topic Filter that a subscriber may receive.

    ``within`` has Topic Filters that match each permitted message, None if all are permitted or if they are unknown.
    The subscriber is told the ``facts`` of each message.
    """

    grant: Grant
    within: tuple[str, ...] | None
    facts: Facts = ()


#: the permission to receive no message
NOTHING = Permission(Grant.REFUSED, ())


@frozen
class Subscriber:
    """A Client that receives retained messages, and its authorizer."""

    authorizer: IAuthorizer
    principal: Principal

    def grant(self, topic_filter: str) -> Grant:
        """Tell which of the messages that match a Topic Filter are permitted at this moment."""
        grant: Grant = self.authorizer.receivable(self.principal, topic_filter)
        return grant

    def permission(self, topic_filter: str) -> Permission:
        """Return the permission for a replay of a Topic Filter, which may have the time of the past before it."""
        authorizer, topic_filter = self.authorizer, behind_time(topic_filter)
        grant = self.grant(topic_filter)
        if grant is Grant.REFUSED:
            return NOTHING
        if authorizer.epoch is None and authorizer.checks_delivery:
            grant = Grant.FILTERED  # the next answer may be another one
        within = authorizer.receivable_filters(self.principal, topic_filter) if grant is Grant.FILTERED else None
        return Permission(grant, within)

    def may_receive(self, message: ApplicationMessage) -> bool | Deferred[bool]:
        """Tell whether one message is permitted; its topic may have the time of the past before it."""
        if is_of_past(message.topic):
            message = evolve(message, topic=behind_time(message.topic))
        answer: bool | Deferred[bool] = self.authorizer.may_receive(self.principal, message)
        return answer

    def may_know_publishers(self, topic_filter: str) -> bool:
        """Tell whether the publishers of all messages of a Topic Filter may be told."""
        return self.grant(PUBLISHERS + behind_time(topic_filter)) is Grant.GRANTED


# The publisher.


class KeepRule(Protocol):
    """The authorizer, as the rule of publishers sees it."""

    @property
    def epoch(self) -> object:
        """A value that changes whenever any answer may change. None if each call may have another answer."""

    def may_keep(self, username: str | None, client_id: str | None, topic: str) -> bool:
        """Tell whether the publisher of a retained message may still retain a message of this topic."""

    @property
    def keeping(self) -> str | None:
        """What stands for all that :meth:`may_keep` depends on, also in the next process; None if nothing does."""

    @property
    def keeps_the_published(self) -> bool:
        """Whether each message that was allowed to be retained may be kept, as long as the epoch stays the same."""


class UserBans(Protocol):
    """The bans of users, as the rule of publishers sees them."""

    @property
    def users(self) -> frozenset[str]:
        """The banned users. After a change, this is another object."""

    def has_user(self, username: str | None) -> bool:
        """Tell whether this user is banned."""


class NoBans:
    """Nobody is banned."""

    users: frozenset[str] = frozenset()

    def has_user(self, username: str | None) -> bool:
        """Return False."""
        return False


@define
class PublisherRule:
    """Judges the publisher of a retained message by the authorizer, and by the bans of users.

    By the authorizer, messages without a User Name (of guests, operators and imports) pass, unless ``guests`` are
    judged too; those of bridges pass always. While it is not ``enabled``, all messages pass it.
    """

    authorizer: KeepRule
    enabled: bool
    guests: bool
    bans: UserBans = field(factory=NoBans)
    _failure: LastingFailure = field(
        factory=lambda: LastingFailure("judging the publisher of a retained message", "so it is withheld"), init=False
    )

    def may_stay(self, username: str | None, client_id: str | None, topic: str) -> bool:
        """Tell whether a message of this publisher may be given to Clients."""
        if self.bans.has_user(username):
            return False
        if not self.enabled or (username is None and (not self.guests or (client_id or "").startswith(BRIDGE_CLIENT))):
            return True
        try:
            may_keep = self.authorizer.may_keep(username, client_id, topic)
        except Exception:  # noqa: BLE001 - whatever fails, a message that nobody has judged is not sent
            self._failure.failed(Failure())
            return False
        self._failure.succeeded()
        return may_keep

    @property
    def judges(self) -> bool:
        """Whether any message may be withheld."""
        return self.enabled or bool(self.bans.users)

    @property
    def epoch(self) -> object:
        """A value that changes whenever any verdict may change, unless the authorizer has no epoch."""
        return self.authorizer.epoch, self.bans.users

    @property
    def fingerprint(self) -> str | None:
        """A text that stands for all verdicts, also in the next process; None if no text does."""
        keeping, banned = self.authorizer.keeping, self.bans.users
        if keeping is None:
            return None
        judged = "none" if not self.enabled else "all" if self.guests else "users"
        return f"{judged} {keeping}" + (f" {blake2b(repr(sorted(banned)).encode()).hexdigest()}" if banned else "")
