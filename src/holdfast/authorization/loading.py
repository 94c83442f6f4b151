"""From the configuration to compiled rules, and to the authorizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from holdfast.auth.anonymous import UnrestrictedAuthorizer
from holdfast.auth.interfaces import IAuthorizer
from holdfast.authorization.authorizer import Authorizer, SourceCheck
from holdfast.authorization.mosquitto_file import read_acl
from holdfast.authorization.rule import Action, Rule
from holdfast.authorization.rule_file import read_rules
from holdfast.authorization.ruleset import RuleList, Ruleset, TooManyFilters
from holdfast.config import Config
from holdfast.config.problems import ConfigError, ConfigProblem, FileUnreadable
from holdfast.config.sections.authorization import (
    STRICT,
    AuthorizationConfig,
    MosquittoFileConfig,
    RuleFileConfig,
)
from holdfast.config.toml.text import literal

_SYS = ("$SYS/#",)


def authorizer_of(config: Config) -> IAuthorizer:
    """Return the authorizer. Raises ConfigError if a file with rules is missing or has problems."""
    authorization, is_authenticated = config.authorization, config.authentication.is_configured
    if not (authorization.is_configured or is_authenticated):
        return UnrestrictedAuthorizer()
    return Authorizer(
        load_rules(config),
        subscribe_partially=authorization.subscribe_partially,
        source_check=_source_check(authorization.check_retain_source),
        names_proven=is_authenticated,
        groups_elsewhere=config.authentication.gives_groups,
    )


def load_rules(config: Config) -> Ruleset:
    """Read the rules of all sources, and compile them. Raises ConfigError with the problems of all files.

    It reads files and takes up to seconds for tens of thousands of rules.
    """
    authorization = config.authorization
    lists: list[RuleList] = []
    problems: list[ConfigProblem] = []
    for name in authorization.sources:
        try:
            lists.append(_read(config, name))
        except FileUnreadable as error:
            problems += (config.source.problem(("authorization", name, "path"), str(each)) for each in error.problems)
        except ConfigError as error:
            problems += error.problems
    problems += _unknown_listeners(config, lists)
    if problems:
        raise ConfigError(problems)
    joined = RuleList.joined([*lists, RuleList(sys_rules(authorization))])
    try:
        return Ruleset(joined, default=not authorization.is_configured)
    except TooManyFilters as error:
        raise ConfigError([ConfigProblem(error.rule.origin, None, "", str(error))]) from None


def _unknown_listeners(config: Config, lists: Iterable[RuleList]) -> Iterator[ConfigProblem]:
    """Yield a problem for each listener that no table describes: a rule that denies would deny nothing."""
    for rule in (rule for each in lists for rule in each.rules):
        for name in sorted((rule.conditions.listeners or frozenset()) - config.listeners.keys()):
            near = get_close_matches(name, config.listeners, n=1)
            advice = f"did you mean {literal(near[0])}?" if near else f"there are {', '.join(config.listeners)}"
            message = f"no listener is named {literal(name)}, so nothing comes through it; {advice}"
            yield ConfigProblem(rule.origin, None, "rule.listeners", message)


def sys_rules(authorization: AuthorizationConfig) -> tuple[Rule, ...]:
    """Return the rules for the broker's own topics. They come last: a rule in a source can say otherwise."""
    actions = frozenset({Action.SUBSCRIBE})
    origin = "authorization.administrators"
    deny = Rule(False, actions, _SYS, f"{origin} (only administrators may subscribe to $SYS)")
    users, groups = frozenset(authorization.administrators), frozenset(authorization.administrator_groups)
    if not (users or groups):
        return (deny,)
    return Rule(True, actions, _SYS, origin, users=users, groups=groups), deny


def _read(config: Config, name: str) -> RuleList:
    match config.authorization.tables[name]:
        case RuleFileConfig(path=path):
            return read_rules(config.absolute(path))
        case MosquittoFileConfig(path=path):
            return read_acl(config.absolute(path))
        case source:
            raise TypeError(f"no reader for {source!r}")


def _source_check(value: bool | str) -> SourceCheck:
    if value == STRICT:
        return SourceCheck.STRICT
    return SourceCheck.USERS if value else SourceCheck.OFF
