"""The client of this broker: a connection within the process, in place of a socket.

How it works. The broker serves the bridge like any client, with all its packets and limits: :class:`LocalEnd` stands in
the place of the transport. What the broker writes waits here until the bridge has taken it, packet by packet, so a
remote broker that does not read leaves the messages in the Session's queue, in the database. What the bridge sends goes
to the broker at once, unless the broker does not want to read.

The bridge's Session here has the Client Identifier ``$bridge/NAME``, which no other client may use, and lasts until the
bridge is removed from the configuration.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve
from zope.interface import implementer

from holdfast.bridges.crossing import LOCAL_VERSION
from holdfast.config.sections.bridges import BridgeConfig
from holdfast.identity.addresses import Peer
from holdfast.identity.interfaces import BRIDGE_CLIENT
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.link import INetworkConnection
from holdfast.sessions.limits import Limits
from holdfast.wire import PacketParser, Properties, ReasonCode, encode
from holdfast.wire import packets as p

_NEVER = 0xFFFFFFFF
#: longer than any packet
_LONGEST = 268_435_455


def limits_for(config: BridgeConfig, usual: Limits) -> Limits:
    """Return the limits of a bridge's Session, given those of usual clients.

    The remote broker decides what it sends, so the limits that would end the connection do not hold: the bridge itself
    leaves out what this broker does not take.
    """
    messages, size = usual.max_buffered_messages, usual.max_buffered_bytes
    return evolve(
        usual,
        max_packet_size=_LONGEST,
        max_qos_allowed=2,
        control_characters=True,
        retain_available=True,
        wildcard_subscription=True,
        subscription_identifiers=True,
        min_replay_levels=0,
        server_keepalive=None,
        max_keepalive=None,
        max_inflight=config.max_inflight_messages,
        max_awaiting_rel=65535,
        max_subscriptions=None,
        max_mqueue_len=config.max_queued_messages,
        max_mqueue_bytes=config.max_queued_bytes,
        session_expiry_interval=None,
        upgrade_qos=False,
        # what waits in the queue counts, too
        max_buffered_messages=messages and messages + (config.max_queued_messages or 0),
        max_buffered_bytes=size and size + config.max_queued_bytes,
        max_sessions=None,
        guests_max_sessions=None,
        messages_rate=None,
        bytes_rate=None,
    )


def connect_packet(name: str, config: BridgeConfig, window: int, longest: int | None) -> bytes:
    """Return the CONNECT of a bridge to this broker. ``window`` and ``longest`` are what the remote broker takes."""
    properties = Properties(
        session_expiry_interval=None if config.cleansession else _NEVER,
        receive_maximum=min(window, config.max_inflight_messages),
        maximum_packet_size=longest,
    )
    return encode(
        p.Connect(f"{BRIDGE_CLIENT}{name}", LOCAL_VERSION, clean_start=config.cleansession, properties=properties),
        LOCAL_VERSION,
    )


@implementer(INetworkConnection)
class LocalEnd:
    """The transport of a bridge's connection to this broker.

    ``wake`` is called when packets may have come, and ``closed`` when the broker has ended the connection.
    """

    certificate = None

    def __init__(self, wake: Callable[[], None], closed: Callable[[str], None]) -> None:
        self.peer = Peer(None)
        #: whether the broker does not want to read
        self.paused = False
        self.connection: Connection | None = None
        self._wake = wake
        self._closed = closed
        self._parser = PacketParser(_LONGEST, LOCAL_VERSION)
        self._unsent = 0

    def next_packet(self) -> p.Packet | None:
        """Return the next packet of the broker. None: there is none; the broker may write more then."""
        packet = self._parser.next_packet()
        if packet is None and self._unsent:
            self._unsent = 0
            if self.connection is not None:
                self.connection.drained()
        return packet

    def receive(self, packets: bytes) -> None:
        """Give packets to the broker."""
        if self.connection is not None:
            self.connection.receive(packets)

    def lost(self) -> None:
        """Tell the broker that the bridge is gone."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.lost()
        self._closed = _ignore

    # INetworkConnection

    def write(self, data: bytes) -> bool:
        """Take bytes of the broker. They have left when the bridge has taken them."""
        self._unsent += len(data)
        self._parser.receive_data(data)
        self._wake()
        return False

    def unsent(self) -> int:
        """Return how many bytes the bridge has not taken."""
        return self._unsent

    def close(self, data: bytes, reason: ReasonCode) -> None:
        """End the connection; the broker has said its last."""
        self._closed(reason.name.lower().replace("_", " "))

    def abort(self) -> None:
        """End the connection at once."""
        self._closed("aborted")

    def admitted(self, silence: float) -> None:
        """Do nothing: nobody watches for silence within one process."""

    def pause(self) -> None:
        """Give the broker nothing more."""
        self.paused = True

    def resume(self) -> None:
        """Give the broker packets again."""
        self.paused = False
        self._wake()


def _ignore(_why: str) -> None:
    """Tell nobody: the bridge has ended the connection itself."""
