"""``holdfast doctor``: its output and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import examination, main
from holdfast.commands.access import BrokerClient
from holdfast.commands.interfaces import Inaccessible


def doctor(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


@pytest.fixture(autouse=True)
def free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs of this machine may use the default ports."""
    monkeypatch.setattr(examination, "_try_port", lambda *_: None)


def test_a_machine_without_problems(tmp_path: Path) -> None:
    result = doctor("--data-dir", tmp_path / "data")
    assert result.exit_code == 0
    assert "0 problems" in result.stdout.splitlines()[-1]


def test_problems_come_first_and_give_status_3(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o777)
    data.chmod(0o777)
    result = doctor("--data-dir", data)
    assert result.exit_code == 3
    assert result.stdout.startswith(
        f"problem: {data}: others than its owner can use it (mode 0777); chmod go= {data}\n"
    )
    found = json.loads(doctor("--data-dir", data, "--json").stdout)
    assert found["problems"] == 1
    assert found["findings"][0].keys() == {"weight", "subject", "message", "remedy"}


def test_a_running_broker_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ports are in use, by itself; its database is open. What it tells of itself is a finding."""
    monkeypatch.setattr(BrokerClient, "answers", lambda _: True)
    monkeypatch.setattr(BrokerClient, "call", lambda _, __, path: (
        {"damage": "a page is malformed"} if path == "/info" else [{"name": "lan", "running": False}]
    ))  # fmt: skip
    tried: list[str] = []
    monkeypatch.setattr(examination, "_try_port", lambda host, _: tried.append(host))
    file = tmp_path / "holdfast.toml"
    file.write_text(
        '[listeners.open]\nendpoint = "tcp:1883:interface=127.0.0.1"\n'
        '[listeners.lan]\nendpoint = "tcp:1883:interface=127.0.0.2"\n'
    )
    result = doctor("--config", file)
    assert result.exit_code == 3
    assert tried == ["127.0.0.2"]  # the other one is in use by the broker itself
    assert "problem: broker: it stores nothing any more: a page is malformed" in result.stdout
    assert "problem: listeners.lan: it does not listen yet" in result.stdout


def test_a_broker_that_does_not_answer_as_it_should_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: BrokerClient) -> bool:
        raise Inaccessible("the broker waits for its database: no server")

    monkeypatch.setattr(BrokerClient, "answers", refuse)
    assert "problem: broker: the broker waits for its database: no server" in doctor("--data-dir", tmp_path).stdout


def test_a_wrong_configuration_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("[mqtt]\nmax_paket_size = 1\n")
    result = doctor("--config", file)
    assert result.exit_code == 3
    assert f"{file}:2: mqtt.max_paket_size: unknown key; did you mean mqtt.max_packet_size?" in result.stdout


def test_a_listener_with_authentication_is_not_open_to_everyone(tmp_path: Path) -> None:
    """Other commands take the configuration as if the broker ran with --allow-anonymous; this one must not."""
    file = tmp_path / "holdfast.toml"
    exposed = 'allow_plaintext = true\n[authentication.passwords]\ntype = "file"\npath = "passwords"\n'
    file.write_text(f'[node]\ndata_dir = "data"\n[listeners.door]\nendpoint = "tcp:1883"\n{exposed}')
    assert "allow_anonymous" not in doctor("--config", file).stdout
    file.write_text('[node]\ndata_dir = "data"\n[listeners.door]\nendpoint = "tcp:1883"\nallow_anonymous = true\n')
    assert "problem: listeners.door.allow_anonymous: " in doctor("--config", file).stdout
    file.write_text('[listeners.door]\nendpoint = "tcp:1883"\n')
    assert "listeners.door" in doctor("--config", file).stdout.splitlines()[0]
