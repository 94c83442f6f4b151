"""Builds the bridges to other brokers. Without ``[bridges.NAME]``, nothing of their package is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from holdfast.broker.base import Base
from holdfast.broker.reloading import Change
from holdfast.broker.sessions import SessionParts, limits_of
from holdfast.config import Config
from holdfast.identity.interfaces import BRIDGE_CLIENT
from holdfast.sessions.limits import Limits
from holdfast.watch.metrics import Kind, Metric

if TYPE_CHECKING:
    from holdfast.bridges.service import Bridges, BridgeView, Prepared


_CROSSED = ("sent", "received", "refused", "looped", "left_out")


def _fields(view: BridgeView) -> dict[str, Any]:
    """Return what the API shows of a bridge."""
    return {
        "name": view.name, "state": view.state, "address": view.address, "problem": view.problem,
        "clientid": view.client_id, "proto_ver": view.protocol_version, "queued": view.queued,
        "inflight": view.inflight, "messages": {kind: getattr(view.crossed, kind) for kind in _CROSSED},
    }  # fmt: skip


def no_bridges() -> list[Metric]:
    """Return the metrics of a broker without bridges."""
    return _metrics(lambda: ())


def _metrics(views: Callable[[], Iterable[BridgeView]]) -> list[Metric]:
    return [
        Metric(
            name="holdfast_bridge_connected", kind=Kind.GAUGE, labels=("bridge",),
            help="1 while a bridge is connected to its remote broker, else 0.",
            read=lambda: {(each.name,): float(each.state == "connected") for each in views()},
        ),
        Metric(
            name="holdfast_bridge_messages_total", kind=Kind.COUNTER, labels=("bridge", "kind"),
            help="Messages of a bridge: sent to and received from the remote broker; refused by the receiver; looped,"
            " which had come back; and left_out for another reason.",
            read=lambda: {
                (each.name, kind): float(getattr(each.crossed, kind)) for each in views() for kind in _CROSSED
            },
        ),
        Metric(
            name="holdfast_bridge_queued_messages", kind=Kind.GAUGE, labels=("bridge",),
            help="Messages that wait for the remote broker of a bridge, without those in flight.",
            read=lambda: {(each.name,): float(each.queued) for each in views()},
        ),
    ]  # fmt: skip


class ConfiguredBridges:
    """The bridges of the configuration. Raises ConfigError for secrets and files that cannot be used.

    Bridges are made when the first one is configured, at the start or by a reload.
    """

    _log = Logger()

    def __init__(self, config: Config, base: Base, sessions: SessionParts) -> None:
        self._base = base
        self._sessions = sessions
        self._running = False
        self.bridges: Bridges | None = None
        self._names: frozenset[str] = frozenset()
        if config.bridges:
            self._use(config, self._prepared(config))

    def limits(self, of_listeners: Callable[[str], Limits]) -> Callable[[str], Limits]:
        """Return what tells the limits of a stored Session by its listener, that of a bridge too."""

        def limits_of_stored(listener: str) -> Limits:
            found = None if self.bridges is None else self.bridges.remember(listener)
            return of_listeners(listener) if found is None else found

        return limits_of_stored

    def start(self) -> None:
        """Begin to connect, and end the Sessions of bridges that are configured no longer."""
        self._running = True
        self._end_sessions()
        if self.bridges is not None:
            self.bridges.start()

    def stop(self) -> None:
        """Disconnect. The Sessions stay."""
        self._running = False
        if self.bridges is not None:
            self.bridges.stop()

    def prepare(self, running: Config, config: Config) -> Change:
        """Prepare the bridges of another configuration."""
        if not (running.bridges or config.bridges):
            return Change(commit=lambda: None)
        prepared = self._prepared(config)

        def commit() -> None:
            self._use(config, prepared)
            if self._running:
                self._end_sessions()

        return Change(commit=commit)

    # --- for operators

    def all_shown(self) -> list[dict[str, Any]]:
        """Return the fields of all bridges."""
        return [] if self.bridges is None else [_fields(view) for view in self.bridges.views()]

    def shown(self, name: str) -> dict[str, Any]:
        """Return the fields of a bridge. Raises LookupError."""
        return _fields(self._known().view(name))

    def pause(self, name: str) -> None:
        """Disconnect a bridge until it is resumed. Raises LookupError."""
        self._known().pause(name)

    def resume(self, name: str) -> None:
        """Connect a bridge now. Raises LookupError."""
        self._known().resume(name)

    def _known(self) -> Bridges:
        if self.bridges is None:
            raise LookupError("there are no bridges")
        return self.bridges

    def _states(self) -> dict[str, str]:
        """Return the states for the broker's own topics, as mosquitto's bridges tell theirs: 1 is connected."""
        views = () if self.bridges is None else self.bridges.views()
        return {f"connection/{view.name}/state": str(int(view.state == "connected")) for view in views}

    @property
    def metrics(self) -> list[Metric]:
        """The metrics of the bridges."""
        return _metrics(lambda: () if self.bridges is None else self.bridges.views())

    def _prepared(self, config: Config) -> dict[str, Prepared]:
        from holdfast.bridges.service import prepare

        return prepare(config, limits_of(config.zone("")), self._base.reactor, self._base.environment)

    def _use(self, config: Config, prepared: dict[str, Prepared]) -> None:
        from holdfast.bridges.service import Bridges

        most_levels = limits_of(config.zone("")).max_topic_levels
        if self.bridges is None:
            self.bridges = Bridges(
                clock=self._base.reactor,
                connect=self._sessions.connect_bridge,
                session_of=self._sessions.registry.session_of,
                most_levels=most_levels,
            )
            self._sessions.sys_topics.more = self._states
            if self._running:
                self.bridges.start()
        self._names = frozenset(prepared)
        self.bridges.change(most_levels)
        self.bridges.use(prepared)

    def _end_sessions(self) -> None:
        """End the Sessions of bridges that are not configured any more."""
        registry, after = self._sessions.registry, BRIDGE_CLIENT
        while found := registry.names.after(after, 100):
            for client_id in found:
                if not client_id.startswith(BRIDGE_CLIENT):
                    return
                name = client_id.removeprefix(BRIDGE_CLIENT)
                if name not in self._names:
                    self._log.info("bridge {name} is not configured any more: its Session ends", name=name)
                    registry.kick(client_id)
            after = found[-1]
