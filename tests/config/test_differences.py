"""What a reload finds different, and when each option takes effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from holdfast.config import Config, load
from holdfast.config.differences import differences, keep_until_restart, takes_effect
from holdfast.config.document import ZoneOverrides, file_states
from holdfast.config.options import Option, Section, TakesEffect, described, variants_of
from holdfast.config.reference import described_options
from holdfast.config.shown_values import shown_value


def read(folder: Path, text: str) -> Config:
    """The configuration of a file with this text."""
    file = folder / "holdfast.toml"
    file.write_text(text)
    return load(file)


@pytest.mark.parametrize("key", [option["key"] for option in described_options()])
def test_each_option_says_when_a_change_takes_effect(key: str) -> None:
    """An option of a table that does not say it fails here."""
    path = key.split(".")
    plain = [part.split(" ")[0] for part in path]
    assert isinstance(takes_effect(plain), TakesEffect)


def test_no_option_of_a_zone_takes_effect_at_once() -> None:
    for table, entry in described(ZoneOverrides).items():
        for key in described(entry.section):  # type: ignore[union-attr]  # a zone has tables only
            assert takes_effect(("zones", "z", table, key)) is not TakesEffect.AT_ONCE


def test_an_unknown_option_is_not_taken_for_a_known_one() -> None:
    for path in (("listeners", "x", "new"), ("mqtt", "new"), ("storage", "new"), ("new", "x")):
        with pytest.raises(KeyError):
            takes_effect(path)


def options(section: type[Section]) -> Iterator[Option]:
    """Yield all options of a section, of its tables, and of its types of tables."""
    below: list[type[Section]] = []
    for entry in described(section).values():
        if isinstance(entry, Option):
            yield entry
        else:
            below.append(entry.section)
    variants = variants_of(section)
    for each in (*below, *(variants[1].types.values() if variants else ())):
        yield from options(each)


@pytest.mark.parametrize("entry", list(options(Config)), ids=lambda entry: entry.help[:40])
def test_each_option_is_shown_as_in_the_file(entry: Option) -> None:
    """Its default, its example and its words: the shown value means the same, and a word is shown as itself."""
    words = getattr(entry.kind, "words", {})
    for given in (entry.default, entry.example, *words):
        value = entry.kind.read(given)
        shown = json.loads(json.dumps(shown_value(value, entry.kind)))
        assert shown == given or entry.kind.read(shown) == value
        assert shown == given or given not in words


def test_differences_have_values_as_in_the_file(tmp_path: Path) -> None:
    old = read(tmp_path, '[mqtt]\nidle_timeout = "5s"\n[listeners.x]\nmax_conn_rate = "7/s"\n')
    new = read(tmp_path, "[mqtt]\nmax_keepalive = 60\n[listeners.x]\n[log]\nconnections = false\n")
    assert {each.key: (each.old, each.new) for each in differences(old, new)} == {
        "mqtt.idle_timeout": ("5s", "15s"),
        "mqtt.max_keepalive": ("disabled", 60),
        "listeners.x.max_conn_rate": ("7/s", "infinity"),
        "log.connections": (True, False),
    }  # fmt: skip


def test_of_a_new_table_only_the_name_is_told(tmp_path: Path) -> None:
    old = read(tmp_path, '[listeners.a]\nendpoint = "tcp:1:interface=127.0.0.1"\n')
    new = read(
        tmp_path,
        '[listeners.a]\nendpoint = "tcp:1:interface=127.0.0.1"\n[listeners.b]\nendpoint = "unix:/tmp/x"\n'
        '[authentication.p]\ntype = "file"\npath = "p"\n',
    )
    assert [(each.key, each.old, each.new) for each in differences(old, new)] == [
        ("listeners.b", None, "a table"),
        ("authentication.p.type", None, "file"),
    ]
    assert [(each.key, each.old, each.new) for each in differences(new, old)] == [
        ("listeners.b", "a table", None),
        ("authentication.p.type", "file", None),
    ]


def test_secrets_are_not_told(tmp_path: Path) -> None:
    old = read(tmp_path, '[storage]\nurl = "postgresql+psycopg://u:secret@h/d"\n')
    new = read(tmp_path, '[storage]\nurl = "postgresql+psycopg://u:hidden@h/d"\n')
    (url,) = differences(old, new)
    assert "secret" not in repr(url)
    assert "hidden" not in repr(url)


def test_differences_of_zones_are_told_by_option(tmp_path: Path) -> None:
    old = read(tmp_path, "[zones.z.mqtt]\nmax_inflight = 5\n")
    new = read(tmp_path, "[zones.z.mqtt]\nmax_inflight = 6\nmax_qos_allowed = 1\n")
    assert [(each.key, each.old, each.new, each.takes_effect) for each in differences(old, new)] == [
        ("zones.z.mqtt.max_inflight", 5, 6, TakesEffect.CONNECTING),
        ("zones.z.mqtt.max_qos_allowed", None, 1, TakesEffect.CONNECTING),
    ]


def test_what_needs_a_restart_keeps_its_running_value(tmp_path: Path) -> None:
    old = read(tmp_path, '[node]\nid = 3\n[listeners.x]\nendpoint = "tcp:1:interface=127.0.0.1"\n')
    new = read(
        tmp_path,
        '[node]\nid = 4\n[listeners.x]\nendpoint = "tcp:2:interface=127.0.0.1"\nmax_connections = 5\n'
        "[retainer.changes]\nenable = false\n"
        "[retainer.topic_quotas.q]\ntopic_filter = 'a/#'\n[log]\nconnections = false\n",
    )
    kept = keep_until_restart(old, new)
    assert kept.node.id == 3
    assert kept.listeners["x"].endpoint == "tcp:1:interface=127.0.0.1"
    assert kept.listeners["x"].max_connections == 5
    assert kept.retainer.changes.enable
    assert kept.retainer.topic_quotas["q"].topic_filter == "a/#"
    assert kept.log.connections is False
    assert {each.takes_effect for each in differences(kept, new)} == {TakesEffect.RESTART}
    assert keep_until_restart(old, attrs.evolve(old)) == old


def test_what_needs_a_restart_keeps_its_running_value_in_zones_too(tmp_path: Path) -> None:
    old = read(tmp_path, "[zones.a.mqtt]\nmax_inflight = 5\nwill_restart_grace = '5s'\n")
    new = read(
        tmp_path,
        "[zones.a.mqtt]\nmax_inflight = 6\nwill_restart_grace = '6s'\n"
        "[zones.b.mqtt]\nmax_inflight = 7\nwill_restart_grace = '7s'\n",
    )
    kept = keep_until_restart(old, new)
    assert kept.zones["a"].mqtt == {"max_inflight": 6, "will_restart_grace": 5.0}
    assert kept.zones["b"].mqtt == {"max_inflight": 7}
    assert [(each.key, each.old, each.new) for each in differences(kept, new)] == [
        ("zones.a.mqtt.will_restart_grace", "5s", "6s"),
        ("zones.b.mqtt.will_restart_grace", None, "7s"),
    ]


def test_a_touched_file_has_another_state(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("")
    config = read(tmp_path, '[authentication.p]\ntype = "file"\npath = "users"\n')
    before = file_states(config, {})
    assert list(before) == [users]
    users.write_text("x")
    assert file_states(config, {}) != before
