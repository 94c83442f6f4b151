"""``holdfast retainer import --sessions`` takes over the Sessions of mosquitto's two databases."""

from __future__ import annotations

import json
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from holdfast.commands import main
from holdfast.retained.formats.file_entry import UnreadableFile
from holdfast.retained.formats.mosquitto_sessions import sessions_of_db
from holdfast.sessions.importing import SessionImport
from holdfast.storage.database import Durability
from holdfast.storage.postgres import PostgresDatabase
from tests.postgres import drop, fresh_database
from tests.storage.doubles import fresh_file

#: Written by mosquitto 2.0.11, as tests/e2e/test_moved_sessions.py fills it.
REAL = Path(__file__).parents[2] / "retained" / "formats" / "files" / "mosquitto-2.0.11-sessions.db"
#: The file says when the Session of the client "five" expires.
TAKEN = {"sessions": 3, "subscriptions": 4, "messages": 9}
NEVER = 0xFFFF_FFFF


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an empty store in its data directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    fresh_file(tmp_path / "data", "holdfast.db")
    return tmp_path


def run(file: str, *arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["retainer", "import", file, "--sessions", "--json", *arguments])
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def rows(statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect("data/holdfast.db")) as connection:
        return connection.execute(statement).fetchall()


DELIVERIES = (
    "SELECT s.client_id, seq, topic, d.qos, d.retain, identifiers, packet_identifier, released "
    "FROM session_deliveries d JOIN sessions s ON s.id = session_id LEFT JOIN session_messages m ON m.id = message_id "
    "ORDER BY s.client_id, seq"
)


def lasting(folder: Path) -> str:
    """Return the file, with a Session that does not expire before this test runs."""
    data = REAL.read_bytes()
    at = data.index(struct.pack(">I", 604_800)) - 8
    (folder / "m.db").write_bytes(data[:at] + struct.pack("<q", 4_102_444_800) + data[at + 8 :])
    return "m.db"


def test_sessions_of_a_mosquitto_db_become_rows(folder: Path) -> None:
    """In one transaction, with one row for a message of several clients; a second import changes nothing."""
    file = lasting(folder)
    assert run(file, "--dry-run")["sessions_taken"] == TAKEN
    assert rows("SELECT * FROM sessions") == []
    told = run(file)
    assert (told["sessions_taken"], told["sessions_left_out"], told["imported"]) == (TAKEN, {}, 1)
    assert rows("SELECT client_id, username, listener, expiry_interval, expires_at FROM sessions ORDER BY 1") == [
        ("five", None, "default", 604_800, 4_102_444_800_000), ("flying", None, "default", None, None),
        ("queued", None, "default", None, None),
    ]  # fmt: skip
    assert rows(
        "SELECT client_id, topic_filter, qos, no_local, retain_as_published, identifier FROM session_subscriptions "
        "JOIN sessions ON id = session_id ORDER BY 1, 2"
    ) == [
        ("five", "q/+", 1, 1, 1, 7), ("flying", "q/#", 2, 0, 0, None), ("queued", "only/0", 0, 0, 0, None),
        ("queued", "q/#", 2, 0, 0, None),
    ]  # fmt: skip
    assert rows(DELIVERIES) == [
        ("five", 1, "q/1", 1, 0, "7", None, 0), ("five", 2, "q/2", 1, 0, "7", None, 0),
        ("five", 3, "q/3", 1, 1, "7", None, 0), ("flying", 1, "q/1", 1, 0, "", 1, 0),
        ("flying", 2, None, 2, 0, "", 2, 1), ("flying", 3, "q/3", 1, 0, "", 3, 0),
        ("queued", 1, "q/1", 1, 0, "", None, 0), ("queued", 2, "q/2", 2, 0, "", None, 0),
        ("queued", 3, "q/3", 1, 0, "", None, 0),
    ]  # fmt: skip
    assert rows("SELECT count(*) FROM session_messages") == [(3,)]
    before = rows("SELECT * FROM session_deliveries")
    again = run(file)
    assert again["sessions_left_out"]["the client has a Session here already"] == 3
    assert rows("SELECT * FROM session_deliveries") == before
    assert rows("SELECT max(id) <= (SELECT max(revision_mark) FROM nodes) FROM sessions") == [(1,)]


def test_sessions_go_into_postgres_in_the_name_of_the_node(folder: Path) -> None:
    """If no broker uses the database, from any machine."""
    url = fresh_database()
    (folder / "h.toml").write_text("[node]\nid = 5\n")
    place = ("--config", "h.toml", "--data-dir", "data", "--storage", url)
    try:
        with closing(PostgresDatabase(make_url(url), Durability.FULL, 5).connect()) as connection:
            running = CliRunner().invoke(main, ["retainer", "import", lasting(folder), "--sessions", *place])
            assert (running.exit_code, "is used by brokers (node.id 5); stop them" in running.stderr) == (1, True)
        assert run("m.db", *place)["sessions_taken"] == TAKEN
        assert run("m.db", *place)["sessions_left_out"]["the client has a Session here already"] == 3
        with closing(PostgresDatabase(make_url(url), Durability.FULL).connect_reader()) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT id & 255, client_id, expires_at FROM sessions ORDER BY client_id")
            assert cursor.fetchall() == [(5, "five", 4_102_444_800_000), (5, "flying", None), (5, "queued", None)]
            cursor.execute("SELECT count(*) FROM session_deliveries JOIN session_messages ON id = message_id")
            assert cursor.fetchall() == [(8,)]
    finally:
        drop(url)


def test_an_expired_session_is_left_out_with_its_messages(folder: Path) -> None:
    data = REAL.read_bytes()
    at = data.index(struct.pack(">I", 604_800)) - 8
    (folder / "old.db").write_bytes(data[:at] + struct.pack("<q", 1_500_000_000) + data[at + 8 :])
    told = run("old.db")
    assert told["sessions_taken"] == {"sessions": 2, "subscriptions": 3, "messages": 6}
    assert told["sessions_left_out"] == {
        "the Session has expired": 1, "belongs to a client whose Session was left out": 4,
    }  # fmt: skip


def test_sessions_of_the_plugin_become_rows(folder: Path) -> None:
    """Of mosquitto 2.1: each kind that can be taken over, and each that cannot."""
    with closing(sqlite3.connect("plugin.db", isolation_level=None)) as connection:
        connection.executescript(
            """
            CREATE TABLE base_msgs (store_id INT64 PRIMARY KEY, expiry_time INT64, topic STRING NOT NULL, payload BLOB,
              source_id STRING, source_username STRING, payloadlen INTEGER, source_mid INTEGER, source_port INTEGER,
              qos INTEGER, retain INTEGER, properties STRING);
            CREATE TABLE retains (topic STRING PRIMARY KEY, store_id INT64);
            CREATE TABLE clients (client_id TEXT PRIMARY KEY, username TEXT, connection_time INT64,
              will_delay_time INT64, session_expiry_time INT64, listener_port INT, max_packet_size INT, max_qos INT,
              retain_available INT, session_expiry_interval INT, will_delay_interval INT);
            CREATE TABLE subscriptions (client_id TEXT NOT NULL, topic TEXT NOT NULL, subscription_options INTEGER,
              subscription_identifier INTEGER, PRIMARY KEY (client_id, topic));
            CREATE TABLE client_msgs (client_id TEXT NOT NULL, cmsg_id INT64, store_id INT64, dup INTEGER,
              direction INTEGER, mid INTEGER, qos INTEGER, retain INTEGER, state INTEGER,
              subscription_identifier INTEGER);
            """
        )
        message = "INSERT INTO base_msgs VALUES (?, ?, ?, ?, 'p', NULL, 1, 0, 0, 1, 0, NULL)"
        connection.execute(message, (1, 0, "a", b"x"))
        connection.execute(message, (2, 1_000, "a", b"old"))
        connection.execute(message, (3, 0, "a/#", b"no topic"))
        client = "INSERT INTO clients VALUES (?, ?, 0, 0, ?, 1883, 0, 2, 1, ?, 0)"
        connection.execute(client, ("c", "u", 0, -1))
        connection.execute(client, ("short", None, 0, 0))
        subscription = "INSERT INTO subscriptions VALUES ('c', ?, ?, ?)"
        for values in (("$share/g/a", 0x01, 0), ("a/+", 0x2E, 9), ("a/#/b", 0, 0), ("b", 3, 0)):
            connection.execute(subscription, values)
        delivery = "INSERT INTO client_msgs VALUES ('c', ?, ?, 0, ?, ?, ?, 0, ?, ?)"
        for place in (
            (2, 1, 1, 4, 1, 3, 9), (1, 1, 1, 0, 1, 11, None), (3, 1, 1, 4, 2, 3, None), (4, 2, 1, 0, 1, 11, None),
            (5, 3, 1, 0, 1, 11, None), (6, 1, 0, 7, 2, 7, None), (7, 1, 1, 0, 2, 9, None), (8, 9, 1, 0, 1, 11, None),
            (9, 1, 1, 0, 1, 77, None), (10, 1, 1, 0, 3, 11, None),
        ):  # fmt: skip
            connection.execute(delivery, place)
    told = run("plugin.db")
    assert told["sessions_taken"] == {"sessions": 1, "subscriptions": 2, "messages": 3}
    assert told["sessions_left_out"] == {
        "the Session ended with its connection": 1,
        "a Subscription: '#' stands alone in the last level": 1,
        "a Subscription: the options of a Subscription are not those of MQTT": 1,
        "a message has expired": 1,
        "a message: topic: a Topic Name contains no wildcard characters": 1,
        "a QoS 2 message from a client is not released yet": 1,
        "a message: its Packet Identifier is not one of MQTT": 1,
        "a message is not in the file; it has expired": 1,
        "a message has the unknown state 77": 1,
        "a message: its QoS is not one of MQTT": 1,
    }
    assert rows("SELECT client_id, username, expiry_interval FROM sessions") == [("c", "u", None)]
    assert rows(DELIVERIES) == [
        ("c", 1, "a", 1, 0, "", None, 0), ("c", 2, "a", 1, 0, "9", 4, 0), ("c", 3, "a", 2, 0, "", None, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("version", [2, 4])
def test_sessions_of_old_files_become_rows(folder: Path, version: int) -> None:
    def chunk(kind: int, *parts: bytes) -> bytes:
        body = b"".join(parts)
        return struct.pack(">HI", kind, len(body)) + body

    def string(text: str) -> bytes:
        return struct.pack(">H", len(text)) + text.encode()

    number = struct.pack("<q", 7)
    publisher = string("p") + (string("") + b"\0\0" if version == 4 else b"")
    (folder / "old.db").write_bytes(
        b"\x00\xb5\x00mosquitto db" + struct.pack(">II", 0, version)
        + chunk(1, b"\0\x08", number)
        + chunk(2, number, publisher, bytes(4), string("a"), struct.pack(">BBI", 1, 0, 1), b"x")
        + chunk(6, string("c"), bytes(2))
        + chunk(3, string("c"), number, struct.pack(">HBBBBB", 5, 1, 1, 1, 3, 0))
        + chunk(5, string("c"), string("a/+"), b"\x01")
    )  # fmt: skip
    assert run("old.db")["sessions_taken"] == {"sessions": 1, "subscriptions": 1, "messages": 1}
    assert rows(DELIVERIES) == [("c", 1, "a", 1, 1, "", 5, 0)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"topic": "a", "payload": "eA=="}', "lines of JSON has no Sessions"),
        (REAL.read_bytes()[:-3], "nothing was imported"),
    ],
)
def test_a_file_without_whole_sessions_changes_nothing(folder: Path, data: bytes, words: str) -> None:
    (folder / "file").write_bytes(data)
    result = CliRunner().invoke(main, ["retainer", "import", "file", "--sessions"])
    assert result.exit_code == 1
    assert words in result.stderr
    assert rows("SELECT (SELECT count(*) FROM retained) + (SELECT count(*) FROM sessions)") == [(0,)]


def test_a_database_that_fails_is_told_without_a_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: object, _source: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(SessionImport, "run", full)
    result = CliRunner().invoke(main, ["retainer", "import", lasting(folder), "--sessions"])
    assert result.exit_code == 1
    assert "database or disk is full" in result.stderr
    assert isinstance(result.exception, SystemExit)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.binary(min_size=1, max_size=8))
def test_a_damaged_file_gives_entries_or_reasons(tmp_path: Path, drawn: st.DataObject, torn: bytes) -> None:
    whole = REAL.read_bytes()
    place = drawn.draw(st.integers(0, len(whole) - 1))
    (tmp_path / "torn").write_bytes(whole[:place] + torn + whole[place + len(torn) :])
    try:
        with sessions_of_db(tmp_path / "torn") as source:
            for entry in source.entries():
                if number := getattr(entry, "number", None):
                    source.message(number)
    except UnreadableFile:
        return
