"""The tests that share the browser run in one worker, else each worker starts its own."""

from __future__ import annotations

import pytest


def test_a_test_of_this_folder_is_in_its_group(request: pytest.FixtureRequest) -> None:
    """Some versions of pytest-xdist and pytest ignore groups together, without a word."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("only with --dist loadgroup")
    assert request.node.nodeid.endswith("@dashboard")
