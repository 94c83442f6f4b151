"""``holdfast migrate``: what it prints and writes, and what it never replaces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import main
from holdfast.core.terminal import ExitStatus

HASH = "$7$101$c2FsdHNhbHRzYWx0$" + "A" * 86 + "=="
NAMES = {"holdfast.toml", "passwords", "migration.md"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, with a mosquitto.conf."""
    (tmp_path / "passwd").write_text(f"ann:{HASH}\n")
    (tmp_path / "m.conf").write_text("listener 1883\npassword_file passwd\nconnection c\nremote_password hush\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def migrate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["migrate", "mosquitto", "m.conf", *arguments])


def test_it_writes_files_that_only_their_owner_can_read(folder: Path) -> None:
    done = migrate("--out", "new")
    assert done.exit_code == ExitStatus.DONE, done.output
    assert {path.name for path in (folder / "new").iterdir()} == NAMES
    assert (folder / "new").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (folder / "new").iterdir()} == {0o600}
    checked = CliRunner().invoke(main, ["check-config", "new/holdfast.toml"])
    assert checked.exit_code == ExitStatus.DONE, checked.output


def test_the_report_is_printed_and_shows_no_secret(folder: Path) -> None:
    done = migrate("--out", "new")
    for heading in ("Taken over: ", "The same by default: 0", "Has no equal: "):
        assert heading in done.stdout
    for text in (done.output, (folder / "new" / "migration.md").read_text()):
        assert "hush" not in text
        assert HASH not in text


def test_a_dry_run_writes_nothing_and_shows_no_secret(folder: Path) -> None:
    done = migrate("--dry-run")
    assert done.exit_code == ExitStatus.DONE
    assert "Nothing was written" in done.stdout
    assert "hush" not in done.output
    assert HASH not in done.output
    assert {path.name for path in folder.iterdir()} == {"m.conf", "passwd"}


def test_a_second_run_changes_nothing(folder: Path) -> None:
    migrate("--out", "new")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (folder / "new").iterdir()}
    done = migrate("--out", "new", "--json")
    assert json.loads(done.stdout)["written"] == []
    assert before == {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (folder / "new").iterdir()}


def test_other_content_is_kept_until_the_operator_says_otherwise(folder: Path) -> None:
    migrate("--out", "new")
    passwords = folder / "new" / "passwords"
    passwords.write_text(f"ann:{HASH}\nbob:{HASH}\n")
    (folder / "new" / "migration.md").unlink()
    refused = migrate("--out", "new")
    assert refused.exit_code == ExitStatus.FAILED
    assert "passwords (from line 2)" in refused.stderr
    assert HASH not in refused.output
    assert not (folder / "new" / "migration.md").exists()
    assert "bob" in passwords.read_text()
    assert migrate("--out", "new", "--force").exit_code == ExitStatus.DONE
    assert passwords.read_text() == f"ann:{HASH}\n"


def test_problems_have_a_line_each(folder: Path) -> None:
    (folder / "m.conf").write_text("max_qos 9\nprotocol x\n")
    done = migrate()
    assert done.exit_code == ExitStatus.FAILED
    assert [line.split(" ")[0] for line in done.stderr.splitlines()] == ["m.conf:1:", "m.conf:2:"]
    assert not (folder / "holdfast").exists()


def test_what_could_not_start_is_not_written(folder: Path) -> None:
    (folder / "acl").write_text("nonsense\n")
    (folder / "m.conf").write_text("listener 1883\npassword_file passwd\nacl_file acl\n")
    done = migrate()
    assert done.exit_code == ExitStatus.FAILED
    assert "acl:1: found" in done.stderr
    assert not (folder / "holdfast").exists()


def test_control_characters_of_the_files_reach_no_terminal(folder: Path) -> None:
    (folder / "m.conf").write_text("listener 1883 127.0.0.1\nallow_anonymous true\nuser \x1b[2J\u202e\n")
    assert "\x1b" not in migrate().stdout
    assert "\x1b" not in (folder / "holdfast" / "migration.md").read_text()
