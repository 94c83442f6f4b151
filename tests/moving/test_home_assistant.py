"""The options of Home Assistant's add-on become a configuration with the same listeners and logins."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.toml import ConfigError
from holdfast.identity.hashes import verify
from holdfast.moving.home_assistant import Folders, move_home_assistant
from holdfast.moving.mosquitto_mapping import CONFIG, REPORT, Move
from holdfast.moving.report import Outcome

#: of the password foo, from the documentation of the add-on
HASHED = (
    "PBKDF2$sha512$100000$qsU7xQ8YCV/9nRuBBJVTxA==$jqw94Ej3aEr97UofY6rClmVCRkTdDiubQW0A6ZYmUI+pZjW9Hax+2w2FeYB3y5ut1SliB7"
    "+HAwIl2iONLKkohw=="
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folders of the add-on, with certificates, a customize folder with an ACL file, and the add-on's own users."""
    for name in ("data", "ssl", "share", "share/mosquitto"):
        (tmp_path / name).mkdir()
    for name in ("fullchain.pem", "privkey.pem", "ca.pem"):
        (tmp_path / "ssl" / name).write_text("")
    (tmp_path / "share" / "mosquitto" / "acl.conf").write_text(f"acl_file {tmp_path}/share/mosquitto/list\n")
    (tmp_path / "share" / "mosquitto" / "list").write_text("user homeassistant\ntopic readwrite #\n")
    own = {"homeassistant": {"password": "system-1"}, "addons": {"password": "system-2"}}
    (tmp_path / "data" / "system_user.json").write_text(json.dumps(own))
    return tmp_path


def moved(folder: Path, options: object, present: dict[str, str] | None = None) -> Move:
    path = folder / "data" / "options.json"
    path.write_text(json.dumps(options))
    return move_home_assistant(path, Folders(folder / "ssl", folder / "share"), present or {})


def users(move: Move) -> dict[str, str]:
    return dict(line.split(":", 1) for line in move.files["passwords"].splitlines())


def listeners(move: Move) -> dict[str, Any]:
    found = tomllib.loads(move.files[CONFIG])["listeners"]
    assert isinstance(found, dict)
    return found


def test_logins_and_the_add_ons_own_users_can_log_in(folder: Path) -> None:
    logins = [
        {"username": "old", "password": HASHED, "password_pre_hashed": True},
        {"username": "new", "password": "n"},
    ]
    found = users(moved(folder, {"logins": logins}))
    for user, password in {"old": "foo", "new": "n", "homeassistant": "system-1", "addons": "system-2"}.items():
        assert verify(found[user], password.encode())
        assert not verify(found[user], b"wrong")


def test_the_listeners_are_those_of_the_add_on(folder: Path) -> None:
    found = listeners(moved(folder, {"cafile": "ca.pem", "require_certificate": True}))
    assert list(found) == ["mqtt-1883", "web-1884", "tls-8883", "web-8884"]
    assert found["tls-8883"]["tls"]["client"] == "required"
    assert found["web-8884"]["tls"]["client_ca"] == str(folder / "ssl" / "ca.pem")
    assert not any(each.get("allow_anonymous") for each in found.values())


def test_without_certificates_there_is_no_tls(folder: Path) -> None:
    (folder / "ssl" / "privkey.pem").unlink()
    move = moved(folder, {})
    assert list(listeners(move)) == ["mqtt-1883", "web-1884"]
    assert "certfile, keyfile" in [each.setting for each in move.report.of(Outcome.MISSING)]


def test_the_customize_folder_counts_only_if_it_is_active(folder: Path) -> None:
    assert "acl" not in moved(folder, {"customize": {"active": False, "folder": "mosquitto"}}).files
    active = moved(folder, {"customize": {"active": True, "folder": "mosquitto"}})
    assert active.files["acl"] == "user homeassistant\ntopic readwrite #\n"


def test_a_second_run_keeps_the_hashes_of_unchanged_passwords(folder: Path) -> None:
    options = {"logins": [{"username": "new", "password": "n"}]}
    first = moved(folder, options)
    assert moved(folder, options, users(first)).files == first.files
    other = moved(folder, {"logins": [{"username": "new", "password": "m"}]}, users(first))
    assert users(other)["new"] != users(first)["new"]
    assert users(other)["addons"] == users(first)["addons"]


def test_no_secret_is_in_the_report(folder: Path) -> None:
    logins = [{"username": "a", "password": "hush"}, {"username": "b:b", "password": "hush"}]
    move = moved(folder, {"logins": logins, "future": "hush"})
    assert "hush" not in move.files[REPORT]
    assert "system-1" not in move.files[REPORT]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ([], ""),
        ({"logins": {}}, "logins"),
        ({"logins": [{"username": "a"}]}, "logins[0]"),
        ({"certfile": 7}, "certfile"),
        ({"certfile": "a\nallow_anonymous true"}, "certfile"),
        ({"customize": {"active": True, "folder": "a\nallow_anonymous true"}}, "customize.folder"),
    ],
)
def test_options_of_another_form_are_refused(folder: Path, options: object, key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        moved(folder, options)
    [problem] = raised.value.problems
    assert problem.key == key
    assert problem.file.endswith("options.json")
