"""Arrays of tables: each mistake has the number of its table, and the line of its key."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from holdfast.broker.retainer import history_rules_of
from holdfast.changes.entries import FOREVER, GENERAL, NOT_RECORDED
from holdfast.config.sections.retainer import PolicyConfig, RetainerConfig
from tests.config.conftest import Problems


@pytest.mark.parametrize(
    ("text", "line", "key", "message"),
    [
        (
            "retainer.policies = 1",
            1,
            "retainer.policies",
            "found 1; allowed: an array of tables, [[retainer.policies]]",
        ),
        ("[retainer.policies]", 1, "retainer.policies", "found a table; allowed: an array of tables"),
        (
            '[[retainer.policies]]\nfilter = "a"\n[[retainer.policies]]\nfilter = "a#"',
            4,
            "retainer.policies.2.filter",
            'found "a#"',
        ),
        ("[[retainer.policies]]\nforce_retain = true", 1, "retainer.policies.1.filter", "is missing"),
        (
            '[[retainer.policies]]\nfilter = "a"\nforce = 1',
            3,
            "retainer.policies.1.force",
            "unknown key; known here: announce_expiry, filter",
        ),
        (
            '[[retainer.policies]]\nfilter = "a"\nhistory = false\nhistory_keep = "1d"',
            4,
            "retainer.policies.1.history_keep",
            "has no effect with history = false; allowed: only one of them",
        ),
        (
            '[[retainer.policies]]\nfilter = "a"\nhistory = true',
            1,
            "retainer.policies",
            "history = true needs retainer.history.enable = true; to record some topics only, give all others a later",
        ),
        (
            "".join(f'[[retainer.policies]]\nfilter = "a"\nhistory_keep = "{number}h"\n' for number in range(1, 18)),
            1,
            "retainer.policies",
            "history_keep has 17 different values, and each is pruned by itself; allowed: at most 16 different values",
        ),
        ("retainer.policies = [1]", 1, "retainer.policies.1", "found 1; allowed: a table"),
    ],
)
def test_a_mistake_has_its_table_and_line(
    problems_of: Callable[[str], Problems], text: str, line: int, key: str, message: str
) -> None:
    """As for all other tables."""
    ((found_line, found_key, told),) = problems_of(text)
    assert (found_line, found_key) == (line, key)
    assert message in told


def test_a_value_that_a_policy_does_not_set_is_inherited() -> None:
    """None stands for the value of the general option."""
    policy = PolicyConfig(filter="a")
    assert policy.msg_expiry_interval is policy.msg_expiry_interval_override is policy.max_payload_size is None


def test_the_history_has_the_rules_of_the_policies() -> None:
    """In their order. A policy that says nothing about the history counts too: it comes before later ones."""
    policies = (
        PolicyConfig(filter="a/b"),
        PolicyConfig(filter="a/#", history=False),
        PolicyConfig(filter="b", history_keep=90.5),
        PolicyConfig(filter="c", history=True, history_keep=inf),
        PolicyConfig(filter="d", write_interval=1.0),
    )
    rules = history_rules_of(RetainerConfig(policies=policies))
    assert rules.rules == (("a/b", GENERAL), ("a/#", NOT_RECORDED), ("b", 90_500), ("c", FOREVER))
