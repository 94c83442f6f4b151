"""An explanation says what the broker does: its answer is always that of the authorizer."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.messages import ApplicationMessage
from holdfast.identity.authorizer import Authorizer
from holdfast.identity.explaining import explain, explain_subscribe
from holdfast.identity.interfaces import Grant, Principal
from holdfast.identity.rules import Action, Identity, Rule, RuleList, Ruleset
from tests.identity.rules.test_against_naive import TOPICS, filters, identities, rules


@given(
    rules, identities, st.sampled_from(TOPICS), filters(["a", "b", "$x", "alice", ""], 3), st.booleans(), st.booleans()
)
@settings(max_examples=150, deadline=None)
def test_an_explanation_is_the_answer_of_the_broker(
    listed: list[Rule], who: Identity, topic: str, topic_filter: str, partially: bool, names_proven: bool
) -> None:
    compiled = Ruleset(RuleList(tuple(listed)))
    authorizer = Authorizer(compiled, subscribe_partially=partially, names_proven=names_proven)
    principal = Principal(who.client_id, who.username, who.groups, who.listener, who.address)
    permissions = authorizer.permissions_of(principal)
    answers = {
        Action.PUBLISH: authorizer.may_publish(principal, topic, 0, False),
        Action.RETAIN: authorizer.may_publish(principal, topic, 0, True),
        Action.CLEAR: authorizer.may_publish(principal, topic, 0, True, True),
        Action.RECEIVE: authorizer.may_receive(principal, ApplicationMessage(topic, b"")),
    }
    for action, allowed in answers.items():
        explanation = explain(permissions, action, topic)
        assert (explanation.grant is Grant.GRANTED) is allowed
        assert all(reason.decision.allow for reason in explanation.reasons) is allowed
    explanation = explain_subscribe(compiled, permissions, topic_filter, partially=partially)
    assert explanation.grant is authorizer.may_subscribe(principal, topic_filter, 0)
    assert explanation.reasons
