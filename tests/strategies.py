"""Hypothesis strategies for topics, properties and packets of MQTT."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from holdfast.wire import packets as p
from holdfast.wire.properties import NO_PROPERTIES, WILL, Properties
from holdfast.wire.property_codec import PROPERTY_TABLE, PropertyType
from holdfast.wire.reasons import PERMITTED

_LEVEL = st.text(alphabet=st.sampled_from("ab$é*?[]%_\\ \U0001f30a"), max_size=3)
_TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
_IDENTIFIER = st.integers(1, 65535)


def topic_names() -> st.SearchStrategy[str]:
    """Topic Names: empty levels, ``$``, other scripts, and the characters SQL patterns know."""
    return st.lists(_LEVEL, min_size=1, max_size=6).map("/".join).filter(bool)


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    """Valid Topic Filters."""
    levels = draw(st.lists(st.one_of(_LEVEL, st.just("+")), min_size=1, max_size=6))
    if draw(st.booleans()):
        levels[-1] = "#"
    return "/".join(levels) or "#"


_VALUES: dict[PropertyType, st.SearchStrategy[Any]] = {
    PropertyType.BYTE: st.integers(0, 1),
    PropertyType.TWO_BYTE: st.integers(1, 65535),
    PropertyType.FOUR_BYTE: st.integers(1, 0xFFFFFFFF),
    PropertyType.VARIABLE: st.integers(1, 268_435_455),
    PropertyType.STRING: st.text(alphabet="abcé/", max_size=10),
    PropertyType.BINARY: st.binary(max_size=20),
    PropertyType.PAIR: st.tuples(_TEXT, _TEXT),
}


@st.composite
def properties(draw: st.DrawFn, packet_type: int) -> Properties:
    """Properties that this packet type may carry."""
    values: dict[str, Any] = {}
    for definition in PROPERTY_TABLE:
        if packet_type not in definition.packets or draw(st.integers(0, 3)):
            continue
        value = _VALUES[definition.type]
        if definition.repeatable:
            most = 1 if packet_type == 8 and definition.identifier == 0x0B else 3
            values[definition.field] = tuple(draw(st.lists(value, min_size=1, max_size=most)))
        else:
            values[definition.field] = draw(value)
    if packet_type == 1 and "authentication_data" in values:
        values["authentication_method"] = "m"
    return Properties(**values) if values else NO_PROPERTIES


@st.composite
def packets(draw: st.DrawFn, version: int) -> p.Packet:
    """Any Control Packet of this protocol version."""
    v5 = version == 5

    def block(packet_type: int) -> Properties:
        return draw(properties(packet_type)) if v5 else NO_PROPERTIES

    def reason(packet_type: int) -> int:
        return draw(st.sampled_from(sorted(PERMITTED[packet_type]))) if v5 else 0

    kind = draw(st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14] + ([15] if v5 else [])))
    match kind:
        case 1:
            will = None
            if draw(st.booleans()):
                will = p.Will(
                    draw(topic_names()), draw(st.binary(max_size=9)), draw(st.integers(0, 2)), draw(st.booleans()),
                    block(WILL),
                )  # fmt: skip
            username = draw(st.none() | _TEXT)
            password = draw(st.none() | st.binary(max_size=9)) if v5 or username is not None else None
            return p.Connect(
                draw(_TEXT), version, draw(st.booleans()), draw(st.integers(0, 65535)), username, password, will,
                block(1), bridge=not v5 and draw(st.booleans()),
            )  # fmt: skip
        case 2:
            return p.Connack(draw(st.booleans()), reason(2) if v5 else draw(st.integers(0, 5)), block(2))
        case 3:
            qos = draw(st.integers(0, 2))
            return p.Publish(
                draw(topic_names()), draw(st.binary(max_size=300)), qos, draw(st.booleans()),
                bool(qos) and draw(st.booleans()), draw(_IDENTIFIER) if qos else 0, block(3),
            )  # fmt: skip
        case 4 | 5 | 6 | 7:
            build: Any = {4: p.Puback, 5: p.Pubrec, 6: p.Pubrel, 7: p.Pubcomp}[kind]
            acknowledgement: p.Packet = build(draw(_IDENTIFIER), reason(kind), block(kind))
            return acknowledgement
        case 8:
            request = st.builds(
                p.SubscriptionRequest,
                topic_filters(),
                st.integers(0, 2),
                st.booleans() if v5 else st.just(False),
                st.booleans() if v5 else st.just(False),
                st.integers(0, 2) if v5 else st.just(0),
            )
            return p.Subscribe(draw(_IDENTIFIER), tuple(draw(st.lists(request, min_size=1, max_size=3))), block(8))
        case 9:
            code = st.sampled_from(sorted(PERMITTED[9])).map(int) if v5 else st.sampled_from([0, 1, 2, 0x80])
            return p.Suback(draw(_IDENTIFIER), tuple(draw(st.lists(code, min_size=1, max_size=3))), block(9))
        case 10:
            filters = tuple(draw(st.lists(topic_filters(), min_size=1, max_size=3)))
            return p.Unsubscribe(draw(_IDENTIFIER), filters, block(10))
        case 11:
            code = st.sampled_from(sorted(PERMITTED[11])).map(int)
            codes = tuple(draw(st.lists(code, min_size=1, max_size=3))) if v5 else ()
            return p.Unsuback(draw(_IDENTIFIER), codes, block(11))
        case 12:
            return p.Pingreq()
        case 13:
            return p.Pingresp()
        case 14:
            return p.Disconnect(reason(14), block(14))
        case _:
            return p.Auth(reason(15), block(15))


def fragments(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut bytes at these places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]
