"""The types of rules with their keys, described as the broker's configuration describes its own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from holdfast.config.options import (
    Choice,
    Duration,
    FilePath,
    Flag,
    InvalidValue,
    Kind,
    Number,
    Rate,
    Section,
    Text,
    invalid_value,
    option,
)
from holdfast.core import units
from holdfast_pipeline.checks.finding import SEVERITIES
from holdfast_pipeline.checks.json_schema import BadSchema, JsonSchema, parsed_schema
from holdfast_pipeline.decoding.values import JsonPath, json_path
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.options import check_filter
from holdfast_pipeline.sources.ranges import topic_pattern

# The kinds of values in a file of rules, beside those of the configuration. Pure.

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


Problem = tuple[str, str, Collection[str]]

_HIGHEST = 1e300
_KINDS = ("object", "array", "number", "boolean", "string", "null", "text", "binary")


@frozen
class RuleOptions(Section):
    """The keys that every rule has."""

    filter: str = option(
        TopicFilter(),
        "",
        help="The topics that the rule is about, by a Topic Filter. A rule has either filter or shape.",
        effect="Wider: the rule judges more messages.",
        example="hq/+/+/climate",
    )
    shape: str = option(
        ShapeText(),
        "",
        help="The topics that the rule is about, by a shape: a Topic Filter with named levels.",
        effect="Wider: the rule judges more messages.",
        example="hq/{floor}/{room}/climate",
    )
    by: str = option(
        Text("the name of a level in shape"),
        "",
        help="A named level of the shape: there is a finding for each name at this level, not one for the whole rule.",
        effect="A baseline can then know the findings of one floor, and not those of another.",
        example="floor",
    )
    severity: str = option(
        Choice(SEVERITIES),
        "error",
        help="How bad a failure is.",
        effect="The exit status is 3 for findings of the severity --fail-on, or a worse one.",
        example="warning",
    )
    advice: str = option(
        Text("a sentence"),
        "",
        help="What to do after a failure, in your own words. Without it, the finding has a general advice.",
        effect="Your sentence stands below the finding.",
        example="Call the workshop.",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[Problem]:
        """Return the problems of these keys together."""
        if bool(self.filter) == bool(self.shape):
            both = "has filter and shape; leave one of them out" if self.filter else "give filter or shape: its topics"
            yield "shape" if self.filter else "filter", both, ("filter", "shape")
        elif self.by and self.by not in topic_pattern(self.shape or self.filter).levels:
            levels = ", ".join(topic_pattern(self.shape or self.filter).levels) or "none: it needs shape"
            yield "by", f"is no level of the shape; allowed: {levels}", ("by", "shape", "filter")

    def unknown_names(self, key: str, *texts: str) -> Iterable[Problem]:
        """Return a problem for each name in braces, in the texts of a key, that is no level of the shape."""
        known = () if bool(self.filter) == bool(self.shape) else tuple(topic_pattern(self.filter or self.shape).levels)
        for name in (name for text in texts for name in names_in(text)):
            if name not in known:
                allowed = ", ".join(known) or "none: it needs shape"
                yield key, f"{{{name}}} is no level of the shape; allowed: {allowed}", (key, "shape", "filter")


_AT_PATH: Any = {
    "help": "The place of the value in a JSON payload; without it, the whole payload.",
    "effect": "The rule judges another value.",
    "example": "$.temperature",
}
_OPTIONAL: Any = {
    "help": "Whether payloads without the value are left out. Otherwise they fail.",
    "effect": "true: a payload without the value is no failure.",
    "example": True,
}


@frozen
class RangeRule(RuleOptions):
    """Numbers within limits."""

    path: JsonPath = option(ValuePath(), "", **_AT_PATH)
    at_least: float | None = option(
        OrNothing(Number(-_HIGHEST, _HIGHEST)),
        "",
        help="The lowest number that is allowed; without it, any.",
        effect="Higher: more failures.",
        example=5,
    )
    at_most: float | None = option(
        OrNothing(Number(-_HIGHEST, _HIGHEST)),
        "",
        help="The highest number that is allowed; without it, any.",
        effect="Lower: more failures.",
        example=40,
    )
    optional: bool = option(Flag(), False, **_OPTIONAL)

    def problems(self, given: Mapping[str, object]) -> Iterable[Problem]:
        """Return the problems of several keys together."""
        yield from super().problems(given)
        yield from _limits(self.at_least, self.at_most)


@frozen
class SchemaRule(RuleOptions):
    """Payloads of a kind, or that match a JSON Schema."""

    kind: str = option(
        OrNothing(Choice(_KINDS)),
        "",
        help="The kind of payload: that of a JSON value, else text (UTF-8) or binary.",
        effect="Payloads of another kind fail.",
        example="object",
    )
    schema: JsonSchema | None = option(
        SchemaText(),
        "",
        help="A JSON Schema, as text.",
        effect="Payloads that it does not allow fail, and those that are no JSON.",
        example='{"required": ["t"]}',
    )
    schema_file: str = option(
        FilePath(),
        "",
        help="A file with a JSON Schema. A relative path begins at the folder of the file of rules.",
        effect="As schema.",
        example="climate.schema.json",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[Problem]:
        """Return the problems of several keys together."""
        yield from super().problems(given)
        names = ("kind", "schema", "schema_file")
        if not self.kind and self.schema is None and not self.schema_file:
            yield "kind", "give kind, schema or schema_file", names
        if self.schema is not None and self.schema_file:
            yield "schema_file", "has schema and schema_file; leave one of them out", names


@frozen
class EnumerationRule(RuleOptions):
    """Values out of a list."""

    path: JsonPath = option(ValuePath(), "", **_AT_PATH)
    values: tuple[str | float | bool, ...] = option(
        Values(),
        [],
        help="The values that are allowed. A text also allows the payload that is this text, without quotes.",
        effect="Fewer: more failures.",
        example=["on", "off"],
    )
    optional: bool = option(Flag(), False, **_OPTIONAL)

    def problems(self, given: Mapping[str, object]) -> Iterable[Problem]:
        """Return the problems of several keys together."""
        yield from super().problems(given)
        if not self.values:
            yield "values", "name the values that are allowed", ("values",)


@frozen
class StaleRule(RuleOptions):
    """Messages that are not stale: a greatest time since they were stored."""

    at_most: float | None = option(
        OrNothing(Duration("1s", "3650d")),
        "",
        help="The time after which a message is stale: it has not been stored again for longer.",
        effect="Shorter: more failures.",
        example="1h",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[Problem]:
        """Return the problems of several keys together."""
        yield from super().problems(given)
        if self.at_most is None:
            yield "at_most", 'name the time after which a message is stale, as in "1h"', ("at_most",)


@frozen
class StuckRule(RuleOptions):
    """Values that change: a greatest time for which a value is the same while the values of siblings change."""

    path: JsonPath = option(ValuePath(), "", **_AT_PATH)
    at_most: float | None = option(
        OrNothing(Duration("1s", "3650d")),
        "",
        help="The greatest time for which a value may be the same, also if it is published again and again.",
        effect="Shorter: more failures.",
        example="6h",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[Problem]:
        """Return the problems of several keys together."""
        yield from super().problems(given)
        if self.at_most is None:
            yield "at_most", 'name the greatest time for which a value may be the same, as in "6h"', ("at_most",)


@frozen
class RateRule(RuleOptions):
    """Changes of each topic in a time, counted in the history."""

    at_least: units.Rate | None = option(
        ChangeRate(),
        "",
        help="The fewest changes of each topic; without it, any. It is judged where the history has the whole window.",
        effect="Higher: more failures.",
        example="1/h",
    )
    at_most: units.Rate | None = option(
        ChangeRate(),
        "",
        help="The most changes of each topic; without it, any.",
        effect="Lower: more failures.",
        example="6/m",
    )
    window: float = option(
        Duration("1s", "366d"),
        "1h",
        help="The time before now whose changes are counted.",
        effect="Longer: short bursts are allowed, and more of the history is read.",
        example="1d",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[Problem]:
        """Return the problems of several keys together."""
        yield from super().problems(given)
        low, high = self.at_least, self.at_most
        yield from _limits(None if low is None else low.per_second, None if high is None else high.per_second)
        longest = max((each.seconds for each in (low, high) if each is not None), default=0.0)
        if self.window < longest:
            yield "window", "is shorter than the time of at_least or at_most", ("window", "at_least", "at_most")


@frozen
class UniqueRule(RuleOptions):
    """A value that no two topics have in common."""

    path: JsonPath = option(ValuePath(), "", **_AT_PATH)


@frozen
class SiblingsRule(RuleOptions):
    """Messages that must be retained beside a topic."""

    siblings: tuple[str, ...] = option(
        RelativeTopics(),
        [],
        help="The topics that must be retained, too. They replace the last level of the topic; each ../ goes"
        " one level higher. {name} stands for the level of this name in shape.",
        effect="More: more failures.",
        example=["temperature", "../status"],
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[Problem]:
        """Return the problems of several keys together."""
        yield from super().problems(given)
        if not self.siblings:
            yield "siblings", 'name the siblings, as in ["temperature"]', ("siblings",)
        yield from self.unknown_names("siblings", *self.siblings)


@frozen
class ChildrenRule(RuleOptions):
    """Topics that must be retained below a device."""

    children: tuple[str, ...] = option(
        RelativeTopics(below=True),
        [],
        help="The topics that must be retained below each device. Without them: those that nearly all devices have.",
        effect="More: more failures.",
        example=["temperature", "light/state"],
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[Problem]:
        """Return the problems of several keys together."""
        yield from super().problems(given)
        if "#" in (self.shape or self.filter):
            key = "shape" if self.shape else "filter"
            yield key, "names devices, so without #: the rule looks below them, as in hq/{floor}/{room}", (key,)


@frozen
class AbsentRule(RuleOptions):
    """Topics on which nothing may be retained."""


@frozen
class RefersRule(RuleOptions):
    """Payloads that name a retained topic."""

    path: JsonPath = option(ValuePath(), "", **_AT_PATH)
    optional: bool = option(Flag(), False, **_OPTIONAL)


@frozen
class TimeRule(RuleOptions):
    """Times in payloads that are near to the time at which the broker stored the message."""

    path: JsonPath = option(ValuePath(), "", **_AT_PATH)
    at_most: float | None = option(
        OrNothing(Duration("1ms", "3650d")),
        "",
        help="The most time between the two, before or after.",
        effect="Shorter: more failures.",
        example="1m",
    )
    time_unit: str = option(
        Choice(("ms", "s", "us")),
        "ms",
        help="The unit of times that are numbers, since 1970. Other times are ISO 8601, in UTC without a zone.",
        effect="The rule takes numbers for other times.",
        example="s",
    )
    optional: bool = option(Flag(), False, **_OPTIONAL)

    def problems(self, given: Mapping[str, object]) -> Iterable[Problem]:
        """Return the problems of several keys together."""
        yield from super().problems(given)
        if self.at_most is None:
            yield "at_most", 'give the most time, as in "1m"', ("at_most",)


@frozen
class ExpiresRule(RuleOptions):
    """Messages that expire."""

    at_most: float | None = option(
        OrNothing(Duration("1s", "3650d")),
        "",
        help="The longest time for which a message is retained; without it, any.",
        effect="Shorter: more failures.",
        example="1d",
    )


@frozen
class PublisherRule(RuleOptions):
    """Messages of the right publisher, or of one publisher only."""

    client_id: str = option(
        Text("a text; * stands for any characters, {name} for the level of this name in shape"),
        "",
        help="The Client Identifier of the publisher. * stands for any characters, {name} for a named level of shape.",
        effect="Messages of other publishers fail.",
        example="lamp-{lamp}",
    )
    username: str = option(
        Text("a text; * stands for any characters, {name} for the level of this name in shape"),
        "",
        help="The User Name of the publisher. * and {name} are as for client_id.",
        effect="Messages of other users fail.",
        example="gateway-*",
    )
    window: float = option(
        Duration("1s", "366d"),
        "1d",
        help="Without client_id and username: the time before now in which the history must name one client per topic.",
        effect="Longer: more failures, and more of the history is read.",
        example="1h",
    )

    @property
    def is_single(self) -> bool:
        """Whether the history has to name one publisher for each topic."""
        return not self.client_id and not self.username

    def problems(self, given: Mapping[str, object]) -> Iterable[Problem]:
        """Return the problems of several keys together."""
        yield from super().problems(given)
        yield from self.unknown_names("client_id", self.client_id)
        yield from self.unknown_names("username", self.username)
        if not self.is_single and "window" in given:
            yield "window", "counts only without client_id and username; leave it out", ("window",)


#: The types of rules.
TYPES: Mapping[str, type[RuleOptions]] = {
    "range": RangeRule,
    "schema": SchemaRule,
    "enumeration": EnumerationRule,
    "stale": StaleRule,
    "stuck": StuckRule,
    "rate": RateRule,
    "unique": UniqueRule,
    "siblings": SiblingsRule,
    "children": ChildrenRule,
    "absent": AbsentRule,
    "refers": RefersRule,
    "time": TimeRule,
    "expires": ExpiresRule,
    "publisher": PublisherRule,
}


def _limits(low: float | None, high: float | None) -> Iterable[Problem]:
    names = ("at_least", "at_most")
    if low is None and high is None:
        yield "at_least", "give at_least, at_most or both", names
    elif low is not None and high is not None and low > high:
        yield "at_least", "is higher than at_most", names
