"""The retainer's settings while the broker runs: shown in writable form, changed, or refused with all problems."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.admin.api.settings_view import shown
from holdfast.config.options import Option, Section, Subsection, described
from holdfast.config.reader import Reader
from holdfast.config.sections.retainer import RetainerConfig, TopicQuotaConfig
from holdfast.core.units import Rate
from holdfast.retained.limits import Limit
from tests.admin.doubles import Desk


def options(section: type[Section], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Option]]:
    """Return all options of a section and of its tables."""
    found: list[tuple[tuple[str, ...], Option]] = []
    for name, entry in described(section).items():
        if isinstance(entry, Option):
            found.append(((*path, name), entry))
        elif isinstance(entry, Subsection):
            found += options(entry.section, (*path, name))
    return found


def read(values: dict[str, Any]) -> RetainerConfig:
    reader = Reader(RetainerConfig)
    config = reader.section(RetainerConfig, values, ())
    assert reader.problems == []
    return config


@pytest.mark.parametrize("which", ["default", "example"])
def test_shown_values_may_be_written_again(which: str) -> None:
    """Reading the shown form of each option gives the same value, for its default and for another value."""
    for path, option in options(RetainerConfig):
        *tables, name = path
        values: dict[str, Any] = {name: getattr(option, which)}
        if (name, which) == ("record_acknowledge", "example"):
            values["record"] = "all"  # it needs that
        for table in reversed(tables):
            values = {table: {"mine": values} if table == "topic_quotas" else values}
        if path[0] == "policies":
            values = {"policies": [{"filter": "a", **values["policies"]}]}
        if path == ("flow_control", "batch_read_number"):
            values["flow_control"]["batch_deliver_number"] = 0
        config = read(values)
        once = json.loads(json.dumps(shown(config)))
        assert read(once) == config, path


def test_the_shown_form_is_that_of_emqx() -> None:
    config = RetainerConfig(
        delivery_rate=Rate(1000, 1.0),
        msg_expiry_interval=90.5,
        topic_quotas={"a": TopicQuotaConfig(topic_filter="a/#")},
    )
    told = Desk(config=config).ask("GET")
    assert told["enable"] is True
    assert told["delivery_rate"] == "1000/s"
    assert told["msg_expiry_interval"] == "90.5s"
    assert told["msg_expiry_interval_override"] == "disabled"
    assert told["flow_control"]["batch_read_number"] == 1000
    assert told["topic_quotas"]["a"]["topic_filter"] == "a/#"
    assert told["until_restart"] == []


def test_a_change_takes_effect_at_once_until_the_restart() -> None:
    """Also for running replays. Messages retained meanwhile are not missed, since nothing stops."""
    desk = Desk()
    told = desk.ask(
        "PUT", "", {"delivery_rate": "5/s", "max_publish_rate": "2/s", "flow_control": {"client_rate": "3/s"}}
    )
    assert told["until_restart"] == ["max_publish_rate", "delivery_rate", "flow_control.client_rate"]
    assert desk.broker.replays.flow.settings.delivery_rate == Rate(5, 1.0)
    assert desk.broker.replays.flow.settings.client_rate == Rate(3, 1.0)
    for number in range(3):
        desk.retain(f"t/{number}")
    assert desk.broker.retained.admission.refusals[Limit.PUBLISH_RATE] == 1
    assert desk.ask("PUT", "", {"delivery_rate": "infinity"})["until_restart"] == [
        "max_publish_rate",
        "flow_control.client_rate",
    ]
    assert desk.broker.replays.flow.settings.delivery_rate is None
    assert desk.broker.replays.flow.settings.client_rate == Rate(3, 1.0)


def test_the_whole_answer_may_be_sent_back() -> None:
    """EMQX's clients read, change one value, and write."""
    desk = Desk(config=RetainerConfig(delivery_rate=Rate(7, 1.0)))
    told = desk.ask("GET")
    assert told["delivery_rate"] == "7/s"
    assert desk.ask("PUT", "", told) == told
    told["delivery_rate"] = "3/s"
    told["until_restart"] = ["nonsense"]
    assert desk.ask("PUT", "", told)["until_restart"] == ["delivery_rate"]
    assert desk.refused("PUT", "", {"deliver_rate": "9/s"})[:2] == (400, "UPDATE_FAILED")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", ["not JSON"]),
        ("[]", ["not a JSON object"]),
        ("[" * 10_000, ["nested too deep"]),
        ('{"delivery_rate": "1/s", "delivery_rate": "2/s"}', ["delivery_rate: occurs twice"]),
        ({"delivery_rate": 5}, ["retainer.delivery_rate: found 5; allowed: "]),
        ({"delivery_rate": None}, ["retainer.delivery_rate: found "]),
        ({"delivery_rate": "0/s"}, ["retainer.delivery_rate: found"]),
        ({"delivery_rate": "\ud800"}, ["delivery_rate: is not Unicode text"]),
        ({"delivery": "5/s"}, ["retainer.delivery: ", "delivery_rate"]),
        ({"flow_control": 5}, ["retainer.flow_control: found 5"]),
        ({"flow_control": {"batch_deliver_number": 1001}}, ["batch_deliver_number of at most batch_read_number"]),
        ({"flow_control": {"batch_read_number": -1}, "max_publish_rate": ""}, ["read_number: ", "publish_rate: "]),
        ({"enable": False}, ["retainer.enable: cannot be changed by this call"]),
        ({"history": {"enable": True}}, ["retainer.history.enable: cannot be changed by this call"]),
        ({"topic_quotas": {"a": {"topic_filter": "a"}}}, ["retainer.topic_quotas.a.topic_filter: cannot be changed"]),
        ({"enable": False, "on_limit": "drop_old"}, ["retainer.enable: ", "retainer.on_limit: "]),
    ],
)  # fmt: skip
def test_an_invalid_change_is_refused_with_all_its_problems(body: Any, says: list[str]) -> None:
    """No part of it is made, not even the valid part."""
    desk = Desk()
    if isinstance(body, dict):
        body = {"max_publish_rate": "7/s", **body}
    before = desk.ask("GET")
    status, code, message = desk.refused("PUT", "", body)
    assert (status, code) == (400, "UPDATE_FAILED")
    for one in says:
        assert one in message
    assert message.isascii()
    assert desk.ask("GET") == before
    assert desk.broker.retained.admission.limits.max_publish_rate is None
