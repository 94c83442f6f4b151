"""Devices that differ from their family, wrong clocks, retained commands, configurations of devices that are gone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attrs import evolve
from pyspark.sql import SparkSession

from holdfast.core.messages import RetainedMessage
from holdfast_pipeline import snapshot_of
from holdfast_pipeline.checks.discovered import Stale
from holdfast_pipeline.jobs.check import check
from holdfast_pipeline.judging import devices as families
from holdfast_pipeline.judging.devices import is_misspelled
from holdfast_pipeline.judging.discovery import in_groups
from tests.pipeline.stores import NOW, database, message

pytestmark = pytest.mark.spark


def found_in(spark: SparkSession, folder: Path, messages: Iterable[RetainedMessage]) -> list[tuple[str, str]]:
    """Return the kinds and the subjects of all findings in retained messages."""
    folder.mkdir()
    with database("sqlite", folder) as filled:
        filled.put(*messages)
        with snapshot_of(filled.url) as snapshot:
            result = check(spark, evolve(snapshot, taken_at=NOW), (), discovers=True)
    return sorted((each.finding.kind, each.finding.subject) for each in result.findings)


def plant(pumps: int = 120) -> list[RetainedMessage]:
    """Return the messages of pumps that are all alike, and of a gateway with topics of its own."""
    parts = ("pressure", "flow", "motor/state", "motor/hours", "status")
    found = [message(f"plant/pump-{number}/{part}", b"1") for number in range(pumps) for part in parts]
    return [*found, *(message(f"plant/gateway/{name}", b"x") for name in ("uptime", "version", "load", "address"))]


def lamp(number: int, **more: object) -> RetainedMessage:
    """Return the configuration of a lamp, as Zigbee2MQTT announces it."""
    config = {
        "state_topic": f"zigbee2mqtt/lamp-{number}", "command_topic": f"zigbee2mqtt/lamp-{number}/set",
        "device": {"identifiers": [f"zigbee2mqtt_0x{number}"]},
    }  # fmt: skip
    return message(f"homeassistant/light/0x{number}/light/config", json.dumps(config | more).encode())


def home(lamps: int = 30) -> list[RetainedMessage]:
    """Return the messages of a home with lamps and plugs: states, availabilities and discovery."""
    found = [message("zigbee2mqtt/bridge/state", b'{"state":"online"}'), message("zigbee2mqtt/bridge/info", b"{}")]
    for number in range(lamps):
        found += [message(f"zigbee2mqtt/lamp-{number}", b'{"state":"ON"}'), lamp(number)]
        found.append(message(f"zigbee2mqtt/lamp-{number}/availability", b'{"state":"online"}'))
    for number in range(4):
        mac = f"A{number}"
        config = {"t": f"plug-{number}", "ft": "%prefix%/%topic%/", "tp": ["cmnd", "stat", "tele"]}
        found.append(message(f"tasmota/discovery/{mac}/config", json.dumps(config).encode()))
        found.append(message(f"tele/plug-{number}/LWT", b"Online"))
        short = {"~": f"tele/plug-{number}", "avty_t": "~/LWT", "dev": {"ids": [mac]}}
        found.append(message(f"homeassistant/switch/{mac}_RL_1/config", json.dumps(short).encode()))
    return found


def test_alike_devices_have_no_findings(spark: SparkSession, tmp_path: Path) -> None:
    """Nor a second kind of devices, nor commands that all devices of a family retain."""
    second = [message(f"plant/pump-{number}/vibration", b"1") for number in range(12)]
    desired = [message(f"plant/pump-{number}/set", b"1") for number in range(120)]
    assert found_in(spark, tmp_path / "plant", [*plant(), *second, *desired]) == []
    assert found_in(spark, tmp_path / "home", home()) == []
    assert found_in(spark, tmp_path / "small", home(2)) == []


def test_what_nearly_all_have_and_what_one_alone_has(spark: SparkSession, tmp_path: Path) -> None:
    """One finding for a device, however many topics it lacks."""
    without = {"plant/pump-7/flow", "plant/pump-7/pressure"}
    messages = [each for each in plant() if each.topic not in without]
    messages = [each for each in messages if each.topic != "plant/pump-9/pressure"]
    messages.append(message("plant/pump-9/presure", b"1"))
    messages.append(message("plant/pump-11/extra", b"1"))
    assert found_in(spark, tmp_path / "plant", messages) == [
        ("lone topic", "plant/pump-11"),
        ("missing topics", "plant/{pump}: flow, pressure"),
        ("misspelled topic", "plant/pump-9"),
    ]


def test_one_of_few_devices_differs(spark: SparkSession, tmp_path: Path) -> None:
    """All but one are nearly all, and a misspelled topic is told instead of the missing one."""
    without = {"plant/pump-7/flow", "plant/pump-8/motor/hours"}
    messages = [each for each in plant(25) if each.topic not in without]
    messages.append(message("plant/pump-8/motor/huors", b"1"))
    assert found_in(spark, tmp_path / "plant", messages) == [
        ("missing topics", "plant/{pump}: flow"),
        ("misspelled topic", "plant/pump-8"),
    ]


def test_a_family_of_devices_that_all_differ_is_told_and_hides_no_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "_SETS", 5)
    colors = ("red", "green", "blue", "amber", "white")
    mixed = [
        message(f"hall/box-{number}/{name}")
        for number in range(24)
        for name in ("a", *(color for bit, color in enumerate(colors) if number >> bit & 1))
    ]
    messages = [each for each in plant(25) if each.topic != "plant/pump-7/flow"]
    assert found_in(spark, tmp_path / "plant", [*messages, *mixed]) == [
        ("missing topics", "plant/{pump}: flow"),
        ("not compared", "hall/{box}"),
    ]


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("presure", "pressure", True), ("motor/huors", "motor/hours", True), ("Status", "status", True),
        ("stotus", "status", True), ("relay/1", "relay/2", False), ("relay/1", "relay/12", False),
        ("temp_min", "temp_max", False), ("co2", "co", False), ("flow", "pressure", False), ("flow", "flow", False),
    ],
)  # fmt: skip
def test_misspelled_names_differ_by_a_letter(one: str, other: str, told: bool) -> None:
    assert is_misspelled(one, other) is is_misspelled(other, one) is told


def test_retained_commands_are_told_from_the_states_of_a_family(spark: SparkSession, tmp_path: Path) -> None:
    """Behind a device and before it, of many devices and of one."""
    commands = [message("zigbee2mqtt/lamp-3/set", b'{"state":"ON"}'), message("zigbee2mqtt/lamp-4/set", b"OFF")]
    commands += [message("cmnd/plug-1/POWER", b"ON"), message("plant/pump-5/command", b"start")]
    single = [message("garden/valve/state", b"open"), message("garden/valve/set", b"open")]
    assert found_in(spark, tmp_path / "all", [*home(), *plant(), *commands, *single]) == [
        ("retained command", "cmnd/plug-1/POWER"),
        ("retained command", "garden/valve/set"),
        ("retained command", "plant/{pump}/command"),
        ("retained command", "zigbee2mqtt/{lamp}/set"),
    ]


def test_configurations_of_devices_that_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    """One finding for a device; entities without any topic that tells a state are not judged."""
    gone = [lamp(77), evolve(lamp(77), topic="homeassistant/sensor/0x77/linkquality/config")]
    button = message("homeassistant/button/x/config", b'{"command_topic": "x/press"}')
    plug = message("tasmota/discovery/AF/config", b'{"t": "plug-9", "ft": "%prefix%/%topic%/"}')
    broken = message("homeassistant/light/y/config", b"{not json")
    assert found_in(spark, tmp_path / "home", [*home(), *gone, button, plug, broken]) == [
        ("discovery without device", "plug-9"),
        ("discovery without device", "zigbee2mqtt_0x77"),
    ]


def test_states_that_are_not_retained_are_no_fault(spark: SparkSession, tmp_path: Path) -> None:
    """Then most devices have no message, and nothing tells which of them are gone."""
    assert found_in(spark, tmp_path / "home", [lamp(number) for number in range(20)]) == []
    some = [message(f"zigbee2mqtt/lamp-{number}", b'{"state":"ON"}') for number in range(10)]
    assert found_in(spark, tmp_path / "half", [*some, *(lamp(number) for number in range(20))]) == []


@pytest.mark.parametrize("form", ["iso", "seconds", "milliseconds", "local"])
def test_a_wrong_clock_is_told_from_those_of_its_siblings(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """Also where all clocks tell local times. Other times, such as that of an installation, are not compared."""

    def stated(number: int) -> object:
        at = NOW - 700 * number + (3 * 3_600_000 if number == 4 else 0)
        match form:
            case "seconds":
                return at / 1000
            case "milliseconds":
                return at
        moment = datetime.fromtimestamp(at / 1000, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}" + ("Z" if form == "iso" else "")

    shift = 3_600_000 if form == "local" else 0
    rows = [
        message(
            f"site/meter-{number}/reading",
            json.dumps({"value": 20 + number % 3, "ts": stated(number), "date": f"20{10 + number % 9}-01-01"}).encode(),
        )
        for number in range(20)
    ]
    folder = tmp_path / "site"
    folder.mkdir()
    with database("sqlite", folder) as filled:
        for number, each in enumerate(rows):
            filled.put(each, at=NOW - 700 * number + shift)
        with snapshot_of(filled.url) as snapshot:
            result = check(spark, evolve(snapshot, taken_at=NOW + shift), (), discovers=True)
    assert [(each.finding.kind, each.finding.subject) for each in result.findings] == [("wrong clock", "site/meter-4")]
    assert "is 3 h too late" in result.findings[0].finding.evidence


def test_times_whose_names_differ_in_their_case_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    """As those of Tasmota and Shelly beside each other."""
    rows = [message(f"tele/t{number}/SENSOR", b'{"Time":"2023-11-14T22:13:20Z"}') for number in range(12)]
    rows += [message(f"shelly{number}/status", b'{"time":"2023-11-14T22:13:20Z"}') for number in range(12)]
    assert found_in(spark, tmp_path / "home", rows) == []


def test_stale_devices_below_one_level_are_one_group(spark: SparkSession, tmp_path: Path) -> None:
    """A line that stands still is one finding; a device that is online has nothing new to say; parts are one device."""
    line = [Stale(f"hall/line4/press{number}", 2, 9000, 200, (f"hall/line4/press{number}/a",)) for number in range(6)]
    part = Stale("hall/line1/robot/motor", 1, 9000, 200, ("hall/line1/robot/motor/t",))
    robot = Stale("hall/line1/robot", 2, 9500, 300, ("hall/line1/robot/x",))
    told = in_groups([*line, part, robot])
    assert [(one.device, one.stale, one.devices) for one in told] == [
        ("hall/line1/robot", 3, 1), ("hall/line4", 12, 6),
    ]  # fmt: skip
    old = 20 * 3_600_000
    messages = [message(f"z/lamp-{number}", b'{"state":"ON"}', stored_at=NOW - number * 1000) for number in range(40)]
    online = [message("z/lamp-50/availability", b'{"state":"online"}'), message("z/lamp-51/availability", b"offline")]
    folder = tmp_path / "home"
    folder.mkdir()
    with database("sqlite", folder) as filled:
        filled.put(*messages, *online)
        for number in (50, 51):
            filled.put(message(f"z/lamp-{number}", b'{"state":"ON"}'), at=NOW - old)
        with snapshot_of(filled.url) as snapshot:
            result = check(spark, evolve(snapshot, taken_at=NOW), (), discovers=True)
    assert [(each.finding.kind, each.finding.subject) for each in result.findings] == [("stale device", "z/lamp-51")]


def test_quantities_in_one_shape_are_not_compared_with_each_other(spark: SparkSession, tmp_path: Path) -> None:
    """A sensor that is broken is still found among its peers."""
    names = ("co2", "humidity", "lux", "pressure", "noise", "voc", "pm", "uv", "wind", "rain", "soil", "radon")
    numbers = [(number, (number + more) % 12, more) for number in range(12) for more in range(6)]
    rows = [
        message(f"air-{number}/sensor/{names[name]}/state", b"%d" % (20 + (number + more) % 9 if name else 9000 + more))
        for number, name, more in numbers
    ]
    assert found_in(spark, tmp_path / "whole", rows) == []
    broken = [*rows[1:], message(rows[0].topic, b"999999")]
    assert found_in(spark, tmp_path / "broken", broken) == [("unusual values", "{air}/sensor/{sensor}/state")]
