"""Why a client may do something: the rules that decide, for operators."""

from __future__ import annotations

from attrs import frozen

from holdfast.identity.authorizer import Decision, Permissions
from holdfast.identity.coverage import Verdicts
from holdfast.identity.interfaces import Grant
from holdfast.identity.rules import Action, Ruleset

#: the permissions that an action needs together
_NEEDS = {
    Action.PUBLISH: (Action.PUBLISH,),
    Action.RETAIN: (Action.PUBLISH, Action.RETAIN),
    Action.CLEAR: (Action.PUBLISH, Action.CLEAR),
    Action.RECEIVE: (Action.SUBSCRIBE, Action.RECEIVE),
}


@frozen
class Reason:
    """The rule that decides about one permission for a topic. For a Topic Filter, ``topic`` is an example."""

    permission: Action
    topic: str
    decision: Decision

    @property
    def origin(self) -> str:
        """The place of the rule."""
        rule = self.decision.rule
        if rule is not None:
            return rule.origin
        if not self.decision.is_exact:
            return "no rule: too many come into question for this topic"
        return "default: no rule matches"

    def __str__(self) -> str:
        word = "allowed" if self.decision.allow else "denied"
        rule = self.decision.rule
        return f"{self.permission.word} {self.topic}: {word} by {self.origin}" + (f": {rule}" if rule else "")


@frozen
class Explanation:
    """What a client gets, and why. ``summary`` is a clause."""

    grant: Grant
    summary: str
    reasons: tuple[Reason, ...]


def explain(permissions: Permissions, action: Action, topic: str) -> Explanation:
    """Explain what a client may do with a topic. Not for SUBSCRIBE: see :func:`explain_subscribe`."""
    reasons = tuple(Reason(each, topic, permissions.decide(each, topic)) for each in _NEEDS[action])
    if all(reason.decision.allow for reason in reasons):
        return Explanation(Grant.GRANTED, "allowed", reasons)
    return Explanation(Grant.REFUSED, "denied", reasons)


def explain_subscribe(rules: Ruleset, permissions: Permissions, topic_filter: str, *, partially: bool) -> Explanation:
    """Explain what a client gets if it subscribes to a Topic Filter: the rules decide about each matching topic."""
    grant = permissions.grant(topic_filter, partially=partially)
    reasons: list[Reason] = []
    is_exact = True
    both = permissions.both_verdicts(topic_filter)
    for action, verdicts in zip((Action.SUBSCRIBE, Action.RECEIVE), both, strict=True):
        is_exact = is_exact and verdicts.is_exact
        if action is Action.SUBSCRIBE or verdicts.denied is not None:
            reasons += _examples(rules, action, verdicts)
    match grant:
        case Grant.GRANTED:
            summary = "allowed: every topic that the filter matches is allowed"
        case Grant.REFUSED:
            summary = "denied: not every topic that the filter matches is allowed"
        case Grant.FILTERED:
            summary = "allowed in part: each message is checked at delivery"
    if not is_exact:
        summary += " (the rules are too many to look at all topics; what is not sure is not granted)"
    return Explanation(grant, summary, tuple(reasons))


def _examples(rules: Ruleset, action: Action, verdicts: Verdicts) -> list[Reason]:
    found = [
        (True, verdicts.allowed),
        (False, verdicts.denied),
    ]
    return [Reason(action, at[1], Decision(allow, rules.rule(at[0]))) for allow, at in found if at is not None]
