"""The tests that share a browser, a broker or Spark run in one worker, else each worker starts its own."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("groups")
def test_a_marked_test_is_in_its_group(request: pytest.FixtureRequest) -> None:
    """Some versions of pytest-xdist and pytest ignore groups together, without a word."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("only with --dist loadgroup")
    assert request.node.nodeid.endswith("@groups")
