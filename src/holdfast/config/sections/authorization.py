"""``[authorization]``: what clients may do. The rules stand in files of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import ClassVar

from attrs import field, frozen

from holdfast.config.options import (
    Choice,
    Duration,
    FilePath,
    Flag,
    Integer,
    InvalidValue,
    Section,
    TakesEffect,
    Text,
    invalid_value,
    option,
    variants,
)
from holdfast.config.toml import literal

STRICT = "strict"


@frozen
class Names:
    """The kind of options with a list of names, each once."""

    allowed: str

    def read(self, value: object) -> tuple[str, ...]:
        """Return the names; raises InvalidValue."""
        if not isinstance(value, list):
            raise invalid_value(value, self.allowed)
        for name in value:
            if not isinstance(name, str) or not name:
                raise InvalidValue(f"found {literal(name)} in the list; allowed: {self.allowed}")
            Text(allowed=self.allowed).read(name)
            if value.count(name) > 1:
                raise InvalidValue(f"found {literal(name)} twice in the list; allowed: each name once")
        return tuple(value)


@frozen
class FlagOrStrict:
    """The kind of ``check_retain_source``."""

    allowed: str = field(default='true, false or "strict"', init=False)

    def read(self, value: object) -> bool | str:
        """Return the value; raises InvalidValue."""
        if isinstance(value, bool) or value == STRICT:
            return STRICT if value == STRICT else bool(value)
        raise invalid_value(value, self.allowed)


@frozen
class _FileSource(Section):
    """A source of rules in a file."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problem of a missing path."""
        if not given.get("path"):
            yield "path", "no path is given; allowed: path = the path of a file", ("path",)


@frozen
class RuleFileConfig(_FileSource):
    """Rules in a TOML file."""

    path: str = option(
        FilePath(),
        "",
        help="TOML file with tables [[rule]]. A relative path begins at the folder of this file.",
        effect="Its rules apply.",
        example="rules.toml",
    )


@frozen
class MosquittoFileConfig(_FileSource):
    """Rules in an ACL file of mosquitto."""

    path: str = option(
        FilePath(),
        "",
        help="ACL file of mosquitto. A relative path begins at the folder of this file.",
        effect="Its rules apply, with mosquitto's meaning. No SUBSCRIBE is refused then: each delivery is checked.",
        example="/etc/mosquitto/acl",
    )
    listeners: tuple[str, ...] = option(
        Names("a list of names of listeners, each once"),
        [],
        help="Listeners for whose clients the file is. An empty list = all listeners.",
        effect="Its rules apply to the clients of these listeners only, as with per_listener_settings of mosquitto.",
        example=["devices"],
    )


@frozen
class DatabaseRulesConfig(Section):
    """Rules in the broker's own database, which the commands holdfast acl add and remove change. No further options."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE


#: the sections by ``type``
SOURCES: Mapping[str, type[Section]] = {
    "file": RuleFileConfig,
    "mosquitto": MosquittoFileConfig,
    "database": DatabaseRulesConfig,
}


@frozen
class AuthorizationConfig(Section):
    """What clients may do. Without a source, they may do everything, except read ``$SYS``."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    sources: tuple[str, ...] = option(
        Names('a list of names of tables [authorization.NAME], each once, such as ["rules"]'),
        [],
        help="Tables [authorization.NAME] with the rules, in the order in which they are asked: the first rule that"
        " matches decides. An empty list = no rules: everyone may do everything; but with authentication, only"
        " administrators may subscribe to $SYS/#.",
        effect="With a source, what no rule allows is denied.",
        example=["rules"],
    )
    subscribe_partially: bool = option(
        Flag(),
        False,
        help="Grant a SUBSCRIBE if only some of the topics that its Topic Filter matches are allowed. The others are"
        " filtered out at delivery.",
        effect="true: a client may subscribe to # and gets what it may receive. Each delivery is checked.",
        example=True,
    )
    check_retain_source: bool | str = option(
        FlagOrStrict(),
        True,
        help="Keep a retained message from replays if its publisher may no longer retain messages of this topic. true ="
        ' messages of clients with a User Name; "strict" = all messages: without a User Name, the rules for guests'
        " apply; false = none.",
        effect="false: what a user has retained is sent to new subscribers although the user has lost the permission.",
        example=STRICT,
    )
    administrators: tuple[str, ...] = option(
        Names("a list of User Names, each once"),
        [],
        help="Users who may subscribe to $SYS/# where authentication or rules are configured. A rule can also allow"
        " it.",
        effect="These users see the figures of the broker and of all bridges.",
        example=["alice"],
    )
    administrator_groups: tuple[str, ...] = option(
        Names("a list of names of groups, each once"),
        [],
        help="Groups whose members may subscribe to $SYS/#, as administrators.",
        effect="The members see the figures of the broker and of all bridges.",
        example=["operators"],
    )
    on_revoke: str = option(
        Choice(("disconnect", "withhold")),
        "disconnect",
        help="What happens to a client if changed rules no longer allow one of its subscriptions. disconnect = the"
        " subscription ends, and the client is disconnected with Not authorized (0x87), so that it knows; withhold ="
        " the subscription ends, and the client is told nothing.",
        effect="withhold: the client stays connected, and waits for messages that never come.",
        example="withhold",
    )
    tables: Mapping[str, Section] = field(
        factory=dict,
        metadata=variants(
            SOURCES, "The rules: one table for each source, with a name of your choice, which sources must name."
        ),
    )

    @property
    def has_database(self) -> bool:
        """Whether rules in the database decide what clients may do."""
        return any(isinstance(self.tables.get(name), DatabaseRulesConfig) for name in self.sources)

    @property
    def is_configured(self) -> bool:
        """Whether rules decide what clients may do."""
        return bool(self.sources)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of all files with rules."""
        return tuple(
            table.path for table in self.tables.values() if isinstance(table, RuleFileConfig | MosquittoFileConfig)
        )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problems of names without a table, and of tables without effect."""
        for name in self.sources:
            if name not in self.tables:
                near = get_close_matches(name, self.tables, n=1)
                advice = f"; did you mean {literal(near[0])}?" if near else ""
                yield "sources", f"no table is named [authorization.{name}]{advice}", ("sources", name)
        for name in self.tables:
            if name not in self.sources:
                yield name, f"has no effect; name it in authorization.sources = [{literal(name)}]", ("sources",)


# ``[failed_logins]``: what failed logins cost the address that they come from.


@frozen
class FailedLoginsConfig(Section):
    """The failures that are free, the delays after them, and the ban."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    enable: bool = option(
        Flag(),
        True,
        help="Count failed logins for each address, and for each address with a User Name. All addresses of an IPv6 /64"
        " are one. Delay the answers of failures, and ban the address after too many.",
        effect="false: passwords can be guessed as fast as the broker verifies them.",
        example=False,
    )
    max_count: int = option(
        Integer(1, 100000),
        20,
        help="Failures of one address within window_time after which it is banned. Loopback addresses, UNIX domain"
        " sockets and trusted proxies are never banned.",
        effect="Lower: fewer guesses, but a device with an old password sooner bans all devices behind its address.",
        example=100,
    )
    window_time: float = option(
        Duration("1s", "1d"),
        "10m",
        help="The time in which failures add up.",
        effect="Longer: slower guessing leads to a ban, too.",
        example="1h",
    )
    ban_time: float = option(
        Duration("1s", "7d"),
        "10m",
        help="How long an address is banned. Its connections are closed before a byte is read. A restart ends the ban.",
        effect="Longer: fewer guesses a day.",
        example="1h",
    )
