"""Nothing that the rules deny is delivered or retained, and nothing that they allow is lost: random worlds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.doubles import MemoryBroker
from tests.sessions.permitted_world import World
from tests.sessions.restartable import RestartableBroker


def live(seed: int, folder: Path, steps: int, broker: Callable[..., MemoryBroker] = MemoryBroker) -> None:
    world = World(seed, folder, broker)
    for _ in range(steps):
        world.step()


@pytest.mark.parametrize("seed", range(8))
def test_a_random_world(seed: int, tmp_path: Path) -> None:
    live(seed, tmp_path, 80)


@pytest.mark.parametrize("seed", range(100, 104))
def test_a_random_world_with_restarts(seed: int, tmp_path: Path) -> None:
    """With a database, which brings Sessions, Wills and retained messages back."""
    live(seed, tmp_path, 60, partial(RestartableBroker, tmp_path / "db"))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_random_worlds(seed: int, tmp_path: Path) -> None:
    live(seed, tmp_path, 300)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2000, 2060))
def test_many_random_worlds_with_restarts(seed: int, tmp_path: Path) -> None:
    live(seed, tmp_path, 200, partial(RestartableBroker, tmp_path / "db"))
