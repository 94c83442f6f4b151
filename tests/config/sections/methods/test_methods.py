"""The options of authentication methods: what is missing, dangerous or contradictory stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.broker.identity import Authentication
from holdfast.config import Config, ConfigError, load
from holdfast.identity.hashes import HashingThreads
from holdfast.identity.users import Users
from holdfast.storage.store import DurableStore

JWT = 'type = "jwt"\nissuer = "x"\n'


def build(config: Config, environment: dict[str, str]) -> None:
    """Build the authentication, with a store that is not open."""
    from twisted.internet import reactor

    store = DurableStore(config.storage.url, node=1, reactor=reactor, now=lambda: 0)
    users = Users(store, now=lambda: 0, kept=True, required=False)
    threads = HashingThreads(reactor)
    Authentication(config, users=users, threads=threads, reactor=reactor, now=lambda: 0, environment=environment)


def problems(tmp_path: Path, table: str, builds: bool = False) -> str:
    """Return all problems of a table [authentication.NAME], one a line."""
    path = tmp_path / "holdfast.toml"
    path.write_text(f"[authentication.it]\n{table}\n")
    try:
        config = load(path)
        if builds:
            build(config, {"SHORT": "x", "BAD": "a\nb"})
    except ConfigError as error:
        return "\n".join(str(problem).partition("holdfast.toml:")[2] for problem in error.problems)
    return ""


@pytest.mark.parametrize(
    "table",
    [
        'type = "certificate"',
        'type = "certificate"\nname = "subject"\nignore_username = true',
        'type = "cred"\nchecker = "memory:alice:secret"',
        'type = "http"\nurl = "https://x.example/login?a=b"',
        'type = "http"\nurl = "http://127.0.0.1:8080/"',
        'type = "http"\nurl = "http://[::1]:8080/"\nheaders = { X-A = "b" }',
        'type = "http"\nurl = "http://x.example/"\nallow_plaintext = true',
        JWT + 'jwks_url = "https://x.example/keys"\naudience = "holdfast"',
        JWT + 'jwks_url = "http://localhost/keys"\nalgorithms = ["RS256"]',
        JWT + 'jwks_url = "https://x.example/keys"\nusername_claim = ""\nclaims = { name = "%u" }',
    ],
)
def test_a_table_without_problems(tmp_path: Path, table: str) -> None:
    assert problems(tmp_path, table, builds=True) == ""


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ('type = "cred"', "1: authentication.it.checker: is missing"),
        ('type = "http"', "1: authentication.it.url: is missing"),
        ('type = "http"\nurl = "ftp://x/"', "3: authentication.it.url: found no URL of https or http"),
        ('type = "http"\nurl = "https://u:hunter2@x/"', "found a user or a password before the host"),
        ('type = "http"\nurl = "https://x/${username}"', "such names stand in the body only"),
        ('type = "http"\nurl = "https://x/%u"', "such names stand in the body only"),
        ('type = "http"\nurl = "https://x/a b"', "has to be escaped"),
        ('type = "http"\nurl = "https://x:99999/"', "host or port cannot be read"),
        ('type = "http"\nurl = "http://x.example/"', "sends passwords in plain text"),
        ('type = "http"\nurl = "http://localhost.example/"', "sends passwords in plain text"),
        ('type = "http"\nurl = "http://127.0.0.1/"\nca = "x.pem"', "ca: has no effect"),
        ('type = "http"\nurl = "https://x/"\nheaders = { Host = "y" }', "which no option sets"),
        ('type = "http"\nurl = "https://x/"\nheaders = { "X-A" = "a\\nb" }', "X-A: found a control character"),
        ('type = "http"\nurl = "https://x/"\nheaders = { "X\\r\\nY" = "a" }', "which no option sets"),
        ('type = "http"\nurl = "https://x/"\nsecret_headers = { X = "hunter2" }', "X: found no place of a secret"),
        ('type = "http"\nurl = "https://x/"\nheaders = {X="a"}\nsecret_headers = {x="env:A"}', "x is in headers, too"),
        ('type = "http"\nurl = "https://x/"\ntimeout = "26s"', "timeout: found"),
        (JWT, "authentication.it.jwks_url: is missing; allowed: exactly one of secret, public_key, jwks, jwks_url"),
        (JWT + 'secret = "env:A"\njwks = "b"', "is one of 2 sources of keys"),
        (JWT + 'secret = "hunter2"', "found no place of a secret"),
        (JWT + 'jwks_url = "http://x.example/keys"', "others on the network could change the keys"),
        (JWT + 'jwks = "b"\nalgorithms = ["none"]', 'found "none" in the list'),
        (JWT + 'jwks = "b"\nalgorithms = ["HS256", 5]', "found 5 in the list"),
        (JWT + 'jwks = "b"\nusername_claim = ""', "any token would be good for every user"),
        (JWT + 'jwks = "b"\nusername_claim = ""\nclaims = { a = "%c" }', "any token would be good for every user"),
        (JWT + 'jwks = "b"\ntoken_in = "username"\nclaims = { a = "%u" }', "the User Name is the token"),
        (JWT + 'jwks = "b"\nclaims = { a = "x-%u" }', "%u and %c as the whole value only"),
        (JWT + 'jwks = "b"\nclaims = { a = 1.5 }', "a: found 1.5"),
        ('type = "certificate"\nname = "serial"', 'found "serial"'),
        ('type = "certificate"\nallow_all = true', "unknown key"),
    ],
)
def test_a_problem_is_told_at_its_line(tmp_path: Path, table: str, found: str) -> None:
    told = problems(tmp_path, table)
    assert found in told
    assert "hunter2" not in told


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ('type = "cred"\nchecker = "nothing:x"', "3: authentication.it.checker: there is no checker nothing"),
        (
            JWT + 'secret = "env:NONE"',
            "4: authentication.it.secret: env:NONE: the environment variable NONE is not set",
        ),
        (JWT + 'secret = "env:SHORT"', "4: authentication.it.secret: env:SHORT: the secret has 1 bytes"),
        (JWT + 'jwks = "none.json"', "4: authentication.it.jwks: none.json: there is no such file"),
        (JWT + 'public_key = "none.pem"', "4: authentication.it.public_key: none.pem: there is no such file"),
        (
            JWT + 'jwks_url = "https://x/"\njwks_ca = "none.pem"',
            "5: authentication.it.jwks_ca: none.pem: the file cannot",
        ),
        ('type = "http"\nurl = "https://x/"\nca = "holdfast.toml"', "4: authentication.it.ca: holdfast.toml: the file"),
        ('type = "http"\nurl = "https://x/"\nsecret_headers = { X = "env:BAD" }', "X: env:BAD has characters"),
    ],
)
def test_what_an_option_names_is_looked_at_when_the_broker_is_built(tmp_path: Path, table: str, found: str) -> None:
    assert found in problems(tmp_path, table, builds=True)


def built(tmp_path: Path, text: str, *auth: str) -> str:
    """Build the authentication of a file and these options --auth. Return its problems."""
    path = tmp_path / "holdfast.toml"
    path.write_text(text)
    try:
        config = load(path, allow_anonymous=True).override(
            [], None, None, allow_anonymous=False, cwd=tmp_path, auth=auth
        )
        build(config, {})
    except ConfigError as error:
        return "\n".join(map(str, error.problems))
    return ""


def test_checkers_of_the_command_line_are_asked_last_by_every_listener(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.toml"
    path.write_text(
        '[authentication.devices]\ntype = "certificate"\n[authentication.others]\ntype = "certificate"\n'
        '[listeners.a]\nendpoint = "tcp:1:interface=127.0.0.1"\nauthentication = ["devices"]\n'
        '[listeners.b]\nendpoint = "tcp:2:interface=127.0.0.1"\n'
    )
    config = load(path).override([], None, None, allow_anonymous=False, cwd=tmp_path, auth=["memory:a:b", "file:x"])
    names = {name: config.authentication.names_of(listener) for name, listener in config.listeners.items()}
    assert names == {
        "a": ("devices", "--auth 1", "--auth 2"),
        "b": ("devices", "others", "--auth 1", "--auth 2"),
    }


def test_a_checker_of_the_command_line_is_authentication(tmp_path: Path) -> None:
    assert built(tmp_path, "", "memory:alice:secret") == ""
    exposed = '[listeners.a]\nendpoint = "tcp:1883"\nallow_plaintext = true'
    assert "no authentication is configured" in built(tmp_path, exposed)
    assert built(tmp_path, exposed, "memory:alice:secret") == ""


@pytest.mark.parametrize(
    ("description", "why"),
    [("nothing:x", "there is no checker nothing"), ("", "there is no checker"), ("file:/none", "cannot be read")],
)
def test_a_checker_of_the_command_line_that_cannot_be_used(tmp_path: Path, description: str, why: str) -> None:
    told = built(tmp_path, "", description)
    assert told.startswith("command line: --auth: ")
    assert why in told
