"""``[admin]``: the endpoint of the API, and when it needs TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.commands.examination import plain_api
from holdfast.config import ConfigError, default, load
from holdfast.config.document import exposure_problems


def problems(folder: Path, text: str) -> str:
    file = folder / "h.toml"
    file.write_text(text)
    try:
        load(file)
    except ConfigError as error:
        return str(error)
    return ""


def test_the_api_is_on_this_machine_by_default(tmp_path: Path) -> None:
    admin = default(tmp_path).admin
    assert admin.endpoint == "tcp:18083:interface=127.0.0.1"
    assert admin.is_loopback
    assert list(plain_api(default(tmp_path))) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('endpoint = "tcp:1"', "without TLS"),
        ('endpoint = "tcp:1:interface=192.0.2.1"', "admin.allow_plaintext = true"),
        ('endpoint = "haproxy:tcp:1"', 'or "" for none'),
        ("endpoint = 18083", 'or "" for none'),
        ('clients_of = "door"', 'no listener is named "door"; there are: "default"'),
        ('hosts = ["a:1"]', "without a port"),
        ('hosts = "a"', "list of names"),
        ('tls = { key = "k" }', "name the file of the certificate"),
    ],
)
def test_what_would_expose_keys_or_makes_no_sense_is_refused(tmp_path: Path, text: str, says: str) -> None:
    assert says in problems(tmp_path, f"[admin]\n{text}\n")


@pytest.mark.parametrize(
    "text",
    ['endpoint = ""', 'endpoint = "unix:a.sock"', 'endpoint = "tcp:1"\nallow_plaintext = true',
     'clients_of = "default"', 'endpoint = "tcp:1"\ntls = { certificate = "c" }', 'hosts = ["Broker.example"]'],
)  # fmt: skip
def test_these_are_allowed(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, f"[admin]\n{text}\n") == ""


def test_the_command_line_replaces_the_endpoint_and_is_judged_too(tmp_path: Path) -> None:
    config = default(tmp_path)
    off = config.override([], None, None, False, tmp_path, admin="")
    assert (off.admin.server_endpoint, exposure_problems(off)) == (None, [])
    for endpoint, says in (("tcp:1", "without TLS"), ("x", "Twisted server endpoint")):
        with pytest.raises(ConfigError, match=says):
            config.override([], None, None, False, tmp_path, admin=endpoint)


def test_the_doctor_tells_of_keys_in_plain_text(tmp_path: Path) -> None:
    file = tmp_path / "h.toml"
    file.write_text('[admin]\nendpoint = "tcp:1"\nallow_plaintext = true\n')
    (finding,) = plain_api(load(file))
    assert finding.subject == "admin.allow_plaintext"
