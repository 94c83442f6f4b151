"""The log lines about one Network Connection: each names the peer's address, and the Client where it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.python.failure import Failure

from holdfast.audit.audit import IAudit, NoAudit
from holdfast.log.client_log import ClientLog, client_sentence, client_text
from holdfast.sessions.connection.network import INetworkConnection

_NO_AUDIT = NoAudit()


class ConnectionLog:
    """Logs what happens to one Network Connection. ``client_id`` is set once CONNECT has come,
    and ``username`` once it is proven or refused.

    A *cause* is a few words that are the same for all such lines. ``text`` is a sentence, and is cut, since it may
    quote the Client. With ``quoted``, texts of the Client, it is a template with a place ``{}`` for each of them, and
    only they are cut.
    """

    __slots__ = ("_audit", "_listener", "_log", "_network", "client_id", "username")

    def __init__(self, log: ClientLog, network: INetworkConnection, listener: str, audit: IAudit = _NO_AUDIT) -> None:
        self._log = log
        self._network = network
        self._listener = listener
        self._audit = audit
        self.client_id: str | None = None
        self.username: str | None = None

    @property
    def _who(self) -> str:
        """Return the Client and its address, as in ``'a' from 192.0.2.1:5555``."""
        name = "a new client" if self.client_id is None else client_text(self.client_id)
        peer = self._network.peer
        return f"{name} on listener {self._listener}" if peer.ip is None else f"{name} from {peer}"

    @property
    def _group(self) -> str:
        peer = self._network.peer
        return f"listener {self._listener}" if peer.ip is None else peer.group

    def debug(self, cause: str, text: object, *quoted: str) -> None:
        """Log something that matters only to who looks for it."""
        self._write("debug", cause, text, quoted)

    def info(self, cause: str, text: object, *quoted: str) -> None:
        """Log something that the Client has caused."""
        self._write("info", cause, text, quoted)

    def warn(self, cause: str, text: object, *quoted: str) -> None:
        """Log a warning for the operator."""
        self._write("warn", cause, text, quoted)

    def error(self, cause: str, text: object, *quoted: str) -> None:
        """Log that something of the broker has failed for this Client."""
        self._write("error", cause, text, quoted)

    def failure(self, cause: str, failure: Failure) -> None:
        """Log an unexpected error, with its traceback."""
        self._log.failure(cause, self._group, lambda: f"{self._who}: {cause}", failure)

    def coming(self, text: Callable[[], str], *quoted: str) -> None:
        """Log that the Client comes or goes. ``text`` is called if the line is written."""
        self._log.coming(lambda: f"{self._who} {_sentence(text(), quoted)}")

    def audit(self, kind: str, fields: Mapping[str, object], **texts: str | None) -> None:
        """Write an event to the audit log. ``texts`` are the Client's own."""
        peer = self._network.peer
        place = {"address": str(peer.ip or "unix"), "port": peer.port or None, "listener": self._listener}
        self._audit.tell(
            kind, self._group, {**place, **fields}, user=self.username, client_id=self.client_id, **texts
        )  # fmt: skip

    def _write(self, level: str, cause: str, text: object, quoted: tuple[str, ...]) -> None:
        named = quoted[0] if quoted else ""
        self._log.write(cause, self._group, lambda: f"{self._who}: {cause}: {_sentence(text, quoted)}", level, named)


def _sentence(text: object, quoted: tuple[str, ...]) -> str:
    return str(text).format(*map(client_text, quoted)) if quoted else client_sentence(text)
