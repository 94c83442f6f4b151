"""Connections that are refused before CONNECT: counted, and told in the log."""

from __future__ import annotations

from holdfast.audit.audit import REJECTED, IAudit, NoAudit
from holdfast.log.client_log import ClientLog
from holdfast.peers.address import Peer
from holdfast.peers.limits import ConnectionLimits, ProcessConnections, Refusal
from holdfast.sessions.counters import Counters

_REASONS = {
    Refusal.OPEN_FILES: "{process.most} connections are open, all that the process's limit of open files allows",
    Refusal.CONNECTIONS: "{limits.max_connections} connections are open (max_connections)",
    Refusal.GAVE_WAY: "a new one takes its place; {limits.max_connections} are open (max_connections)",
    Refusal.CONNECTIONS_PER_ADDRESS: "{limits.max_connections_per_address} connections of {peer.group} are open"
    " (max_connections_per_address)",
    Refusal.HALF_OPEN_PER_ADDRESS: "{limits.max_half_open_per_address} connections of {peer.group} wait for the end of"
    " their CONNECT (max_half_open_per_address)",
    Refusal.RATE: "connections come too fast (max_conn_rate)",
    Refusal.RATE_PER_ADDRESS: "connections of {peer.group} come too fast (max_conn_rate_per_address)",
    Refusal.BANNED: "its address is banned",
    Refusal.UNTRUSTED_PROXY: "it is not a trusted proxy (trusted_proxies)",
    Refusal.BAD_PROXY_HEADER: "it sent no valid header of the PROXY protocol",
}

_NO_AUDIT = NoAudit()


class RefusedConnections:
    """Counts and logs the refused connections of all listeners."""

    def __init__(
        self, counters: Counters, process: ProcessConnections, log: ClientLog, audit: IAudit = _NO_AUDIT
    ) -> None:
        self._counters = counters
        self._process = process
        self._log = log
        self._audit = audit

    def refused(self, listener: str, limits: ConnectionLimits, refusal: Refusal, peer: Peer) -> None:
        """Note that a connection of this peer was refused."""
        counters, name = self._counters, refusal.value
        setattr(counters, name, getattr(counters, name) + 1)

        fields = {"reason": name, "address": str(peer.ip or "unix"), "port": peer.port or None, "listener": listener}
        self._audit.tell(REJECTED, peer.group, fields)

        def line() -> str:
            reason = _REASONS[refusal].format(limits=limits, process=self._process, peer=peer)
            verb = "closes" if refusal is Refusal.GAVE_WAY else "refuses"
            return f"listener {listener} {verb} a connection of {peer}: {reason}"

        self._log.write(f"listener {listener} refuses connections ({name})", peer.group, line, "warn")

    def handshake_failed(self, listener: str, peer: Peer, cause: str) -> None:
        """Log that the TLS handshake of this peer failed. ``cause`` is a clause."""
        self._log.write(
            f"listener {listener}: TLS handshakes fail", peer.group,
            lambda: f"listener {listener} closes a connection of {peer}: its TLS handshake failed: {cause}",
        )  # fmt: skip
