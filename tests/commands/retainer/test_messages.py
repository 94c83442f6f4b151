"""``holdfast retainer`` without a running broker: the same calls, on the store itself."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from http.client import RemoteDisconnected
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
from click.testing import CliRunner, Result

from holdfast.commands import importing, main
from holdfast.storage.location import DirectoryLock
from tests.postgres import fresh_database
from tests.storage.doubles import fresh_file


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an empty store in its data directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    fresh_file(tmp_path / "data", "holdfast.db")
    return tmp_path


def run(*arguments: str, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["retainer", *arguments], input=given)


def ok(*arguments: str, given: bytes | None = None) -> bytes:
    """Run a command that succeeds; return its standard output."""
    result = run(*arguments, given=given)
    assert result.exit_code == 0, result.output
    return result.stdout_bytes


def refused(*arguments: str, given: bytes | None = None) -> str:
    """Run a command that fails; return the last line of its message, which is no traceback."""
    result = run(*arguments, given=given)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


def line(topic: str, payload: bytes = b"x", **fields: object) -> bytes:
    """Return a line of an import."""
    return json.dumps({"topic": topic, "payload": b64encode(payload).decode(), **fields}).encode() + b"\n"


def test_set_get_topics_clean() -> None:
    assert (
        ok("set", "a/b", "é", "--qos", "1", "--content-type", "t", "--user-property", "k=v=w", "--expiry", "60") == b""
    )
    assert ok("set", "c", "--file", "-", given=b"\0\xff\n") == b""
    assert ok("get", "c", "--payload") == b"\0\xff\n"
    record = json.loads(ok("get", "a/b"))
    assert record["properties"] == {"content_type": "t", "user_properties": [["k", "v=w"]]}
    assert record["expires_at"] - record["stored_at"] == pytest.approx(60_000, abs=1000)
    assert ok("topics") == b"a/b\nc\n"
    assert ok("topics", "+/b") == b"a/b\n"
    assert ok("info").splitlines()[0] == b"retained messages: 2"
    assert ok("clean", "a/#", "--dry-run") == b"1 would be cleared\n"
    assert ok("clean", "a/#") == b"1 cleared\n"
    assert ok("topics") == b"c\n"
    assert refused("get", "a/b") == "a/b: has no retained message"


def test_messages_are_cleaned_by_conditions() -> None:
    """All of them must hold. Expired messages are cleared without a word about subscribers."""
    lines = [
        {"topic": "a/old", "payload": "eA==", "client_id": "one", "stored_at": 1_600_000_000_000},
        {"topic": "a/new", "payload": "eA==", "client_id": "one"},
        {"topic": "b/old", "payload": "eA==", "client_id": "two", "stored_at": 1_600_000_000_000},
    ]
    ok("import", "-", given=b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert ok("clean", "#", "--older-than", "30d", "--publisher", "one", "--dry-run") == b"1 would be cleared\n"
    assert ok("clean", "#", "--older-than", "30d", "--publisher", "one") == b"1 cleared\n"
    assert ok("topics") == b"a/new\nb/old\n"
    ok("set", "c", "1", "--expiry", "0")
    result = run("clean", "#", "--expired")
    assert (result.stdout, result.stderr) == ("1 cleared\n", "")
    assert ok("topics") == b"a/new\nb/old\n"


def test_without_a_broker_a_command_says_that_no_subscriber_was_told() -> None:
    """Unless nothing changed, or the operator wanted to tell nobody."""
    assert "no subscriber was told" in run("set", "a", "1").stderr
    assert run("set", "b", "1", "--quiet").stderr == ""
    assert run("clean", "#", "--dry-run").stderr == ""
    assert "no subscriber was told" in run("clean", "a").stderr
    assert run("clean", "a").stderr == ""
    assert run("clean", "#", "--quiet").stderr == ""


def test_an_export_is_imported_unchanged(folder: Path) -> None:
    """Also after everything was cleared, with --merge. A second import changes nothing."""
    for number in range(3):
        ok("set", f"t/{number}", "--file", "-", "--user-property", "a=b", given=bytes(range(256)))
    ok("set", "$x", "y")
    exported = ok("export")
    assert ok("export", "e.ndjson") == b""
    assert (folder / "e.ndjson").read_bytes() == exported
    assert (folder / "e.ndjson").stat().st_mode & 0o777 == 0o600
    assert ok("export", "--topic", "t/1") == exported.splitlines(keepends=True)[2]
    ok("clean", "#")
    result = run("import", "e.ndjson")
    assert "0 imported, 1 unchanged, 0 kept, 3 cleared" in result.stderr
    assert "--merge replace" in result.stderr
    assert "3 imported, 1 unchanged" in run("import", "e.ndjson", "--merge", "replace").stderr
    assert "0 imported, 4 unchanged" in run("import", "-", given=exported).stderr

    def without_revision(lines: bytes) -> list[dict[str, object]]:
        return [{**json.loads(each), "revision": None} for each in lines.splitlines()]

    assert without_revision(ok("export")) == without_revision(exported)


def test_refused_lines_go_to_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their numbers in the whole file, in the order of lines. The other lines are imported."""
    monkeypatch.setattr(importing, "_LONGEST_LINE", 200)
    given = line("a") + b"{\xff\n" + line("b") + b"\n" + line("c" * 300) + line("d") + line("#") + line("e").rstrip()
    result = run("import", "-", "--rejects", "r.ndjson", given=given)
    assert result.exit_code == 3
    assert "3 lines refused; see r.ndjson" in result.stderr
    rejects = [json.loads(each) for each in (folder / "r.ndjson").read_text().splitlines()]
    assert [reject["line"] for reject in rejects] == [2, 5, 7]
    assert rejects[0]["text"] == "{\\xff"
    assert rejects[1]["message"] == "this line is too long"
    assert rejects[2]["text"].encode() + b"\n" == line("#")
    assert ok("topics") == b"a\nb\nd\ne\n"
    result = run("import", "-", "--json", given=line("#") * 2 + line("f"))
    assert "2 lines refused; --rejects FILE keeps them" in result.stderr
    told = json.loads(result.stdout)
    assert (result.exit_code, told["imported"], told["rejected"], len(told["reasons"])) == (3, 1, 2, 2)


@pytest.mark.parametrize("make", ["sqlite", "postgres"])
def test_a_message_over_a_limit_is_refused_with_its_line(folder: Path, make: str) -> None:
    """In the order of lines among all refused lines, on both databases. Nothing of the staging is left."""
    (folder / "h.toml").write_text("[retainer]\nmax_payload_size = '2B'\n")
    url = fresh_database() if make == "postgres" else f"sqlite:///{folder}/data/holdfast.db"
    place = ("--config", "h.toml", "--data-dir", "data", "--storage", url)
    given = line("z", b"123") + line("b") + b"{\n" + line("a", b"1234") + line("c")
    assert "2 imported" in (result := run("import", "-", "--rejects", "r.ndjson", *place, given=given)).stderr
    assert result.exit_code == 3
    rejects = [json.loads(each) for each in (folder / "r.ndjson").read_text().splitlines()]
    assert [(reject["line"], reject["code"]) for reject in rejects] == [
        (1, "EXCEED_LIMIT"), (3, "BAD_REQUEST"), (4, "EXCEED_LIMIT"),
    ]  # fmt: skip
    assert [reject["text"].encode() + b"\n" for reject in rejects[::2]] == [line("z", b"123"), line("a", b"1234")]
    assert "retainer.max_payload_size is 2" in rejects[0]["message"]
    assert ok("topics", *place) == b"b\nc\n"
    if make == "sqlite":
        assert list((folder / "data" / "staging").iterdir()) == []
        return
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        left = connection.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'holdfast_staging_%'")
        assert left.fetchone() == (0,)


def test_of_a_topic_in_several_lines_the_newest_line_is_imported() -> None:
    """Wherever it stands, and by any rule."""
    now = time.time_ns() // 1_000_000
    ages = {b"1": now - 2000, b"3": now, b"2": now - 1000}
    given = b"".join(line("t", payload, stored_at=age) for payload, age in ages.items())
    for merge in ("replace", "keep"):
        assert "1 imported, 0 unchanged, 0 kept" in run("import", "-", "--merge", merge, given=given).stderr
        assert ok("get", "t", "--payload") == b"3"
        ok("clean", "t")


def test_an_empty_file_imports_nothing() -> None:
    assert run("import", "-", given=b"").stderr == "0 imported, 0 unchanged, 0 kept, 0 cleared, 0 expired\n"


def test_each_mistake_is_reported_in_one_line(folder: Path) -> None:
    assert refused("set", "a", "") == "payload: is empty, and an empty payload is not retained"
    assert refused("export", "nowhere/x") == "nowhere/x.partial: No such file or directory"
    assert refused("import", "-", "--rejects", "nowhere/x", given=b"").startswith("nowhere/x: ")
    assert refused("import", "nowhere") == "nowhere: No such file or directory"
    assert refused("set", "a", "--file", ".") == ".: Is a directory"
    assert not list(folder.glob("*.partial"))
    (folder / "bad.toml").write_text("retainer.enabel = true")
    assert "bad.toml:1" in refused("info", "--config", "bad.toml")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", "a/+", "x"), "wildcard"),
        (("get", "a/+"), "wildcard"),
        (("get", "a\udc80"), "not UTF-8"),
        (("clean", "a#"), "stands alone"),
        (("clean", ""), "at least one character"),
        (("topics", "a+"), "stands alone"),
        (("export", "--topic", "a+"), "stands alone"),
        (("topics", "--json", "-0"), "not both"),
        (("set", "a"), "Give a PAYLOAD"),
        (("set", "a", "b", "--user-property", "x"), "NAME=VALUE"),
        (("import", "-", "--merge", "both"), "'both'"),
    ],
)
def test_a_wrong_command_line_has_status_2(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr.splitlines()[-1]


#: A topic that would clear the screen, add a line to a list and turn the direction of the line.
EVIL = "a\x1b[2J\nb\x9b\u202e"
ESCAPED = "a\\x1b[2J\\nb\\x9b\\u202e"


def test_topics_are_escaped_but_with_json_or_null(folder: Path) -> None:
    """To a terminal and to a file alike: a topic with a line feed adds no line to a list."""
    (folder / "h.toml").write_text('[mqtt]\ncontrol_characters = "accept"\n')
    ok("set", EVIL, "x", "--config", "h.toml")
    ok("set", "b", "y")
    assert ok("topics").decode() == f"{ESCAPED}\nb\n"
    assert ok("topics", "-0") == f"{EVIL}\0b\0".encode()
    first, second = ok("topics", "--json").decode().splitlines()
    assert first.isprintable()
    assert (json.loads(first)["topic"], json.loads(second)["topic"]) == (EVIL, "b")
    assert refused("get", f"{EVIL}/c") == f"{ESCAPED}/c: has no retained message"


def test_the_broker_s_limits_hold(folder: Path) -> None:
    (folder / "h.toml").write_text("[retainer]\nmax_payload_size = '2B'\n")
    assert "retainer.max_payload_size is 2" in refused("set", "a", "123", "--config", "h.toml", "--data-dir", "data")


def test_neither_a_broker_nor_a_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line gives the remedy; no file is made."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    assert "there is no such file" in refused("info", "--data-dir", "other")
    assert not (folder / "other").exists()
    lock = DirectoryLock(folder / "data")
    lock.acquire()
    message = refused("info")
    assert "is in use by process" in message
    assert "no broker answers at" in message
    assert sum(pauses) == pytest.approx(4.9)
    lock.release()
    ok("info")


def test_a_process_that_is_about_to_end_is_awaited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command waits for a broker that stops, and for the last process of a killed job."""
    lock = DirectoryLock(folder / "data")
    lock.acquire()
    monkeypatch.setattr("time.sleep", lambda _seconds: lock.release())
    ok("info")


class _Ending:
    """The connection to a broker that accepts it and then stops."""

    def __init__(self, *_: object) -> None:
        self.taken = 0

    def connect(self) -> None:
        if self.taken:
            raise ConnectionRefusedError
        self.taken += 1

    def request(self, *_: object) -> None:
        """Send a request that nobody reads."""

    def getresponse(self) -> NoReturn:
        raise RemoteDisconnected("Remote end closed connection without response")

    def close(self) -> None:
        """Do nothing."""


def test_a_broker_that_stops_during_a_call_is_awaited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts the connection, and closes it without an answer."""
    lock = DirectoryLock(folder / "data")
    lock.acquire()
    monkeypatch.setattr("time.sleep", lambda _seconds: lock.release())
    monkeypatch.setattr("holdfast.commands.access.SocketConnection", _Ending)
    ok("info")


def test_a_file_that_is_no_database_is_refused(folder: Path) -> None:
    (folder / "text").write_text("x" * 100)
    assert "not an SQLite database" in refused("info", "--storage", f"sqlite:///{folder}/text")


def test_the_commands_work_on_postgres() -> None:
    url = fresh_database()
    given = b"".join(line(f"t/{number}", bytes([number])) for number in range(200))
    assert "200 imported" in run("import", "-", "--storage", url, given=given).stderr
    assert "200 unchanged" in run("import", "-", "--storage", url, given=ok("export", "--storage", url)).stderr
    assert ok("clean", "t/+", "--storage", url) == b"200 cleared\n"
    assert ok("topics", "--storage", url) == b""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        (tombstones,) = connection.execute("SELECT sum(tombstone) FROM retained").fetchone() or (0,)
    assert tombstones == 200


def test_info_lists_damaged_databases_until_they_are_moved_away(folder: Path) -> None:
    """They are beside the database, whose own files are not listed."""
    assert b"quarantine" not in ok("info")
    aside = folder / "data" / "holdfast.db.corrupt-20260102T030405"
    for name in (aside.name, f"{aside.name}-wal"):
        (folder / "data" / name).touch()
    told = ok("info").decode().splitlines()
    assert told[-1] == f"a damaged database is in quarantine beside it: {aside.name}"
    assert sum("quarantine" in line for line in told) == 1
    aside.rename(folder / "elsewhere")
    assert b"quarantine" not in ok("info")


def test_a_marked_database_is_refused(folder: Path) -> None:
    """The message gives the remedy."""
    (folder / "data" / "holdfast.db.damaged").write_text("malformed\n")
    assert "was found damaged while the broker ran (malformed); run: holdfast db check" in refused("info")
