"""Builds the broker from its parts, room by room. Only this package knows all of them.

Each room has a function ``build``: it takes the configuration and the parts of the rooms that it stands on, and returns
its own. The commands' stand-in for a broker and the tests use the functions ``compose_...`` of a room, which take
everything by keyword, so that they run what the broker runs.

Building opens nothing and changes nothing outside the parts: no file, no port, no setting of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from holdfast.admin.http.control import ControlSocket, when_open
from holdfast.admin.http.site import APISite
from holdfast.broker import admin, base, identity, listeners, retainer, sessions, watch
from holdfast.broker.audit import open_audit
from holdfast.broker.bridges import ConfiguredBridges
from holdfast.broker.cluster import ClusterParts, attach, carriers_of, exchange_of
from holdfast.broker.reloaded_parts import (
    Reloadable,
    compose_reloads,
)
from holdfast.broker.service import BrokerService
from holdfast.broker.service_manager import ServiceManager
from holdfast.config import Config
from holdfast.config.document import file_states
from holdfast.identity.bans import load_bans
from holdfast.scheduling.deadlines import BrokerClock
from holdfast.storage.database import Durability
from holdfast.storage.location import DirectoryLock, shown
from holdfast.version import version

NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


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

    For ``now``, ``clock`` and ``environment`` see :class:`Base`. ``read`` returns the configuration as it is at a
    reload, or with another file; raises ConfigError. ``open_files`` limits the files and connections that the process
    may have open; None is no limit. If the broker ``waits``, a database or an address that is late does not end its
    start.
    """
    read = read or (lambda _file=None: config)
    files = file_states(config, environment)
    ground = base.build(config, reactor=reactor, now=now, environment=environment, clock=clock, open_files=open_files)
    who = identity.build(config, ground)
    kept = retainer.build(config, ground, who)
    carriers = carriers_of(config, environment, ground.membership, reactor)
    exchange = exchange_of(ground.membership, carriers, reactor, ground.durable, kept.retained, kept.replays)
    served = sessions.build(config, ground, who, kept, exchange)
    listening = listeners.build(config, ground, who, served)
    bridges = ConfiguredBridges(config, ground, served)
    broker: BrokerService | None = None
    watched = watch.build(
        config, ground, who, kept, served, listening, lambda: broker is not None and broker.is_stopping,
        None if ground.membership is None or exchange is None or carriers is None
        else ClusterParts(ground.membership, exchange, carriers),
        bridges.metrics,
    )  # fmt: skip
    api = retainer.build_api(config, ground, kept, served.router)
    durable = ground.durable
    service_manager = ServiceManager.of(environment, reactor, durable.ask_writer)
    reloads = compose_reloads(
        config,
        read=read,
        files=files,
        reloadable=Reloadable(
            base=ground, identity=who, retainer=kept, sessions=served, listeners=listening.listeners,
            settings=api.settings, tls=listening.tls, bridges=bridges,
        ),
        service_manager=service_manager,
    )  # fmt: skip
    operated = admin.build(ground, who, kept, served, listening, watched, api, reloads, read, bridges, exchange)
    broker = BrokerService(
        reactor=reactor,
        lock=DirectoryLock(config.data_dir),
        load_bans=lambda: who.bans.load(load_bans(config.data_dir)),
        open_audit=partial(open_audit, ground.audit, config),
        close_audit=ground.audit.close,
        store=durable,
        membership=ground.membership,
        exchange=exchange,
        retained=kept.retained,
        since=kept.replays.since,
        history=kept.history,
        telemetry=kept.telemetry,
        sys_topics=served.sys_topics,
        registry=served.registry,
        limits_of=bridges.limits(listening.listeners.limits_of),
        bridges=bridges,
        listening=listening.listeners.listening,
        connections=listening.connections,
        certificates=listening.tls,
        reloads=reloads,
        memory=served.memory,
        stop_jobs=ground.jobs.stop,
        control=ControlSocket(
            reactor,
            config.data_dir,
            APISite(
                when_open(operated.table.answer, lambda: None if broker is None else broker.late_database),
                operated.table.longest_body,
                reactor,
            ),
        ),
        admin=operated.listener,
        dashboard_link=operated.logins.new_link,
        description=(
            f"Holdfast {version()}, store {shown(config.storage.url)}, durability {config.storage.durability}: "
            f"{Durability(config.storage.durability).loss_window(config.storage.flush_interval)}"
            f"{kept.retained.admission.policies.loss_window}"
        ),
        announce=announce,
        service_manager=service_manager,
        authentication=who.authentication.services,
        monitoring=watched.services,
        waits=waits,
        warnings=config.ignored,
    )
    if ground.membership is not None:
        attach(ground.membership, reactor, durable, served.registry, served.broker_parts.draining, broker.fence)
    return broker
