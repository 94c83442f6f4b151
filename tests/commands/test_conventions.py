"""What holds for every command of ``holdfast``: ``--json``, exit statuses, and the modules that help needs."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from shutil import copytree

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import main
from holdfast.core.terminal import counted
from tests.commands.commands import commands_of
from tests.erlang import archive
from tests.processes import unmeasured
from tests.storage.doubles import fresh_file

COMMANDS = dict(commands_of(main))
#: Commands that take an argument.
REQUIRING = [path for path, command in COMMANDS.items() if any(one.required for one in command.params)]
#: Commands that report nothing, or print data that is JSON already.
#: tried with a broker, in tests/e2e/test_reload.py, test_admin_api.py and test_log.py; with Postgres, in tests/cluster
#: and tests/commands/database
WITH_BROKER = {
    ("bridge", "list"), ("bridge", "pause"), ("bridge", "resume"), ("dashboard",), ("hook", "list"),
    ("migrate", "postgres-to-sqlite"), ("migrate", "sqlite-to-postgres"), ("node", "drain"), ("node", "list"),
    ("node", "remove"), ("reload",), ("trace",),
}  # fmt: skip
WITHOUT_JSON = {("ping",), ("run",), ("retainer", "export"), ("retainer", "get"), ("retainer", "set")}
MIGRATED = {"folder", "dry_run", "written", "taken", "same", "missing", "entries"}
#: For each reporting command: a call that succeeds, and the keys of each object that it prints.
REPORTS = {
    ("acl", "explain", "alice", "publish", "a/b"): {"allowed", "filtered", "summary", "reasons"},
    ("acl", "add", "allow", "--action", "all", "--topic", "#"): {"number", "action", "topics", "allow"},
    ("acl", "list"): {"number", "action", "topics", "allow"},
    ("acl", "move", "1"): {"number", "action", "topics", "allow"},
    ("acl", "remove", "1"): {"number", "removed"},
    ("api-key", "add", "new", "--scope", "read", "--expires", "30d"): {
        "name",
        "api_key",
        "api_secret",
        "scopes",
        "expired_at",
        "bearer",
    },
    ("api-key", "list"): {"name", "api_key", "scopes", "created_at", "expired_at", "expired"},
    ("api-key", "revoke", "old"): {"name", "revoked"},
    ("ban", "add", "192.0.2.8"): {"as", "who", "by", "at", "until"},
    ("ban", "list"): {"as", "who", "by", "at", "until"},
    ("ban", "remove", "192.0.2.7"): {"as", "who", "removed"},
    ("check-config", "h.toml"): {"ok", "problems"},
    ("config", "reference"): {"key", "default", "allowed", "help", "effect"},
    ("db", "backup", "copy.db"): {"backup", "database", "bytes"},
    ("db", "check"): {"database", "ok", "fault", "schema", "newest_schema", "library", "checks"},
    ("db", "upgrade"): {"steps", "backups"},
    ("db", "verify", "good.db"): {"backup", "good", "fault", "checks", "schema", "current", "messages"},
    ("doctor",): {"problems", "findings"},
    ("migrate", "emqx", "export.tar.gz"): MIGRATED,
    ("migrate", "home-assistant", "options.json"): MIGRATED,
    ("migrate", "mosquitto", "m.conf"): MIGRATED,
    ("migrate", "vernemq", "--passwd", "passwords"): MIGRATED,
    ("passwd", "add", "passwords", "bob"): {"file", "username", "added"},
    ("passwd", "list", "passwords"): {"username", "hash"},
    ("passwd", "remove", "passwords", "alice"): {"file", "username", "removed"},
    ("passwd", "verify", "passwords", "alice"): {"file", "username", "known", "right"},
    ("retainer", "clean", "x"): {"count", "dry_run"},
    ("retainer", "count"): {"count", "bytes"},
    ("retainer", "history", "--config", "h.toml"): {"seq", "topic", "op"},
    ("retainer", "telemetry"): set(),
    ("retainer", "import", "messages"): {"imported", "unchanged", "kept", "cleared", "expired", "rejected", "reasons"},
    ("retainer", "info"): {"count", "bytes", "replays", "store"},
    ("retainer", "orphans"): set(),
    ("retainer", "policy", "explain", "a/b"): {"topic", "policy", "options", "quotas"},
    ("retainer", "replays"): set(),
    ("retainer", "restore", "#", "--at", "2h", "--config", "h.toml"): set(),
    ("retainer", "settings"): {"retainer.delivery_rate", "until_restart"},
    ("retainer", "topics"): {"topic", "qos", "properties"},
    ("retainer", "tree"): {"topic", "count", "bytes", "exact"},
    ("scram", "remove", "users", "alice"): {"file", "username", "removed"},
    ("scram", "set", "users", "bob", "--password-stdin"): {"file", "username", "added"},
    ("user", "add", "bob", "--group", "a"): {"user_id", "groups", "created_at", "changed_at"},
    ("user", "groups", "alice"): {"user_id", "groups", "created_at", "changed_at"},
    ("user", "list"): {"user_id", "groups", "created_at", "changed_at"},
    ("user", "passwd", "alice"): {"user_id", "groups", "created_at", "changed_at"},
    ("user", "remove", "alice"): {"user_id", "removed"},
}
#: Calls that fail because a file is missing, is a folder or cannot be read.
UNREADABLE = [
    ("api-key", "list", "--config", "nowhere"),
    ("dashboard", "--data-dir", "nowhere"),
    ("bridge", "list", "--data-dir", "nowhere"),
    ("ban", "list", "--config", "nowhere"),
    ("ban", "add", "192.0.2.7", "--data-dir", "nowhere"),
    ("check-config", "nowhere"),
    ("check-config", "data"),
    ("db", "backup", "nowhere/x"),
    ("db", "check", "--config", "nowhere"),
    ("db", "check", "--data-dir", "nowhere"),
    ("db", "upgrade", "--data-dir", "nowhere"),
    ("db", "verify", "nowhere"),
    ("db", "verify", "data"),
    ("migrate", "emqx", "nowhere"),
    ("migrate", "emqx", "data"),
    ("migrate", "home-assistant", "nowhere"),
    ("migrate", "mosquitto", "nowhere"),
    ("migrate", "vernemq", "--acl", "nowhere"),
    ("passwd", "add", "nowhere/passwords", "alice"),
    ("passwd", "list", "nowhere"),
    ("passwd", "remove", "nowhere", "alice"),
    ("passwd", "verify", "nowhere", "alice"),
    ("ping", "--config", "nowhere"),
    ("ping", "--data-dir", "nowhere"),
    ("retainer", "export", "data"),
    ("retainer", "export", "nowhere/x"),
    ("retainer", "import", "nowhere"),
    ("retainer", "import", "data"),
    ("retainer", "import", "messages", "--rejects", "nowhere/x"),
    ("retainer", "info", "--config", "nowhere"),
    ("retainer", "info", "--data-dir", "nowhere"),
    ("retainer", "set", "t", "--file", "nowhere"),
    ("scram", "remove", "nowhere", "alice"),
    ("scram", "set", "nowhere/users", "alice", "--password-stdin"),
    ("user", "add", "alice", "--data-dir", "nowhere"),
    ("user", "list", "--config", "nowhere"),
    ("acl", "list", "--data-dir", "nowhere"),
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of one message, a backup, a configuration and a file of users."""
    folder = tmp_path_factory.mktemp("prepared")
    with chdir(folder):
        (folder / "data").mkdir(mode=0o700)
        fresh_file(folder / "data", "holdfast.db")
        (folder / "h.toml").write_text("[retainer.history]\nenable = true\n")
        (folder / "m.conf").write_text("listener 1883\n")
        (folder / "options.json").write_text("{}")
        archive(folder / "export.tar.gz", {"META.hocon": b""})
        (folder / "messages").write_text('{"topic": "b", "payload": "eA=="}\n')
        for command in (
            ("retainer", "set", "a", "x", "--config", "h.toml"),
            ("db", "backup", "good.db"),
            ("scram", "set", "users", "alice", "--password-stdin"),
            ("ban", "add", "192.0.2.7"),
            ("user", "add", "alice"),
            ("api-key", "add", "old", "--scope", "read", "--scope", "publish"),
            ("acl", "add", "deny", "--action", "publish,retain", "--topic", "a/+", "--user", "alice"),
            ("passwd", "add", "passwords", "alice"),
        ):
            assert run(*command).exit_code == 0
    return folder


@pytest.fixture(autouse=True)
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a copy of the prepared one, which each test may change."""
    copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, input="secret\n")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_that_reports_has_json(path: tuple[str, ...]) -> None:
    options = {name for parameter in COMMANDS[path].params for name in parameter.opts}
    assert ("--json" in options) == (path not in WITHOUT_JSON)


def test_the_output_of_every_reporting_command_is_tried() -> None:
    tried = {path for path in COMMANDS for call in REPORTS if call[: len(path)] == path}
    assert tried == set(COMMANDS) - WITHOUT_JSON - WITH_BROKER


@pytest.mark.parametrize("call", REPORTS, ids=" ".join)
def test_json_is_one_object_a_line(call: tuple[str, ...]) -> None:
    result = run(*call, "--json")
    if call[1:2] == ("restore",):  # no history is that old
        assert (result.exit_code, result.stdout) == (1, "")
        return
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(REPORTS[call] <= line.keys() for line in lines)
    assert bool(lines) == bool(REPORTS[call])


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_unknown_option_is_a_wrong_command_line(path: tuple[str, ...]) -> None:
    result = run(*path, "--no-such-option")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no-such-option" in result.stderr


@pytest.mark.parametrize("path", REQUIRING, ids=" ".join)
def test_a_missing_argument_is_a_wrong_command_line(path: tuple[str, ...]) -> None:
    assert (run(*path).exit_code, run(*path).stdout) == (2, "")


@pytest.mark.parametrize("call", UNREADABLE, ids=" ".join)
def test_a_file_that_is_missing_or_cannot_be_read_is_a_failure(call: tuple[str, ...]) -> None:
    """With a message, and no traceback."""
    result = run(*call)
    assert (result.exit_code, result.stdout) == (1, "")
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert line.split(":")[0].rpartition("/")[2]


@pytest.mark.parametrize(
    ("call", "content"),
    [
        (("check-config", "file"), b"[node]\nid = 0\n"),
        (("db", "check", "--storage", "sqlite:///file"), b"no database"),
        (("db", "verify", "file"), b"no database"),
        (("retainer", "import", "file"), b"{}\n"),
    ],
)
def test_a_finding_has_a_status_of_its_own(folder: Path, call: tuple[str, ...], content: bytes) -> None:
    (folder / "file").write_bytes(content)
    result = run(*call)
    assert result.exit_code == 3, result.output
    assert result.stderr
    assert json.loads(run(*call, "--json").stdout)


#: Imports the commands named by the arguments in children of this process, and prints the modules of each.
MODULES = """
import json, os, sys
for words in sys.argv[1:]:
    print(words, flush=True)
    if os.fork() == 0:
        out = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        from holdfast.commands import main
        try:
            main(words.split())
        finally:
            os.write(out, (json.dumps(sorted(sys.modules)) + chr(10)).encode())
            os._exit(0)
    os.wait()
"""
#: What help never needs. ``run`` shows the options of a plugin, so it needs twisted.python.
HEAVY = {
    "alembic", "attr", "cryptography", "holdfast.config", "http.client", "rich", "scramp", "sqlalchemy", "sqlite3",
    "twisted", "zope.interface",
}  # fmt: skip
#: Python itself imports about 60 modules, and Click 50.
MOST_MODULES = 220


def test_help_and_version_import_almost_nothing() -> None:
    """This bounds their time, which cannot be tested by the clock: for each command, at each level."""
    calls = [f"{' '.join(path)} --help" for path in COMMANDS]
    calls += [f"{name} --help" for name in ("", "ban", "config", "db", "retainer", "scram")] + ["--version"]
    command = [sys.executable, "-c", MODULES, *calls]
    said = subprocess.run(command, env=unmeasured(), check=True, capture_output=True, text=True).stdout
    lines = said.splitlines()
    assert lines[::2] == calls
    for call, modules in zip(lines[::2], map(json.loads, lines[1::2]), strict=True):
        if call == "run --help":
            assert not {"holdfast.broker.compose", "sqlalchemy", "twisted.internet.reactor"} & set(modules)
            assert len(modules) < MOST_MODULES + 100
            continue
        assert not HEAVY & set(modules), call
        assert len(modules) < MOST_MODULES, call


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(0, "problem", "0 problems"), (1, "problem", "1 problem"), (2, "retained message", "2 retained messages"),
     (1, "entry", "1 entry"), (3, "entry", "3 entries")],
)  # fmt: skip
def test_a_count_has_its_noun(count: int, noun: str, text: str) -> None:
    """All commands, calls and log lines count with this function."""
    assert counted(count, noun) == text
