"""Builds the parts that count failed logins, and the API about bans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThreadPool

from holdfast.admin.accounts.bans import BanAPI
from holdfast.auth.failures.ban import Ban, Kind
from holdfast.auth.failures.ban_file import store_bans
from holdfast.auth.failures.bans import Bans
from holdfast.auth.failures.exempt import Exempt
from holdfast.auth.failures.failures import Failures, IFailures, UncountedFailures
from holdfast.auth.failures.records import FailureLimits
from holdfast.config import Config
from holdfast.config.sections.failed_logins import FailedLoginsConfig
from holdfast.retained.sources.source_check import SourceCheck
from holdfast.sessions.registry.registry import SessionRegistry
from holdfast.wire import ReasonCode


def compose_ban_api(
    config: Config,
    bans: Bans,
    registry: SessionRegistry,
    sources: SourceCheck | None,
    reactor: Any,
    now: Callable[[], int],
) -> BanAPI:
    """Return the API about bans. A ban of a user withholds the user's retained messages (``sources``)."""

    def store(kept: Iterable[Ban]) -> Deferred[None]:
        return deferToThreadPool(reactor, reactor.getThreadPool(), store_bans, config.data_dir, kept)

    def apply(ban: Ban) -> None:
        dismissed = registry.dismissals.dismiss(partial(bans.concerns, ban), ReasonCode.BANNED, "this client is banned")
        if ban.kind is Kind.USERNAME and sources is not None:
            sources.follow_rules()
            # The user's last messages come before the last connection ends. So a survey that has begun begins again.
            dismissed.addCallback(lambda _: sources.renew())

    return BanAPI(bans, now=now, store=store, apply=apply)


def compose_failures(config: FailedLoginsConfig, bans: Bans, exempt: Exempt, clock: IReactorTime) -> IFailures:
    """Return the part that counts failed logins."""
    if not config.enable:
        return UncountedFailures()
    limits = FailureLimits(
        free=config.free_per_minute,
        longest=config.longest_delay,
        most=config.max_count,
        window=config.window_time,
        ban=config.ban_time,
    )
    return Failures(limits, seconds=clock.seconds, ban=bans.ban_peer, exempt=exempt)
