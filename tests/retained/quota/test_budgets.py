"""The budgets of quotas: which of them a message counts against, and by how much."""

from __future__ import annotations

from attrs import evolve

from holdfast.retained.limits import Limit, Quota, RetainerLimits
from holdfast.retained.quota import Budget, Budgets, Growth
from holdfast.retained.store.values import Usage

LIMITS = RetainerLimits(
    max_retained_messages=10,
    client_quota=Quota("client.", 2, 100),
    topic_quotas=(("a/#", Quota("a.", 5)), ("b", Quota("b.", 5))),
)


def growths(
    budgets: Budgets, before: Usage | None, client_id: str | None = "c"
) -> dict[tuple[str | None, ...], Growth]:
    found = budgets.growths("a/1", 30, client_id, before)
    return {(budget.client_id, budget.topic_filter): growth for budget, growth in found}


def test_a_message_counts_in_total_for_its_filters_and_for_its_client() -> None:
    assert growths(Budgets(LIMITS), None) == dict.fromkeys([(None, None), (None, "a/#"), ("c", None)], Growth(1, 30))
    assert (None, None) in growths(Budgets(LIMITS), None, None)
    assert list(Budgets(RetainerLimits()).of("a/1", "c")) == []


def test_a_replacement_adds_the_difference_and_is_one_more_for_a_new_client() -> None:
    budgets = Budgets(LIMITS)
    assert list(growths(budgets, Usage(1, 20, "c")).values()) == [Growth(0, 10)] * 3
    other = growths(budgets, Usage(1, 20, "d"))
    assert (other[None, None], other["c", None]) == (Growth(0, 10), Growth(1, 30))


def test_a_message_that_another_client_replaces_is_taken_off_its_clients_budget() -> None:
    budgets = Budgets(LIMITS)
    budgets.release("c", Usage(1, 20, "d"))
    budgets.release("c", Usage(1, 20, "c"))
    budgets.release("c", Usage(1, 20, None))
    budgets.release("c", None)
    assert [(each.client_id, each.messages, each.bytes) for each in budgets.clients.values()] == [("d", -1, -20)]


def test_charges_during_a_read_are_added_to_its_result() -> None:
    budget = Budget(Quota("retainer.", 10), Limit.MESSAGES, Limit.BYTES)
    budget.charge(Growth(1, 5), True)
    budget.begin_read()
    budget.charge(Growth(1, 7), False)
    budget.end_read(Usage(3, 100), 9.0)
    assert (budget.messages, budget.bytes, budget.read_at, budget.exact) == (4, 107, 9.0, False)


def test_what_had_no_quota_for_a_time_is_not_known() -> None:
    """It was not charged. What has another quota stays known."""
    budgets = Budgets(LIMITS)
    higher = evolve(
        LIMITS, max_retained_messages=11, client_quota=Quota("client.", 3), topic_quotas=(("a/#", Quota("a.", 6)),)
    )

    def of_message() -> list[Budget]:
        return list(budgets.of("a/1", "c"))

    for budget in of_message():
        budget.end_read(Usage(1, 20), 9.0)
    budgets.change_limits(higher)
    assert [(each.quota.max_messages, each.read_at) for each in of_message()] == [(11, 9.0), (6, 9.0), (3, 9.0)]
    budgets.change_limits(RetainerLimits())
    assert of_message() == []
    budgets.change_limits(higher)
    assert [(each.quota.max_messages, each.read_at) for each in of_message()] == [(11, None), (6, None), (3, None)]


def test_a_budget_is_opened_once_when_it_is_first_needed() -> None:
    opened: list[Budget] = []
    budgets = Budgets(LIMITS, opened.append)
    assert len(opened) == 3  # in total, and one for each filter
    growths(budgets, None)
    growths(budgets, None)
    assert [budget.client_id for budget in opened[3:]] == ["c"]
