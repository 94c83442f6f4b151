"""Builds the reloading of the configuration: each part of the broker with its changeable options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import define, field, frozen
from twisted.internet.defer import succeed

from holdfast.admin.api.settings import Settings
from holdfast.broker.audit import prepare_audit
from holdfast.broker.base import Base, read_patience
from holdfast.broker.bridges import ConfiguredBridges
from holdfast.broker.identity import EndedIdentities, IdentityParts, compose_failures, trusted_proxies
from holdfast.broker.listeners import ComposedListeners
from holdfast.broker.reloading import Change, Reloads
from holdfast.broker.retainer import (
    RetainerParts,
    history_limits_of,
    judges_guests,
    judges_sources,
    telemetry_limits_of,
)
from holdfast.broker.service_manager import ServiceManager
from holdfast.broker.sessions import SessionParts, ownership_of, rejects_when_full
from holdfast.config import Config
from holdfast.config.document import FileState, file_states
from holdfast.retained.configured import limits_of as retainer_limits_of
from holdfast.retained.configured import payer_limits_of
from holdfast.scheduling.waiting import as_deferred
from holdfast.sessions.revocation import OnRevoke
from holdfast.transports.configured import ComposedTLS
from holdfast.wire.reasons import ReasonCode


@frozen(kw_only=True)
class Reloadable:
    """The parts of the broker that another configuration changes."""

    base: Base
    identity: IdentityParts
    retainer: RetainerParts
    sessions: SessionParts
    listeners: ComposedListeners
    settings: Settings
    tls: ComposedTLS
    bridges: ConfiguredBridges


def compose_reloads(
    config: Config,
    *,
    read: Callable[[], Config],
    files: Mapping[Path, FileState],
    reloadable: Reloadable,
    service_manager: ServiceManager,
) -> Reloads:
    """Return the reloader of the configuration. ``files`` has the states of its files before they were read."""
    base = reloadable.base
    changes = _Changes(reloadable, files)
    return Reloads(
        config,
        read=read,
        # In the order of commits: TLS before the listeners that use it.
        parts=[
            changes.authentication, changes.authorization, changes.tls, reloadable.listeners.prepare, changes.audit,
            changes.failures, changes.settings, reloadable.bridges.prepare,
        ],
        revoke=changes.revoke,
        run=base.in_thread,
        environment=base.environment,
        files=files,
        told=lambda begins: service_manager.reloading() if begins else service_manager.ready(),
        reset=changes.take_reset,
    )  # fmt: skip


@define
class _Changes:
    """The parts, and their notes between the commits and the following revocations."""

    _parts: Reloadable
    _rule_files: Mapping[Path, FileState]
    _ended: EndedIdentities | None = None
    _reset: list[str] = field(factory=list)

    def authentication(self, _running: Config, config: Config) -> Change:
        """Prepare the methods, their files and secrets, and the chains."""
        authentication, shared = self._parts.identity.authentication, self._parts.sessions.broker_parts
        parts = authentication.compose(config, authentication.parts)

        def commit() -> None:
            shared.authenticator = parts.authenticator
            shared.enhanced_authenticator = parts.enhanced_authenticator
            self._parts.sessions.registry.ownership = ownership_of(config)
            self._ended = authentication.use(parts)

        return Change(commit=commit)

    def authorization(self, running: Config, config: Config) -> Change:
        """Prepare the rules. Rules that have not changed stay, with all remembered verdicts."""
        files = file_states(config, self._parts.base.environment)
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
        use = None if stays else self._parts.identity.accounts.prepare(config)

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
        return prepare_audit(self._parts.base.audit, running, config)

    def failures(self, running: Config, config: Config) -> Change:
        """Prepare the counts of failed logins: changed options reset them."""
        parts, identity, proxies = self._parts, self._parts.identity, trusted_proxies(config)

        def commit() -> None:
            identity.exempt.change(proxies)
            if running.failed_logins != config.failed_logins:
                parts.sessions.broker_parts.failures = compose_failures(
                    config.failed_logins, identity.bans, identity.exempt, parts.base.reactor
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
            self._parts.base.durable.change_patience(read_patience(config))
            limits = retainer_limits_of(config.retainer, config.max_packet_size)
            self._parts.retainer.retained.change_limits(limits, config.retainer.announce_expiry)
            self._parts.retainer.retained.admission.change_payers(payer_limits_of(config))
            self._parts.retainer.history.change_limits(history_limits_of(config.retainer))
            self._parts.retainer.telemetry.limits = telemetry_limits_of(config.retainer)
            sources = self._parts.retainer.retained.sources
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
