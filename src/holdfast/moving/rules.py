"""Rules taken from another broker: the rule file that says the same."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, evolve, field, frozen

from holdfast.config.options import InvalidValue
from holdfast.core.terminal import hidden_character
from holdfast.core.topics import SHARED_PREFIX
from holdfast.identity.rule_files import KINDS
from holdfast.identity.rules import GUEST, PLACEHOLDER
from holdfast.moving.files import Table, toml_text

PUBLISH = ("publish", "retain", "clear")
SUBSCRIBE = ("subscribe",)
RECEIVE = ("receive",)
#: every topic that clients can see: a filter that begins with # does not match those of the broker
EVERYTHING = ("#", "$SYS/#")


@frozen
class Subject:
    """The clients that a rule is for; without any condition, everyone."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    listeners: tuple[str, ...] = ()


@frozen
class MovedRule:
    """One rule. ``remark`` tells where it comes from."""

    subject: Subject
    allow: bool
    actions: tuple[str, ...]
    topics: tuple[str, ...]
    remark: str = ""


@define
class RuleBook:
    """The rules in their order, and the members of each group."""

    rules: list[MovedRule] = field(factory=list)
    groups: dict[str, list[str]] = field(factory=dict)

    def add(self, rule: MovedRule) -> None:
        """Add a rule after all others. It joins the last one if only its topics differ."""
        last = self.rules[-1] if self.rules else None
        if last is not None and evolve(last, topics=(), remark="") == evolve(rule, topics=(), remark=""):
            topics = tuple(dict.fromkeys((*last.topics, *rule.topics)))
            remark = last.remark if rule.remark in last.remark else f"{last.remark}, {rule.remark}"
            self.rules[-1] = evolve(last, topics=topics, remark=remark)
        else:
            self.rules.append(rule)

    def text(self, heading: Iterable[str]) -> str:
        """Return the text of the rule file."""
        tables = [Table(("groups",), {name: list(users) for name, users in self.groups.items()})] if self.groups else []
        tables += [_table(rule) for rule in self.rules]
        return toml_text(heading, tables)


def _table(rule: MovedRule) -> Table:
    table = Table(("rule",), is_element=True, remarks={"": rule.remark} if rule.remark else {})
    for name in ("users", "groups", "clients", "listeners"):
        values = getattr(rule.subject, name)
        if values:
            table.values[name] = list(values)
    table.values |= {"action": list(rule.actions), "topics": list(rule.topics), "allow": rule.allow}
    return table


class NoTopic(ValueError):
    """A topic cannot stand in a rule. The text tells the reason."""


def rule_topic(topic: str, allow: bool) -> tuple[str, str]:
    """Return a Topic Filter for a rule, and a remark if it differs from the given one. Raises NoTopic.

    A level that rules cannot hold, such as ``x%u``, becomes ``+`` in a rule that denies: no client may get more than
    before. A rule that allows is refused.
    """
    if topic.startswith(SHARED_PREFIX):
        raise NoTopic("it begins with $share; rules name the Topic Filter after it")
    levels = topic.split("/")
    unusable = [level for level in levels if _is_unusable(level)]
    if unusable and allow:
        raise NoTopic(f"rules allow %u, %c and %g as whole levels only, and no ${{: found {unusable[0]!r}")
    found = "/".join("+" if level in unusable else level for level in levels)
    try:
        KINDS["topics"].read([found])
    except InvalidValue as invalid:
        raise NoTopic(str(invalid)) from None
    return found, f"denied as {found}, which is wider" if unusable else ""


def _is_unusable(level: str) -> bool:
    if "${" in level or "%g" in level:
        return True
    return PLACEHOLDER.search(level) is not None and PLACEHOLDER.fullmatch(level) is None


def name_fault(name: str) -> str:
    """Return why a rule cannot name a user, a group or a Client Identifier; empty if it can."""
    hidden = hidden_character(name)
    if hidden is not None:
        return f"it has the invisible character {hidden}"
    if name == GUEST:
        return f"{GUEST} stands for clients without a User Name"
    try:
        KINDS["users"].read([name])
    except InvalidValue as invalid:
        return str(invalid)
    return ""
