"""``holdfast check-config``: its output, its streams and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import main
from tests.certificates import Authority


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.toml"


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["check-config", *map(str, arguments)])


def test_a_valid_file_is_ok(path: Path) -> None:
    path.write_text("[node]\nid = 2\n")
    result = check(path)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{path}: ok\n", "")


def test_problems_go_to_standard_error_one_on_a_line(path: Path) -> None:
    path.write_text("[node]\nid = 0\n[mqtt]\nmax_paket_size = 1\n")
    result = check(path)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{path}:2: node.id: found 0; allowed: an integer from 1 to 255",
        f"{path}:4: mqtt.max_paket_size: unknown key; did you mean mqtt.max_packet_size?",
    ]


def test_a_key_that_only_emqx_needs_is_a_warning(path: Path) -> None:
    path.write_text('[retainer.backend]\ntype = "built_in_database"\n')
    result = check(path)
    assert (result.exit_code, result.stdout) == (0, f"{path}: ok\n")
    [warning] = result.stderr.splitlines()
    assert warning.startswith(f"{path}:1: retainer.backend: known to EMQX, ignored here: storage.url")
    found = json.loads(check(path, "--json").stdout)
    assert (found["ok"], [each["key"] for each in found["warnings"]]) == (True, ["retainer.backend"])


def test_the_users_are_checked_too(path: Path) -> None:
    path.write_text('[authentication]\nscram_file = "users"\n')
    users = path.with_name("users")
    assert check(path).stderr.startswith(f"{users}: there is no such file")
    users.write_text("alice\n")
    users.chmod(0o600)
    assert check(path).exit_code == 3
    assert check(path).stderr.startswith(f"{users}:1: found no SCRAM-SHA-256 verifier after the name")
    [problem] = json.loads(check(path, "--json").stdout)["problems"]
    assert (problem["file"], problem["line"], problem["key"]) == (str(users), 1, "")
    users.write_text("")
    assert check(path).exit_code == 0


def test_all_files_that_the_configuration_names_are_checked(path: Path) -> None:
    """Also if one of them is missing: the operator hears of all problems at once."""
    lines = [
        "[listeners.door]",
        'endpoint = "tcp:8883"',
        'tls = { certificate = "broker.pem", key = "broker.key" }',
        "[authentication.passwords]",
        'type = "file"',
        'path = "passwords"',
        "[authorization]",
        'sources = ["rules"]',
        "[authorization.rules]",
        'type = "file"',
        'path = "rules.toml"',
    ]
    path.write_text("\n".join(lines))
    result = check(path)
    assert result.exit_code == 3
    users, rules, certificate, key = result.stderr.splitlines()
    assert users.startswith(f"{path.with_name('passwords')}: there is no such file")
    assert rules == f"{path}:11: authorization.rules.path: {path.with_name('rules.toml')}: there is no such file"
    assert certificate.startswith(f"{path}:3: listeners.door.tls.certificate: there is no file ")
    assert key.startswith(f"{path}:3: listeners.door.tls.key: there is no file ")


@pytest.mark.parametrize("table", ["listeners.door", "admin"])
def test_an_expired_certificate_and_a_key_that_others_can_read_are_problems(
    path: Path, tmp_path: Path, table: str
) -> None:
    certificate, key = Authority().issue("localhost", ["localhost"], days=-1, since=5).write(tmp_path, "broker")
    key.chmod(0o644)
    tls = f'tls = {{ certificate = "{certificate}", key = "{key}" }}'
    users = '[authentication.users]\ntype = "file"\npath = "users"\n'
    path.write_text(f'{users}[{table}]\nendpoint = "tcp:8883"\n{tls}\n')
    users_file = tmp_path / "users"
    users_file.write_text("")
    users_file.chmod(0o600)
    result = check(path)
    assert result.exit_code == 3
    assert sorted(result.stderr.splitlines()) == [
        f"{path}:6: {table}.tls.certificate: {certificate} has expired: clients refuse it",
        f"{path}:6: {table}.tls.key: every user may use {key}; run: chmod 600 {key}",
    ]


def test_json_of_a_valid_file(path: Path) -> None:
    path.write_text("")
    result = check(path, "--json")
    assert (result.exit_code, json.loads(result.stdout), result.stderr) == (
        0,
        {"ok": True, "problems": [], "warnings": []},
        "",
    )


def test_json_of_problems_is_on_standard_output(path: Path) -> None:
    path.write_text("[node]\nid = 0\n")
    result = check(path, "--json")
    assert result.exit_code == 3
    assert result.stderr == ""
    assert json.loads(result.stdout) == {
        "ok": False,
        "problems": [
            {
                "file": str(path),
                "line": 2,
                "key": "node.id",
                "message": "found 0; allowed: an integer from 1 to 255",
            }
        ],
        "warnings": [],
    }


def test_a_missing_file_is_a_problem_without_a_line(path: Path) -> None:
    assert (check(path).exit_code, check(path).stderr) == (1, f"{path}: there is no such file\n")
    [problem] = json.loads(check(path, "--json").stdout)["problems"]
    assert problem == {"file": str(path), "line": None, "key": "", "message": "there is no such file"}


def test_a_listener_open_to_others_is_a_problem_unless_it_is_allowed(path: Path) -> None:
    path.write_text('[listeners.field]\nendpoint = "tcp:1883"\n')
    result = check(path)
    assert result.exit_code == 3
    assert f"{path}:2: listeners.field.endpoint: listener field listens beyond this machine" in result.stderr
    assert check(path, "--allow-anonymous").exit_code == 0


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--unknown", "a"]])
def test_a_wrong_command_has_status_2(arguments: list[str]) -> None:
    result = check(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: ")


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.commands", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_the_real_command_reports_and_exits(path: Path) -> None:
    path.write_text("[node]\nid = 0\n")
    result = run("check-config", path)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == f"{path}:2: node.id: found 0; allowed: an integer from 1 to 255\n"


def test_a_name_that_the_terminal_cannot_show_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "\u20ac.toml"
    path.write_text("")
    result = run("check-config", path, PYTHONIOENCODING="latin-1")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("\\u20ac.toml: ok\n")
