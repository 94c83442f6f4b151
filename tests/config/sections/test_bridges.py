"""``[bridges.NAME]``: each mistake has its key, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.config import load
from holdfast.config.sections.bridges import RemoteAddress, parse_address
from tests.config.conftest import Problems

LINES = 'topics = [{ filter = "#" }]\n'


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        (LINES, "addresses", "is missing; for example"),
        ('addresses = ["a"]', "topics", "is missing; for example"),
        (f'addresses = "a"\n{LINES}', "addresses", 'found "a"; allowed: a list of addresses'),
        (f'addresses = ["a:70000"]\n{LINES}', "addresses", 'found "a:70000" in the list'),
        (f'addresses = ["mqtt://a"]\n{LINES}', "addresses", 'found "mqtt://a" in the list'),
        (f'addresses = ["a", "a"]\n{LINES}', "addresses", 'found "a" twice'),
        (f'addresses = ["a"]\npassword = "file:x"\n{LINES}', "password", "is sent without TLS to another machine"),
        (f'addresses = ["a"]\npassword = "hunter2"\n{LINES}', "password", "found no place of a secret"),
        (f'addresses = ["a"]\nrestart_timeout = "1m"\n{LINES}', "restart_timeout", "is longer than"),
        (f'addresses = ["a"]\ntls = {{ key = "k.pem" }}\n{LINES}', "tls.key", "has no effect without certificate"),
        ('addresses = ["a"]\ntopics = [{ local_prefix = "+/" }]', "topics.1.local_prefix", "has a wildcard"),
        ('addresses = ["a"]\ntopics = [{ remote_prefix = "x" }]', "topics.1.remote_prefix", "usually ends with /"),
        ('addresses = ["a"]\ntopics = [{ filter = "$SYS/#" }]', "topics.1.filter", "this broker's own topics"),
        (
            'addresses = ["a"]\ntopics = [{ filter = "$SYS/#", direction = "in" }]',
            "topics.1.filter",
            "set local_prefix, such as remote/",
        ),
    ],
)
def test_a_mistake_is_explained(problems_of: Callable[..., Problems], text: str, key: str, message: str) -> None:
    [(_, found, told)] = problems_of(f"[bridges.cloud]\n{text}\n")
    assert found == f"bridges.cloud.{key}"
    assert message in told


def test_the_words_of_mosquitto_are_taken(write: Callable[[str], Path]) -> None:
    bridge = load(
        write(
            '[bridges.cloud]\naddresses = ["a", "[::1]:99"]\nprotocol_version = "mqttv311"\ntls = {}\n'
            'topics = [{ filter = "x/#", direction = "out", qos = 2, local_prefix = "l/", remote_prefix = "r/" }]\n'
        )
    ).bridges["cloud"]
    assert bridge.remotes == (RemoteAddress("a", 8883), RemoteAddress("::1", 99))
    assert not bridge.v5
    assert [(line.local_filter, line.remote_filter) for line in bridge.topics] == [("l/x/#", "r/x/#")]


@pytest.mark.parametrize("text", ["", "a b", "a:", "a:0", "a:b", "::1", "user@a", "[x]:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    assert parse_address(text) is None
