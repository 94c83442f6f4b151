"""A client finds its Session on Postgres after a move from SQLite, and on SQLite after the move back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.paho import PahoClient
from tests.postgres import drop, empty_database
from tests.processes import HOLDFAST_RUN, PATIENCE, BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]


def test_a_session_moves_with_its_messages(tmp_path: Path) -> None:
    url = empty_database()
    (tmp_path / "back").mkdir()
    brokers = [
        BrokerProcess(tmp_path, "--allow-anonymous", *place, program=HOLDFAST_RUN)
        for place in (
            ("--data-dir", "data"),
            ("--data-dir", "data", "--storage", url),
            ("--data-dir", "back", "--storage", f"sqlite:///{tmp_path}/back/holdfast.db"),
        )
    ]
    moves = [
        ("sqlite-to-postgres", url, "--data-dir", "data"),
        ("postgres-to-sqlite", "back/holdfast.db", "--data-dir", "data", "--storage", url),
    ]
    try:
        for number, broker in enumerate(brokers):
            broker.start()
            client = PahoClient(broker.port, 4, "lasting", clean=False)
            assert client.session_present is (number > 0)
            if number:
                assert client.messages(2) == [
                    ("a/kept", str(number - 1).encode(), 1, False), ("a/queued", str(number - 1).encode(), 1, False),
                ]  # fmt: skip
            else:
                client.subscribe("a/#", qos=1)
            client.close()
            publisher = PahoClient(broker.port)
            publisher.publish("a/kept", str(number), retain=True)
            publisher.publish("a/queued", str(number))
            publisher.close()
            newcomer = PahoClient(broker.port)
            newcomer.subscribe("a/kept")
            assert newcomer.messages(1) == [("a/kept", str(number).encode(), 0, True)]
            newcomer.close()
            broker.stop()
            if number < len(moves):
                command = [HOLDFAST_RUN[0], "migrate", *moves[number]]
                subprocess.run(command, cwd=tmp_path, check=True, timeout=PATIENCE, capture_output=True)
    finally:
        for broker in brokers:
            broker.end()
        drop(url)
