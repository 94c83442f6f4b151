"""The rate of new connections from each address, and how much of it is remembered."""

from __future__ import annotations

from holdfast.core.units import Rate
from holdfast.transports.acceptance import AddressRates


def connect(rates: AddressRates, group: str, now: float) -> bool:
    """Connect once, if the rate allows it."""
    allowed = rates.allows(group, now)
    if allowed:
        rates.count(group, now)
    return allowed


def test_each_address_has_a_rate_of_its_own() -> None:
    rates = AddressRates(Rate(2, 1.0))
    assert [connect(rates, "a", 0.0) for _ in range(3)] == [True, True, False]
    assert connect(rates, "b", 0.0)
    assert connect(rates, "a", 1.1)


def test_addresses_that_are_silent_long_enough_are_forgotten() -> None:
    rates = AddressRates(Rate(2, 1.0))
    for number in range(1000):
        connect(rates, f"early {number}", 0.0)
    for number in range(600):
        connect(rates, f"late {number}", 5.0)
    assert len(rates) <= 602


def test_with_too_many_addresses_those_that_were_silent_longest_begin_anew() -> None:
    rates = AddressRates(Rate(1, 60.0), most=100)
    for number in range(1000):
        assert connect(rates, str(number), 0.0)
        assert len(rates) <= 100
    assert not rates.allows("999", 0.0)
    assert rates.allows("0", 0.0)
