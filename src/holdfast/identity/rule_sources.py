"""From the configuration to compiled rules, and to the authorizer.

Files are read at once. The rules in the database are known when it is open, and change while the broker runs: so
``Sources`` keeps the lists of the files, and compiles them with those of the database. Before these are known, nothing
is allowed: a rule in the database may deny what a file allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from difflib import get_close_matches

from attrs import evolve, frozen

from holdfast.config import Config
from holdfast.config.sections.authorization import (
    STRICT,
    AuthorizationConfig,
    DatabaseRulesConfig,
    MosquittoFileConfig,
    RuleFileConfig,
)
from holdfast.config.toml import ConfigError, ConfigProblem, FileUnreadable, literal
from holdfast.identity.authorizer import Authorizer, Free, GroupsOf, SourceCheck, at_once, no_digest, no_groups
from holdfast.identity.interfaces import IAuthorizer, UnrestrictedAuthorizer
from holdfast.identity.mosquitto_acl import read_acl
from holdfast.identity.rule_files import read_rules
from holdfast.identity.rules import Action, Rule, RuleList, Ruleset, TooManyFilters

_SYS = ("$SYS/#",)


@frozen
class Sources:
    """The configured sources: the rules of files, by the names of the sources in their order; None is the database."""

    lists: Mapping[str, RuleList | None]
    last: tuple[Rule, ...]
    default: bool
    listeners: frozenset[str]

    @property
    def has_database(self) -> bool:
        """Whether one of the sources is the database."""
        return None in self.lists.values()

    def compiled(self, stored: Sequence[Rule] | None) -> Ruleset:
        """Compile the rules, with those in the database; None: these are not known. Raises TooManyFilters.

        It takes up to seconds for tens of thousands of rules.
        """
        if stored is None and self.has_database:
            return Ruleset(RuleList())
        of_database = RuleList(tuple(stored or ()))
        lists = [of_database if each is None else each for each in self.lists.values()]
        return Ruleset(RuleList.joined([*lists, RuleList(self.last)]), default=self.default)


def authorizer_of(
    config: Config,
    sources: Sources,
    stored: Sequence[Rule] | None,
    groups_of: GroupsOf = no_groups,
    groups_digest: Callable[[], str] = no_digest,
    free: Free = at_once,
) -> IAuthorizer:
    """Return the authorizer. Raises ConfigError if there are too many rules.

    ``stored`` are the rules in the database; None: they are not known yet, and nothing is allowed until the caller
    replaces the rules. ``groups_of`` tells the groups of users in the database, and ``groups_digest`` stands for them.
    ``free`` frees rules that count no more.
    """
    authorization, authentication = config.authorization, config.authentication
    if not (authorization.is_configured or authentication.is_configured):
        return UnrestrictedAuthorizer()
    return Authorizer(
        compiled(sources, stored),
        subscribe_partially=authorization.subscribe_partially,
        source_check=_source_check(authorization.check_retain_source),
        names_proven=authentication.is_configured,
        groups_elsewhere=authentication.gives_groups,
        groups_of=no_groups if authentication.database_users is None else groups_of,
        groups_digest=no_digest if authentication.database_users is None else groups_digest,
        free=free,
    )


def read_sources(config: Config) -> Sources:
    """Read the rules of all files. Raises ConfigError with the problems of all of them."""
    authorization = config.authorization
    lists: dict[str, RuleList | None] = {}
    problems: list[ConfigProblem] = []
    for name in authorization.sources:
        try:
            lists[name] = _read(config, name)
        except FileUnreadable as error:
            problems += (config.source.problem(("authorization", name, "path"), str(each)) for each in error.problems)
        except ConfigError as error:
            problems += error.problems
    problems += _unknown_listeners(config, (each for each in lists.values() if each is not None))
    if problems:
        raise ConfigError(problems)
    return Sources(lists, sys_rules(authorization), not authorization.is_configured, frozenset(config.listeners))


def compiled(sources: Sources, stored: Sequence[Rule] | None) -> Ruleset:
    """Compile the rules of all sources, with those in the database. Raises ConfigError if they are too many."""
    try:
        return sources.compiled(stored)
    except TooManyFilters as error:
        raise ConfigError([ConfigProblem(error.rule.origin, None, "", str(error))]) from None


def _unknown_listeners(config: Config, lists: Iterable[RuleList]) -> Iterator[ConfigProblem]:
    for rule in (rule for each in lists for rule in each.rules):
        for message in unknown_listeners(rule, config.listeners.keys()):
            yield ConfigProblem(rule.origin, None, "rule.listeners", message)


def unknown_listeners(rule: Rule, listeners: Set[str]) -> Iterator[str]:
    """Yield a message for each listener that no table describes: a rule that denies would deny nothing."""
    for name in sorted((rule.conditions.listeners or frozenset()) - listeners):
        near = get_close_matches(name, listeners, n=1)
        advice = f"did you mean {literal(near[0])}?" if near else f"there are {', '.join(sorted(listeners))}"
        yield f"no listener is named {literal(name)}, so nothing comes through it; {advice}"


def sys_rules(authorization: AuthorizationConfig) -> tuple[Rule, ...]:
    """Return the rules for the broker's own topics. They come last: a rule in a source can say otherwise."""
    actions = frozenset({Action.SUBSCRIBE})
    origin = "authorization.administrators"
    deny = Rule(False, actions, _SYS, f"{origin} (only administrators may subscribe to $SYS)")
    users, groups = frozenset(authorization.administrators), frozenset(authorization.administrator_groups)
    if not (users or groups):
        return (deny,)
    return Rule(True, actions, _SYS, origin, users=users, groups=groups), deny


def _read(config: Config, name: str) -> RuleList | None:
    match config.authorization.tables[name]:
        case RuleFileConfig(path=path):
            return read_rules(config.absolute(path))
        case MosquittoFileConfig(path=path, listeners=listeners):
            return _limited(read_acl(config.absolute(path)), frozenset(listeners))
        case DatabaseRulesConfig():
            return None
        case source:
            raise TypeError(f"no reader for {source!r}")


def _limited(listed: RuleList, listeners: frozenset[str]) -> RuleList:
    """Return the rules for the clients of some listeners only; an empty set is all of them."""
    if not listeners:
        return listed
    rules = (evolve(rule, conditions=evolve(rule.conditions, listeners=listeners)) for rule in listed.rules)
    return evolve(listed, rules=tuple(rules))


def _source_check(value: bool | str) -> SourceCheck:
    if value == STRICT:
        return SourceCheck.STRICT
    return SourceCheck.USERS if value else SourceCheck.OFF
