"""Builds the broker from its parts. Only this package knows all of them.

Each function builds one group of parts and takes everything by keyword. :func:`compose_broker` builds the whole broker,
for twistd. The commands' stand-in for a broker uses :func:`compose_retainer` and :func:`compose_api`, and tests use
:func:`compose_sessions` and :func:`compose_api`, so that commands and tests run what the broker runs.

Building opens nothing and changes nothing outside the parts: no file, no port, no setting of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attrs import evolve, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool

from holdfast.admin.api.clients import TraceAPI
from holdfast.admin.api.configs import ReloadAPI
from holdfast.admin.api.jobs import JobCalls
from holdfast.admin.api.retainer import RetainerAPI
from holdfast.admin.api.settings import Settings
from holdfast.admin.deadlines import Deadlines
from holdfast.admin.http.control import ControlSocket, when_open
from holdfast.admin.http.site import APISite, longest_body
from holdfast.admin.http.static import StaticFiles
from holdfast.admin.jobs import Jobs
from holdfast.admin.openapi import OpenAPI
from holdfast.admin.routing import RoutingTable
from holdfast.broker.admin import LISTENER as CONSOLES
from holdfast.broker.admin import (
    Consoles,
    compose_admin_listener,
    compose_callers,
    compose_client_routes,
    compose_config_routes,
    compose_events,
    compose_overview_routes,
)
from holdfast.broker.identity import (
    Authentication,
    compose_account_routes,
    compose_accounts,
    compose_ban_api,
    compose_failures,
    hash_parameters_of,
)
from holdfast.broker.listeners import ComposedListeners
from holdfast.broker.reloaded_parts import (
    Reloadable,
    compose_reloads,
    judges_guests,
    judges_sources,
    ownership_of,
    read_patience,
    rejects_when_full,
    trusted_proxies,
)
from holdfast.broker.service import BrokerService
from holdfast.broker.service_manager import ServiceManager
from holdfast.broker.sessions import SessionParts, accounts_of, compose_sessions
from holdfast.broker.watch import (
    compose_audit,
    compose_monitoring,
    denials_of,
    end_of_jobs_of,
    monitoring_routes,
    most_memory,
    open_audit,
    witness_of,
)
from holdfast.config import Config
from holdfast.config.document import file_states
from holdfast.config.sections.retainer import RetainerConfig
from holdfast.core.connection_limits import ProcessConnections
from holdfast.core.strict_json import read_long_json
from holdfast.core.tickets import CommitTicket
from holdfast.identity.bans import Bans, Exempt, load_bans
from holdfast.identity.hashes import HashingThreads, new_hash
from holdfast.identity.interfaces import Principal
from holdfast.retained.administration import Administration, IPublisher
from holdfast.retained.changes.history import RetainedHistory
from holdfast.retained.changes.nodes import Epochs
from holdfast.retained.changes.past import PastMessages
from holdfast.retained.changes.since import ChangesSince
from holdfast.retained.changes.watch import ChangeLog, ChangeWatch
from holdfast.retained.configured import (
    apply_settings,
    history_limits_of,
    history_rules_of,
    payer_limits_of,
    recorder_of,
    store_of,
)
from holdfast.retained.configured import limits_of as retainer_limits_of
from holdfast.retained.importing import Merger
from holdfast.retained.leases import DurableLeaseRows
from holdfast.retained.limits import PayerLimits, flow_of
from holdfast.retained.restoring import Restorer
from holdfast.retained.rules import KeepRule
from holdfast.retained.service import RetainedMessages
from holdfast.retained.source_check import SourceCheck
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.verdicts import HOLD
from holdfast.scheduling.deadlines import BrokerClock
from holdfast.sessions.connection.pressure import Pressure
from holdfast.sessions.durable import DurableSessionStates
from holdfast.sessions.operator_publisher import OperatorPublisher
from holdfast.sessions.registry import SessionRegistry
from holdfast.sessions.revocation import OnRevoke
from holdfast.sessions.router import Router
from holdfast.sessions.tracing import CannotTrace
from holdfast.storage.database import Durability
from holdfast.storage.location import DirectoryLock, shown
from holdfast.storage.sqlite import OnCorruption
from holdfast.storage.store import DurableStore
from holdfast.transports.configured import ComposedTLS
from holdfast.transports.listening import RefusedConnections
from holdfast.transports.protocol import OpenConnections
from holdfast.version import version
from holdfast.watch.audit import OverheardAudit
from holdfast.wire.reasons import ReasonCode

NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


@frozen(kw_only=True)
class RetainerParts:
    """The parts that keep retained messages."""

    store: SQLRetainedStore
    retained: RetainedMessages
    history: RetainedHistory


def compose_retainer(
    config: RetainerConfig,
    *,
    durable: DurableStore,
    clock: IReactorTime,
    now: Callable[[], int],
    keeps_history: bool = True,
    control_characters: bool = True,
    keep_rule: KeepRule | None = None,
    judges_sources: bool = True,
    judges_guests: bool = False,
    bans: Bans | None = None,
    payers: PayerLimits | None = None,
    max_packet_size: int,
) -> RetainerParts:
    """Build the parts that keep retained messages in ``durable``.

    ``now`` returns milliseconds since the epoch. ``control_characters`` tells whether operators may set such topics.
    With a ``keep_rule``, and while ``judges_sources``, replays withhold messages whose publishers may no longer retain
    them, and with ``judges_guests`` also messages without a User Name; always those of users in ``bans``. ``payers``
    has the quotas of users and guests. ``max_packet_size`` is the largest
    of all zones.
    """

    def flushed() -> CommitTicket:
        return store.flushed()

    # The history comes first: each part is called when the database opens, in this order, and the history must have
    # read its state before the retained store prepares its first write.
    history = RetainedHistory(
        durable, flushed=flushed, clock=clock, now=now, limits=history_limits_of(config),
        rules=history_rules_of(config), keeping=keeps_history,
    )  # fmt: skip
    recorder, changes = recorder_of(config, durable, history.recorder, gathers=keeps_history)
    epochs = Epochs(durable, now, recorded=changes is not None)
    store = store_of(config, durable, recorder, payers)
    limits = evolve(retainer_limits_of(config, max_packet_size), control_characters=control_characters, payers=payers)
    sources = None
    if keep_rule is not None:
        sources = SourceCheck(store, keep_rule, guests=judges_guests, clock=clock, enabled=judges_sources, bans=bans)
    retained = RetainedMessages(
        store, clock=clock, now=now, limits=limits, flow=flow_of(config), sources=sources,
        leases=DurableLeaseRows(durable),
    )  # fmt: skip
    if changes is not None:
        retained.since = ChangesSince(
            store, epochs, changes, clock=clock, now=now,
            keep=lambda: round(1000 * retained.admission.limits.tombstone_ttl),
        )  # fmt: skip
    retained.past = PastMessages(history, store)
    return RetainerParts(store=store, retained=retained, history=history)


def compose_api(
    config: RetainerConfig,
    *,
    administration: Administration,
    retained: RetainedMessages,
    history: RetainedHistory,
    publisher: IPublisher,
    can_change: bool,
    location: str,
    health: Callable[[], Mapping[str, object]] = dict,
    merger: Merger | None = None,
    changes: ChangeWatch | None = None,
    jobs: Jobs | None = None,
) -> RetainerAPI:
    """Build the API for operators.

    The ``publisher`` gets the messages that a restore puts back. ``can_change`` says that settings may be changed.
    """
    return RetainerAPI(
        administration=administration,
        retained=retained,
        history=history,
        restorer=Restorer(history, retained, publisher, administration.now),
        settings=Settings(config, partial(apply_settings, retained, history) if can_change else None),
        store=location,
        jobs=jobs or Jobs(administration.now),
        health=health,
        merger=merger,
        changes=changes,
    )


def compose_broker(
    config: Config,
    *,
    reactor: Any,
    now: Callable[[], int],
    announce: Callable[[str], None],
    open_files: int | None = None,
    environment: Mapping[str, str] = NO_ENVIRONMENT,
    read: Callable[..., Config] | None = None,
    waits: bool = True,
    clock: BrokerClock | None = None,
) -> BrokerService:
    """Build the whole broker. Raises ConfigError if a file that the configuration names cannot be used.

    ``now`` is that of the ``clock``, which follows the machine's while the broker runs; without it, nothing follows.
    ``read`` returns the configuration as it is at a reload, or with another file; raises ConfigError. ``open_files``
    limits the files and connections that the process may have open; None is no limit. The ``environment`` may name the
    service manager, and have secrets that the configuration names. If the broker ``waits``, a database or an address
    that is late does not end its start.
    """
    files = file_states(config, environment)
    pressure = Pressure(reactor)
    durability = Durability(config.storage.durability)
    durable = DurableStore(
        config.storage.url,
        durability=durability,
        flush_interval=config.storage.flush_interval,
        node=config.node.id,
        reactor=reactor,
        now=now,
        on_pressure=pressure.change,
        patience=read_patience(config),
        upgrade_command=config.upgrade_command,
        on_corruption=OnCorruption(config.storage.on_corruption),
    )
    accounts = compose_accounts(config, durable=durable, reactor=reactor, now=now)
    authorizer = accounts.authorizer
    exempt = Exempt(trusted_proxies(config))
    bans = Bans(now=lambda: now() / 1000, exempt=exempt)
    parts = compose_retainer(
        config.retainer, durable=durable, clock=reactor, now=now,
        control_characters=config.mqtt.control_characters == "accept",
        keep_rule=authorizer, judges_sources=judges_sources(config), judges_guests=judges_guests(config),
        bans=bans, payers=payer_limits_of(config), max_packet_size=config.max_packet_size,
    )  # fmt: skip
    audit = compose_audit(config, clock=reactor, now=now)
    overheard = OverheardAudit(audit)
    threads = HashingThreads(reactor)
    authentication = Authentication(
        config, users=accounts.users, threads=threads, reactor=reactor, now=now, environment=environment
    )
    accounts.following.setServiceParent(authentication.services)
    process = ProcessConnections() if open_files is None else ProcessConnections.within(open_files)
    sessions = compose_sessions(
        clock=reactor,
        now=now,
        retained=parts.retained,
        states=DurableSessionStates(durable, reactor),
        authorizer=authorizer,
        authenticator=authentication.parts.authenticator,
        enhanced_authenticator=authentication.parts.enhanced_authenticator,
        ownership=ownership_of(config),
        on_revoke=OnRevoke(config.authorization.on_revoke),
        pressure=pressure,
        rejects_when_full=rejects_when_full(config),
        silent_clears=config.retainer.stop_publish_clear_msg,
        will_restart_grace=config.mqtt.will_restart_grace,
        lease_grace=config.retainer.lease_grace,
        broker_version=version(),
        sys_msg_interval=config.sys_topics.sys_msg_interval,
        failures=compose_failures(config.failed_logins, bans, exempt, reactor),
        bans=bans,
        audit=overheard,
        denied=denials_of(audit),
        connections=process,
        logs_connections=config.log.connections,
        storage=durable.status,
        accounts=accounts_of(config),
        most_memory=most_memory(config),
    )
    parts.retained.policies_changed = sessions.router.table.forget_routes  # runs of forced topics end
    authentication.on_revoked(partial(_dismiss, sessions.registry))
    connections = OpenConnections(reactor)
    tls = ComposedTLS(reactor, now)
    tls.prepare(config)()
    refused = RefusedConnections(sessions.counters, process, sessions.log, audit)
    listeners = ComposedListeners(
        config,
        reactor=reactor,
        connect=sessions.connect,
        connections=connections,
        process=process,
        refused=refused,
        bans=bans,
        tls=tls,
    )
    since, changes = parts.retained.since, None
    if since is not None:
        changes = ChangeWatch(parts.store, ChangeLog(parts.store, since), reactor)
    jobs = Jobs(now, end_of_jobs_of(audit))
    api = _retainer_api(config, reactor, now, parts, sessions.router, durable.soundness, changes, jobs)
    broker: BrokerService | None = None
    monitoring = compose_monitoring(
        config, reactor=reactor, now=now, durable=durable, retained=parts.retained, history=parts.history,
        sessions=sessions, pressure=pressure, process=process, listeners=listeners, tls=tls, bans=bans, audit=audit,
        is_stopping=lambda: broker is not None and broker.is_stopping, clock=clock,
    )  # fmt: skip
    if changes is not None:
        monitoring.services.addService(changes)
    events = compose_events(
        changes, reactor=reactor, now=now, audit=overheard, replays=parts.retained.replays, alarms=monitoring.alarms,
        ring=monitoring.recent.ring, node=config.node.id,
    )  # fmt: skip
    service_manager = ServiceManager.of(environment, reactor, durable.ask_writer)
    reloads = compose_reloads(
        config,
        read=read or (lambda _file=None: config),
        reactor=reactor,
        environment=environment,
        files=files,
        reloadable=Reloadable(
            accounts=accounts, authentication=authentication, audit=audit, bans=bans, durable=durable, exempt=exempt,
            history=parts.history, listeners=listeners, retained=parts.retained, sessions=sessions,
            settings=api.settings, tls=tls,
        ),
        service_manager=service_manager,
    )  # fmt: skip
    ban_api = compose_ban_api(config, bans, sessions.registry, parts.retained.sources, reactor, now)
    account_routes = compose_account_routes(
        accounts.users,
        accounts.rules,
        accounts.keys,
        lambda password: threads.run(partial(new_hash, password, hash_parameters_of(reloads.config))),
        now,
    )
    callers = compose_callers(
        accounts,
        config=lambda: reloads.config,
        threads=threads,
        failures=lambda: sessions.broker_parts.failures,
        audit=audit,
        url=lambda: admin.url,
        seconds=reactor.seconds,
        now=now,
        banned=bans.has_peer,
        counters=sessions.counters,
    )

    def is_away() -> bool:
        return durable.is_away

    routes = [
        *callers.logins.routes, *JobCalls(jobs).routes,
        *api.routes, *account_routes, *ban_api.routes, *ReloadAPI(reloads.reload).routes,
        *TraceAPI(sessions.broker_parts.traces, CannotTrace).routes,
        *monitoring_routes(monitoring, now, config.node.id),
        *compose_client_routes(sessions, lambda: reloads.config, reactor, now, is_away),
        *events.routes,
        *compose_config_routes(reloads, read or (lambda _file=None: config), reactor),
        *compose_overview_routes(
            config=lambda: reloads.config, sessions=sessions, retained=parts.retained, listeners=listeners, jobs=jobs,
            reactor=reactor, now=now,
        ),
    ]  # fmt: skip
    longest = longest_body(parts.retained.admission.limits.max_payload_size)
    table = RoutingTable(
        [*routes, OpenAPI(routes, version(), longest).route],
        witness_of(audit),
        lambda body: deferToThreadPool(reactor, reactor.getThreadPool(), read_long_json, body),
        longest,
        Deadlines(reactor, jobs, is_away).run,
        lambda: reloads.config.most_topic_levels,
    )
    consoles = Consoles(
        sessions.connect_operator, connections=connections, limits=lambda: listeners.limits_of(CONSOLES), clock=reactor
    )
    admin = compose_admin_listener(
        config,
        answering=StaticFiles(Path(__file__).parents[1] / "dashboard" / "static", table.answer).answer,
        identify=callers.identities.identify,
        goes_on=callers.identities.goes_on,
        unwrap=callers.forwarding.unwrap,
        most_bytes=table.longest_body,
        reactor=reactor,
        process=process,
        refused=refused,
        bans=bans,
        tls=tls,
        console=partial(consoles.of_session, callers.sessions),
    )
    broker = BrokerService(
        reactor=reactor,
        lock=DirectoryLock(config.data_dir),
        load_bans=lambda: bans.load(load_bans(config.data_dir)),
        open_audit=partial(open_audit, audit, config),
        close_audit=audit.close,
        store=durable,
        retained=parts.retained,
        history=parts.history,
        sys_topics=sessions.sys_topics,
        registry=sessions.registry,
        limits_of=listeners.limits_of,
        listening=listeners.listening,
        connections=connections,
        certificates=tls,
        reloads=reloads,
        memory=sessions.memory,
        stop_jobs=jobs.stop,
        control=ControlSocket(
            reactor,
            config.data_dir,
            APISite(
                when_open(table.answer, lambda: None if broker is None else broker.late_database),
                table.longest_body,
                reactor,
            ),
        ),
        admin=admin,
        dashboard_link=callers.logins.new_link,
        description=(
            f"Holdfast {version()}, store {shown(config.storage.url)}, durability {durability.value}: "
            f"{durability.loss_window(config.storage.flush_interval)}{parts.retained.admission.policies.loss_window}"
        ),
        announce=announce,
        service_manager=service_manager,
        authentication=authentication.services,
        monitoring=monitoring.services,
        waits=waits,
        warnings=config.ignored,
    )
    return broker


def _dismiss(registry: SessionRegistry, matching: Callable[[Principal], bool]) -> None:
    """Disconnect the clients of users that are revoked."""
    registry.dismissals.dismiss(matching, ReasonCode.NOT_AUTHORIZED, "the user was removed or changed")


def _retainer_api(
    config: Config,
    reactor: Any,
    now: Callable[[], int],
    parts: RetainerParts,
    router: Router,
    health: Callable[[], Mapping[str, object]],
    changes: ChangeWatch | None,
    jobs: Jobs,
) -> RetainerAPI:
    """Return the API about retained messages of the running broker."""

    def pause() -> Deferred[None]:
        return deferLater(reactor, 0)

    publisher = OperatorPublisher(router, reactor)
    parts.retained.announce_expiry(publisher, config.retainer.announce_expiry)
    return compose_api(
        config.retainer,
        administration=Administration(parts.retained, parts.store, now, pause, publisher),
        retained=parts.retained,
        history=parts.history,
        publisher=publisher,
        can_change=True,
        location=shown(config.storage.url),
        health=health,
        merger=Merger(parts.retained, parts.store, now=now, pause=pause, hold=HOLD),
        changes=changes,
        jobs=jobs,
    )


__all__ = ["RetainerParts", "SessionParts", "compose_api", "compose_broker", "compose_retainer", "compose_sessions"]
