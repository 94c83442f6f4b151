"""The limits on the connections of one listener, and of the whole process."""

from __future__ import annotations

from enum import Enum

from attrs import define, frozen

from holdfast.core.units import Rate

#: Files that the process keeps for its databases, logs, commands and Python's own needs. Connections leave them free.
RESERVED_FILES = 200


class Refusal(Enum):
    """The reasons for which a connection is closed before CONNECT, each with the name of its counter."""

    OPEN_FILES = "connections_over_open_files"
    CONNECTIONS = "connections_over_max_connections"
    GAVE_WAY = "connections_that_gave_way"
    CONNECTIONS_PER_ADDRESS = "connections_over_max_connections_per_address"
    HALF_OPEN_PER_ADDRESS = "connections_over_max_half_open_per_address"
    RATE = "connections_over_max_conn_rate"
    RATE_PER_ADDRESS = "connections_over_max_conn_rate_per_address"
    BANNED = "connections_of_banned_addresses"
    UNTRUSTED_PROXY = "connections_from_untrusted_proxies"
    BAD_PROXY_HEADER = "connections_with_bad_proxy_header"


@frozen(kw_only=True)
class ConnectionLimits:
    """The limits of one listener. None is no limit.

    A connection is half open until its CONNECT is accepted.
    """

    max_connections: int | None = None
    max_connections_per_address: int | None = None
    max_conn_rate: Rate | None = None
    max_conn_rate_per_address: Rate | None = None
    max_half_open_per_address: int | None = 256


@define
class ProcessConnections:
    """The open connections of all listeners, and their limit; None is no limit."""

    most: int | None = None
    open: int = 0

    @classmethod
    def within(cls, open_files: int) -> ProcessConnections:
        """Return the connections of a process that may have this many files open; at least one connection."""
        return cls(max(open_files - RESERVED_FILES, 1))

    @property
    def is_full(self) -> bool:
        """Whether no further connection may be accepted."""
        return self.most is not None and self.open >= self.most
