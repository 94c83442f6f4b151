"""The kinds of values in a file of rules, beside those of the configuration. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import field, frozen

from holdfast.config.options import InvalidValue, Kind, Rate, Text, invalid_value
from holdfast.core import units
from holdfast_pipeline.checks.json_schema import BadSchema, JsonSchema, parsed_schema
from holdfast_pipeline.decoding.values import JsonPath, json_path
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.options import check_filter
from holdfast_pipeline.sources.topic_patterns import topic_pattern

_MOST_VALUES = 1000
_MOST_SIBLINGS = 20
#: A name in braces.
NAMED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SIBLING = re.compile(r"(?:\.\./)*[^+#\x00]+\Z")


@frozen
class OrNothing:
    """A value of another kind, or "" for none."""

    kind: Kind

    @property
    def allowed(self) -> str:
        """The values of the other kind."""
        return self.kind.allowed

    def read(self, value: object) -> object:
        """Return the value, None for none; raises InvalidValue."""
        return None if value == "" else self.kind.read(value)


@frozen
class TopicFilter:
    """A Topic Filter, or "" for none."""

    allowed: str = field(default="a Topic Filter, such as site/+/temperature or site/#", init=False)

    def read(self, value: object) -> str:
        """Return the filter; raises InvalidValue."""
        text = Text(allowed=self.allowed).read(value)
        return _explained(lambda: check_filter(text), text)


@frozen
class ShapeText:
    """A shape: a Topic Filter with named levels; or "" for none."""

    allowed: str = field(default="a shape, such as hq/{floor}/{room}/light/{lamp}/state", init=False)

    def read(self, value: object) -> str:
        """Return the shape; raises InvalidValue."""
        text = Text(allowed=self.allowed).read(value)
        return _explained(lambda: topic_pattern(text), text) if text else text


@frozen
class ValuePath:
    """The place of a value in a JSON payload; "" is the whole payload."""

    allowed: str = field(default="a path, such as $.temperature or $.sensors[0].value", init=False)

    def read(self, value: object) -> JsonPath:
        """Return the steps of the path; raises InvalidValue."""
        text = Text(allowed=self.allowed).read(value)
        if not text:
            return ()
        _explained(lambda: json_path(text), text)
        return json_path(text)


@frozen
class Values:
    """A list of texts, numbers and truth values."""

    allowed: str = field(
        default=f'a list of at most {_MOST_VALUES} texts, numbers, true or false, as in ["on", "off"]', init=False
    )

    def read(self, value: object) -> tuple[str | float | bool, ...]:
        """Return the values; raises InvalidValue."""
        if not isinstance(value, list) or len(value) > _MOST_VALUES:
            raise invalid_value(value, self.allowed)
        for each in value:
            if not isinstance(each, (str, int, float, bool)):
                raise invalid_value(each, self.allowed)
            if isinstance(each, int) and each.bit_length() > 1000:
                raise invalid_value(each, "numbers that fit into 64 bits")
        return tuple(value)


@frozen
class RelativeTopics:
    """A list of topics beside a topic, which may begin with ``../``; or of those ``below`` it."""

    below: bool = False

    @property
    def allowed(self) -> str:
        """The lists that are allowed."""
        if self.below:
            return (
                f'a list of at most {_MOST_SIBLINGS} topics below a device, as in ["temperature", "light/state"],'
                " without names in braces"
            )
        return (
            f'a list of at most {_MOST_SIBLINGS} topics beside a topic, as in ["temperature", "../status"],'
            " each with ../ only at its beginning"
        )

    def read(self, value: object) -> tuple[str, ...]:
        """Return the relative topics; raises InvalidValue."""
        if not isinstance(value, list) or len(value) > _MOST_SIBLINGS:
            raise invalid_value(value, self.allowed)
        for each in value:
            if not isinstance(each, str) or _SIBLING.match(each) is None:
                raise invalid_value(each, self.allowed)
            above, rest = levels_beside(each)
            # The names of a device's levels stand in its own topic already.
            if not rest or ".." in rest.split("/") or (self.below and (above or set("{}") & set(each))):
                raise invalid_value(each, self.allowed)
        return tuple(value)


@frozen
class ChangeRate:
    """A number of changes in a time; "" is no limit."""

    allowed: str = field(
        default='a number of changes, 1 or more, in a time from 1s to 1d, such as "6/m", "60/h" or "1/2h"', init=False
    )

    def read(self, value: object) -> units.Rate | None:
        """Return the rate, None for none; raises InvalidValue."""
        if value == "":
            return None
        if not isinstance(value, str) or value == "infinity":
            raise invalid_value(value, self.allowed)
        try:
            rate = Rate().read(value)
        except InvalidValue:
            raise invalid_value(value, self.allowed) from None
        if rate is None or rate.seconds < 1:
            raise invalid_value(value, self.allowed)
        return rate


@frozen
class SchemaText:
    """A JSON Schema as text; "" is none."""

    allowed: str = field(default='a JSON Schema as text, such as \'{"type": "object"}\'', init=False)

    def read(self, value: object) -> JsonSchema | None:
        """Return the schema; raises InvalidValue."""
        if not isinstance(value, str):
            raise invalid_value(value, self.allowed)
        if not value:
            return None
        try:
            return parsed_schema(value)
        except BadSchema as error:
            raise InvalidValue(f"this is no JSON Schema that can be checked: {error}") from None


def levels_beside(relative: str) -> tuple[int, str]:
    """Return how many levels up a relative topic begins, and the rest: 2 and ``a/b`` for ``../../a/b``."""
    rest = relative
    while rest.startswith("../"):
        rest = rest.removeprefix("../")
    return (len(relative) - len(rest)) // len("../"), rest


def names_in(text: str) -> Sequence[str]:
    """Return the names in braces in a text such as ``lamp-{lamp}``."""
    return NAMED.findall(text)


def _explained(check: object, text: str) -> str:
    assert callable(check)
    try:
        check()
    except PipelineError as error:
        raise InvalidValue(str(error)) from None
    return text
