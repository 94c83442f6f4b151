"""Hostile texts through the commands: tables, lists and messages obey none of them, and --json has them exactly."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import main
from holdfast.identity.chain import name_problem
from tests.hostile_strings import NAMES, TEXTS, obeyed
from tests.storage.doubles import fresh_file

#: names that users and keys may have
_USERS = [
    name
    for name in NAMES
    if name_problem(name) is None and not obeyed(name) and name[0] not in "-#" and ":" not in name
][:6]
_HIDDEN_USERS = ["\u202egpj.exe", "in\u200bvisi\ufeffble\u2060", "\U000e0041\U000e0042", "a\u2028b\u2029c"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory with a message of each name, with users, keys, rules and bans that have such names."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "data").mkdir(mode=0o700)
        fresh_file(folder / "data", "holdfast.db")
        (folder / "h.toml").write_text('[mqtt]\ncontrol_characters = "accept"\n[retainer.history]\nenable = true\n')
        records = [
            {"topic": name, "payload": b64encode(name.encode()).decode(), "client_id": name, "username": name,
             "properties": {"user_properties": [[name, name]], "content_type": name}}
            for name in NAMES
        ]  # fmt: skip
        (folder / "messages").write_text("".join(json.dumps(record) + "\n" for record in records))
        done("retainer", "import", "messages", "--config", "h.toml")
        for name in (*_USERS, *_HIDDEN_USERS):
            done("user", "add", "--", name)
            done("api-key", "add", "--scope", "read", "--", name)
            done("acl", "add", "deny", "--action", "all", "--topic", name, "--user", name)
            done("ban", "add", "--client", "--reason", name, "--", name)
        for name in _USERS:
            done("passwd", "add", "passwords", "--", name)
        yield folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, input="secret\n")


def done(*arguments: str) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, (arguments, result.output)
    assert obeyed(result.stdout + result.stderr) <= {"\n"}, arguments
    return result


LISTS = {
    ("retainer", "topics", "--config", "h.toml"): (NAMES, "topic"),
    ("retainer", "history", "--limit", "1000", "--config", "h.toml"): (NAMES, "topic"),
    ("user", "list"): ((*_USERS, *_HIDDEN_USERS), "user_id"),
    ("api-key", "list"): ((*_USERS, *_HIDDEN_USERS), "name"),
    ("acl", "list"): ((*_USERS, *_HIDDEN_USERS), "topics"),
    ("passwd", "list", "passwords"): (_USERS, "username"),
    ("ban", "list"): ((*_USERS, *_HIDDEN_USERS), "who"),
}


@pytest.mark.parametrize("call", LISTS, ids=" ".join)
def test_lists_have_a_line_for_each_name(folder: Path, call: tuple[str, ...]) -> None:
    """On a terminal escaped, as JSON exact."""
    names, key = LISTS[call]
    shown = done(*call).stdout
    assert len(names) <= shown.count("\n") <= len(names) + 1  # with the headings, where there are some
    lines = done(*call, "--json").stdout.splitlines()
    found = [json.loads(line)[key] for line in lines]
    assert {one[0] if isinstance(one, list) else one for one in found} == set(names)


@pytest.mark.parametrize("name", _HIDDEN_USERS)
def test_a_file_of_users_takes_no_name_with_invisible_characters(folder: Path, name: str) -> None:
    result = run("passwd", "add", "passwords", "--", name)
    assert result.exit_code == 2
    assert "a user name has no invisible characters" in result.stderr
    assert obeyed(result.output) <= {"\n"}


def test_exports_and_single_messages_are_lines(folder: Path) -> None:
    assert done("retainer", "export", "--config", "h.toml").stdout.count("\n") == len(NAMES)
    for name in _HIDDEN_USERS:
        assert json.loads(done("retainer", "get", "--config", "h.toml", "--", name).stdout)["topic"] == name


@pytest.mark.parametrize(
    "words",
    [("retainer", "get"), ("retainer", "topics"), ("retainer", "clean", "--dry-run"), ("retainer", "history"),
     ("user", "remove"), ("user", "add"), ("api-key", "revoke"), ("ban", "remove"), ("ban", "add"),
     ("ban", "add", "--user"), ("acl", "explain", "alice", "publish"), ("passwd", "remove", "passwords"),
     ("check-config",), ("ping", "--config")],
    ids=" ".join,
)  # fmt: skip
def test_whatever_an_argument_is_messages_obey_nothing(folder: Path, words: tuple[str, ...]) -> None:
    """Refused or done, with a message, and never with a traceback."""
    possible = [text for text in TEXTS if not set(text) & set("\0\ud800\udc00")]
    for text in (*possible[::5], "a\udcffb"):  # the last one is a byte that is no UTF-8
        separator = () if words[-1] == "--config" else ("--",)
        result = run(*words, *separator, text)
        assert result.exit_code in (0, 1, 2), (text, result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit), (text, result.exception)
        assert obeyed(result.stdout + result.stderr) <= {"\n"}, (words, text)


def test_bytes_that_are_not_utf_8_are_named(folder: Path) -> None:
    result = run("passwd", "remove", "passwords", "a\udcffb")
    assert (result.exit_code, result.stderr) == (1, "an argument has bytes that are not UTF-8: b'\\xff'\n")
