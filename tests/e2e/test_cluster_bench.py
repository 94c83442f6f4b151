"""The bench of the cluster: three brokers, faults, and the invariants. See ``tests/cluster/bench``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from attrs import fields_dict

from holdfast.config.sections.cluster import ClusterConfig
from tests.cluster.bench.broken import BREAKS
from tests.cluster.bench.figures import Figures
from tests.cluster.bench.places import nats_server
from tests.cluster.bench.run import Options, run

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

#: where the histories of failed cycles go
KEPT = Path("build/cluster-bench")


def ran(seed: int, cycles: int, bus: str, *, broken: str | None = None, long: bool = False) -> Figures:
    """Run cycles; print their lines and the table, which pytest shows if the test fails."""
    if bus == "nats":
        if "bus" not in fields_dict(ClusterConfig):
            pytest.skip("this broker has no bus over NATS")
        try:
            nats_server()
        except FileNotFoundError as missing:
            pytest.skip(str(missing))
    keep = None if broken else KEPT / f"{bus}-{seed}"
    options = Options(
        seed=seed, cycles=cycles, bus=bus, keep=keep, roaming=True, broken=broken, long=long,
        first=broken is not None,
    )  # fmt: skip
    figures = asyncio.run(run(options, print))
    print(figures.table())
    return figures


@pytest.mark.nightly
@pytest.mark.parametrize("bus", ["postgres", "nats"])
def test_three_cycles_break_no_invariant(bus: str) -> None:
    """A publisher, a subscriber and a Will that lose by a fault what was promised would be told here."""
    assert ran(21, 3, bus).violations == []


@pytest.mark.nightly
@pytest.mark.parametrize("bus", ["postgres", "nats"])
def test_a_hundred_cycles_break_no_invariant(bus: str) -> None:
    """The run counts if the machine was fast enough: few nodes were fenced without a fault."""
    figures = ran(1, 100, bus, long=True)
    assert figures.violations == []
    assert figures.counts


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(BREAKS))
def test_a_broken_line_is_found(name: str) -> None:
    """Within twenty cycles, on the bus on which it matters."""
    assert ran(1, 20, BREAKS[name].bus, broken=name).violations
