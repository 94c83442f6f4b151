"""``holdfast retainer import`` recognises the files of other brokers, and imports them without Spark."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import main
from tests.erlang import archive, backup
from tests.retained.formats import test_emqx_archive as emqx_archives
from tests.storage.doubles import fresh_file

PIPELINE_FILES = Path(__file__).parents[2] / "pipeline" / "files"
SUBSCRIBED = (
    '{"tst":"2026-11-21T12:30:17.537720Z+0000","topic":"sub","qos":1,"retain":1,"payloadlen":5,"payload":"hello"}\n'
)
ANSWERED = {"topic": "emqx", "payload": "AP8=", "qos": 1, "publish_at": "2025-11-21T12:30:17.537Z", "msgid": "00"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an empty store in its data directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    fresh_file(tmp_path / "data", "holdfast.db")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["retainer", *arguments])


def values() -> dict[str, str]:
    """Return the payloads, by topic."""
    lines = run("export").stdout.splitlines()
    return {each["topic"]: each["payload"] for each in map(json.loads, lines)}


@pytest.fixture
def mosquitto_db(folder: Path) -> str:
    """A file that mosquitto 2.0.11 wrote in 2020."""
    shutil.copy(PIPELINE_FILES / "mosquitto-2.0.11.db", folder / "mosquitto.db")
    os.utime(folder / "mosquitto.db", (1_600_000_000, 1_600_000_000))
    return "mosquitto.db"


def test_a_mosquitto_db_is_imported_and_a_second_import_changes_nothing(mosquitto_db: str) -> None:
    """Its messages have no time of storing, and get that of the file."""
    assert "3 imported, 0 unchanged" in run("import", mosquitto_db).stderr
    assert values() == {"a/b": "aGVsbG8=", "bin": "AP/+", "grün/日本": "cGxhaW4geA=="}
    assert json.loads(run("get", "bin").stdout)["stored_at"] == 1_600_000_000_000
    assert "0 imported, 3 unchanged" in run("import", mosquitto_db).stderr


def test_values_that_were_published_here_later_are_kept(mosquitto_db: str) -> None:
    """Also a topic that was cleared here."""
    run("import", mosquitto_db)
    run("set", "a/b", "newer")
    run("clean", "bin")
    assert "0 imported, 1 unchanged, 1 kept, 1 cleared" in run("import", mosquitto_db).stderr
    assert values() == {"a/b": "bmV3ZXI=", "grün/日本": "cGxhaW4geA=="}


def test_a_dry_run_tells_what_is_in_the_file_and_imports_nothing(mosquitto_db: str) -> None:
    assert run("import", mosquitto_db, "--dry-run").stderr == (
        "a mosquitto.db: 3 messages would be merged; nothing was imported\n"
    )
    told = json.loads(run("import", mosquitto_db, "--dry-run", "--json").stdout)
    assert told == {"found": 3, "format": "mosquitto_db", "rejected": 0, "reasons": []}
    assert values() == {}


def test_an_archive_of_emqx_is_imported_with_its_times() -> None:
    file = str(emqx_archives.REAL)
    assert "3 imported" in run("import", file).stderr
    found = json.loads(run("get", "a/b").stdout)
    assert (found["stored_at"], found["username"]) == (emqx_archives.STORED_AT, "ada")
    assert "0 imported, 3 unchanged" in run("import", file).stderr


def test_lines_of_several_programs_may_be_in_one_file(folder: Path) -> None:
    """Each is told by itself; what is wrong in it is told with its place."""
    page = {"data": [{**ANSWERED, "topic": "page"}, {"topic": "without"}]}
    (folder / "lines").write_text(
        json.dumps({"topic": "ours", "payload": "eA=="})
        + "\n" + SUBSCRIBED + json.dumps(ANSWERED) + "\n" + json.dumps(page)
    )  # fmt: skip
    result = run("import", "lines", "--rejects", "rejects")
    assert result.exit_code == 3
    assert "4 imported" in result.stderr
    assert "line 4, message 2: payload: is missing" in result.stderr
    assert json.loads((folder / "rejects").read_text())["line"] == 4
    assert values() == {"ours": "eA==", "sub": "aGVsbG8=", "emqx": "AP8=", "page": "AP8="}


def test_an_answer_of_emqx_on_several_lines_is_read_as_a_whole(folder: Path) -> None:
    (folder / "page").write_text(json.dumps({"data": [ANSWERED], "meta": {"page": 1}}, indent=2))
    assert "1 imported" in run("import", "page").stderr


def test_a_dump_of_mosquitto_is_recognised(folder: Path) -> None:
    message = {"storeid": 1, "topic": "a", "payload": "eA==", "qos": 0, "expiry-time": 0}
    (folder / "dump").write_text(
        json.dumps({"base-messages": [message], "retained-messages": [{"storeid": 1}]}, indent="\t")
    )
    assert "1 imported" in run("import", "dump").stderr


def test_what_a_file_of_another_program_refuses_is_kept_with_its_place_and_topic(folder: Path) -> None:
    table = backup("emqx_retainer_message", emqx_archives.record(emqx_archives.message(b"a/#")))
    archive(folder / "e.tar.gz", {emqx_archives.TABLE: table})
    result = run("import", "e.tar.gz", "--rejects", "rejects")
    assert result.stderr.endswith("1 message refused; see rejects\n")
    told = json.loads((folder / "rejects").read_text())
    assert (told["place"], told["text"]) == (f"{emqx_archives.TABLE}, record 2", "a/#")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PAR1\0\0", "this is no file of retained messages"),
        (b"\x1f\x8b\0", "this is not gzip"),
        (b"SQLite format 3\0", "this database cannot be read"),
        (b"\x00\xb5\x00mosquitto db", "this is not a mosquitto.db"),
        (b"{\n", "this is not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_nothing_is_imported(folder: Path, data: bytes, words: str) -> None:
    (folder / "file").write_bytes(data)
    result = run("import", "file")
    assert result.exit_code == 1
    assert result.stderr.startswith("file: ")
    assert words in result.stderr
    assert result.stderr.endswith("; nothing was imported\n")
