"""The sources of rules: an ACL file of mosquitto for some listeners only."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import load
from holdfast.config.toml import ConfigError
from holdfast.identity.authorizer import Permissions
from holdfast.identity.rule_sources import compiled, read_sources
from holdfast.identity.rules import Action, Identity

TEXT = """
[listeners.devices]
endpoint = "tcp:1883:interface=127.0.0.1"
[listeners.people]
endpoint = "tcp:1884:interface=127.0.0.1"
[authorization]
sources = ["one", "other"]
[authorization.one]
type = "mosquitto"
path = "one"
listeners = ["devices"]
[authorization.other]
type = "mosquitto"
path = "other"
listeners = ["people"]
"""


def config(folder: Path, text: str = TEXT) -> Path:
    (folder / "one").write_text("topic read a\npattern write own/%c\n")
    (folder / "other").write_text("topic read b\n")
    (folder / "holdfast.toml").write_text(text)
    return folder / "holdfast.toml"


def test_the_lines_of_a_file_are_for_the_clients_of_its_listeners(tmp_path: Path) -> None:
    rules = compiled(read_sources(load(config(tmp_path))), ())
    assert rules.grants_subscribe
    devices = Permissions(rules, Identity(None, "c", listener="devices"))
    people = Permissions(rules, Identity(None, "c", listener="people"))
    for found, allowed, denied in ((devices, "a", "b"), (people, "b", "a")):
        assert found.allows(Action.RECEIVE, allowed)
        assert not found.allows(Action.RECEIVE, denied)
    assert devices.allows(Action.PUBLISH, "own/c")
    assert not people.allows(Action.PUBLISH, "own/c")


def test_a_listener_that_does_not_exist_is_a_problem(tmp_path: Path) -> None:
    loaded = load(config(tmp_path, TEXT.replace('["devices"]', '["device"]')))
    with pytest.raises(ConfigError, match="did you mean"):
        read_sources(loaded)
