"""Every kind of value: allowed values, other values, and the messages."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.options import Choice, Duration, Flag, Integer, InvalidValue, Kind, Number, Rate, Size, Text
from holdfast.config.sections.endpoints import EndpointString
from holdfast.config.sections.mqtt import KeepAlive
from holdfast.config.sections.storage import FolderPath, StoreURL
from holdfast.core import units

KINDS: list[Kind] = [
    Flag(),
    Integer(1, 5),
    Integer(0, words={"infinity": None}, unit="things"),
    Number(1.0, 10.0),
    Choice((0, 1, 2)),
    Choice(("full",)),
    Text(),
    Duration("1s", "1h", infinity=True, zero="never"),
    Rate(),
    Size("1KB", "1MB", zero="no limit"),
    EndpointString(),
    KeepAlive(),
    FolderPath(),
    StoreURL(),
]


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (Flag(), True, True),
        (Integer(1, 5), 1, 1),
        (Integer(1, 5), 5, 5),
        (Integer(1), 10**30, 10**30),
        (Integer(1, words={"infinity": None}), "infinity", None),
        (Number(1.0, 10.0), 1, 1.0),
        (Number(1.0, 10.0), 10.0, 10.0),
        (Choice((0, 1, 2)), 2, 2),
        (Choice(("full", "async")), "async", "async"),
        (Text(), "", ""),
        (Duration("1s", "1h"), "1h", 3600.0),
        (Rate(), "1000/s", units.Rate(1000, 1)),
        (Rate(), "1/2s", units.Rate(1, 2)),
        (Rate(), "infinity", None),
        (Duration("1s", "1h", zero="never"), "0ms", 0.0),
        (Duration("1s", "1h", infinity=True), "infinity", None),
        (Size("1KB", "1MB"), 1024, 1024),
        (Size("1KB", "1MB"), "1MB", 1048576),
        (Size("1KB", "1MB", zero="no limit"), 0, 0),
        (KeepAlive(), "disabled", None),
        (KeepAlive(), 65535, 65535),
        (KeepAlive(), "5m", 300),
        (KeepAlive(), 0, 0),
    ],
)
def test_allowed_values_are_read(kind: Kind, written: object, value: object) -> None:
    read = kind.read(written)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("kind", "written", "found"),
    [
        (Flag(), 1, "1"),
        (Flag(), "true", '"true"'),
        (Integer(1, 5), 0, "0"),
        (Integer(1, 5), 6, "6"),
        (Integer(1, 5), True, "true"),
        (Integer(1, 5), 2.0, "2.0"),
        (Integer(1, 5), "infinity", '"infinity"'),
        pytest.param(Integer(1, 5), 16**10000, "an integer of more than 128 bits", id="huge"),
        (Number(1.0, 10.0), 0.99, "0.99"),
        (Number(1.0, 10.0), math.nan, "nan"),
        (Number(1.0, 10.0), math.inf, "inf"),
        (Number(1.0, 10.0), True, "true"),
        (Number(1.0, 10.0), "1.5", '"1.5"'),
        (Number(1.0, 10.0), 10**400, "an integer of more than 128 bits"),
        (Choice((0, 1, 2)), True, "true"),
        (Choice((0, 1, 2)), 1.0, "1.0"),
        (Choice(("full",)), "Full", '"Full"'),
        (Text(), [], "[]"),
        (Text(empty=False), "", '""'),
        (Text(), "a\nb", '"a\\nb"'),
        (Duration("1s", "1h"), 30, "30"),
        (Rate(), "0/s", '"0/s"'),
        (Rate(), 0, "0"),
        (Rate(), "1000", '"1000"'),
        (Rate(), "1/2d", '"1/2d"'),
        (Duration("1s", "1h"), "30", '"30"'),
        (Duration("1s", "1h"), "500ms", '"500ms"'),
        (Duration("1s", "1h"), "2h", '"2h"'),
        (Duration("1s", "1h"), "0s", '"0s"'),
        (Duration("1s", "1h"), "infinity", '"infinity"'),
        (Size("1KB", "1MB"), 1023, "1023"),
        (Size("1KB", "1MB"), "2MB", '"2MB"'),
        (Size("1KB", "1MB"), "0", '"0"'),
        (Size("1KB", "1MB"), True, "true"),
        (Size("1KB", "1MB"), "big", '"big"'),
        (Size("1KB", "1MB"), {}, "a table"),
        (KeepAlive(), 65536, "65536"),
        (KeepAlive(), -1, "-1"),
        (KeepAlive(), "1.5s", '"1.5s"'),
        (KeepAlive(), "off", '"off"'),
        (KeepAlive(), True, "true"),
    ],
)
def test_other_values_are_refused_with_the_value_and_the_allowed_ones(kind: Kind, written: object, found: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        kind.read(written)
    assert f"found {found}" in str(caught.value) or f"in {found}" in str(caught.value)
    assert str(caught.value).endswith(f"allowed: {kind.allowed}")


def test_a_long_string_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidValue) as caught:
        Flag().read("x" * 1000)
    assert str(caught.value) == f'found "{"x" * 57}..."; allowed: true or false'


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [
        (Integer(0, unit="things"), "an integer of 0 or more (things)"),
        (Integer(1, 9, words={"infinity": None}), 'an integer from 1 to 9 or "infinity"'),
        (Number(1.0, 10.0), "a number from 1.0 to 10.0"),
        (Choice((0, 1, 2)), "0, 1 or 2"),
        (Choice(("mqtt",)), 'only "mqtt"'),
        (
            Duration("1s", "1h", infinity=True, zero="never"),
            'a duration with its unit (ms, s, m, h, d, w) from 1s to 1h, or 0s (never) or "infinity"',
        ),
        (
            Size("1KB", "1MB", zero="no limit"),
            "a size (B, KB, MB, GB; a plain integer is bytes) from 1KB to 1MB, or 0 (no limit)",
        ),
    ],
)
def test_each_kind_describes_its_allowed_values(kind: Kind, allowed: str) -> None:
    assert kind.allowed == allowed


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(KINDS), anything)
def test_any_value_is_read_or_refused_on_one_line(kind: Kind, value: object) -> None:
    try:
        read = kind.read(value)
    except InvalidValue as invalid:
        message = str(invalid)
    else:
        assert kind.read(value) == read
        return
    assert message
    assert "\n" not in message
