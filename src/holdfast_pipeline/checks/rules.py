"""The rules of ``check``: a TOML file with a table for each rule.

    [rules.room-temperature]
    type = "range"
    shape = "hq/{floor}/{room}/climate"
    path = "$.temperature"
    at_least = 5
    at_most = 40

The reader of the broker's configuration reads it, so every mistake is told with its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
from attrs import field, frozen

from holdfast.config import toml as toml_file
from holdfast.config.options import Section, table, variants
from holdfast.config.reader import Reader
from holdfast.config.toml import ConfigError, ConfigOrigin, ConfigProblem
from holdfast_pipeline.checks.json_schema import BadSchema, parsed_schema
from holdfast_pipeline.checks.rule_types import (
    TYPES,
    ChildrenRule,
    PublisherRule,
    RateRule,
    RefersRule,
    RuleOptions,
    SchemaRule,
    SiblingsRule,
    StaleRule,
    StuckRule,
    UniqueRule,
)
from holdfast_pipeline.errors import PipelineError, text_of
from holdfast_pipeline.sources.ranges import TopicPattern, topic_pattern

#: The most rules in a file: each costs every message a comparison of its topic.
MOST_RULES = 500


@frozen
class RuleTables(Section):
    """The rules by name."""

    by_name: Mapping[str, RuleOptions] = field(factory=dict, metadata=variants(TYPES, "The rules."))


@frozen
class RulesFile(Section):
    """A file of rules."""

    rules: RuleTables = field(factory=RuleTables, metadata=table(RuleTables, "The rules, each a table [rules.NAME]."))


@frozen
class Rule:
    """A rule: its ``name`` and ``type``, the ``pattern`` of its topics, and its ``options``."""

    name: str
    type: str
    pattern: TopicPattern
    options: RuleOptions

    @property
    def topic_filter(self) -> str:
        """The Topic Filter of the topics that the rule reads: of a rule about children, those below its devices."""
        found = self.pattern.topic_filter
        return f"{found}/#" if isinstance(self.options, ChildrenRule) else found

    @property
    def needs_everything(self) -> bool:
        """Whether the rule cannot be judged by changed messages alone.

        It compares messages with others, reads the history, or fails because nothing changes.
        """
        if isinstance(self.options, PublisherRule):
            return self.options.is_single
        return isinstance(
            self.options, (StaleRule, StuckRule, RateRule, UniqueRule, SiblingsRule, ChildrenRule, RefersRule)
        )


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Read a file of rules. Raises :class:`PipelineError`, which names the file, the lines and the keys."""
    try:
        content, origin = toml_file.read(path)
    except ConfigError as error:
        raise PipelineError(text_of(error.problems)) from error
    reader = Reader(RulesFile)
    found = reader.section(RulesFile, content, ()).rules.by_name
    problems = [origin.problem(each.path, each.message) for each in reader.problems]
    if not problems and not 1 <= len(found) <= MOST_RULES:
        problems.append(
            origin.problem(("rules",), f"found {len(found)} rules; allowed: 1 to {MOST_RULES}, [rules.NAME]")
        )
    rules = [] if problems else [_rule(name, each, path.parent, origin, problems) for name, each in found.items()]
    if problems:
        raise PipelineError(text_of(problems))
    return tuple(rules)


def _rule(name: str, options: RuleOptions, folder: Path, origin: ConfigOrigin, problems: list[ConfigProblem]) -> Rule:
    if isinstance(options, SchemaRule) and options.schema_file:
        try:
            text = toml_file.text_of(folder / options.schema_file)
            options = attrs.evolve(options, schema=parsed_schema(text))
        except ConfigError as error:
            problems.append(origin.problem(("rules", name, "schema_file"), error.problems[0].message))
        except BadSchema as error:
            problems.append(origin.problem(("rules", name, "schema_file"), f"{options.schema_file}: {error}"))
    kind = next(each for each, section in TYPES.items() if isinstance(options, section))
    return Rule(name, kind, topic_pattern(options.filter or options.shape), options)
