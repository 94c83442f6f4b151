"""Files with rules: what they mean, and every mistake with its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.config.toml import ConfigError
from holdfast.identity.authorizer import Authorizer
from holdfast.identity.interfaces import Grant, Principal
from holdfast.identity.mosquitto_acl import read_acl
from holdfast.identity.rule_files import read_rules
from holdfast.identity.rules import EVERY_ACTION, Action, RuleList, Ruleset

RULE = '[[rule]]\ntopics = ["a"]\naction = ["publish"]\nallow = true\n'


def problems(read: Callable[[Path], RuleList], path: Path, text: str) -> list[str]:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read(path)
    return [str(problem).removeprefix(f"{path}:") for problem in caught.value.problems]


def test_rules_groups_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        '[groups]\nsensors = ["a", "b"]\n\n[[rule]]\ngroups = ["sensors"]\naddresses = ["10.0.0.0/8", "unix"]\n'
        'topics = ["s/%u/#"]\naction = "all"\nallow = true\n' + RULE
    )
    listed = read_rules(path)
    first, second = listed.rules
    assert (first.origin, second.origin) == (f"{path}:4", f"{path}:10")
    assert (first.actions, second.actions) == (EVERY_ACTION, frozenset({Action.PUBLISH}))
    assert listed.groups == {"a": frozenset({"sensors"}), "b": frozenset({"sensors"})}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{RULE}user = ['x']\n", "5: rule.user: unknown key; did you mean rule.users?"),
        (RULE.replace("allow = true\n", ""), "1: rule: has no allow; allowed: true or false"),
        (RULE.replace('["a"]', "[]"), "2: rule.topics: found []; allowed: a list of one or more Topic Filters"),
        (RULE.replace('"a"', '"a/x%u"'), '2: rule.topics: found "a/x%u"; allowed: %u, %c and %g as whole levels'),
        (RULE.replace('"a"', '"a/#/b"'), "2: rule.topics: found \"a/#/b\": '#' stands alone in the last level"),
        (f'{RULE}users = ["al\u200bice"]\n', '5: rule.users: found "al\\u200bice" with the invisible character U+200B'),
        ('[groups]\nsensors = ["al\u2060ice"]\n', '2: groups.sensors: found "al\\u2060ice" with the invisible'),
        (f"{RULE}users = []\n", "5: rule.users: found []; allowed: a list of one or more names"),
        (f'{RULE}addresses = ["10.0.0.1/8"]\n', '5: rule.addresses: found "10.0.0.1/8", which has bits after'),
        ('[rules]\nx = 1\n', "1: rules: unknown key; did you mean [[rule]]?"),
        ("[[rule]\n", "1: not TOML: "),
    ],
)  # fmt: skip
def test_a_mistake_in_a_rule_file_has_its_line(tmp_path: Path, text: str, message: str) -> None:
    (found,) = problems(read_rules, tmp_path / "rules.toml", text)
    assert found.startswith(message)


def test_every_mistake_is_told(tmp_path: Path) -> None:
    text = RULE.replace("true", "1") + RULE.replace('"publish"', '"write"')
    assert len(problems(read_rules, tmp_path / "rules.toml", text)) == 2


@pytest.mark.parametrize("read", [read_rules, read_acl])
def test_a_file_that_everyone_may_write_is_refused(tmp_path: Path, read: Callable[[Path], RuleList]) -> None:
    path = tmp_path / "rules"
    path.write_text("")
    assert read(path).rules == ()
    path.chmod(0o646)
    with pytest.raises(ConfigError, match="every user of this machine may change these rules; run: chmod o-w"):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topic read a\ntopics read a", '2: found "topics read a"; allowed: user, topic, pattern and a space'),
        ("topic reed a", '1: found the access "reed"; allowed: read, write, readwrite, deny'),
        ("topic", "1: found the topic \"\": a Topic Filter has at least one character"),
        ("user ", "1: no name follows the word user"),
        ("topic a\nuser al\u200bice", '2: found the user "al\\u200bice" with the invisible character U+200B'),
        ("pattern read a/%g", '1: found the topic "a/%g"; allowed in patterns: %u and %c'),
    ],
)  # fmt: skip
def test_a_mistake_in_an_acl_file_has_its_line(tmp_path: Path, text: str, message: str) -> None:
    (found,) = problems(read_acl, tmp_path / "acl", text)
    assert found.startswith(message)


ROOT = Path(__file__).parents[3]


# Topics in the documentation of each make, by User Name; the device has the name "lamp" there.
HOME_TOPICS = {
    "Tasmota": (
        "lamp",
        [
            "tele/lamp/LWT",
            "stat/lamp/RESULT",
            "tasmota/discovery/A8032ABE54DC/config",
            "tasmota/discovery/A8032ABE54DC/sensors",
        ],
        ["cmnd/lamp/#", "cmnd/tasmotas/#"],
    ),
    "Shelly, first generation": (
        "lamp",
        ["shellies/lamp/online", "shellies/lamp/relay/0", "shellies/announce"],
        ["shellies/command", "shellies/lamp/command", "shellies/lamp/relay/0/command"],
    ),
    "Shelly, later": (
        "lamp",
        ["lamp/online", "lamp/events/rpc", "lamp/status/switch:0", "shellies/announce"],
        ["lamp/rpc", "lamp/command", "lamp/command/switch:0", "shellies/command"],
    ),
    "ESPHome": (
        "lamp",
        [
            "lamp/status",
            "lamp/debug",
            "lamp/light/ceiling/state",
            "esphome/discover/lamp",
            "homeassistant/light/lamp/ceiling/config",
        ],
        ["lamp/light/ceiling/command", "esphome/discover", "esphome/ping/lamp"],
    ),
    "WLED": (
        "lamp",
        ["wled/lamp/status", "wled/lamp/g", "wled/lamp/c", "wled/lamp/v"],
        ["wled/lamp", "wled/lamp/col", "wled/lamp/api", "wled/all", "wled/all/col", "wled/all/api"],
    ),
    "Frigate": (
        "frigate",
        [
            "frigate/available",
            "frigate/events",
            "frigate/stats",
            "frigate/garden/person/snapshot",
            "frigate/garden/detect/state",
        ],
        ["frigate/restart", "frigate/garden/detect/set", "frigate/+/ptz"],
    ),
    "Zigbee2MQTT": (
        "zigbee2mqtt",
        [
            "zigbee2mqtt/bridge/state",
            "zigbee2mqtt/bridge/devices",
            "zigbee2mqtt/kitchen",
            "homeassistant/light/0x01/light/config",
        ],
        ["zigbee2mqtt/#", "homeassistant/status", "homeassistant/#"],
    ),
    "Home Assistant": (
        "homeassistant",
        ["homeassistant/status", "cmnd/lamp/POWER", "zigbee2mqtt/kitchen/set", "homeassistant/light/lamp/config"],
        ["homeassistant/#", "tasmota/discovery/#", "shellies/+/info", "frigate/#", "#"],
    ),
}


@pytest.mark.parametrize("make", HOME_TOPICS)
def test_the_rules_for_a_home_allow_the_topics_of_each_make(make: str) -> None:
    home = Authorizer(Ruleset(read_rules(ROOT / "etc" / "examples" / "home-rules.toml")))
    user, published, subscribed = HOME_TOPICS[make]
    principal = Principal("c", user)
    for topic in published:
        assert home.may_publish(principal, topic, 1, True), topic
    for topic_filter in subscribed:
        assert home.may_subscribe(principal, topic_filter, 1) is Grant.GRANTED, topic_filter


def test_the_rules_for_a_home_keep_devices_apart() -> None:
    home = Authorizer(Ruleset(read_rules(ROOT / "etc" / "examples" / "home-rules.toml")))
    lamp = Principal("c", "lamp")
    for topic in (
        "stat/boiler/POWER",
        "boiler/status",
        "wled/boiler",
        "shellies/boiler/online",
        "esphome/discover/boiler",
        "homeassistant/light/boiler/x/config",
        "homeassistant/status",
        "cmnd/tasmotas/POWER",
        "wled/all",
        "shellies/command",
        "zigbee2mqtt/kitchen/set",
    ):
        assert not home.may_publish(lamp, topic, 0, False), topic
    for topic_filter in ("#", "stat/boiler/#", "tasmota/discovery/#", "wled/boiler", "zigbee2mqtt/#"):
        assert home.may_subscribe(lamp, topic_filter, 0) is Grant.REFUSED, topic_filter
    assert not home.may_publish(Principal("c", "zigbee2mqtt"), "stat/lamp/POWER", 0, False)
    assert not home.may_publish(Principal("c", "frigate"), "lamp/status", 0, False)


def test_the_examples_can_be_used(tmp_path: Path) -> None:
    examples = ROOT / "etc" / "examples"
    assert len(read_rules(examples / "rules.toml").rules) == 5
    assert len(read_acl(examples / "mosquitto.acl").rules) == 5
    fleet = Authorizer(Ruleset(read_rules(examples / "fleet-rules.toml")))
    assert fleet.may_publish(Principal("c", "car-7"), "vehicles/car-7/position", 1, True)
    assert not fleet.may_publish(Principal("c", "car-7"), "vehicles/car-8/position", 1, True)
    assert fleet.may_publish(Principal("c", "dispatch"), "vehicles/car-8/commands/stop", 1, False)
    page = (ROOT / "docs" / "operator" / "permissions.md").read_text()
    on_page = re.findall(r"(?ms)^```rules\n(.*?)^```$", page)
    assert len(on_page) == 3
    for text in on_page:
        path = tmp_path / "rules.toml"
        path.write_text(text)
        assert read_rules(path).rules
