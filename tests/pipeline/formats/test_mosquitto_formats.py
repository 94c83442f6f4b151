"""Two more formats of mosquitto 2.1: the dump in JSON, and the database of the persist-sqlite plugin."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.retained.formats import json_elements, mosquitto_db, mosquitto_dump, mosquitto_sqlite
from holdfast.retained.formats.file_entry import FileEntry, UnreadableFile
from holdfast_pipeline.sink import UnfitMessage, row_of_fields
from holdfast_pipeline.sources.files import files_of
from tests.pipeline.stores import NOW

#: Properties as mosquitto_properties_to_json makes them.
PROPERTIES = [
    {"identifier": "content-type", "value": "text/plain"},
    {"identifier": "correlation-data", "value": "00FF"},
    {"identifier": "payload-format-indicator", "value": 1},
    {"identifier": "response-topic", "value": "answer/here"},
    {"identifier": "user-property", "name": "k", "value": "v"},
    {"identifier": "user-property", "name": "k", "value": "w"},
]
KEPT = {
    "content_type": "text/plain", "correlation_data": "AP8=", "payload_format_indicator": 1,
    "response_topic": "answer/here", "user_properties": [["k", "v"], ["k", "w"]],
}  # fmt: skip
#: As cJSON_Print lays it out: arrays on one line with their brackets, tabs, and characters above U+007F as they are.
DUMP = """\
{
\t"base-messages":\t[{
\t\t\t"storeid":\t273732462748327,
\t\t\t"expiry-time":\t0,
\t\t\t"source-mid":\t1,
\t\t\t"source-port":\t1883,
\t\t\t"qos":\t1,
\t\t\t"retain":\t0,
\t\t\t"topic":\t"queued/only",
\t\t\t"clientid":\t"c",
\t\t\t"payload":\t"bWVzc2FnZQ=="
\t\t}, {
\t\t\t"storeid":\t273732472648936,
\t\t\t"expiry-time":\t1769799786,
\t\t\t"source-mid":\t0,
\t\t\t"source-port":\t0,
\t\t\t"qos":\t2,
\t\t\t"retain":\t1,
\t\t\t"topic":\t"grün/\\"quoted\\"/𝄞",
\t\t\t"clientid":\t"clientid",
\t\t\t"username":\t"user",
\t\t\t"payload":\t"AP8=",
\t\t\t"properties":\tPROPERTIES
\t\t}, {
\t\t\t"storeid":\t3,
\t\t\t"expiry-time":\t0,
\t\t\t"source-mid":\t0,
\t\t\t"source-port":\t0,
\t\t\t"qos":\t0,
\t\t\t"retain":\t1,
\t\t\t"topic":\t"a/b",
\t\t\t"payload":\t"eA=="
\t\t}],
\t"clients":\t[{
\t\t\t"clientid":\t"clientid",
\t\t\t"session-expiry-time":\t1669799784,
\t\t\t"session-expiry-interval":\t60,
\t\t\t"last-mid":\t1,
\t\t\t"listener-port":\t0
\t\t}],
\t"client-messages":\t[],
\t"retained-messages":\t[{
\t\t\t"storeid":\t273732472648936
\t\t}, {
\t\t\t"storeid":\t3
\t\t}],
\t"subscriptions":\t[]
}
""".replace("PROPERTIES", json.dumps(PROPERTIES)).encode()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mosquitto") / "file"


def dumped(path: Path, data: bytes) -> list[FileEntry]:
    """Read bytes as a dump."""
    path.write_bytes(data)
    return list(mosquitto_dump.messages(path))


def one_dumped(path: Path, message: Any, retained: Any) -> FileEntry:
    """Read a dump of one message."""
    data = json.dumps({"base-messages": [message], "retained-messages": [retained]}).encode()
    (found,) = dumped(path, data)
    return found


def check_both(found: Iterable[FileEntry]) -> None:
    """Check the two messages that both kinds of files have in these tests."""
    given = {each.fields["topic"]: each.fields for each in found if each.fields is not None}
    full, plain = given['grün/"quoted"/𝄞'], given["a/b"]
    row = row_of_fields(full, NOW)
    assert (row.payload, row.qos, row.client_id, row.username) == (b"\x00\xff", 2, "clientid", "user")
    assert row.expires_at == 1_769_799_786_000
    assert json.loads(row.properties_json or "") == KEPT
    row = row_of_fields(plain, NOW)
    assert (row.payload, row.qos, row.client_id, row.expires_at, row.stored_at) == (b"x", 0, None, None, NOW)
    assert row.properties_json is None


def test_a_dump_has_its_retained_messages(scratch: Path) -> None:
    """With properties, publisher and expiry. A queued message is not retained."""
    found = dumped(scratch, DUMP)
    assert [each.place for each in found] == ["base-messages 2", "base-messages 3"]
    check_both(found)


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_a_dump_is_read_in_pieces(scratch: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    whole = dumped(scratch, DUMP)
    monkeypatch.setattr(json_elements, "_PIECE", piece)
    assert dumped(scratch, DUMP) == whole


def test_a_dump_cut_anywhere_is_refused(scratch: Path) -> None:
    """It gives no message before."""
    for length in range(len(DUMP.rstrip())):
        with pytest.raises(UnreadableFile):
            dumped(scratch, DUMP[:length])


@given(st.integers(0, len(DUMP) - 1), st.binary(min_size=1, max_size=8))
def test_a_damaged_dump_gives_messages_or_reasons(scratch: Path, place: int, torn: bytes) -> None:
    """The file is refused, or an entry has a problem, or the sink accepts or rejects the message."""
    try:
        found = dumped(scratch, DUMP[:place] + torn + DUMP[place + len(torn) :])
    except UnreadableFile:
        return
    assert all((each.fields is None) is (each.problem is not None) for each in found)
    for each in found:
        if each.fields is not None:
            with suppress(UnfitMessage):
                row_of_fields(each.fields, NOW)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "this is not a JSON object"),
        (b"[]", "this is not a JSON object"),
        (b"{}", 'there is no list "base-messages"'),
        (b'{"base-messages": []}', 'there is no list "retained-messages"'),
        (b'{"base-messages": {}, "retained-messages": []}', 'there is no list "base-messages"'),
        (b'{"base-messages": [],}', "nothing follows the comma"),
        (b'{"base-messages": [1 2]}', "a comma is missing"),
        (b'{"base-messages" []}', "a colon"),
        (b"{} {}", "something follows"),
        (b'{"base-messages": [' + b"[" * 100_000, "nested too deeply"),
        (b'{"base-messages": [{"storeid": nonsense, "and": "much that follows it"}]}', "character 31: this is not"),
    ],
)
def test_another_json_file_is_refused_with_place_and_reason(scratch: Path, data: bytes, words: str) -> None:
    with pytest.raises(UnreadableFile) as caught:
        dumped(scratch, data)
    assert words in str(caught.value)


GOOD = {"storeid": 1, "topic": "a", "payload": "eA==", "qos": 0, "expiry-time": 0}


@pytest.mark.parametrize(
    ("message", "retained", "words"),
    [
        (GOOD, {"storeid": 2}, "the message that is retained here is not in the file"),
        (GOOD, {"storeid": "1"}, "storeid: is missing, or not a whole number"),
        (GOOD, 5, "storeid: is missing, or not a whole number"),
        ({**GOOD, "payload": "&"}, {"storeid": 1}, "payload: is not base64"),
        ({**GOOD, "payload": 5}, {"storeid": 1}, "payload: is not base64"),
        ({**GOOD, "expiry-time": "soon"}, {"storeid": 1}, "expiry-time: is not a whole number"),
        ({**GOOD, "properties": {}}, {"storeid": 1}, "properties: is not a list"),
        ({**GOOD, "properties": [5]}, {"storeid": 1}, "properties: 'None' is not a property"),
        ({**GOOD, "properties": [{"identifier": "x"}]}, {"storeid": 1}, "properties: 'x' is not a property"),
        (
            {**GOOD, "properties": [{"identifier": "correlation-data", "value": "0G"}]}, {"storeid": 1},
            "correlation-data is not in hexadecimal digits",
        ),
    ],
)  # fmt: skip
def test_an_invalid_message_of_a_dump_has_a_reason(scratch: Path, message: Any, retained: Any, words: str) -> None:
    """The other messages are read."""
    assert words in str(one_dumped(scratch, message, retained).problem)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"payload": ""}, "payload"),
        ({"topic": None}, "topic"),
        ({"qos": 3}, "qos"),
        ({"properties": [{"identifier": "content-type", "value": 5}]}, "properties"),
        ({"properties": [{"identifier": "user-property", "name": "k"}]}, "properties"),
    ],
)
def test_messages_of_a_dump_follow_the_rules_of_the_sink(scratch: Path, fields: dict[str, Any], kind: str) -> None:
    found = one_dumped(scratch, {**GOOD, **fields}, {"storeid": 1})
    assert found.fields is not None
    with pytest.raises(UnfitMessage) as caught:
        row_of_fields(found.fields, NOW)
    assert caught.value.kind == kind


#: As the plugin creates them, as far as it matters here.
SCHEMA = """
CREATE TABLE IF NOT EXISTS base_msgs (store_id INT64 PRIMARY KEY,expiry_time INT64,topic STRING NOT NULL,payload BLOB,
source_id STRING,source_username STRING,payloadlen INTEGER,source_mid INTEGER,source_port INTEGER,qos INTEGER,
retain INTEGER,properties STRING);
CREATE TABLE IF NOT EXISTS retains (topic STRING PRIMARY KEY,store_id INT64);
CREATE TABLE IF NOT EXISTS version_info (component TEXT NOT NULL,major INTEGER NOT NULL,minor INTEGER NOT NULL,
patch INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS retains_storeid ON retains(store_id);
INSERT INTO version_info(component,major,minor,patch) VALUES ('database_schema','1','1','0');
"""
ADD = "INSERT INTO base_msgs VALUES(?,?,?,?,?,?,?,?,?,?,?,?)"
RETAIN = "INSERT OR REPLACE INTO retains (topic, store_id)VALUES(?,?)"
ROWS = [
    (1, 0, "queued/only", b"message", "c", None, 7, 1, 1883, 1, 0, None),
    (
        273732472648936, 1769799786, 'grün/"quoted"/𝄞', b"\x00\xff", "clientid", "user", 2, 0, 0, 2, 1,
        json.dumps(PROPERTIES, separators=(",", ":")),
    ),
    (3, 0, "a/b", b"x", "", None, 1, 0, 0, 0, 1, None),
    (4, 0, "12", b"y", "34", "56", 1, 0, 0, 0, 1, None),
]  # fmt: skip


def written(path: Path, *more: tuple[Any, ...]) -> sqlite3.Connection:
    """Write a database like the plugin. While the connection is open, mosquitto has it open."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")
    connection.executescript(SCHEMA)
    for row in (*ROWS, *more):
        connection.execute(ADD, row)
        if row[10]:
            connection.execute(RETAIN, (row[2], row[0]))
    return connection


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A database that mosquitto has closed."""
    path = tmp_path / "mosquitto.sqlite3"
    written(path).close()
    return path


def test_a_database_of_the_plugin_has_its_retained_messages(plugin: Path) -> None:
    """Also with topics that SQLite stored as numbers. No file is left beside the database."""
    found = list(mosquitto_sqlite.messages(plugin))
    check_both(found)
    number = next(each.fields for each in found if each.fields is not None and each.fields["payload"] == b"y")
    assert (number["topic"], number["client_id"], number["username"]) == ("12", "34", "56")
    assert len(found) == 3
    assert list(plugin.parent.iterdir()) == [plugin]


def test_messages_in_the_write_ahead_log_are_found(tmp_path: Path) -> None:
    """As when mosquitto runs, or was killed. The files of the log are not imported by themselves."""
    path = tmp_path / "mosquitto.sqlite3"
    with closing(written(path)):
        check_both(mosquitto_sqlite.messages(path))
        assert path.with_name("mosquitto.sqlite3-wal").stat().st_size > 0
        assert files_of(str(tmp_path)) == [str(path)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((9, "soon", "t", b"x", None, None, 1, 0, 0, 0, 1, None), "expiry_time: is not a whole number"),
        ((9, 0, "t", b"x", None, None, 1, 0, 0, 0, 1, "["), "properties: is not JSON"),
        ((9, 0, "t", b"x", None, None, 1, 0, 0, 0, 1, "{}"), "properties: is not a list"),
    ],
)
def test_an_invalid_row_of_the_plugin_has_a_reason(tmp_path: Path, row: tuple[Any, ...], words: str) -> None:
    """The other rows are read."""
    path = tmp_path / "mosquitto.sqlite3"
    written(path, row).close()
    found = {each.place: each for each in mosquitto_sqlite.messages(path)}
    assert words in str(found.pop("store_id 9").problem)
    check_both(found.values())


def test_a_missing_message_is_reported_by_its_id(plugin: Path) -> None:
    with closing(sqlite3.connect(plugin, isolation_level=None)) as connection:
        connection.execute(RETAIN, ("gone", 77))
    found = {each.place: each.problem for each in mosquitto_sqlite.messages(plugin)}
    assert found["store_id 77"] == "the message that is retained here is not in the file"


def test_text_that_is_not_utf_8_affects_only_its_row(plugin: Path) -> None:
    """The sink rejects it."""
    with closing(sqlite3.connect(plugin, isolation_level=None)) as connection:
        connection.execute("UPDATE retains SET topic = CAST(x'ff' AS TEXT) WHERE store_id = 4")
    found = list(mosquitto_sqlite.messages(plugin))
    check_both(found)
    assert [each.fields["topic"] for each in found if each.fields and each.fields["payload"] == b"y"] == ["\udcff"]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DROP TABLE retains", "there is no table retains"),
        ("UPDATE version_info SET major = 2", "this is version 2 of the plugin's schema; 1 can be read"),
        ("ALTER TABLE base_msgs DROP COLUMN qos", "this database cannot be read (no such column: qos)"),
    ],
)
def test_another_database_is_refused_with_the_missing_part(plugin: Path, statement: str, words: str) -> None:
    with closing(sqlite3.connect(plugin, isolation_level=None)) as connection:
        connection.execute(statement)
    with pytest.raises(UnreadableFile) as caught:
        list(mosquitto_sqlite.messages(plugin))
    assert words in str(caught.value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a database that mosquitto has closed."""
    path = tmp_path_factory.mktemp("whole") / "mosquitto.sqlite3"
    written(path).close()
    return path.read_bytes()


@given(st.integers(16, 8 * 4096), st.binary(min_size=1, max_size=64))
def test_a_damaged_database_gives_messages_or_reasons(scratch: Path, whole: bytes, place: int, torn: bytes) -> None:
    scratch.write_bytes(whole[:place] + torn + whole[place + len(torn) :])
    try:
        found = list(mosquitto_sqlite.messages(scratch))
    except UnreadableFile:
        return
    assert all((each.fields is None) is (each.problem is not None) for each in found)


@pytest.mark.parametrize(("kind", "read"), [
    ("mosquitto-sqlite", mosquitto_sqlite.messages), ("mosquitto-dump", mosquitto_dump.messages),
    ("mosquitto", mosquitto_db.messages),
])  # fmt: skip
def test_each_format_refuses_the_files_of_the_others(scratch: Path, plugin: Path, kind: str, read: Any) -> None:
    """With one line that names the expected kind of file."""
    scratch.write_bytes(DUMP)
    real = Path(__file__).parents[1] / "files" / "mosquitto-2.0.11.db"
    own = {"mosquitto-sqlite": plugin, "mosquitto-dump": scratch, "mosquitto": real}
    for other, path in own.items():
        if other != kind:
            with pytest.raises(UnreadableFile, match="this is not"):
                list(read(path))
