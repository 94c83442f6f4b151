"""A lake with some rooms of the sample building, made by ``sync``."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve, frozen

from holdfast.core.messages import RetainedChange, RetainedMessage
from holdfast_pipeline import Source
from holdfast_pipeline.jobs.sync import Sync
from holdfast_pipeline.output.folder import Folder
from tests.pipeline.stores import NOW, Filled, database, message

HOUR = 3_600_000


@frozen
class Lake:
    """The folder with the tables ``changes`` and ``current``, and the URL of the database that they follow."""

    folder: Path
    url: str


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """From NOW on, two healthy sensors measure for nine hours, and one once. Two of three lamps cut their JSON off."""
    folder = tmp_path_factory.mktemp("pasted")
    with database("sqlite", folder, recorded=True) as filled:
        for hour, degrees in ((0, b"20.0"), (3, b"21.0"), (9, b"22.5")):
            rooms = ["f01/r0002", "f02/r0003", *(["f01/r0001"] if hour == 0 else [])]
            _put(
                filled,
                NOW + hour * HOUR,
                *(message(f"hq/{room}/climate/temperature", degrees) for room in rooms),
                message("hq/f01/r0002/light/1/state", b'{"on":true,"level":40}'),
                message("hq/f01/r0002/light/2/state", b'{"on":true,"lev'),
                message("hq/f02/r0003/light/3/state", b'\xff\xfe{"on":true}'),
            )
        Sync(Source(filled.url), Folder(str(folder / "lake"))).run()
        return Lake(folder / "lake", filled.url)


def _put(filled: Filled, at: int, *messages: RetainedMessage) -> None:
    """Retain messages with revisions of a time, as a broker does at that time."""
    with filled.store() as store:
        for number, given in enumerate(messages):
            revision = (at << 20) + number
            change = RetainedChange(
                given.topic, revision, at, evolve(given, revision=revision, stored_at=at), None, None
            )
            assert store.put(change).failure is None
