"""Which publishers of retained messages may keep them: the same that may publish and retain them now."""

from __future__ import annotations

import pytest

from holdfast.identity.authorizer import Authorizer, SourceCheck
from holdfast.identity.interfaces import Principal
from holdfast.identity.rules import Action, Conditions, Rule, RuleList, Ruleset

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


def grouped() -> Ruleset:
    """Return rules for groups, of which the rules name only one member."""
    return Ruleset(
        RuleList(
            (
                Rule(False, BOTH, ("plant/secret",), "here"),
                Rule(False, BOTH, ("plant/bob",), "here", users=frozenset({"bob"})),
                Rule(False, BOTH, ("plant/x",), "here", groups=frozenset({"visitors"})),
                Rule(False, BOTH, ("plant/known",), "here", groups=frozenset({"known"})),
                Rule(True, BOTH, ("plant/#",), "here", groups=frozenset({"plant"})),
                Rule(True, BOTH, ("of/%g/#",), "here"),
                Rule(True, BOTH, ("ann/%g/#",), "here", users=frozenset({"ann"})),
            ),
            {"bob": frozenset({"known"})},
        )
    )


@pytest.mark.parametrize(
    ("topic", "kept"),
    [
        ("plant/a", True),  # by a rule for a group that bob may be in
        ("plant/x", True),  # he need not be in the group that may not
        ("plant/known", False),  # he is in this one
        ("plant/bob", False),
        ("plant/secret", False),
        ("of/some/t", True),
        ("ann/some/t", False),
        ("other", False),
    ],
)
def test_unknown_groups_do_not_withhold(topic: str, kept: bool) -> None:
    """The groups of a token or a service are not stored. Known groups alone would withhold most messages."""
    authorizer = Authorizer(grouped(), groups_elsewhere=True)
    assert authorizer.may_keep("bob", "c", topic) is kept
    assert authorizer.may_publish(Principal("c", "bob", names_only=True), topic, 1, True) is kept
    assert not authorizer.may_publish(Principal("c", "bob"), topic, 1, True)


def test_groups_are_known_if_only_the_rules_name_them() -> None:
    authorizer = Authorizer(grouped())
    assert not authorizer.may_keep("bob", "c", "plant/a")
    assert not authorizer.may_publish(Principal("c", "bob", names_only=True), "plant/a", 1, True)


def test_guests_are_in_no_group() -> None:
    authorizer = Authorizer(grouped(), groups_elsewhere=True, source_check=SourceCheck.STRICT)
    assert not authorizer.may_keep(None, "c", "plant/a")


@pytest.mark.parametrize("allow", [True, False])
def test_a_will_of_an_earlier_process_is_judged_without_its_listener(allow: bool) -> None:
    """A rule limited to listeners counts if it denies, and does not if it allows."""
    limited = Rule(allow, BOTH, ("t",), "here", conditions=Conditions(listeners=frozenset({"inside"})))
    rules = (limited,) if allow else (limited, Rule(True, BOTH, ("t",), "here"))
    authorizer = Authorizer(Ruleset(RuleList(rules)))
    assert not authorizer.may_publish(Principal("c", "bob", names_only=True), "t", 0, False)
    assert authorizer.may_publish(Principal("c", "bob", listener="inside"), "t", 0, False) is allow
