"""The permissions of one identity: verdicts about topics and Topic Filters."""

from __future__ import annotations

from functools import partial

from attrs import frozen

from holdfast.auth.interfaces import Grant
from holdfast.authorization.allowed_filters import allowed_filters
from holdfast.authorization.coverage import Search, Verdicts
from holdfast.authorization.identity import Identity
from holdfast.authorization.rule import Action, Rule
from holdfast.authorization.ruleset import Ruleset
from holdfast.authorization.trie import first_match


@frozen
class Decision:
    """A verdict, and the rule that decides so; None if no rule matches."""

    allow: bool
    rule: Rule | None


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
        return Decision(self._rules.allows(action, rank), self._rules.rule(rank))

    def allows(self, action: Action, topic: str) -> bool:
        """Tell whether the first rule for this action that matches a topic allows it.

        Only a message whose topic may be subscribed may be received.
        """
        rank, _ = first_match(self._tries[action], topic.split("/"), self._expansions)
        if not self._rules.allows(action, rank):
            return False
        return action is not Action.RECEIVE or self.allows(Action.SUBSCRIBE, topic)

    def verdicts(self, action: Action, topic_filter: str) -> Verdicts:
        """Return the verdicts about the topics that a (non-shared) Topic Filter matches."""
        return Search(topic_filter, self._expansions, partial(self._rules.allows, action)).verdicts(self._tries[action])

    def grant(self, topic_filter: str, *, partially: bool) -> Grant:
        """Return what a SUBSCRIBE gets. ``partially``: all of its topics need not be allowed."""
        subscribe = self.verdicts(Action.SUBSCRIBE, topic_filter)
        if subscribe.only_allows:
            receive = self.verdicts(Action.RECEIVE, topic_filter)
            return Grant.GRANTED if receive.only_allows else Grant.FILTERED
        if self._rules.grants_subscribe or (partially and not subscribe.only_denies):
            return Grant.FILTERED
        return Grant.REFUSED

    def receivable(self, topic_filter: str) -> Grant:
        """Return which messages that match a Topic Filter may be received."""
        both = [self.verdicts(action, topic_filter) for action in (Action.SUBSCRIBE, Action.RECEIVE)]
        if all(verdicts.only_allows for verdicts in both):
            return Grant.GRANTED
        return Grant.REFUSED if any(verdicts.only_denies for verdicts in both) else Grant.FILTERED

    def receivable_filters(self, topic_filter: str) -> tuple[str, ...] | None:
        """Return Topic Filters that match all messages of a Topic Filter that may be received; None for any."""
        allows = partial(self._rules.allows, Action.SUBSCRIBE)
        return allowed_filters(self._tries[Action.SUBSCRIBE], self._expansions, allows, topic_filter)
