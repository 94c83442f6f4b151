"""The permissions of one identity: verdicts about topics and Topic Filters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from attrs import frozen

from holdfast.auth.interfaces import Grant
from holdfast.authorization.allowed_filters import allowed_filters
from holdfast.authorization.coverage import MOST_NODES, Search, Verdicts
from holdfast.authorization.identity import Identity
from holdfast.authorization.rule import Action, Rule
from holdfast.authorization.ruleset import Ruleset
from holdfast.authorization.trie import UNKNOWN, first_match


@frozen
class Decision:
    """A verdict, and the rule that decides so; None if no rule matches.

    ``is_exact`` is False if the search for the rule was given up: then the topic is denied.
    """

    allow: bool
    rule: Rule | None
    is_exact: bool = True


@frozen
class Grants:
    """What a Principal gets of a Topic Filter: by SUBSCRIBE, and of the messages that match now.

    ``visited`` is how many nodes of the rules the search for it has visited.
    """

    subscribed: Grant
    receivable: Grant
    visited: int


class Permissions:
    """What the rules say about one identity. Nothing is kept: :class:`holdfast.authorization.authorizer` does that."""

    __slots__ = ("_expansions", "_rules", "_tries")

    def __init__(self, rules: Ruleset, identity: Identity) -> None:
        self._rules = rules
        self._tries = [rules.tries_for(identity, action) for action in Action]
        self._expansions = rules.expansions_for(identity)

    def decide(self, action: Action, topic: str) -> Decision:
        """Return the verdict of the first rule for this action that matches a topic."""
        rank, _ = first_match(self._tries[action], topic.split("/"), self._expansions)
        return Decision(self._rules.allows(action, rank), self._rules.rule(rank), rank != UNKNOWN)

    def allows(self, action: Action, topic: str) -> bool:
        """Tell whether the first rule for this action that matches a topic allows it.

        Only a message whose topic may be subscribed may be received.
        """
        return self.search(action, topic.split("/"))[0]

    def search(self, action: Action, levels: Sequence[str]) -> tuple[bool, int]:
        """Return what :meth:`allows` tells about a topic, and how many nodes of the rules the search has visited."""
        rank, visited = first_match(self._tries[action], levels, self._expansions)
        allowed = self._rules.allows(action, rank)
        if allowed and action is Action.RECEIVE:
            allowed, more = self.search(Action.SUBSCRIBE, levels)
            visited += more
        return allowed, visited

    def verdicts(self, action: Action, topic_filter: str, most: int = MOST_NODES) -> Verdicts:
        """Return the verdicts about the topics that a (non-shared) Topic Filter matches."""
        allows = partial(self._rules.allows, action)
        return Search(topic_filter, self._expansions, allows, most).verdicts(self._tries[action])

    def both_verdicts(self, topic_filter: str) -> tuple[Verdicts, Verdicts]:
        """Return the verdicts for SUBSCRIBE and for deliveries. Both searches together are bounded like one."""
        subscribe = self.verdicts(Action.SUBSCRIBE, topic_filter)
        return subscribe, self.verdicts(Action.RECEIVE, topic_filter, max(0, MOST_NODES - subscribe.visited))

    def grant(self, topic_filter: str, *, partially: bool) -> Grant:
        """Return what a SUBSCRIBE gets. ``partially``: all of its topics need not be allowed."""
        return self.grants(topic_filter, partially=partially).subscribed

    def receivable(self, topic_filter: str) -> Grant:
        """Return which messages that match a Topic Filter may be received."""
        return self.grants(topic_filter, partially=True).receivable

    def grants(self, topic_filter: str, *, partially: bool) -> Grants:
        """Return what a SUBSCRIBE gets, and which messages may be received."""
        subscribe, receive = both = self.both_verdicts(topic_filter)
        receivable = Grant.FILTERED
        if subscribe.only_allows and receive.only_allows:
            receivable = Grant.GRANTED
        elif any(verdicts.only_denies for verdicts in both):
            receivable = Grant.REFUSED
        subscribed = Grant.REFUSED
        if subscribe.only_allows:
            subscribed = Grant.GRANTED if receive.only_allows else Grant.FILTERED
        elif self._rules.grants_subscribe or (partially and not subscribe.only_denies):
            subscribed = Grant.FILTERED
        return Grants(subscribed, receivable, subscribe.visited + receive.visited)

    def receivable_filters(self, topic_filter: str) -> tuple[str, ...] | None:
        """Return Topic Filters that match all messages of a Topic Filter that may be received; None for any."""
        allows = partial(self._rules.allows, Action.SUBSCRIBE)
        return allowed_filters(self._tries[Action.SUBSCRIBE], self._expansions, allows, topic_filter)
