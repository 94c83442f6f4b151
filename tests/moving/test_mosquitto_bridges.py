"""The bridges of a mosquitto.conf become bridges of Holdfast, or the report tells why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.config import Config, load
from holdfast.moving import mosquitto_bridges
from holdfast.moving.keywords import KEYWORDS, Scope
from holdfast.moving.mosquitto_conf import read_conf
from holdfast.moving.mosquitto_mapping import CONFIG, REPORT, Move, move_mosquitto
from holdfast.moving.report import Outcome


def moved(folder: Path, text: str) -> tuple[Move, Config]:
    """Move a configuration; return what became of it, and the configuration that Holdfast reads."""
    path = folder / "mosquitto.conf"
    path.write_text(text)
    move = move_mosquitto(read_conf(path))
    written = folder / CONFIG
    written.write_text(move.files[CONFIG])
    return move, load(written)


def remarks(move: Move, outcome: Outcome) -> str:
    return "\n".join(map(str, move.report.of(outcome)))


def lines_of(config: Config, name: str) -> list[tuple[Any, ...]]:
    return [
        (line.filter, line.direction, line.qos, line.local_prefix, line.remote_prefix, line.retain)
        for line in config.bridges[name].topics
    ]


def test_every_keyword_of_bridges_has_its_outcome() -> None:
    decided = {
        *mosquitto_bridges._TAKEN, *mosquitto_bridges._OFF, *mosquitto_bridges._SAME, *mosquitto_bridges._MISSING,
        *mosquitto_bridges._FILES,
    }  # fmt: skip
    apart = {
        "address", "bridge_identity", "bridge_outgoing_retain", "bridge_psk", "bridge_tls_use_os_certs",
        "remote_password", "restart_timeout", "topic",
    }  # fmt: skip
    assert decided | apart == {name for name, keyword in KEYWORDS.items() if keyword.scope is Scope.BRIDGE}
    assert not decided & apart


def test_a_usual_bridge_is_taken_over_whole(tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("")
    move, config = moved(
        tmp_path,
        "connection my cloud\naddress broker.example.org:8883 192.0.2.7\nbridge_protocol_version mqttv50\n"
        "remote_clientid hall-3\nremote_username hall\nremote_password hush\ncleansession false\n"
        "keepalive_interval 30\nrestart_timeout 5 60\ntry_private false\nnotifications false\nstart_type automatic\n"
        "bridge_cafile ca.pem\nbridge_certfile cert.pem\nbridge_keyfile key.pem\n"
        'topic sensors/# out 2 "" hall-3/\ntopic commands/# in 1 local/ hall-3/\ntopic both/# both\ntopic plain\n',
    )
    bridge = config.bridges["my"]
    assert bridge.addresses == ("broker.example.org:8883", "192.0.2.7:1883")
    assert (bridge.protocol_version, bridge.clientid, bridge.username) == ("mqttv50", "hall-3", "hall")
    assert str(bridge.password) == "file:bridge-my-password"
    assert move.files["bridge-my-password"] == "hush\n"
    assert "hush" not in move.files[CONFIG] + move.files[REPORT]
    assert (bridge.keepalive_interval, bridge.restart_timeout, bridge.restart_timeout_max) == (30, 5, 60)
    assert (bridge.try_private, bridge.cleansession, bridge.allow_plaintext) == (False, False, False)
    assert bridge.tls is not None
    assert bridge.tls.ca == str(tmp_path / "ca.pem")
    assert lines_of(config, "my") == [
        ("sensors/#", "out", 2, "", "hall-3/", "keep"),
        ("commands/#", "in", 1, "local/", "hall-3/", "keep"),
        ("both/#", "both", 0, "", "", "keep"),
        ("plain", "out", 0, "", "", "keep"),
    ]
    assert "connection" not in remarks(move, Outcome.MISSING)


def test_mosquitto_speaks_3_1_1_and_sends_passwords_in_plain_text_unless_told_otherwise(tmp_path: Path) -> None:
    _, config = moved(tmp_path, "connection a\naddress b\nremote_username u\nremote_password p\ntopic #\n")
    bridge = config.bridges["a"]
    assert (bridge.protocol_version, bridge.allow_plaintext) == ("mqttv311", True)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("topic #", "no address is like HOST:PORT"),
        ("address a", "it has no topic that crosses"),
        ("address a\ntopic #\nbridge_identity x\nbridge_psk 0f", "no TLS with pre-shared keys"),
        ("address a\ntopic $SYS/# out", "it has no topic that crosses"),
        ('address a\ntopic "" in 0 here there', "it has no topic that crosses"),
    ],
)
def test_a_bridge_that_would_not_work_is_left_out(tmp_path: Path, lines: str, why: str) -> None:
    move, config = moved(tmp_path, f"connection cloud\n{lines}\n")
    assert not config.bridges
    assert why in remarks(move, Outcome.MISSING)


def test_retain_is_cleared_outwards_as_before(tmp_path: Path) -> None:
    move, config = moved(
        tmp_path, "connection a\naddress b\nbridge_outgoing_retain false\ntopic x out\ntopic y in\ntopic z both\n"
    )
    assert [line[-1] for line in lines_of(config, "a")] == ["clear", "keep", "clear"]
    assert "write two lines" in remarks(move, Outcome.MISSING)


def test_what_has_no_counterpart_is_told(tmp_path: Path) -> None:
    move, config = moved(
        tmp_path,
        "connection a\naddress b\ntopic x\nbridge_insecure true\nstart_type lazy\nround_robin true\n"
        "remote_password p\nbridge_capath /x\nbridge_protocol_version mqttv99\nnotification_topic t\n",
    )
    told = remarks(move, Outcome.MISSING)
    for text in (
        "bridge_insecure true", "start_type lazy", "round_robin true", "a password needs a User Name", "bridge_capath",
        "mqttv99", "notification_topic", "notifications (not set)",
    ):  # fmt: skip
        assert text in told
    assert config.bridges["a"].tls is not None


def test_two_bridges_keep_different_names(tmp_path: Path) -> None:
    _, config = moved(tmp_path, "connection a.b\naddress x\ntopic #\nconnection a-b\naddress y\ntopic #\n")
    assert list(config.bridges) == ["a-b", "a-b-2"]
