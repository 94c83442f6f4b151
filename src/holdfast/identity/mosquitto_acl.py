"""mosquitto's ACL files, with mosquitto's meaning (that of ``acl_file`` in mosquitto 2.0, compared in a test).

How it works. mosquitto looks at the ``topic`` lines of the client's user, then at the ``pattern`` lines; in each of
both, ``deny`` lines come first. So a list of rules in this order, of which the first match decides, gives the same
answers:

    topic deny ..., topic read|write|readwrite ..., names with wildcards: deny all, pattern deny ..., pattern read ...

mosquitto asks nothing at SUBSCRIBE, and checks ``read`` for each delivery. Such a list says so (``grants_subscribe``).
It differs in one thing: a name with ``/`` cannot stand for ``%u`` or ``%c``, since it would reach other levels.
"""

from __future__ import annotations

from pathlib import Path

from attrs import field, frozen

from holdfast.config.toml import ConfigError, ConfigProblem, display_name, literal, text_of
from holdfast.core.terminal import hidden_character
from holdfast.core.topics import EVERY_TOPIC, MOST_LEVELS, InvalidTopicFilter, check_topic_filter
from holdfast.identity.rule_files import LARGEST_RULE_FILE, check_mode
from holdfast.identity.rules import GUEST, PLACEHOLDER, Action, Conditions, Rule, RuleList

_WRITE = frozenset({Action.PUBLISH, Action.RETAIN, Action.CLEAR})
_READ = frozenset({Action.SUBSCRIBE})
_READWRITE = _READ | _WRITE
#: None denies
_ACCESS = {"read": _READ, "write": _WRITE, "readwrite": _READWRITE, "deny": None}

_BLANKS = " \t\r\n\v\f"
_CONTROL = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
#: mosquitto applies no pattern to clients with these in their names, and denies what only a pattern could allow.
_WILD_NAMES = f"+#{_CONTROL}"
#: For clients with these in their names, a pattern that denies could miss what mosquitto denies, so all is denied.
_UNSAFE_NAMES = f"{_WILD_NAMES}/$"


class _InvalidLine(ValueError):
    pass


@frozen
class _Lines:
    """The rules of a file, in groups: those of one group come in the order of the file."""

    topic_denies: list[Rule] = field(factory=list)
    topic_allows: list[Rule] = field(factory=list)
    pattern_denies: list[Rule] = field(factory=list)
    pattern_allows: list[Rule] = field(factory=list)

    def add(self, rule: Rule) -> None:
        is_pattern = rule.users is None
        if rule.allow:
            (self.pattern_allows if is_pattern else self.topic_allows).append(rule)
        else:
            (self.pattern_denies if is_pattern else self.topic_denies).append(rule)

    def ordered(self, name: str) -> tuple[Rule, ...]:
        guards = []
        if self.pattern_allows or self.pattern_denies:
            may_miss = any(PLACEHOLDER.search(topic) for rule in self.pattern_denies for topic in rule.topics)
            characters = _UNSAFE_NAMES if may_miss else _WILD_NAMES
            origin = f"{name} (no pattern is for such a User Name or Client Identifier)"
            guards.append(Rule(False, _READWRITE, (EVERY_TOPIC,), origin, conditions=Conditions(characters=characters)))
        return (*self.topic_denies, *self.topic_allows, *guards, *self.pattern_denies, *self.pattern_allows)


def read_acl(path: Path) -> RuleList:
    """Return the rules of an ACL file. Raises ConfigError with all its problems."""
    check_mode(path)
    name = display_name(path)
    problems = []
    lines = _Lines()
    user = GUEST
    for number, text in enumerate(text_of(path, LARGEST_RULE_FILE).split("\n"), 1):
        line = text.rstrip(_BLANKS)
        word, _, rest = line.strip(" ").partition(" ")
        try:
            if not word or word.startswith("#"):
                continue
            if word == "user":
                user = _user(rest)
            elif word in ("topic", "pattern"):
                lines.add(_rule(rest, None if word == "pattern" else user, f"{name}:{number}"))
            else:
                raise _InvalidLine(
                    f"found {literal(line)}; allowed: user, topic, pattern and a space, or # and a comment"
                )
        except _InvalidLine as invalid:
            problems.append(ConfigProblem(name, number, "", str(invalid)))
    if problems:
        raise ConfigError(problems)
    return RuleList(lines.ordered(name), grants_subscribe=True)


def _user(rest: str) -> str:
    name = rest.strip(_BLANKS)
    if not name:
        raise _InvalidLine("no name follows the word user")
    hidden = hidden_character(name)
    if hidden is not None:
        raise _InvalidLine(f"found the user {literal(name)} with the invisible character {hidden}; type it anew")
    if name == GUEST:
        raise _InvalidLine(f"{GUEST} cannot be a User Name here; the lines before the first user are for guests")
    return name


def _rule(rest: str, user: str | None, origin: str) -> Rule:
    """Return the rule of a ``topic`` line of a user, or of a ``pattern`` line."""
    access, _, topic = rest.lstrip(" ").partition(" ")
    topic = topic.strip(_BLANKS)
    actions: frozenset[Action] | None = _READWRITE
    if not topic:  # one word alone is the topic
        topic = access
    elif access in _ACCESS:
        actions = _ACCESS[access]
    else:
        raise _InvalidLine(
            f"found the access {literal(access)}; allowed: {', '.join(_ACCESS)}, also before a topic with spaces"
        )
    try:
        check_topic_filter(topic, MOST_LEVELS)
    except InvalidTopicFilter as invalid:
        raise _InvalidLine(f"found the topic {literal(topic)}: {invalid}") from None
    if user is None and "%g" in topic:
        raise _InvalidLine(f"found the topic {literal(topic)}; allowed in patterns: %u and %c")
    return Rule(
        allow=actions is not None,
        actions=_READWRITE if actions is None else actions,
        topics=(topic,),
        origin=origin,
        users=None if user is None else frozenset({user}),
        has_templates=user is None,
    )
