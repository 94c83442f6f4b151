"""The types of rules, and the keys of each, described as the broker's configuration describes its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from attrs import frozen

from holdfast.config.options import Choice, Duration, FilePath, Flag, Number, Section, Text, option
from holdfast.core import units
from holdfast_pipeline.checks.finding import SEVERITIES
from holdfast_pipeline.checks.json_schema import JsonSchema
from holdfast_pipeline.checks.rule_kinds import (
    ChangeRate,
    OrNothing,
    RelativeTopics,
    SchemaText,
    ShapeText,
    TopicFilter,
    ValuePath,
    Values,
    names_in,
)
from holdfast_pipeline.decoding.values import JsonPath
from holdfast_pipeline.sources.topic_patterns import topic_pattern

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
