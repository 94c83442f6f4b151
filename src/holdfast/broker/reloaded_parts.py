"""Builds the reloading of the configuration: each part of the broker with its changeable options.

A value that a start and a reload both read from the configuration is read here once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from twisted.internet.defer import succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThreadPool

from holdfast.admin.api.settings import Settings
from holdfast.broker.identity import Accounts, Authentication, EndedIdentities, compose_failures
from holdfast.broker.listeners import ComposedListeners
from holdfast.broker.reloading import Change, Reloads
from holdfast.broker.service_manager import ServiceManager
from holdfast.broker.sessions import SessionParts, limits_of
from holdfast.broker.watch import prepare_audit
from holdfast.config import Config
from holdfast.config.document import FileState, file_states
from holdfast.config.sections.authorization import STRICT
from holdfast.identity.addresses import TrustedProxies
from holdfast.identity.bans import Bans, Exempt
from holdfast.retained.changes.history import RetainedHistory
from holdfast.retained.configured import history_limits_of, payer_limits_of
from holdfast.retained.configured import limits_of as retainer_limits_of
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.waiting import as_deferred
from holdfast.sessions.limits import WhenFull
from holdfast.sessions.registry import Ownership, names_ignored, owners_only
from holdfast.sessions.revocation import OnRevoke
from holdfast.storage.store import DurableStore
from holdfast.transports.configured import ComposedTLS
from holdfast.watch.audit import Audit
from holdfast.wire.reasons import ReasonCode

#: Seconds that a replay waits for an unavailable database where ``when_unavailable`` is ``refuse``.
READ_PATIENCE = 5.0


def judges_sources(config: Config) -> bool:
    """Tell whether replays judge the publishers of retained messages."""
    return bool(config.authorization.check_retain_source) and config.authorization.is_configured


def judges_guests(config: Config) -> bool:
    """Tell whether messages without a User Name are judged too."""
    return config.authorization.check_retain_source == STRICT


def ownership_of(config: Config) -> Ownership:
    """Return the rule that decides who may resume a Session."""
    return owners_only if config.authentication.is_configured else names_ignored


def rejects_when_full(config: Config) -> bool:
    """Tell whether the clients of some listener reject messages when a queue is full."""
    zones = (limits_of(config.zone(listener.zone)) for listener in config.listeners.values())
    return any(zone.mqueue_full is WhenFull.REJECT for zone in zones)


def read_patience(config: Config) -> float | None:
    """Return the seconds for which reads wait for a database that is away; None: without end."""
    return READ_PATIENCE if config.retainer.when_unavailable == "refuse" else None


def trusted_proxies(config: Config) -> list[TrustedProxies]:
    """Return the trusted proxies of all listeners, that of the API among them."""
    lists = [*(listener.trusted_proxies for listener in config.listeners.values()), config.admin.trusted_proxies]
    return [TrustedProxies(names) for names in lists]


@frozen(kw_only=True)
class Reloadable:
    """The parts of the broker that another configuration changes."""

    accounts: Accounts
    authentication: Authentication
    audit: Audit
    bans: Bans
    durable: DurableStore
    exempt: Exempt
    history: RetainedHistory
    listeners: ComposedListeners
    retained: RetainedMessages
    sessions: SessionParts
    settings: Settings
    tls: ComposedTLS


def compose_reloads(
    config: Config,
    *,
    read: Callable[[], Config],
    reactor: Any,
    environment: Mapping[str, str],
    files: Mapping[Path, FileState],
    reloadable: Reloadable,
    service_manager: ServiceManager,
) -> Reloads:
    """Return the reloader of the configuration. ``files`` has the states of its files before they were read."""
    changes = _Changes(reloadable, reactor, environment, files)
    return Reloads(
        config,
        read=read,
        # In the order of commits: TLS before the listeners that use it.
        parts=[
            changes.authentication, changes.authorization, changes.tls, reloadable.listeners.prepare, changes.audit,
            changes.failures, changes.settings,
        ],
        revoke=changes.revoke,
        run=lambda function: deferToThreadPool(reactor, reactor.getThreadPool(), function),
        environment=environment,
        files=files,
        told=lambda begins: service_manager.reloading() if begins else service_manager.ready(),
        reset=changes.take_reset,
    )  # fmt: skip


@define
class _Changes:
    """The parts, and their notes between the commits and the following revocations."""

    _parts: Reloadable
    _reactor: IReactorTime
    _environment: Mapping[str, str]
    _rule_files: Mapping[Path, FileState]
    _ended: EndedIdentities | None = None
    _reset: list[str] = field(factory=list)

    def authentication(self, _running: Config, config: Config) -> Change:
        """Prepare the methods, their files and secrets, and the chains."""
        authentication, shared = self._parts.authentication, self._parts.sessions.broker_parts
        parts = authentication.compose(config, authentication.parts)

        def commit() -> None:
            shared.authenticator = parts.authenticator
            shared.enhanced_authenticator = parts.enhanced_authenticator
            self._parts.sessions.registry.ownership = ownership_of(config)
            self._ended = authentication.use(parts)

        return Change(commit=commit)

    def authorization(self, running: Config, config: Config) -> Change:
        """Prepare the rules. Rules that have not changed stay, with all remembered verdicts."""
        files = file_states(config, self._environment)
        rules = {path: files.get(path) for path in map(config.absolute, config.authorization.files)}
        known = {path: self._rule_files.get(path) for path in rules}
        stays = (
            rules == known
            and running.authorization == config.authorization
            and running.authentication.is_configured == config.authentication.is_configured
            and running.authentication.gives_groups == config.authentication.gives_groups
            and (running.authentication.database_users is None) == (config.authentication.database_users is None)
            and running.listeners.keys() == config.listeners.keys()
        )
        use = None if stays else self._parts.accounts.prepare(config)

        def commit() -> None:
            self._rule_files = files
            self._parts.sessions.registry.grants.on_revoke = OnRevoke(config.authorization.on_revoke)
            if use is not None:
                use()

        return Change(commit=commit)

    def tls(self, _running: Config, config: Config) -> Change:
        """Prepare certificates and keys."""
        return Change(commit=self._parts.tls.prepare(config))

    def audit(self, running: Config, config: Config) -> Change:
        """Prepare the audit log."""
        return prepare_audit(self._parts.audit, running, config)

    def failures(self, running: Config, config: Config) -> Change:
        """Prepare the counts of failed logins: changed options reset them."""
        parts, proxies = self._parts, trusted_proxies(config)

        def commit() -> None:
            parts.exempt.change(proxies)
            if running.failed_logins != config.failed_logins:
                parts.sessions.broker_parts.failures = compose_failures(
                    config.failed_logins, parts.bans, parts.exempt, self._reactor
                )

        return Change(commit=commit)

    def settings(self, _running: Config, config: Config) -> Change:
        """Prepare plain values."""
        sessions, rejecting = self._parts.sessions, rejects_when_full(config)

        def commit() -> None:
            sessions.router.rejecting = rejecting
            sessions.wills.silent_clears = config.retainer.stop_publish_clear_msg
            sessions.leases.silent_clears = config.retainer.stop_publish_clear_msg
            sessions.log.connections = config.log.connections
            sessions.sys_topics.change_interval(config.sys_topics.sys_msg_interval)
            sessions.leases.change(config.retainer.lease_grace)
            self._reset = self._parts.settings.replace(config.retainer)
            self._parts.durable.change_patience(read_patience(config))
            limits = retainer_limits_of(config.retainer, config.max_packet_size)
            self._parts.retained.change_limits(limits, config.retainer.announce_expiry)
            self._parts.retained.admission.change_payers(payer_limits_of(config))
            self._parts.history.change_limits(history_limits_of(config.retainer))
            sources = self._parts.retained.sources
            if sources is not None:
                sources.change(enabled=judges_sources(config), guests=judges_guests(config))

        return Change(commit=commit)

    def take_reset(self) -> list[str]:
        """Return the settings of the API that have ended."""
        reset, self._reset = self._reset, []
        return reset

    @as_deferred
    async def revoke(self, running: Config, config: Config) -> Mapping[str, int]:
        """End clients of removed listeners, ended identities, and subscriptions that are no longer allowed."""
        registry = self._parts.sessions.registry
        ended, gone = self._ended, running.listeners.keys() - config.listeners.keys()
        self._ended = None
        # All begin now: a client that is being admitted is compared with the dismissals that came meanwhile.
        of_listeners = succeed(0) if not gone else registry.dismissals.dismiss(
            lambda principal: principal.listener in gone, ReasonCode.SERVER_SHUTTING_DOWN, "its listener is gone"
        )  # fmt: skip
        of_users = succeed(0) if ended is None else registry.dismissals.dismiss(
            ended, ReasonCode.NOT_AUTHORIZED, "the changed configuration does not admit this user any more"
        )  # fmt: skip
        subscriptions = registry.grants.revoke()
        connections = await of_listeners
        self._parts.listeners.drop_rest()
        identities = await of_users
        revoked = await subscriptions
        return {"connections": connections, "identities": identities, "subscriptions": revoked.subscriptions}
