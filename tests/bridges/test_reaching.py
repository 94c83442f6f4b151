"""The files of TLS for bridges: a mistake is refused when the configuration is read, with its key."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.testing import MemoryReactorClock

from holdfast.bridges.service import prepare
from holdfast.config import Config, ConfigError, load
from holdfast.sessions.limits import Limits
from tests.certificates import CLIENT, Authority


def config_with(folder: Path, bridge: str) -> Config:
    path = folder / "holdfast.toml"
    path.write_text(f'[bridges.b]\naddresses = ["a"]\ntopics = [{{ filter = "#" }}]\n{bridge}\n')
    return load(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    authority = Authority()
    authority.write(tmp_path, "ca")
    authority.issue("me", usage=CLIENT).write(tmp_path, "me")
    (tmp_path / "empty.pem").write_text("")
    (tmp_path / "damaged.pem").write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    return tmp_path


@pytest.mark.parametrize(
    ("bridge", "key", "told"),
    [
        ('tls = { ca = "gone.pem" }', "tls.ca", "cannot be read: No such file"),
        ('tls = { ca = "empty.pem" }', "tls.ca", "there is no certificate in PEM"),
        ('tls = { ca = "damaged.pem" }', "tls.ca", "a certificate is damaged"),
        ('tls = { certificate = "me.pem", key = "empty.pem" }', "tls.key", "there is no certificate with its key"),
        ('tls = { certificate = "me.pem" }', "tls.certificate", "there is no certificate with its key"),
        ('tls = {}\nusername = "u"\npassword = "file:gone"', "password", "the file cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_its_key(folder: Path, bridge: str, key: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(config_with(folder, bridge), Limits(), MemoryReactorClock(), {})
    [problem] = caught.value.problems
    assert problem.key == f"bridges.b.{key}"
    assert told in problem.message


def test_bridges_differ_when_their_files_do(folder: Path) -> None:
    config = config_with(folder, 'tls = { ca = "ca.pem", certificate = "me.pem", key = "me.key" }')
    reactor = MemoryReactorClock()
    before = prepare(config, Limits(), reactor, {})
    assert prepare(config, Limits(), reactor, {}) == before
    Authority().issue("me", usage=CLIENT).write(folder, "me")
    assert prepare(config, Limits(), reactor, {}) != before
