"""The shapes of a set of topics: found by themselves, the same for every order, and never too many."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.topics import matches
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.shapes import NO_SHAPE, Learner, Patterns, Shapes


def shapes_of(topics: Iterable[tuple[str, str]], patterns: Sequence[str] = (), most: int = 1000) -> Shapes:
    """Return the shapes of topics with their kinds of payloads."""
    learner, given_ones = Learner(), Patterns(patterns)
    for topic, kind in topics:
        if not given_ones.learn(topic):
            learner.add(topic, kind)
    return Shapes(learner.learn(most), given_ones)


def texts(shapes: Shapes) -> dict[str, list[int]]:
    """Return the texts of the shapes, with the numbers of names of their variables."""
    return {shape.text: [level.names for level in shape.levels if level.is_variable] for shape in shapes.shapes}


def building() -> list[tuple[str, str]]:
    """An office: on four floors, rooms with different numbers of lamps, and an alarm in every third room."""
    topics = []
    for floor in range(1, 5):
        for room in range(30):
            place = f"hq/floor-{floor}/r{floor}{room:02}"
            topics += [(f"{place}/climate/{quantity}", "number") for quantity in ("co2", "humidity", "temperature")]
            topics += [(f"{place}/light/lamp-{lamp}/state", "object") for lamp in range(1, 2 + room % 4)]
            topics += [(f"{place}/alarm", "text")] * (room % 3 == 0)
    return topics


def test_a_building_has_few_shapes() -> None:
    """Floors, rooms and lamps are variables; what is in every room, and the alarms that only some have, are names."""
    assert texts(shapes_of(building())) == {
        "hq/{floor}/{name}/alarm": [4, 120],
        "hq/{floor}/{name}/climate/co2": [4, 120],
        "hq/{floor}/{name}/climate/humidity": [4, 120],
        "hq/{floor}/{name}/climate/temperature": [4, 120],
        "hq/{floor}/{name}/light/{lamp}/state": [4, 120, 4],
    }


def test_a_home_has_few_shapes() -> None:
    """Devices have any names; what the bridge says of itself is something else, though it is beside them."""
    devices = ("sofa", "hall plug", "bed left", "garden", "washer")
    topics = [(f"zigbee2mqtt/{device}", "object") for device in devices]
    topics += [(f"zigbee2mqtt/{device}/availability", "object") for device in devices]
    topics += [("zigbee2mqtt/bridge/state", "object"), ("zigbee2mqtt/bridge/info", "object")]
    topics += [
        (f"homeassistant/{component}/0x00158d000{number}a2b3c/state/config", "object")
        for component in ("sensor", "switch", "light")
        for number in range(9)
    ]
    assert texts(shapes_of(topics)) == {
        "homeassistant/{name}/{name2}/state/config": [3, 9],
        "zigbee2mqtt/bridge/info": [],
        "zigbee2mqtt/bridge/state": [],
        "zigbee2mqtt/{name}": [5],
        "zigbee2mqtt/{name}/availability": [5],
    }


def test_different_quantities_stay_apart() -> None:
    """Siblings with nothing below are not alike only because all of them are numbers."""
    topics = [(f"boiler/{quantity}", "number") for quantity in ("flow", "pressure", "return", "supply")]
    assert set(texts(shapes_of(topics))) == {topic for topic, _ in topics}


def test_a_flat_list_of_devices_is_one_shape() -> None:
    """With numbers in their names three are enough, otherwise more than 16."""
    assert texts(shapes_of((f"meters/m-{number}", "number") for number in range(3))) == {"meters/{meter}": [3]}
    words = [("".join(pair), "number") for pair in zip("abcdefghijklmnopqr", "bcdefghijklmnopqrs", strict=True)]
    assert texts(shapes_of(words)) == {"{name}": [18]}


def test_given_patterns_come_first() -> None:
    """Their topics are not learned from, and the number of names of each named level is counted."""
    shapes = shapes_of(building(), ["hq/{storey}/{room}/light/{lamp}/#"])
    found = texts(shapes)
    assert found["hq/{storey}/{room}/light/{lamp}/#"] == [4, 120, 4]
    assert "hq/{floor}/{name}/climate/co2" in found
    assert shapes.number_of("hq/floor-1/r101/light/lamp-1/state") == 0
    with pytest.raises(PipelineError, match="is not a named level"):
        Patterns(["a/{b}c"])


def test_topics_like_the_learned_ones_have_their_shape() -> None:
    """A new lamp is a lamp; other topics have no shape. This holds where Spark's workers look, too."""
    shapes = pickle.loads(pickle.dumps(shapes_of(building())))
    text = {shape.number: shape.text for shape in shapes.shapes}
    assert text[shapes.number_of("hq/floor-9/r999/light/lamp-77/state")] == "hq/{floor}/{name}/light/{lamp}/state"
    assert shapes.number_of("hq/floor-1/r101/light/lamp-1/color") == NO_SHAPE
    assert shapes.number_of("other") == NO_SHAPE


_NAMES = ["a", "b", "c", "d1", "d2", "d30", "x", "", "1", "2", "3", "f00d17"]
_TOPICS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(_NAMES), min_size=1, max_size=5).map("/".join),
        st.sampled_from(["number", "object", "text"]),
    ),
    unique_by=lambda each: each[0],
    min_size=1,
    max_size=80,
)  # fmt: skip


@settings(max_examples=60)
@given(_TOPICS, st.randoms(use_true_random=False), st.integers(6, 40))
def test_each_topic_has_one_shape_whatever_the_order(topics: list[tuple[str, str]], random: Random, most: int) -> None:
    """Its Topic Filter matches the topic, shapes have different texts, and there are at most as many as allowed."""
    shapes = shapes_of(topics, most=most)
    assert len(shapes.shapes) <= most
    assert len(texts(shapes)) == len(shapes.shapes)
    for topic, _ in topics:
        assert matches(shapes.shapes[shapes.number_of(topic)].topic_filter, topic)
    shuffled = list(topics)
    random.shuffle(shuffled)
    assert texts(shapes_of(shuffled, most=most)) == texts(shapes)


def test_topics_with_very_many_levels_are_learned() -> None:
    """All levels from the 32nd on are one."""
    deep = "/".join(["a"] * 20_000)
    shapes = shapes_of([(deep, "text"), ("a", "text")])
    assert len(shapes.shapes[shapes.number_of(deep)].levels) == 32
