"""TLS of a connection: the layer, the turns of handshakes, and failures in words for the operator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from OpenSSL import SSL
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.identity.interfaces import PeerCertificate
from holdfast.scheduling.fair_line import GoOn, Turns, turns_of_calls
from holdfast.transports.layers import Layer
from holdfast.transports.tls_files import peer_certificate
from holdfast.wire import ReasonCode

# TLS between a socket and the layer above.
#
# How it works. OpenSSL reads and writes memory, not the socket: bytes of the socket go in, plain bytes come out, and
# the other way round. After each call, all that OpenSSL has to send is taken out and given to the socket. So nothing is
# left in it, and the bytes that wait are exactly those of the socket and of ``_pending``.
#
#     BEGINNING  the handshake; its steps take turns with those of others, and the client is not read meanwhile
#     OPEN       bytes pass in both directions; at most PIECE of them are encrypted in one turn, the rest is pending
#     CLOSING    the pending bytes are sent, then the alert close_notify
#     OVER       nothing; OpenSSL's memory is free
#
# Nobody writes before the handshake is over: the layers above answer what they receive.


#: bytes that are encrypted in one turn, in about a quarter of a millisecond
PIECE = 256 * 1024

#: Records that are decrypted in one turn, in about two milliseconds: a client may send many short ones. Two pieces
#: without a byte for the layer above also end the turn: changes of keys cost more than data.
MOST_RECORDS = 500

#: bytes of a record of TLS. OpenSSL's memory stays as large as the longest piece it was given, so pieces are short.
_RECORD = 16 * 1024
_HANDSHAKE = 0x16
_log = Logger()


class _State(Enum):
    BEGINNING = "the handshake"
    OPEN = "bytes pass"
    CLOSING = "the last bytes are sent"
    OVER = "nothing passes any more"


class TLSLayer(Layer):
    """TLS of one connection. ``new_connection`` makes OpenSSL's part when the first byte has come."""

    __slots__ = ("_arrived", "_new_connection", "_pending", "_reason", "_ssl", "_state", "_turns", "_waits")

    def __init__(self, new_connection: Callable[[], SSL.Connection], turns: Turns[GoOn]) -> None:
        super().__init__()
        self._new_connection = new_connection
        self._turns = turns
        self._state = _State.BEGINNING
        self._ssl: SSL.Connection | None = None
        self._arrived = b""
        self._waits = False
        self._pending: memoryview | None = None
        self._reason = ReasonCode.SUCCESS

    @property
    def certificate(self) -> PeerCertificate | None:
        """The names in the client's certificate, which OpenSSL has verified; None if it has shown none."""
        if self._ssl is None or self._state is not _State.OPEN:
            return None
        found = self._ssl.get_peer_certificate(as_cryptography=True)
        return None if found is None else peer_certificate(found)

    # --- received bytes

    def receive(self, data: bytes) -> None:
        """Decrypt bytes, or go on with the handshake."""
        if self._state is _State.OPEN and not self._waits:
            self._decrypt(data)
        elif self._state in (_State.BEGINNING, _State.OPEN):
            self._wait(self._arrived + data)

    def _wait(self, arrived: bytes) -> None:
        """Read no more, and go on with these bytes in a later turn."""
        self._arrived = arrived
        if not self._waits:
            self._waits = True
            self.hold_reading()
            self._turns.enter(self, self.step)

    def step(self) -> None:
        """Take the next step of the handshake, or decrypt the records that had to wait."""
        self._waits = False
        data, self._arrived = self._arrived, b""
        try:
            if self._state is _State.BEGINNING:
                self._shake_hands(data)
            elif self._state is _State.OPEN:
                self.go_on_reading()
                self._decrypt(data)
        except Exception as error:  # noqa: BLE001 - the connections after this one must go on
            _log.failure("unexpected error in TLS")
            self._broken("broke the TLS protocol", f"unexpected error: {error}")

    def _shake_hands(self, data: bytes) -> None:
        ssl = self._ssl
        if ssl is None:
            if data[0] != _HANDSHAKE:
                self._broken("its TLS handshake failed", not_tls(data))
                return
            ssl = self._ssl = self._new_connection()
        ssl.bio_write(data)
        try:
            ssl.do_handshake()
        except SSL.WantReadError:
            self._flush()
            self.go_on_reading()
        except SSL.Error as error:
            self._broken("its TLS handshake failed", explain(error, ssl.get_app_data()))
        else:
            self._state = _State.OPEN
            self._flush()
            self.go_on_reading()
            self._decrypt(b"")  # bytes that came with the end of the handshake

    def _decrypt(self, data: bytes) -> None:
        """Give the plain bytes in ``data`` to the layer above: those of at most ``MOST_RECORDS`` in one turn."""
        ssl = self._ssl
        assert ssl is not None
        plain: list[bytes] = []
        end: SSL.Error | None = None
        barren = 0
        start = 0
        while end is None:
            piece = data[start : start + _RECORD]
            start += len(piece)
            before = len(plain)
            if piece:
                ssl.bio_write(piece)
            try:
                while len(plain) < MOST_RECORDS:
                    plain.append(ssl.recv(_RECORD))
            except SSL.WantReadError:
                if start >= len(data):
                    break
            except SSL.Error as error:
                end = error
                break
            barren = barren + 1 if len(plain) == before else 0
            if len(plain) >= MOST_RECORDS or barren > 1:
                self._wait(data[start:])
                break
        self._flush()
        broken = "" if end is None or isinstance(end, SSL.ZeroReturnError) else explain(end, ssl.get_app_data())
        if broken:
            self._over()  # what the layer above answers now cannot be sent any more
        if plain:
            self.above.receive(plain[0] if len(plain) == 1 else b"".join(plain))
        if broken:
            self.fail("broke the TLS protocol", broken)
        elif end is not None and self._state is _State.OPEN:  # the client closes
            self.above.lost()
            self.close(b"", ReasonCode.SUCCESS)

    # --- sent bytes

    def write(self, data: bytes) -> bool:
        """Encrypt bytes and send them; return whether all have left this process."""
        if self._state is not _State.OPEN:
            return True
        if self._pending is not None:
            self._pending = memoryview(bytes(self._pending) + data)
            return False
        if len(data) <= PIECE:
            return self.below.write(self._encrypted(memoryview(data)))
        self._pending = memoryview(data)
        self._send_piece()
        return False

    def write_later(self, data: bytes) -> None:
        """Encrypt bytes and send them in a later turn."""
        if self._state is _State.OPEN:
            self._pending = memoryview(bytes(self._pending or b"") + data)
            self._send_piece()

    def drained(self) -> None:
        """Send pending bytes, or tell the layer above that there are none."""
        if self._pending is not None:
            self._send_piece()
        else:
            self.above.drained()

    def unsent(self) -> int:
        """Return how many bytes have not left this process."""
        return (0 if self._pending is None else len(self._pending)) + self.below.unsent()

    def _send_piece(self) -> None:
        """Encrypt one piece of the pending bytes. ``drained`` is called when it has left."""
        pending = self._pending
        assert pending is not None
        piece, rest = pending[:PIECE], pending[PIECE:]
        self._pending = rest if len(rest) else None
        if self._pending is None and self._state is _State.CLOSING:
            self._finish(piece)
        else:
            self.below.write_later(self._encrypted(piece))

    def _encrypted(self, data: memoryview) -> bytes:
        ssl = self._ssl
        assert ssl is not None
        records = []
        for start in range(0, len(data), _RECORD):
            ssl.send(data[start : start + _RECORD])
            records.append(ssl.bio_read(2 * _RECORD))
        return records[0] if len(records) == 1 else b"".join(records)

    def _outgoing(self) -> bytes:
        """Take out all bytes that OpenSSL has to send."""
        ssl = self._ssl
        records: list[bytes] = []
        try:
            while ssl is not None:
                records.append(ssl.bio_read(2 * _RECORD))
        except SSL.WantReadError:
            pass
        return b"".join(records)

    def _flush(self) -> None:
        data = self._outgoing()
        if data:
            self.below.write(data)

    # --- the end

    def close(self, data: bytes, reason: ReasonCode) -> None:
        """Send these last bytes and close_notify, and close."""
        if self._state is not _State.OPEN:
            if self._state is _State.BEGINNING:
                self._over()
            if self._state is _State.OVER:
                self.below.close(b"", reason)
            return
        self._state = _State.CLOSING
        self._reason = reason
        if self._pending is None and len(data) <= PIECE:
            self._finish(memoryview(data))
            return
        waits = self._pending is not None
        self._pending = memoryview(bytes(self._pending or b"") + data)
        self.below.closing()
        if not waits:
            self._send_piece()

    def lost(self) -> None:
        """Free OpenSSL's memory: the connection is over."""
        self._over()
        super().lost()

    def _finish(self, last: memoryview) -> None:
        ssl = self._ssl
        assert ssl is not None
        data = self._encrypted(last) if last else b""
        with suppress(SSL.Error):  # it broke before: there is no alert to send
            ssl.shutdown()
        data += self._outgoing()
        self._over()
        self.below.close(data, self._reason)

    def _broken(self, cause: str, explanation: str) -> None:
        """End the connection of a client that does not speak TLS as it should, with OpenSSL's alert."""
        self._flush()
        self._over()
        self.fail(cause, explanation)

    def _over(self) -> None:
        self._state = _State.OVER
        self._ssl = self._pending = None
        self._arrived = b""


# Why a handshake or a connection with TLS failed, in words for the operator.


_REASONS = {
    "no shared cipher": "the client offers no cipher suite that this broker takes",
    "no suitable signature algorithm": "the client takes no signature that the key of this broker can make",
    "unsupported protocol": "the client offers only versions of TLS below the minimum",
    "peer did not return a certificate": 'the client shows no certificate (client = "required")',
    "no application protocol": "the client offers only other protocols than this listener's (ALPN)",
    "unexpected eof while reading": "the client went away",
}

_VERIFICATION = {
    2: "its issuer is unknown",
    3: "the file of crl has no list of its issuer",
    9: "it is not valid yet",
    10: "it has expired",
    11: "the revocation list is not valid yet",
    12: "the revocation list has expired",
    18: "it is self-signed and not in client_ca",
    19: "its root is not in client_ca",
    20: "its issuer is not in client_ca",
    21: "its issuer is not in client_ca",
    22: "its chain is too long",
    23: "it is revoked",
    24: "an authority in its chain may not issue certificates",
    26: "it is not made for clients (extended key usage)",
    44: "the revocation list has a different scope",
}


def explain(error: Exception, refusals: list[tuple[int, int]]) -> str:
    """Return a clause about an error of OpenSSL. ``refusals``: the errors and depths of the verification so far."""
    reason = _reason(error)
    if reason == "certificate verify failed" and refusals:
        number, depth = refusals[-1]
        whose = "the client's certificate" if not depth else "an authority of the client's certificate"
        return f"{whose} is refused: {_VERIFICATION.get(number, f'verification error {number}')}"
    for ending in (" alert ", "alert: "):
        if ending in reason:
            return f"the client refuses it with the alert: {reason.rpartition('alert ')[2]}"
    return _REASONS.get(reason, reason or "the client broke the TLS protocol")


def _reason(error: Exception) -> str:
    """Return the text of the last error in OpenSSL's queue."""
    if isinstance(error, SSL.SysCallError):
        return str(error.args[-1]).lower()
    queue = error.args[0] if error.args else ()
    if isinstance(queue, str):
        return queue
    return str(queue[-1][2]).lower() if queue else ""


def not_tls(data: bytes) -> str:
    """Return a clause about a client whose first bytes are not TLS."""
    first = data[:1]
    if first == b"\x10":
        return "it speaks MQTT without TLS"
    if data.startswith((b"PROXY ", b"\r\n")):
        return "it sends a header of the PROXY protocol; an endpoint with haproxy: takes it"
    if first.isalpha():
        return "it speaks a protocol of plain text, such as HTTP"
    return f"its first byte is 0x{data[0]:02x}, which is not TLS"


# Handshakes take turns: each costs a signature, and the reactor must not wait for many of them.


#: seconds of one turn of the reactor that handshakes may take
BUDGET = 0.003


def turns_of_handshakes(clock: IReactorTime) -> Turns[GoOn]:
    """Return the line for the steps of the handshakes of all listeners.

    A signature takes from 0.1 ms (ECDSA) to 5 ms (RSA with 4096 bits). A fleet that returns, or a stranger, may begin
    hundreds of handshakes in one turn of the reactor.
    """
    return turns_of_calls(clock, seconds=BUDGET)
