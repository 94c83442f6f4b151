"""``twistd holdfast``: options and the composition of the whole broker."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import attrs
from twisted.application.service import IService
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python import usage

from holdfast.admin.control import ControlSocket
from holdfast.admin.retainer import RetainerAPI
from holdfast.admin.settings import Settings
from holdfast.admin.site import APISite, longest_body
from holdfast.auth.anonymous import AnonymousAuthenticator, GuestAuthenticator, UnrestrictedAuthorizer
from holdfast.auth.interfaces import IAuthenticator, IEnhancedAuthenticator
from holdfast.auth.scram import ScramAuthenticator
from holdfast.auth.secret_file import lasting_secret
from holdfast.auth.users_file import UsersFile
from holdfast.broker import BrokerService, complain
from holdfast.clock import SteadyClock
from holdfast.config import Config, ConfigError, default, load
from holdfast.config.document import Zone
from holdfast.listening import Listener, Listening
from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.protocol import MQTTServerFactory
from holdfast.retained.administration import Administration
from holdfast.retained.configured import apply_settings, flow_of, store_of
from holdfast.retained.configured import limits_of as retainer_limits_of
from holdfast.retained.history.history import HistoryLimits, RetainedHistory
from holdfast.retained.history.restoring import Restorer
from holdfast.retained.importing.chunk_size import HOLD
from holdfast.retained.importing.merging import Merger
from holdfast.retained.service import RetainedMessages
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.sessions.connection.backpressure import Pressure
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.outbox import INetworkConnection, Turns
from holdfast.sessions.counters import Counters
from holdfast.sessions.durable.states import DurableSessionStates
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.limits import Limits, RetainMode, WhenFull
from holdfast.sessions.monitoring.figures import Figures
from holdfast.sessions.monitoring.sys_topics import SysTopics
from holdfast.sessions.registry.registry import SessionRegistry
from holdfast.sessions.routing.router import Router
from holdfast.sessions.routing.wills import Wills
from holdfast.storage.database import Durability
from holdfast.storage.lock import DirectoryLock
from holdfast.storage.sqlite.quarantine import OnCorruption
from holdfast.storage.status import figures as storage_figures
from holdfast.storage.status import soundness
from holdfast.storage.store import DurableStore
from holdfast.storage.url import shown
from holdfast.tickets import CommitTicket

#: How long one thread may keep the interpreter from another: short, so that the writer never delays live messages.
SWITCH_INTERVAL = 0.0005

#: Collect rarely: messages and tickets make no cycles, and the default thresholds cost a fifth of a busy broker's time.
COLLECTION_THRESHOLDS = (50_000, 20, 50)


class Options(usage.Options):
    """The command line of ``twistd holdfast``."""

    synopsis = "[options]"
    longdesc = "An MQTT 3.1.1 and 5.0 broker whose retained messages live in a database."
    optParameters = [
        ["config", "c", None, "The configuration file (TOML). Without it: loopback only, data in ./data."],
        ["data-dir", "d", None, "The folder of the database and its lock; overrides node.data_dir."],
        [
            "storage",
            "s",
            None,
            "The database, sqlite:////path or postgresql+psycopg://...; overrides storage.url.",
        ],
    ]
    optFlags = [["allow-anonymous", None, "Let everyone connect, also from other machines."]]
    config: Config

    def __init__(self) -> None:
        usage.Options.__init__(self)
        self.listen: list[str] = []

    def opt_listen(self, endpoint: str) -> None:
        """Listen on this Twisted endpoint, such as tcp:1883:interface=127.0.0.1 (port 0: a free one).

        May be given several times; replaces all listeners of the file.
        """
        self.listen.append(endpoint)

    opt_l = opt_listen

    def postOptions(self) -> None:
        """Read the configuration; problems are told on stderr, all at once, and end the process with status 1."""
        anonymous = bool(self["allow-anonymous"])
        try:
            config = load(Path(self["config"]), allow_anonymous=True) if self["config"] else default()
            self.config = config.override(
                listen=self.listen,
                data_dir=self["data-dir"],
                storage=self["storage"],
                allow_anonymous=anonymous,
                cwd=Path.cwd(),
            )
        except ConfigError as error:
            refuse(error)


def refuse(error: ConfigError) -> NoReturn:
    """Tell all that is wrong on stderr, and end the process with status 1."""
    for problem in error.problems:
        print(problem, file=sys.__stderr__)
    raise SystemExit(1) from None


#: Seconds that a replay waits for a database that is away, where replays are refused rather than delayed.
READ_PATIENCE = 5.0


def limits_of(zone: Zone) -> Limits:
    """Return a zone's limits as the Session layer takes them."""
    mqtt, shutdown = zone.mqtt, zone.force_shutdown
    return Limits(
        max_packet_size=mqtt.max_packet_size,
        max_clientid_len=mqtt.max_clientid_len,
        max_topic_levels=mqtt.max_topic_levels,
        max_qos_allowed=mqtt.max_qos_allowed,
        max_topic_alias=mqtt.max_topic_alias,
        retain_available=mqtt.retain_available,
        retained_messages_mode=RetainMode(zone.retainer.retained_messages_mode),
        stop_publish_clear_msg=zone.retainer.stop_publish_clear_msg,
        wildcard_subscription=mqtt.wildcard_subscription,
        shared_subscription=mqtt.shared_subscription,
        subscription_identifiers=mqtt.subscription_identifiers,
        response_information=mqtt.response_information,
        min_replay_levels=mqtt.min_replay_levels,
        server_keepalive=mqtt.server_keepalive,
        keepalive_multiplier=mqtt.keepalive_multiplier,
        max_inflight=mqtt.max_inflight,
        max_awaiting_rel=mqtt.max_awaiting_rel,
        await_rel_timeout=mqtt.await_rel_timeout,
        max_subscriptions=mqtt.max_subscriptions,
        max_mqueue_len=mqtt.max_mqueue_len,
        max_mqueue_bytes=mqtt.max_mqueue_bytes,
        mqueue_full=WhenFull(mqtt.mqueue_full),
        mqueue_store_qos0=mqtt.mqueue_store_qos0,
        session_expiry_interval=mqtt.session_expiry_interval,
        idle_timeout=mqtt.idle_timeout,
        upgrade_qos=mqtt.upgrade_qos,
        ignore_loop_deliver=mqtt.ignore_loop_deliver,
        max_buffered_messages=shutdown.max_mailbox_size if shutdown.enable else 0,
        max_buffered_bytes=shutdown.max_bytes if shutdown.enable else 0,
    )


def control_of(
    config: Config,
    reactor: Any,
    retained: RetainedMessages,
    store: SQLRetainedStore,
    history: RetainedHistory,
    router: Router,
    now: Callable[[], int],
    health: Callable[[], Mapping[str, object]],
) -> ControlSocket:
    """Compose the API and the socket it is served on."""

    def pause() -> Deferred[None]:
        return deferLater(reactor, 0)

    def publish(message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        return router.publish(message, origin)[0]

    api = RetainerAPI(
        Administration(retained, store, now, pause),
        retained,
        history,
        Restorer(history, retained, publish, now),
        Settings(config.retainer, partial(apply_settings, retained)),
        shown(config.storage.url),
        health,
        Merger(retained, store, now, pause, hold=HOLD),
    )
    site = APISite(api.answer, longest_body(config.retainer.max_payload_size), reactor)
    return ControlSocket(reactor, config.data_dir, site)


def authenticator_of(config: Config) -> IAuthenticator:
    """Return who judges clients that name no Authentication Method."""
    if not config.authentication.is_configured:
        return AnonymousAuthenticator()
    return GuestAuthenticator({name for name, listener in config.listeners.items() if listener.allow_anonymous})


def scram_of(config: Config) -> IEnhancedAuthenticator | None:
    """Return who knows the users of SCRAM-SHA-256. Raises ConfigError where their file cannot be used."""
    if config.scram_file is None:
        return None
    users = UsersFile(config.scram_file)
    return ScramAuthenticator(users.users, lasting_secret(config.data_dir / "holdfast.secret"))


def make_broker(config: Config, reactor: Any, announce: Callable[[str], None] | None = None) -> BrokerService:
    """Compose the whole broker from its configuration; nothing is opened yet.

    Raises ConfigError when a file that the configuration names cannot be used.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    clock = SteadyClock()
    now = clock.now
    reactor.seconds = clock.seconds  # timers, too, do not jump with the machine's clock
    pressure = Pressure()
    counters = Counters()
    durability = Durability(config.storage.durability)
    durable = DurableStore(
        config.storage.url,
        durability,
        config.storage.flush_interval,
        config.storage.max_pending,
        config.node.id,
        reactor,
        now,
        pressure.change,
        patience=READ_PATIENCE if config.retainer.when_unavailable == "refuse" else None,
        upgrade_command=config.upgrade_command,
        on_corruption=OnCorruption(config.storage.on_corruption),
    )

    def flushed() -> CommitTicket:
        return store.flushed()

    # Before the store of the messages: what it does when the database is open is done before the writer has begun.
    history = RetainedHistory(durable, flushed, reactor, now, HistoryLimits(**attrs.asdict(config.retainer.history)))
    store = store_of(config.retainer, durable)
    retained = RetainedMessages(store, reactor, now, retainer_limits_of(config.retainer), flow_of(config.retainer))
    authorizer = UnrestrictedAuthorizer()
    states = DurableSessionStates(durable, reactor)
    limits = {name: limits_of(config.zone(listener.zone)) for name, listener in config.listeners.items()}
    rejecting = any(one.mqueue_full is WhenFull.REJECT for one in limits.values())
    router = Router(retained, authorizer, counters, rejecting)
    wills = Wills(
        reactor,
        now,
        router,
        authorizer,
        states,
        counters,
        retained,
        config.mqtt.will_restart_grace,
        config.retainer.stop_publish_clear_msg,
    )
    registry = SessionRegistry(reactor, now, router, wills, states, counters)
    figures = Figures(
        version("holdfast"),
        reactor,
        registry,
        router,
        retained,
        counters,
        partial(storage_figures, durable, durability, config.storage.flush_interval),
    )
    sys_topics = SysTopics(reactor, router, authorizer, figures.measure, config.sys_topics.sys_msg_interval)
    services = BrokerParts(
        reactor,
        now,
        Turns(reactor),
        registry,
        router,
        retained,
        authenticator_of(config),
        authorizer,
        pressure,
        counters,
        sys_topics,
        scram_of(config),
    )
    listeners = []
    for name, listener in config.listeners.items():

        def build(network: INetworkConnection, limits: Limits = limits[name], name: str = name) -> Connection:
            return Connection(services, network, limits, name)

        listeners.append(Listener(name, listener.endpoint, MQTTServerFactory(build, reactor)))
    description = (
        f"Holdfast {version('holdfast')}, store {shown(config.storage.url)}, durability {durability.value}: "
        f"{durability.loss_window(config.storage.flush_interval)}"
    )
    lock = DirectoryLock(config.data_dir)
    # A Session whose listener is not there any more has the limits of the default zone.
    defaults = limits_of(config.zone(""))
    return BrokerService(
        reactor,
        lock,
        durable,
        retained,
        history,
        sys_topics,
        registry,
        lambda listener: limits.get(listener, defaults),
        Listening(reactor, listeners),
        control_of(config, reactor, retained, store, history, router, now, partial(soundness, durable)),
        description,
        announce,
    )


def makeService(options: Options) -> IService:
    """Return the broker for twistd."""
    from twisted.internet import reactor

    try:
        return make_broker(options.config, reactor)
    except ConfigError as error:
        refuse(error)


__all__ = ["Options", "complain", "makeService", "make_broker"]
