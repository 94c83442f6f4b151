"""``holdfast ban`` without a running broker. A test of whole brokers shows it with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.commands.root import main


class Shell:
    """Runs commands for one data directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str, status: int = 0) -> str:
        result = CliRunner().invoke(main, ["ban", *words, "--data-dir", str(self.folder)])
        assert result.exit_code == status, result.output
        return result.output


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_bans_are_added_listed_and_removed(shell: Shell) -> None:
    shell("add", "192.0.2.0/24", "--reason", "scans")
    shell("add", "pump-7", "--client", "--for", "1h")
    shell("add", "bob", "--user")
    listed = shell("list").splitlines()
    assert len(listed) == 3
    assert "peerhost_net 192.0.2.0/24 is banned for ever by " in listed[0]
    assert listed[0].endswith(": scans")
    assert "clientid pump-7 is banned until 20" in listed[1]
    for who, *kind in (("192.0.2.0/24",), ("pump-7", "--client"), ("bob", "--user")):
        shell("remove", who, *kind)
    assert shell("list") == ""


def test_json_has_the_fields_of_the_api(shell: Shell) -> None:
    added = json.loads(shell("add", "192.0.2.7", "--json"))
    assert json.loads(shell("list", "--json")) == added
    assert (added["as"], added["who"], added["until"]) == ("peerhost", "192.0.2.7", "infinity")


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("add", "192.0.2.0/33"), 1, "neither an address nor a network"),
        (("add", "127.0.0.1"), 1, "never banned"),
        (("add", "bob", "--user", "--for", "soon"), 2, "write a time such as 10m"),
        (("remove", "192.0.2.7"), 1, "is not banned"),
    ],
)
def test_mistakes_are_explained(shell: Shell, words: tuple[str, ...], status: int, told: str) -> None:
    assert told in shell(*words, status=status)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert "there is no such folder" in Shell(tmp_path / "none")("list", status=1)


def test_a_stopped_member_of_a_cluster_changes_no_bans(tmp_path: Path) -> None:
    """They are in the database of all members, and a running one changes them."""
    file = tmp_path / "holdfast.toml"
    file.write_text('cluster.name = "plant"\nstorage.url = "postgresql+psycopg://db.invalid/holdfast"\n')
    (tmp_path / "data").mkdir()
    for words in (("add", "192.0.2.7"), ("list",), ("remove", "192.0.2.7")):
        result = CliRunner().invoke(main, ["ban", *words, "--config", str(file), "--data-dir", str(tmp_path / "data")])
        assert result.exit_code == 1
        assert 'the bans of the cluster "plant" are changed by a running member' in result.stderr
