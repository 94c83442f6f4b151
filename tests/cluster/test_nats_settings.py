"""The bus in the configuration: servers, the secret, and TLS; what is refused, and what is never shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cluster.nats_settings import NatsSettings, nats_settings
from holdfast.config import Config, ConfigError, load
from holdfast.config.differences import differences
from holdfast.config.sections.cluster import NatsServer, nats_servers
from tests.certificates import CLIENT, Authority

_BEGIN = 'storage.url = "postgresql+psycopg://db.example.org/holdfast"\n[cluster]\nname = "plant"\n'
_SECRET = 'secret = "file:secret"\n'


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], Config]:
    """Read a configuration with these lines in ``[cluster]``, as a start does."""

    def read(text: str) -> Config:
        file = tmp_path / "holdfast.toml"
        file.write_text(_BEGIN + text)
        return load(file).override([], None, None, allow_anonymous=True, cwd=tmp_path)

    return read


@pytest.fixture
def settings(read: Callable[[str], Config], tmp_path: Path) -> Callable[[str], NatsSettings | None]:
    """Read the settings of a broker with these lines, whose secret is right."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"0" * 44 + b"\n")
    secret.chmod(0o600)
    return lambda text: nats_settings(read('bus = "nats://a"\n' + _SECRET + text), {})


@pytest.mark.parametrize(
    ("bus", "servers"),
    [
        ("postgres", ()),
        ("nats://a", (NatsServer("a", 4222),)),
        ("nats://a:1, tls://[::1]:2", (NatsServer("a", 1), NatsServer("::1", 2, needs_tls=True))),
        ("tls://me:s%40c@a", (NatsServer("a", 4222, needs_tls=True, user="me", password="s@c"),)),
        ("nats://t0k%2Fen@a", (NatsServer("a", 4222, token="t0k/en"),)),
    ],
)
def test_the_servers_of_a_bus(bus: str, servers: tuple[NatsServer, ...]) -> None:
    """With the login of each."""
    assert nats_servers(bus.replace(" ", "")) == nats_servers(bus) == servers


@pytest.mark.parametrize(
    ("text", "key", "sentence"),
    [
        ('bus = "redis://me:hunter2@a"\n' + _SECRET, "cluster.bus", "found a server without nats:// or tls://, a host"),
        ('bus = "nats://me:hunter2@a:x"\n' + _SECRET, "cluster.bus", "whose host or port cannot be read"),
        ('bus = "nats://me:hunt@er2@a"\n' + _SECRET, "cluster.bus", "in a password, write %40"),
        ('bus = "nats://a,"\n' + _SECRET, "cluster.bus", "found a server without an address"),
        ('bus = "nats://a/subject"\n' + _SECRET, "cluster.bus", "more than a host and its port"),
        ('bus = ""\n', "cluster.bus", 'found no bus; allowed: "postgres", or servers of NATS'),
        (f'bus = "{",".join(["nats://a"] * 17)}"\n' + _SECRET, "cluster.bus", "found 17 servers; allowed: at most 16"),
        ('bus = "nats://a"\n', "cluster.secret", "is missing, and NATS needs it; make one with: .umask 077; openssl"),
        ('bus = "nats://a"\nsecret = "hunter2"\n', "cluster.secret", "found no place of a secret"),
        (_SECRET, "cluster.secret", 'has no effect with bus = "postgres"'),
        ('tls.ca = "ca.pem"\n', "cluster.tls", 'has no effect with bus = "postgres"'),
        ('bus = "nats://a"\n' + _SECRET + 'tls.key = "k"\n', "cluster.tls.key", "has no effect without certificate"),
    ],
)  # fmt: skip
def test_what_is_refused_says_why(read: Callable[[str], Config], text: str, key: str, sentence: str) -> None:
    """With the file, its line and the key; a password is never shown."""
    with pytest.raises(ConfigError, match=sentence) as caught:
        read(text)
    (problem,) = caught.value.problems
    assert problem.key == key
    assert "holdfast.toml" in str(caught.value)
    assert "hunt" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "mode", "sentence"),
    [
        (b"0" * 31 + b"\n", 0o600, "file:secret has 31 bytes; allowed: 32 or more. Make one with: openssl rand"),
        (b"0" * 32, 0o604, "every user of this machine may read or write this file; run: chmod o="),
        (None, 0o600, "the file cannot be read: No such file"),
        (b"", 0o600, "is empty"),
    ],
)  # fmt: skip
def test_a_secret_that_cannot_be_used_is_refused(
    read: Callable[[str], Config], tmp_path: Path, content: bytes | None, mode: int, sentence: str
) -> None:
    """With what to do."""
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
        (tmp_path / "secret").chmod(mode)
    with pytest.raises(ConfigError, match=sentence) as caught:
        nats_settings(read('bus = "nats://a"\n' + _SECRET), {})
    assert [problem.key for problem in caught.value.problems] == ["cluster.secret"]


def test_a_secret_may_come_from_elsewhere(read: Callable[[str], Config]) -> None:
    """From the environment; the database as the bus needs none."""
    found = nats_settings(read('bus = "nats://a"\nsecret = "env:CLUSTER_SECRET"\n'), {"CLUSTER_SECRET": "0" * 32})
    assert found is not None
    assert found.secret == b"0" * 32
    assert "0000" not in repr(found)
    assert nats_settings(read(""), {}) is None


def test_the_files_of_tls_are_read(settings: Callable[[str], NatsSettings | None], tmp_path: Path) -> None:
    """Authorities, the own certificate with those above it, and its key."""
    authority = Authority("Root")
    own = Authority("Below", authority).issue("broker", usage=CLIENT)
    own.write(tmp_path, "own")
    (tmp_path / "ca.pem").write_bytes(authority.chain)
    found = settings('tls.ca = "ca.pem"\ntls.certificate = "own.pem"\ntls.key = "own.key"\n')
    assert found is not None
    assert found.tls.authorities == [authority.certificate]
    assert found.tls.chain[0] == own.certificate
    assert len(found.tls.chain) == own.chain.count(b"BEGIN")
    assert found.tls.context("nats.example.org") is not None
    (tmp_path / "both.pem").write_bytes(own.chain + own.key_pem())
    assert settings('tls.certificate = "both.pem"\n') is not None


def test_files_of_tls_that_cannot_be_used_are_refused(
    settings: Callable[[str], NatsSettings | None], tmp_path: Path
) -> None:
    """With the key, the file, and the reason."""
    authority = Authority()
    own, other = authority.issue("broker", usage=CLIENT), authority.issue("other", usage=CLIENT)
    own.write(tmp_path, "own")
    other.write(tmp_path, "other")
    (tmp_path / "locked.key").write_bytes(own.key_pem(b"password"))
    (tmp_path / "text").write_bytes(b"no certificate")
    for lines, key, sentence in (
        ('tls.ca = "text"', "ca", "there is no usable certificate in PEM form"),
        ('tls.ca = "none"', "ca", "the file cannot be read: No such file"),
        ('tls.certificate = "own.pem"', "certificate", "there is no usable certificate in PEM form"),
        ('tls.certificate = "own.pem"\ntls.key = "text"', "key", "there is no usable key in PEM form"),
        ('tls.certificate = "own.pem"\ntls.key = "other.key"', "key", "the key is not that of the certificate"),
        ('tls.certificate = "own.pem"\ntls.key = "locked.key"', "key", "the key is encrypted"),
    ):
        with pytest.raises(ConfigError, match=sentence) as caught:
            settings(lines + "\n")
        assert [problem.key for problem in caught.value.problems] == [f"cluster.tls.{key}"]


def test_a_login_is_in_no_list_of_differences(read: Callable[[str], Config]) -> None:
    """As for the URL of the database."""
    one = read('bus = "nats://me:hunter2@a"\nsecret = "env:S"\n')
    other = read('bus = "nats://me:swordfish@a"\nsecret = "env:S"\n')
    found = differences(one, other)
    assert [each.key for each in found] == ["cluster.bus"]
    assert "hunter2" not in json.dumps([[each.old, each.new] for each in found])
