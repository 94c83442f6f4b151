"""mosquitto's ACL files mean to Holdfast what they mean to a real mosquitto: random files, clients and topics."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.config.toml import ConfigError
from holdfast.core.messages import ApplicationMessage
from holdfast.identity.authorizer import Authorizer
from holdfast.identity.interfaces import Principal
from holdfast.identity.mosquitto_acl import read_acl
from holdfast.identity.rules import Ruleset
from tests.e2e.mosquitto import ADMIN, PROGRAM, Mosquitto

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(PROGRAM is None, reason="mosquitto is not installed")]

CLIENTS = [(None, "c1"), ("alice", "c1"), ("bob", "a b"), ("a+b", "c2"), ("alice", "c#"), ("a", "alice")]
USERS = ["alice", "bob", "a+b", "a"]
LEVELS = ["a", "b", "alice", "c1", "a b"]
TOPICS = [
    *LEVELS,
    *(f"{one}/{other}" for one in LEVELS for other in LEVELS),
    "a/b/alice",
    "b/c1/a",
    "x1/a",
    "$x/a",
    "%u/a",
]


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path_factory.mktemp("mosquitto"))
    broker.start()
    yield broker
    broker.stop()


def line(chance: random.Random, word: str) -> str:
    levels = [*LEVELS, "+", "+", "%u", "%c", "x%u"] if word == "pattern" else [*LEVELS, "+", "+", "$x", "%u"]
    parts = [chance.choice(levels) for _ in range(chance.randint(1, 3))]
    if chance.random() < 0.4:
        parts[-1] = "#"
    access = chance.choice(["read ", "write ", "readwrite ", "deny ", "read  "])
    return f"{word} {access}{'/'.join(parts)}"


def acl(chance: random.Random) -> str:
    """Return a random file."""
    lines = [line(chance, "topic") for _ in range(chance.randint(0, 2))]
    for user in USERS:
        lines += [f"user {user}"]
        lines += [line(chance, "topic") for _ in range(chance.randint(0, 3))]
    patterns = [line(chance, "pattern") for _ in range(chance.choice([0, 0, 1, 2, 4]))]
    return "\n".join(["# a comment", *lines, "", *patterns])


def compare(mosquitto: Mosquitto, text: str) -> None:
    mosquitto.load(text)
    authorizer = Authorizer(Ruleset(read_acl(mosquitto.acl)))
    for username, client_id in CLIENTS:
        principal = Principal(client_id, username)
        with mosquitto.client(username, client_id) as client, mosquitto.client(ADMIN, "admin") as admin:
            written = {topic for topic in TOPICS if client.may_publish(topic)}
            client.subscribe("#")
            client.subscribe("$x/#")
            for topic in TOPICS:
                admin.may_publish(topic)
            read = client.received_so_far()
        expected = {topic for topic in TOPICS if authorizer.may_publish(principal, topic, 1, False)}
        assert written == expected, f"written by {username} {client_id}:\n{text}"
        messages = {topic: ApplicationMessage(topic, b"x") for topic in TOPICS}
        expected = {topic for topic, message in messages.items() if authorizer.may_receive(principal, message)}
        assert read == expected, f"read by {username} {client_id}:\n{text}"


@pytest.mark.parametrize("seed", range(12))
def test_random_files(mosquitto: Mosquitto, seed: int) -> None:
    compare(mosquitto, acl(random.Random(seed)))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_many_random_files(mosquitto: Mosquitto, seed: int) -> None:
    compare(mosquitto, acl(random.Random(seed)))


def test_lines_that_mosquitto_refuses_are_refused(tmp_path: Path) -> None:
    """The lines are those of mosquitto's parser; see tests/identity/rules/test_rule_files.py for the messages."""
    path = tmp_path / "acl"
    for text in ("topics read a", "topic reed a", "user", "topic read a/#/b", "topic"):
        path.write_text(f"{text}\n")
        with pytest.raises(Exception, match=f"{path}:1: "):
            read_acl(path)


#: lines at the edge of mosquitto's parser, which it accepts
ODD = {
    "no type": "user alice\ntopic a/b",
    "no type, a space behind": "user alice\ntopic a/b ",
    "the name of a type": "user alice\ntopic read\ntopic deny",
    "tab for a space": "user alice\ntopic read\ta",
    "spaces": "user   alice  \ntopic   read    a b  ",
    "a user with spaces": "user alice b\ntopic read a\nuser alice",
    "CRLF": "# of Windows\r\nuser alice\r\ntopic read a/b\r\n\r\npattern write %u\r",
    "form feed": "user alice\ntopic read a\f\v",
    "parts of levels": "pattern read %u%c/a\npattern write x%ux\npattern read a/%c1/#",
    "a percent sign": "user alice\ntopic readwrite %u/a\npattern read %%u/+",
    "a level of a user": "pattern readwrite +/%u/#\npattern deny a/%u",
    "deny alone": "pattern deny #\nuser alice\ntopic read a/#",
    "deny the rest": "user alice\ntopic readwrite #\ntopic deny a/b",
    "deny twice": "user alice\ntopic deny a\ntopic readwrite a\ntopic deny a",
    "a long line": f"user alice\n# {'x' * 100_000}\ntopic read {'a/' * 150}b\ntopic read b",
    "an empty file": "",
    "a user twice": "user alice\ntopic read a\nuser bob\ntopic read b\nuser alice\ntopic write a",
    "guests after nobody": "topic read a\nuser alice\ntopic read b",
    "dollar": "user alice\ntopic read $x/#\ntopic read +/a",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_lines_mean_the_same(mosquitto: Mosquitto, name: str) -> None:
    compare(mosquitto, ODD[name])


#: what mosquitto does not accept
REFUSED = [
    "topics read a", "topic reed a", "user", "user ", "topic read a/#/b", "topic", "topic ", "\ttopic read a",
    "topic\tread a", "TOPIC read a", "topic Read a", "topic read a+/b", "pattern", "topic read a # the first",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_mosquitto_refuses_is_refused(tmp_path: Path, text: str) -> None:
    assert Mosquitto(tmp_path).refuses(f"{text}\n")
    with pytest.raises(ConfigError):
        read_acl(tmp_path / "acl")
