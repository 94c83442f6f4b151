"""Files of other programs give their messages, or a reason, also if they are cut or damaged."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.retained.formats import emqx, mosquitto_db, mosquitto_dump, ndjson
from holdfast.retained.formats.file_entry import FileEntry, UnreadableFile
from holdfast.retained.records import line_of
from holdfast_pipeline.sink import UnfitMessage, row_of_fields
from holdfast_pipeline.sources.files import FilesReader
from tests.pipeline.stores import NOW, message
from tests.retained.formats import test_emqx_archive

#: Written by mosquitto 2.0.11: a message with properties, one with none, one in binary, and one that was cleared.
REAL = (Path(__file__).parents[1] / "files" / "mosquitto-2.0.11.db").read_bytes()


def found_in(path: Path, data: bytes) -> list[FileEntry]:
    """Read bytes as a mosquitto.db."""
    path.write_bytes(data)
    return list(mosquitto_db.messages(path))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("formats") / "file"


def test_a_file_of_mosquitto_has_its_retained_messages(scratch: Path) -> None:
    """With payload, QoS, properties, publisher and expiry. Cleared topics are missing."""
    found = {each.fields["topic"]: each.fields for each in found_in(scratch, REAL) if each.fields is not None}
    assert {topic: each["payload"] for topic, each in found.items()} == {
        "a/b": b"hello", "grün/日本": b"plain x", "bin": b"\x00\xff\xfe",
    }  # fmt: skip
    full = found["a/b"]
    assert (full["qos"], full["client_id"], full["username"]) == (1, "cli", None)
    assert json.loads(full["properties_json"]) == {"content_type": "text/plain", "user_properties": [["k", "v"]]}
    assert full["expires_at"] == 4_102_444_800_000
    assert found["bin"]["properties_json"] is None


@pytest.mark.parametrize("length", range(len(REAL)))
def test_a_file_cut_anywhere_is_refused_or_ends_between_chunks(scratch: Path, length: int) -> None:
    """It raises only UnreadableFile, and never gives a message that was not there."""
    whole = found_in(scratch, REAL)
    try:
        found = found_in(scratch, REAL[:length])
    except UnreadableFile:
        return
    assert found == whole[: len(found)]


@given(st.integers(0, len(REAL) - 1), st.binary(min_size=1, max_size=8))
def test_a_damaged_file_gives_messages_or_reasons(scratch: Path, place: int, torn: bytes) -> None:
    try:
        found = found_in(scratch, REAL[:place] + torn + REAL[place + len(torn) :])
    except UnreadableFile:
        return
    assert all((each.fields is None) is (each.problem is not None) for each in found)


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0" * 4, REAL[:19] + b"\0\0\0\x01" + REAL[23:]])
def test_another_file_is_refused(scratch: Path, data: bytes) -> None:
    """Also an unknown version of the format."""
    with pytest.raises(UnreadableFile, match=r"not a mosquitto\.db|version 1"):
        found_in(scratch, data)


def old_file(version: int, order: str, number: int = 7) -> bytes:
    """Return a file as mosquitto before 1.6 wrote it, on a machine with this byte order."""

    def chunk(kind: int, body: bytes) -> bytes:
        return struct.pack(">HI", kind, len(body)) + body

    def string(text: str) -> bytes:
        return struct.pack(">H", len(text.encode())) + text.encode()

    identifier = struct.pack(f"{order}q", number)
    publisher = string("cli") + (string("user") + struct.pack(">H", 1883) if version == 4 else b"")
    message = (
        identifier
        + publisher
        + struct.pack(">HH", 1, 0)
        + string("grün/b")
        + struct.pack(">BBI", 1, 1, 3)
        + b"\0\xff\xfe"
    )
    return b"".join(
        [
            mosquitto_db.MAGIC, struct.pack(">II", 0, version), chunk(1, b"\0\x08" + identifier), chunk(2, message),
            chunk(6, string("cli") + struct.pack(">H", 3)), chunk(4, identifier),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_old_versions_are_read_in_both_byte_orders(scratch: Path, version: int, order: str) -> None:
    (found,) = found_in(scratch, old_file(version, order))
    assert found.fields == {
        "topic": "grün/b", "payload": b"\0\xff\xfe", "qos": 1, "client_id": "cli",
        "username": "user" if version == 4 else None, "expires_at": None, "properties_json": None,
    }  # fmt: skip


@pytest.mark.parametrize("version", [2, 4])
def test_an_old_file_cut_anywhere_is_refused_or_ends_between_chunks(scratch: Path, version: int) -> None:
    data = old_file(version, "<")
    for length in range(len(data)):
        with suppress(UnreadableFile):
            assert found_in(scratch, data[:length]) == []


@given(st.sampled_from([2, 3, 4]), st.data(), st.binary(min_size=1, max_size=8))
def test_a_damaged_old_file_gives_messages_or_reasons(
    scratch: Path, version: int, drawn: st.DataObject, torn: bytes
) -> None:
    whole = old_file(version, "<")
    place = drawn.draw(st.integers(0, len(whole) - 1))
    with suppress(UnreadableFile):
        found = found_in(scratch, whole[:place] + torn + whole[place + len(torn) :])
        assert all((each.fields is None) is (each.problem is not None) for each in found)


def test_a_file_of_a_big_endian_machine_is_read(scratch: Path) -> None:
    """Version 6, as on a router with MIPS: ids and times are the other way round."""
    turned = bytearray(REAL)
    at = 23
    while at < len(turned):
        kind, length = struct.unpack_from(">II", turned, at)
        at += 8
        for start in {1: (0,), 2: (0, 8), 4: (0,)}.get(kind, ()):
            turned[at + start : at + start + 8] = turned[at + start : at + start + 8][::-1]
        at += length
    assert [each.fields for each in found_in(scratch, bytes(turned))] == [
        each.fields for each in found_in(scratch, REAL)
    ]


def test_a_file_with_ids_of_another_size_is_refused(scratch: Path) -> None:
    data = REAL.replace(b"\x01\x08\0\0\0\0\0\0", b"\x01\x04\0\0\0\0\0\0", 1)
    with pytest.raises(UnreadableFile, match="ids have 4 bytes; only those of 8 can be read"):
        found_in(scratch, data)


def lines(path: Path, data: bytes, *cuts: int) -> list[FileEntry]:
    """Read lines in ranges that begin at these bytes."""
    path.write_bytes(data)
    ends = [*cuts[1:], None]
    return [each for start, end in zip(cuts, ends, strict=True) for each in ndjson.messages(path, start, end)]


def test_lines_of_an_export_are_the_messages(scratch: Path) -> None:
    """With all fields that are not derived."""
    full = message("a/b", b"\x00\xff", qos=2, client_id="c", username="u", expires_at=2**41, revision=7)
    (found,) = lines(scratch, line_of(full), 0)
    assert found.fields is not None
    row = row_of_fields(found.fields, NOW)
    assert (row.topic, row.payload, row.qos, row.client_id, row.username, row.stored_at, row.expires_at) == (
        "a/b", b"\x00\xff", 2, "c", "u", NOW, 2**41,
    )  # fmt: skip
    assert row.revision == 7


def test_an_invalid_line_keeps_its_topic_for_the_rejects(scratch: Path) -> None:
    data = b'{"topic": "a/b", "payload": "eA==", "qos": 7}\n{"topic": 1}\n[]\n'
    found = lines(scratch, data, 0)
    assert [each.fields for each in found] == [{"topic": "a/b"}, None, None]
    assert all(each.problem for each in found)


@given(st.lists(st.sampled_from([b"{}", b"", b"x", line_of(message("t")).strip()]), max_size=6), st.integers(1, 300))
def test_ranges_of_bytes_give_each_line_once(scratch: Path, parts: list[bytes], cut: int) -> None:
    data = b"\n".join(parts)
    assert lines(scratch, data, 0, cut) == lines(scratch, data, 0)


def test_lines_of_mosquitto_sub_are_messages(scratch: Path) -> None:
    """In the form of version 2.0.11."""
    line = (
        b'{"tst":"2026-11-21T12:30:17.537720Z+0000","topic":"a/b","qos":1,"retain":1,"payloadlen":5,"properties":'
        b'{"content-type":"text/plain","user-properties":{"k":"v"},"message-expiry-interval":10},"payload":"hello"}'
    )
    (found,) = lines(scratch, line, 0)
    assert found.fields is not None
    assert found.fields["stored_at"] == 1_795_264_217_538
    assert found.fields["expires_at"] == found.fields["stored_at"] + 10_000
    assert json.loads(found.fields["properties_json"]) == {
        "content_type": "text/plain",
        "user_properties": [["k", "v"]],
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"no", "this is not JSON"),
        (b'"text"', "not a JSON object"),
        (b'{"topic": "a"}', "payload: is missing"),
        (b'{"topic": "a", "payload": "&"}', "payload: is not base64"),
        (b'{"topic": "bin", "payloadlen": 3, "payload": ""}', "import binary payloads from mosquitto.db"),
        (b'{"topic": "a", "payloadlen": 1, "payload": "x", "tst": 5}', "tst: is not a time"),
        (b'{"topic": "a", "payloadlen": 1, "payload": "x", "properties": 5}', "properties: is not a JSON object"),
        (b"[" * 100_000, "this is not JSON"),
    ],
)
def test_an_invalid_line_has_place_and_reason(scratch: Path, line: bytes, words: str) -> None:
    (found,) = lines(scratch, b"\n" + line, 0)
    assert found.place == "byte 1"
    assert words in str(found.problem)


def test_answers_of_emqx_are_messages(scratch: Path) -> None:
    """One message a line, or a page with payloads."""
    told = {
        "topic": "a", "payload": "AP8=", "qos": 1, "publish_at": "2026-11-21T12:30:17.537Z", "msgid": "00",
        "from_clientid": "c", "from_username": "undefined",
    }  # fmt: skip
    scratch.write_text(json.dumps(told) + "\n" + json.dumps({"data": [told, {**told, "topic": "b"}], "meta": {}}))
    found = [each.fields or {} for each in emqx.messages(scratch)]
    assert [each["topic"] for each in found] == ["a", "a", "b"]
    row = row_of_fields(found[0], 1_795_264_217_537)
    assert (row.payload, row.qos, row.client_id, row.username, row.stored_at) == (
        b"\x00\xff", 1, "c", None, 1_795_264_217_537,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("no", "this is not JSON"),
        ("5", "this is not a message"),
        ('{"data": [{"topic": "a"}]}', "payload: is missing, as in lists"),
        ('{"topic": "a", "payload": "&"}', "payload: is not base64"),
        ('{"topic": "a", "payload": "eA==", "publish_at": "soon"}', "publish_at: is not a time"),
        ('{"topic": "a", "payload": "eA==", "publish_at": 5}', "publish_at: is not a time"),
    ],
)
def test_an_invalid_answer_of_emqx_has_a_reason(scratch: Path, line: str, words: str) -> None:
    """Such as a list without payloads."""
    scratch.write_text(line)
    (found,) = emqx.messages(scratch)
    assert words in str(found.problem)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"topic": None}, "topic"),
        ({"topic": ""}, "topic"),
        ({"topic": "a/+"}, "topic"),
        ({"topic": "a\0b"}, "topic"),
        ({"topic": "a" * 65_536}, "topic"),
        ({"topic": "\ud800"}, "topic"),
        ({"topic": "$SYS/a"}, "topic"),
        ({"payload": None}, "payload"),
        ({"payload": b""}, "payload"),
        ({"qos": 3}, "qos"),
        ({"qos": True}, "qos"),
        ({"stored_at": -1}, "date"),
        ({"stored_at": NOW + 2 * 86_400_000}, "date"),
        ({"expires_at": 2**62}, "date"),
        ({"client_id": "a\0"}, "client_id"),
        ({"username": 5}, "username"),
        ({"properties_json": "{"}, "properties"),
        ({"properties_json": '{"no": 1}'}, "properties"),
        ({"properties_json": '{"response_topic": "a/#"}'}, "properties"),
    ],
)
def test_an_invalid_field_is_rejected_with_the_kind_of_reason(fields: dict[str, Any], kind: str) -> None:
    """One field at a time."""
    with pytest.raises(UnfitMessage) as caught:
        row_of_fields({"topic": "a", "payload": b"x", **fields}, NOW)
    assert caught.value.kind == kind


def test_defaults_are_those_of_a_message_published_now() -> None:
    """Only topic and payload must be there."""
    row = row_of_fields({"topic": "a", "payload": b"x"}, NOW)
    assert (row.qos, row.stored_at, row.expires_at, row.client_id, row.username) == (0, NOW, None, None, None)
    given = row_of_fields({"topic": "a", "payload": b"x", "properties_json": '{"content_type": "t"}'}, NOW)
    assert given.properties_json == '{"content_type":"t"}'


_DUMP = (
    '{"base-messages": [{"storeid": 1, "topic": "a", "payload": "eA==", "expiry-time": %s}], "retained-messages": [%s]}'
)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "ndjson",
            '{"topic": "a", "payload": "x", "payloadlen": 1, "tst": "2026-01-01T00:00:00Z", '
            f'"properties": {{"message-expiry-interval": {"9" * 4299}}}}}',
        ),
        ("mosquitto-dump", _DUMP % ("9" * 4299, '{"storeid": 1}')),
    ],
)
def test_a_number_of_thousands_of_digits_is_a_problem_of_its_row(scratch: Path, kind: str, text: str) -> None:
    """Python reads such a number, and then refuses to write it, even in a message."""
    scratch.write_text(text)
    reader = FilesReader(kind, [str(scratch)])
    [row] = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert row["problem"] == "expires_at: a number of thousands of digits is not a value of this field"


def test_a_number_that_python_does_not_read_makes_a_dump_unreadable(scratch: Path) -> None:
    scratch.write_text(_DUMP % ("9" * 5000, '{"storeid": 1}'))
    with pytest.raises(UnreadableFile, match=r"character 19: this is not JSON: a number has too many digits"):
        list(mosquitto_dump.messages(scratch))


def test_an_archive_of_emqx_is_a_source_of_the_pipeline() -> None:
    """With the place of each message, for the rejects."""
    reader = FilesReader("emqx-archive", [str(test_emqx_archive.REAL)])
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(row["topic"] for row in rows) == ["a/b", "big", "grün//日本"]
    assert rows[0]["source"].endswith("emqx-export-5.tar.gz, mnesia/emqx_retainer_message, record 2")
