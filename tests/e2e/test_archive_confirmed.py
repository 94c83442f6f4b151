"""An archive confirms its last entry to a running broker."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.config import default
from holdfast_pipeline.database.confirmation import confirm_archived
from holdfast_pipeline.errors import PipelineError
from tests.processes import BrokerProcess


def test_an_archive_confirms_over_the_control_socket(tmp_path: Path) -> None:
    """A running broker owns its database file: it writes the file, and refuses entries beyond its history."""
    configuration = tmp_path / "history.toml"
    configuration.write_text("[retainer.history]\nenable = true\n")
    broker = BrokerProcess(tmp_path, "--config", str(configuration)).start()
    try:
        file = tmp_path / "data" / "holdfast.db"
        config = default().override([], str(file.parent), f"sqlite:///{file}", allow_anonymous=True, cwd=tmp_path)
        confirm_archived(config, 1)
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            assert connection.execute("SELECT archived_seq FROM retained_history_state").fetchall() == [(1,)]
        with pytest.raises(PipelineError, match="could not be confirmed: the history ends at event 1"):
            confirm_archived(config, 2)
    finally:
        broker.stop()
