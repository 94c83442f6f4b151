"""Which publishers of retained messages may keep them: the same that may publish and retain them now."""

from __future__ import annotations

import pytest

from holdfast.auth.interfaces import Principal
from holdfast.authorization.authorizer import Authorizer, SourceCheck
from holdfast.authorization.rule import Action, Rule
from holdfast.authorization.ruleset import RuleList, Ruleset

BOTH = frozenset({Action.PUBLISH, Action.RETAIN})
RULES = Ruleset(
    RuleList(
        (
            Rule(True, BOTH, ("of/%u",), "here", users=frozenset({"ann"})),
            Rule(True, BOTH, ("guests/#",), "here", users=frozenset({"$guest"})),
            Rule(True, frozenset({Action.PUBLISH}), ("live",), "here"),
        )
    )
)


@pytest.mark.parametrize("names_proven", [True, False])
@pytest.mark.parametrize("username", [None, "ann", "bob"])
@pytest.mark.parametrize("topic", ["of/ann", "guests/a", "live", "other"])
def test_who_may_retain_a_message_may_keep_it(names_proven: bool, username: str | None, topic: str) -> None:
    """Without authentication a User Name proves nothing, for both. Otherwise a message would vanish after a restart."""
    authorizer = Authorizer(RULES, source_check=SourceCheck.STRICT, names_proven=names_proven)
    may_retain = authorizer.may_publish(Principal("c", username), topic, 0, True)
    assert authorizer.may_keep(username, "c", topic) is may_retain


@pytest.mark.parametrize("names_proven", [True, False])
def test_messages_of_guests_pass_unless_the_check_is_strict(names_proven: bool) -> None:
    authorizer = Authorizer(RULES, names_proven=names_proven)
    assert authorizer.may_keep(None, "c", "other")
    assert authorizer.may_keep("ann", "c", "other") is not names_proven
