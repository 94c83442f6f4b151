"""All bridges of this broker: built from the configuration, changed by a reload, shown to operators.

A bridge that is removed from the configuration ends with its Session. One whose table has changed is connected anew,
with the same Session; one that is as before goes on undisturbed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from attrs import field, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.bridges.bridge import Bridge, Reach, State, Surroundings
from holdfast.bridges.crossing import Crossed
from holdfast.bridges.local import limits_for
from holdfast.bridges.reaching import UnusableFile, problem_of, reach_of
from holdfast.bridges.remote import Login, Memory, remembered
from holdfast.config import Config, ConfigError
from holdfast.config.secrets import UnusableSecret
from holdfast.config.toml import ConfigProblem
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.link import INetworkConnection
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.limits import Limits

#: the longest packet that CONNECT can tell of, in bytes
_LONGEST = 268_435_455


@frozen(kw_only=True)
class Prepared:
    """A bridge of the configuration, with its files read. ``files`` differs when their contents do."""

    login: Login
    limits: Limits
    files: str
    reach: Reach = field(eq=False)


def prepare(config: Config, usual: Limits, reactor: Any, environment: Mapping[str, str]) -> dict[str, Prepared]:
    """Return the bridges of a configuration. Raises ConfigError for secrets and files that cannot be used."""
    found: dict[str, Prepared] = {}
    problems: list[ConfigProblem] = []
    for name, bridge in config.bridges.items():
        password = None
        try:
            if bridge.password is not None:
                password = bridge.password.read(config.folder, environment)
            reach, files = reach_of(reactor, config, name)
        except UnusableSecret as error:
            problems.append(config.source.problem(("bridges", name, "password"), str(error)))
            continue
        except UnusableFile as error:
            problems.append(problem_of(config, name, error))
            continue
        login = Login(
            name=name,
            config=bridge,
            client_id=bridge.clientid or f"{socket.gethostname()}.{name}",
            password=password,
            max_packet_size=min(usual.max_packet_size, _LONGEST),
        )
        found[name] = Prepared(login=login, limits=limits_for(bridge, usual), files=files, reach=reach)
    if problems:
        raise ConfigError(problems)
    return found


@frozen(kw_only=True)
class BridgeView:
    """A bridge as operators see it. ``queued`` and ``inflight`` are messages that wait for the remote broker."""

    name: str
    state: str
    address: str | None
    problem: str
    protocol_version: int
    client_id: str
    queued: int
    inflight: int
    crossed: Crossed


class UnknownBridge(LookupError):
    """No bridge has this name."""


class Bridges:
    """The bridges by name. ``end_session`` ends the Session of a Client Identifier."""

    _log = Logger()

    def __init__(
        self,
        *,
        clock: IReactorTime,
        connect: Callable[[INetworkConnection, Limits, str, str], Connection],
        session_of: Callable[[str], Session | None],
        most_levels: int,
    ) -> None:
        self._marks: set[str] = set()
        self._around = Surroundings(
            clock=clock, connect=connect, session_of=session_of, own=self._marks, most_levels=most_levels
        )
        self._prepared: dict[str, Prepared] = {}
        self._bridges: dict[str, Bridge] = {}
        self._memories: dict[str, Memory] = {}
        self._running = False

    def remember(self, listener: str) -> Limits | None:
        """Take the name of the listener of a stored Session. Return the limits of that bridge, None for other names."""
        found = remembered(listener)
        if found is None:
            return None
        name, memory = found
        self._memories[name] = memory
        prepared = self._prepared.get(name)
        return None if prepared is None else prepared.limits

    def use(self, prepared: Mapping[str, Prepared]) -> None:
        """Take these bridges from now on: stop those that are gone, and connect new and changed ones."""
        before, self._prepared = self._prepared, dict(prepared)
        self._marks.clear()
        self._marks.update(each.login.client_id for each in prepared.values())
        for name in [name for name in self._bridges if name not in prepared]:
            self._bridges.pop(name).stop()
            self._memories.pop(name, None)
        if self._running:
            for name, each in prepared.items():
                if before.get(name) != each:
                    self._begin(name, each)

    def _begin(self, name: str, prepared: Prepared) -> None:
        former = self._bridges.get(name)
        memory, filters, crossed, paused = self._memories.get(name), set[str](), Crossed(), False
        if former is not None:
            memory, crossed, paused = former.memory, former.crossed, former.state is State.PAUSED
            filters = {line.remote_filter for line in former.lines.incoming} | set(former.former)
            former.stop()
        bridge = self._bridges[name] = Bridge(prepared.login, prepared.limits, prepared.reach, self._around, memory)
        bridge.crossed = crossed
        bridge.former = sorted(filters - {line.remote_filter for line in bridge.lines.incoming})
        if paused:
            bridge.state = State.PAUSED
        else:
            bridge.start()

    def start(self) -> None:
        """Begin to connect."""
        self._running = True
        for name, each in self._prepared.items():
            self._begin(name, each)

    def stop(self) -> None:
        """Disconnect. The Sessions stay."""
        self._running = False
        for bridge in self._bridges.values():
            bridge.stop()

    def change(self, most_levels: int) -> None:
        """Let topics have so many levels, on connections from now on."""
        self._around = attrs.evolve(self._around, most_levels=most_levels)

    def pause(self, name: str) -> None:
        """Disconnect a bridge until it is resumed, or the broker starts anew. Raises :class:`UnknownBridge`."""
        self._named(name).pause()
        self._log.info("bridge {name} is paused", name=name)

    def resume(self, name: str) -> None:
        """Connect a paused bridge again, and one that waits at once. Raises :class:`UnknownBridge`."""
        bridge = self._named(name)
        if bridge.state is State.WAITING:
            bridge.pause()
        bridge.start()

    def view(self, name: str) -> BridgeView:
        """Return what operators see of a bridge. Raises :class:`UnknownBridge`."""
        bridge = self._named(name)
        session, address = bridge.session, bridge.address
        return BridgeView(
            name=name,
            state=bridge.state.value,
            address=None if address is None else f"{address.host}:{address.port}",
            problem=bridge.problem,
            protocol_version=bridge.login.version,
            client_id=bridge.login.client_id,
            queued=0 if session is None else session.waiting,
            inflight=0 if session is None else session.inflight.count,
            crossed=bridge.crossed,
        )

    def views(self) -> list[BridgeView]:
        """Return what operators see of all bridges, in the order of the configuration."""
        return [self.view(name) for name in self._prepared if name in self._bridges]

    def _named(self, name: str) -> Bridge:
        try:
            return self._bridges[name]
        except KeyError:
            raise UnknownBridge(name) from None
