"""What a mosquitto.conf means for Holdfast: nothing is opened more than before, and nothing is left out silently."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.toml import ConfigError
from holdfast.moving.broker_settings import MISSING, MISSING_OF_LISTENER, SAME, TAKEN
from holdfast.moving.keywords import KEYWORDS, Scope
from holdfast.moving.mosquitto_conf import read_conf
from holdfast.moving.mosquitto_mapping import CONFIG, REPORT, RULES, Move, move_mosquitto
from holdfast.moving.report import Outcome

HASH = "$7$101$c2FsdHNhbHRzYWx0$" + "A" * 86 + "=="


def moved(folder: Path, text: str) -> Move:
    path = folder / "mosquitto.conf"
    path.write_text(text)
    return move_mosquitto(read_conf(path))


def config(move: Move) -> dict[str, Any]:
    return tomllib.loads(move.files[CONFIG])


def settings_of(move: Move, outcome: Outcome) -> list[str]:
    return [entry.setting for entry in move.report.of(outcome)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a password file, two ACL files, and files that stand for certificates."""
    (tmp_path / "passwd").write_text(f"ann:{HASH}\nplain:hush\n")
    (tmp_path / "acl").write_text("user ann\ntopic read #\n")
    (tmp_path / "other").write_text("topic read a\n")
    for name in ("cert.pem", "key.pem", "ca.pem", "crl.pem"):
        (tmp_path / name).write_text("")
    return tmp_path


TLS = "certfile cert.pem\nkeyfile key.pem\n"


def test_every_keyword_of_broker_and_listener_has_its_outcome() -> None:
    decided = {*TAKEN, *SAME, *MISSING, *MISSING_OF_LISTENER}
    handled_apart = {
        "acl_file", "allow_anonymous", "bind_interface", "cafile", "capath", "certfile", "crlfile",
        "enable_proxy_protocol", "keyfile", "listener_allow_anonymous", "log_type", "max_connections", "max_qos",
        "max_topic_alias", "mount_point", "password_file", "protocol", "psk_hint", "require_certificate",
        "socket_domain", "tls_version", "use_identity_as_username", "use_subject_as_username", "websockets_origin",
    }  # fmt: skip
    scopes = (Scope.BROKER, Scope.SECURITY, Scope.LISTENER)
    assert decided | handled_apart == {name for name, keyword in KEYWORDS.items() if keyword.scope in scopes}
    assert not decided & handled_apart


def test_users_rules_and_guests_of_the_whole_broker(files: Path) -> None:
    move = moved(files, "listener 1883\npassword_file passwd\nacl_file acl\nallow_anonymous true\n")
    found = config(move)
    assert found["listeners"] == {
        "mqtt-1883": {"endpoint": "tcp:1883", "allow_anonymous": True, "allow_plaintext": True}
    }
    assert found["authentication"] == {"passwords": {"type": "file", "path": "passwords"}}
    assert found["authorization"] == {"sources": ["acl"], "acl": {"type": "mosquitto", "path": "acl"}}
    assert move.files["passwords"] == f"ann:{HASH}\n"
    assert move.files["acl"] == "user ann\ntopic read #\n"
    assert "user plain" in settings_of(move, Outcome.MISSING)


def test_settings_of_each_listener(files: Path) -> None:
    move = moved(
        files,
        "per_listener_settings true\nlistener 1883 127.0.0.1\nallow_anonymous true\n"
        "listener 1884\npassword_file passwd\nacl_file acl\nlistener 1885 127.0.0.1\nacl_file other\n",
    )
    found = config(move)
    listeners = found["listeners"]
    assert listeners["mqtt-1883"] == {
        "endpoint": "tcp:1883:interface=127.0.0.1", "authentication": [], "allow_anonymous": True,
    }  # fmt: skip
    assert "allow_anonymous" not in listeners["mqtt-1884"]
    assert found["authorization"]["acl"]["listeners"] == ["mqtt-1884"]
    assert found["authorization"]["acl-2"]["listeners"] == ["mqtt-1885"]
    assert found["authorization"]["sources"] == ["acl", "acl-2", "rules"]
    [rule] = tomllib.loads(move.files[RULES])["rule"]
    assert rule["listeners"] == ["mqtt-1883"]


def test_a_listener_that_admits_nobody_goes_on_admitting_nobody(tmp_path: Path) -> None:
    move = moved(tmp_path, "listener 1883\n")
    assert "allow_anonymous" not in config(move)["listeners"]["mqtt-1883"]
    assert move.files["passwords"] == ""
    assert "listener 1883, no users" in settings_of(move, Outcome.MISSING)


def test_client_certificates_name_the_users(files: Path) -> None:
    move = moved(
        files,
        f"listener 8883\n{TLS}cafile ca.pem\ncrlfile crl.pem\nrequire_certificate true\n"
        "use_identity_as_username true\npassword_file passwd\ntls_version tlsv1.3\n",
    )
    found = config(move)
    assert found["listeners"]["tls-8883"]["tls"] == {
        "certificate": str(files / "cert.pem"),
        "key": str(files / "key.pem"),
        "minimum": "1.3",
        "client": "required",
        "client_ca": str(files / "ca.pem"),
        "crl": str(files / "crl.pem"),
    }
    assert found["authentication"] == {
        "certificates": {"type": "certificate", "name": "common_name", "ignore_username": True}
    }
    assert "allow_plaintext" not in found["listeners"]["tls-8883"]


def test_authorities_in_a_folder_are_copied_into_one_file(files: Path) -> None:
    (files / "cas").mkdir()
    for name in ("a.0", "b.pem"):
        (files / "cas" / name).write_text(f"-----BEGIN CERTIFICATE-----\n{name}\n")
    (files / "cas" / "README").write_text("no certificate")
    move = moved(files, f"listener 8883\n{TLS}capath cas\nrequire_certificate true\nallow_anonymous true\n")
    assert config(move)["listeners"]["tls-8883"]["tls"]["client_ca"] == "authorities-tls-8883.pem"
    assert move.files["authorities-tls-8883.pem"].count("BEGIN") == 2


@pytest.mark.parametrize("line", ["certfile nowhere.pem", "password_file nowhere", "acl_file nowhere"])
def test_a_file_that_is_not_there_is_told_with_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        moved(tmp_path, f"listener 1883\n{line}\n")
    [problem] = raised.value.problems
    assert (problem.line, problem.key) == (2, line.split()[0])
    assert "run this on the old broker's machine" in problem.message


@pytest.mark.parametrize("line", ["psk_hint x", "mount_point x/", "protocol http_api"])
def test_listeners_without_an_equal_are_left_out_and_reported(tmp_path: Path, line: str) -> None:
    move = moved(tmp_path, f"listener 1883 127.0.0.1\nallow_anonymous true\nlistener 1884\n{line}\n")
    assert list(config(move)["listeners"]) == ["mqtt-1883"]
    assert f"listener 1884, {line}" in settings_of(move, Outcome.MISSING)


def test_a_listener_on_one_interface_is_not_opened_to_all(tmp_path: Path) -> None:
    move = moved(tmp_path, "listener 1883\nbind_interface eth0\nallow_anonymous true\n")
    assert config(move)["listeners"]["mqtt-1883"]["endpoint"] == "tcp:1883:interface=127.0.0.1"


def test_endpoints(tmp_path: Path) -> None:
    move = moved(
        tmp_path,
        "listener 1883 ::1\nlistener 0 /run/a:b.sock\nlistener 1884\nsocket_domain ipv6\n"
        "listener 1885 127.0.0.1\nenable_proxy_protocol 2\nlistener 1886 127.0.0.1\nprotocol websockets\n"
        "websockets_origin https://example.org\nallow_anonymous true\n",
    )
    assert [each["endpoint"] for each in config(move)["listeners"].values()] == [
        r"tcp:1883:interface=\:\:1",
        r"unix:/run/a\:b.sock",
        r"tcp:1884:interface=\:\:",
        "haproxy:tcp:1885:interface=127.0.0.1",
        "tcp:1886:interface=127.0.0.1",
    ]
    assert config(move)["listeners"]["web-1886"]["origins"] == ["https://example.org"]


def test_without_a_listener_it_listens_on_this_machine_and_admits_guests(files: Path) -> None:
    move = moved(files, "password_file passwd\nmax_connections 5\n")
    assert config(move)["listeners"] == {
        "mqtt-1883": {"endpoint": "tcp:1883:interface=127.0.0.1", "allow_anonymous": True}
    }
    assert "max_connections 5" in settings_of(move, Outcome.MISSING)


def test_limits_have_their_options(tmp_path: Path) -> None:
    move = moved(
        tmp_path,
        "max_inflight_messages 0\nmax_queued_messages 0\nmax_packet_size 5000\nmax_keepalive 60\n"
        "persistent_client_expiration 2m\nretain_available false\nretain_expiry_interval 2\nsys_interval 0\n"
        "queue_qos0_messages true\nmemory_limit 100000000\nlog_type error\nlog_type notice\nmax_queued_bytes 0\n",
    )
    found = config(move)
    assert found["mqtt"] == {
        "max_inflight": 65535, "max_mqueue_len": "infinity", "max_packet_size": 5000, "max_keepalive": 60,
        "session_expiry_interval": "5184000s", "retain_available": False, "mqueue_store_qos0": True,
    }  # fmt: skip
    assert found["retainer"] == {"msg_expiry_interval": "120s"}
    assert found["sys_topics"] == {"sys_msg_interval": "disabled"}
    assert found["limits"] == {"memory": 100000000}
    assert found["log"] == {"level": "info"}
    assert settings_of(move, Outcome.MISSING) == ["max_queued_bytes 0"]


def test_plugins_of_mosquitto_2_1_stand_for_keywords(files: Path) -> None:
    move = moved(
        files,
        "listener 1883 127.0.0.1\nplugin /usr/lib/mosquitto_password_file.so\nplugin_opt_password_file passwd\n"
        "plugin /usr/lib/mosquitto_acl_file.so\nplugin_opt_acl_file acl\nlistener 1884 127.0.0.1\n"
        "listener_allow_anonymous true\n",
    )
    found = config(move)
    assert found["authentication"] == {"passwords": {"type": "file", "path": "passwords"}}
    assert found["authorization"]["sources"] == ["acl"]
    assert [each.get("allow_anonymous") for each in found["listeners"].values()] == [None, True]


def test_dynamic_security_gives_users_and_rules(tmp_path: Path) -> None:
    tree = {"clients": [{"username": "ann", "encoded_password": HASH}], "defaultACLAccess": {"subscribe": True}}
    (tmp_path / "d.json").write_text(json.dumps(tree))
    move = moved(
        tmp_path, "listener 1883 127.0.0.1\nplugin /x/mosquitto_dynamic_security.so\nplugin_opt_config_file d.json\n"
    )
    assert move.files["passwords"] == f"ann:{HASH}\n"
    assert config(move)["authorization"]["subscribe_partially"] is True
    assert len(tomllib.loads(move.files[RULES])["rule"]) > 1


def test_no_secret_is_in_the_report(files: Path) -> None:
    move = moved(
        files,
        "listener 1883 127.0.0.1\npassword_file passwd\nauth_plugin /x/go-auth.so\nauth_opt_pg_password hush\n"
        "connection cloud\naddress 192.0.2.1\nremote_password hush\nbridge_psk hush\npassword hush\n"
        "local_password hush\nunknown hush\ntls_engine_kpass_sha1 hush\n",
    )
    assert "hush" not in move.files[REPORT]
    assert "hush" not in move.files[CONFIG]
    assert "bridge-cloud-password" not in move.files  # the bridge is left out, because of its pre-shared key
    [bridge] = [each for each in settings_of(move, Outcome.MISSING) if each.startswith("connection cloud")]
    assert bridge.count("***") == 4
    assert "address 192.0.2.1" in bridge


def test_a_second_reading_makes_the_same_files(files: Path) -> None:
    text = "listener 1883\npassword_file passwd\nacl_file acl\nlistener 8883\n" + TLS
    assert moved(files, text).files == moved(files, text).files
