"""The advice follows from the figures, keeps its promise, and is absent where the settings are enough."""

from __future__ import annotations

from attrs import evolve

from holdfast.core.units import Rate, parse_rate
from holdfast.retained.limits import FlowSettings
from holdfast_pipeline.filters import FilterDeliveries, FilterDelivery, Replayed, reads, seconds_at
from holdfast_pipeline.report.advice import Advice, advice
from holdfast_pipeline.report.figures import Figures, ReportTotals
from tests.pipeline.report.figures import NOW, delivery, empty


def found(flow: FlowSettings, *deliveries: FilterDelivery) -> Figures:
    return evolve(empty(), flow=flow, deliveries=FilterDeliveries(NOW, deliveries, ()))


def about(given: list[Advice], word: str) -> Advice | None:
    return next((one for one in given if word in one.setting), None)


def set_to(given: list[Advice], word: str) -> str:
    one = about(given, word)
    assert one is not None
    return one.setting.partition(" = ")[2].strip('"')


def test_no_advice_for_few_replayed_messages() -> None:
    """Also without subscriptions."""
    assert advice(found(FlowSettings(), delivery("a/#", 10, 1000, 100_000))) == []
    assert advice(empty()) == []


def test_only_leading_wildcards_give_advice_on_min_replay_levels() -> None:
    given = advice(found(FlowSettings(), delivery("#", 3, 1000, 100_000), delivery("a/#", 1, 1000, 100_000)))
    one = about(given, "min_replay_levels")
    assert one is not None
    assert "3 of 4 subscriptions" in one.why
    assert "75 %" in one.why
    assert "3,000 messages fewer" in one.brings
    assert about(advice(found(FlowSettings(), delivery("a/#", 9, 1000, 100_000))), "min_replay_levels") is None


def test_the_advised_rate_spreads_all_replays_over_five_minutes() -> None:
    """The advice also names the resulting time. A present rate that is low enough gives no advice."""
    much = delivery("a/#", 50, 100_000, 100 << 20)
    rate = parse_rate(set_to(advice(found(FlowSettings(), much)), "delivery_rate"))
    assert 270 <= (seconds_at(rate, 5_000_000) or 0) <= 300
    one = about(advice(found(FlowSettings(), much)), "delivery_rate")
    assert one is not None
    assert "Together they take 4 min" in one.brings
    assert about(advice(found(FlowSettings(delivery_rate=rate), much)), "delivery_rate") is None


def test_a_rate_at_which_replays_take_hours_is_too_low() -> None:
    slow = FlowSettings(delivery_rate=Rate(100, 1.0))
    given = advice(found(slow, delivery("a/#", 50, 100_000, 1 << 20)))
    assert parse_rate(set_to(given, "delivery_rate")).per_second > 200
    one = about(given, "delivery_rate")
    assert one is not None
    assert "for 13 h 53 min" in one.why


def test_the_advised_rate_has_an_upper_bound() -> None:
    given = advice(found(FlowSettings(), delivery("a/#", 10_000, 1_000_000, 1 << 30)))
    assert parse_rate(set_to(given, "delivery_rate")).per_second == 50_000


def test_a_large_replay_gives_advice_on_a_rate_for_each_client() -> None:
    """Only if there is a rate for all clients, or one is advised."""
    large = delivery("a/#", 1, 2_000_000, 1 << 30)
    rate = parse_rate(set_to(advice(found(FlowSettings(), large)), "delivery_rate"))
    own = parse_rate(set_to(advice(found(FlowSettings(), large)), "client_rate"))
    assert own.per_second <= rate.per_second / 9
    assert about(advice(found(FlowSettings(client_rate=own), large)), "client_rate") is None


def test_the_advice_enlarges_the_setting_that_ends_the_batches() -> None:
    """For small messages this is the number. For large messages it is the bytes, which no setting changes."""
    small, large = delivery("a/#", 1, 1_000_000, 100_000_000), delivery("a/#", 1, 100_000, 2_000_000_000)
    number = int(set_to(advice(found(FlowSettings(), small)), "batch_read_number"))
    fewer = reads(FlowSettings(batch_read_number=number), small.messages, small.bytes)
    one = about(advice(found(FlowSettings(), small)), "batch_read_number")
    assert one is not None
    assert one.brings.startswith(f"{fewer} reads instead of 1,000")
    assert about(advice(found(FlowSettings(), large)), "batch_read_number") is None


def test_filters_without_a_replay_do_not_count() -> None:
    shared = FilterDelivery("$share/g/#", 10**6, Replayed.SHARED, 0, 0, 0, 0, None)
    assert advice(found(FlowSettings(), shared, delivery("a/#", 10, 1000, 100_000))) == []


def test_many_stale_messages_without_expiry_give_advice() -> None:
    totals = ReportTotals(1000, 10_000, 10, 1, 10, 0, 500, 5000, 400, 4000)
    (one,) = advice(evolve(empty(), totals=totals))
    assert "400 messages (40 %, 3.9 KB) are older than 30 d" in one.why
    assert one.setting == 'msg_expiry_interval = "90d"'
    assert advice(evolve(empty(), totals=evolve(totals, lasting=100))) == []
