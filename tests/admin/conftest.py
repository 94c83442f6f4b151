"""The API around brokers on either database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.doubles import Desk
from tests.admin.stored import stored_desk
from tests.pipeline.stores import MAKES


@pytest.fixture(params=MAKES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """The API of a broker on an empty database of either make."""
    with stored_desk(request.param, tmp_path) as desk:
        yield desk
