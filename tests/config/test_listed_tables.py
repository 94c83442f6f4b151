"""Arrays of tables: each mistake has the number of its table, and the line of its key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.config.sections.retainer import PolicyConfig
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
