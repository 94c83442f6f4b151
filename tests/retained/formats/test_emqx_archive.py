"""The archive of ``emqx ctl data export`` gives its messages, or a reason; no archive costs more than it is worth."""

from __future__ import annotations

import gzip
import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.retained.formats import emqx_archive
from holdfast.retained.formats.erlang_terms import OPAQUE, Atom, BadTerm, term_in
from holdfast.retained.formats.file_entry import FileEntry, UnreadableFile
from tests.erlang import HEADER, archive, backup, disk_log, term

#: Made by OTP's own ``mnesia``, ``disk_log`` and ``erl_tar``, with the calls and records of EMQX 5.8.
REAL = Path(__file__).parent / "files" / "emqx-export-5.tar.gz"
TABLE = "mnesia/emqx_retainer_message"
STORED_AT = 1_763_719_200_123


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emqx") / "export.tar.gz"


def message(topic: bytes = b"a", payload: bytes = b"x", **changed: Any) -> tuple[Any, ...]:
    """Return the record ``#message{}``."""
    fields = {
        "id": b"\0", "qos": 1, "from": b"cli", "flags": {Atom("retain"): Atom("true")}, "headers": {},
        "topic": topic, "payload": payload, "timestamp": STORED_AT, "extra": {}, **changed,
    }  # fmt: skip
    return (Atom("message"), *fields.values())


def record(message: Any, expires_at: Any = 0) -> tuple[Any, ...]:
    return Atom(emqx_archive.RETAINED), [b"a"], message, expires_at


def found_in(path: Path, table: bytes) -> list[FileEntry]:
    """Read an archive with one table."""
    return list(emqx_archive.messages(archive(path, {"META.hocon": b"", TABLE: table})))


def test_an_archive_of_otp_has_its_retained_messages() -> None:
    """With time of publishing, expiry, publisher and properties; and one so large that its length has a digest."""
    found = {each.fields["topic"]: each.fields for each in emqx_archive.messages(REAL) if each.fields is not None}
    assert {topic: len(each["payload"]) for topic, each in found.items()} == {"a/b": 5, "grün//日本": 3, "big": 70_000}
    full = dict(found["a/b"])
    assert json.loads(full.pop("properties_json")) == {
        "payload_format_indicator": 1, "content_type": "text/plain", "response_topic": "answer/here",
        "correlation_data": "AP8=", "user_properties": [["k", "v"], ["k", "w"]],
    }  # fmt: skip
    assert full == {
        "topic": "a/b", "payload": b"hello", "qos": 1, "client_id": "cli", "username": "ada",
        "stored_at": STORED_AT, "expires_at": 4_102_444_800_000,
    }  # fmt: skip
    assert [found["big"][name] for name in ("client_id", "username", "expires_at", "properties_json")] == [None] * 4


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (b"", "it is no disk_log"),
        (b"\x01\x02\x03\x04\x63\x58\x4d\x0c", "it is no disk_log"),
        (disk_log((Atom("log_header"), Atom("trans_log"))), "its header is missing"),
        (disk_log(HEADER)[:-1], "item 0: the table ends here in the middle"),
        (disk_log(HEADER) + b"\0\0", "item 1: the table ends here in the middle"),
        (disk_log(HEADER) + b"\0\0\0\x01nope", "item 1: there is no item of a disk_log here"),
        (disk_log(HEADER) + struct.pack(">II", 2**31, 1_649_888_321), "item 1: there is no item of a disk_log here"),
        (
            disk_log(HEADER) + struct.pack(">II", 65_528, 1_649_888_321) + b"x" * 16,
            "the length of this item is damaged",
        ),
    ],
)
def test_a_damaged_table_is_refused_with_its_place(scratch: Path, table: bytes, words: str) -> None:
    with pytest.raises(UnreadableFile) as caught:
        found_in(scratch, table)
    assert str(caught.value).startswith(TABLE)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        ((Atom("other"), 1), "this is not a record of a retained message"),
        (record(b"x"), "this record has no message"),
        (record(message()[:8]), "this record has no message"),
        (record(message(topic=Atom("a"))), "topic and payload are not both binaries"),  # type: ignore[arg-type]
        (record(message(topic=b"\xff")), "not UTF-8"),
        (record(message(**{"from": b"\xff"})), "not UTF-8"),
        (
            record(message(headers={Atom("properties"): {Atom("Content-Type"): (b"x", 1)}})),
            "the properties of this message are not those of MQTT",
        ),
        ([[]] * 200_001, "the term has more than 200000 parts"),
    ],
)
def test_an_invalid_record_has_a_reason_and_the_others_are_read(scratch: Path, one: Any, words: str) -> None:
    bad, good = found_in(scratch, backup(emqx_archive.RETAINED, one, record(message())))
    assert bad.fields is None
    assert words in str(bad.problem)
    assert bad.place == f"{TABLE}, record 2"
    assert good.fields is not None
    assert good.fields["payload"] == b"x"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x1f\x8bnothing more", "this is not gzip, or it is damaged"),
        (gzip.compress(b"text" * 200, mtime=0), "this is not an archive of tar"),
        (gzip.compress(b"text", mtime=0), "the archive ends in the middle of a header"),
        (gzip.compress(b"", mtime=0), "this archive is not one of emqx ctl data export"),
    ],
)
def test_another_file_is_refused(scratch: Path, data: bytes, words: str) -> None:
    scratch.write_bytes(data)
    with pytest.raises(UnreadableFile) as caught:
        list(emqx_archive.messages(scratch))
    assert words in str(caught.value)


def test_an_archive_cut_anywhere_gives_no_message_that_was_not_there(scratch: Path) -> None:
    """Cut before it is compressed, and after."""
    whole = list(emqx_archive.messages(REAL))
    plain, packed = gzip.decompress(REAL.read_bytes()), REAL.read_bytes()
    cuts = [gzip.compress(plain[:length], 1) for length in range(0, len(plain), 997)]
    for data in (*cuts, *(packed[:length] for length in range(0, len(packed), 13))):
        scratch.write_bytes(data)
        with suppress(UnreadableFile):
            found = list(emqx_archive.messages(scratch))
            assert found == whole[: len(found)]


@given(st.data(), st.binary(min_size=1, max_size=8))
def test_a_damaged_table_gives_messages_or_reasons(scratch: Path, drawn: st.DataObject, torn: bytes) -> None:
    headers = {Atom("username"): b"u", Atom("properties"): {Atom("User-Property"): [(b"k", b"v")]}}
    table = backup(emqx_archive.RETAINED, record(message(headers=headers)), record(message(b"b")))
    place = drawn.draw(st.integers(0, len(table) - 1))
    with suppress(UnreadableFile):
        found = found_in(scratch, table[:place] + torn + table[place + len(torn) :])
        assert all((each.fields is None) is (each.problem is not None) for each in found)


ATOMS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(Atom)
TERMS = st.recursive(
    ATOMS | st.binary(max_size=8) | st.integers(-(2**200), 2**200) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(ATOMS | st.binary(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(TERMS)
def test_a_term_is_read_as_it_was_written(value: Any) -> None:
    assert term_in(term(value)) == value


@given(TERMS, st.data(), st.binary(min_size=1, max_size=8))
def test_a_damaged_term_is_another_term_or_has_a_reason(value: Any, drawn: st.DataObject, torn: bytes) -> None:
    whole = term(value)
    place = drawn.draw(st.integers(0, len(whole) - 1))
    with suppress(BadTerm):
        term_in(whole[:place] + torn + whole[place + len(torn) :])


@given(st.binary(max_size=40))
def test_any_bytes_are_a_term_or_have_a_reason(data: bytes) -> None:
    with suppress(BadTerm):
        term_in(b"\x83" + data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x83\x6b\x00\x03\x00\x01\x02", [0, 1, 2]),
        (b"\x83\x6c\x00\x00\x00\x01\x61\x01\x61\x02", [1, 2]),  # an improper list: its end is its last part
        (b"\x83\x64\x00\x02ok", "ok"),
        (b"\x83\x73\x02ok", "ok"),
        (b"\x83\x63" + b"1.5e+00".ljust(31, b"\0"), 1.5),
        (b"\x83\x58\x77\x01n" + b"\0" * 12, OPAQUE),
        (b"\x83\x5a\x00\x02\x77\x01n" + b"\0" * 12, OPAQUE),
        (b"\x83\x72\x00\x01\x77\x01n" + b"\0" * 5, OPAQUE),
        (b"\x83\x71\x77\x01m\x77\x01f\x61\x02", OPAQUE),
        (b"\x83\x70\x00\x00\x00\x06xx", OPAQUE),
        (b"\x83\x74\x00\x00\x00\x01\x6a\x61\x01", {}),  # a key that is a list
        (b"\x83\x4d\x00\x00\x00\x01\x04\xf0", b"\xf0"),
    ],
)
def test_rare_kinds_of_terms_are_read(data: bytes, expected: Any) -> None:
    assert term_in(data) == expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut short"),
        (b"x", "this is not a term"),
        (b"\x83", "cut short"),
        (b"\x83\x50\0\0\xff\xff", "compressed"),
        (b"\x83\x61\x01\x61", "something follows"),
        (b"\x83\xff", "there is no kind 255"),
        (b"\x83" + b"\x68\x01" * 100 + b"\x6a", "nested too deeply"),
        (b"\x83\x6c\xff\xff\xff\xff\x6a", "cut short"),
        (b"\x83\x6c\x00\x03\x0d\x41" + b"\x6a" * 200_002, "more than 200000 parts"),
        (b"\x83\x6f\x00\x00\x01\x00\x00" + b"\xff" * 256, "more than 2040 bits"),
        (b"\x83\x63" + b"soon".ljust(31, b"\0"), "a number is not one"),
        (b"\x83\x77\x01\xff", "an atom is not UTF-8"),
    ],
)
def test_an_invalid_term_has_a_reason(data: bytes, words: str) -> None:
    with pytest.raises(BadTerm) as caught:
        term_in(data)
    assert words in str(caught.value)
