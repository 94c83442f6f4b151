"""The contexts of OpenSSL for one listener, and the choice among its certificates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from attrs import frozen
from OpenSSL import SSL
from OpenSSL.crypto import X509, X509StoreFlags

from holdfast.transports.tls_files import CertifiedKey, Problem, Reading, TLSSettings

# The contexts of OpenSSL for one listener, built whole from its files or not at all.
#
# A context has the rules of all connections that were made from it. Connections keep theirs, so new contexts never
# change a connection that is open.
#
# A client may resume its session of TLS with a ticket, which saves both sides the certificate and its signature. That
# counts when a fleet comes back after a power cut. The broker keeps nothing for that. The key of the tickets is the
# context's, so new contexts end all tickets. Whoever knows this key can read connections of TLS 1.2 whose tickets he
# has recorded, so contexts are built anew each day. Where clients are asked for certificates, no session is resumed: a
# resumed one would not look at the revocation list.


_VERSIONS = {"1.2": SSL.TLS1_2_VERSION, "1.3": SSL.TLS1_3_VERSION}

#: of TLS 1.2: with forward secrecy and authenticated encryption only. TLS 1.3 has no others.
_SUITES = b"ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL"

_OPTIONS = SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_CIPHER_SERVER_PREFERENCE

#: seconds for which a ticket counts: as long as most cuts of power or network last
_TICKET_SECONDS = 7200


class UnusableTLS(Exception):
    """The settings of a listener cannot be used. Has all ``problems``."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = tuple(problems)


class NoCommonProtocol(SSL.Error):
    """The client offers protocols (ALPN), and this listener's is not among them."""

    def __init__(self) -> None:
        super().__init__("no application protocol")


@frozen
class Contexts:
    """The contexts of one listener, by the names of the certificates."""

    names: ServerNames[SSL.Context]
    keys: tuple[CertifiedKey, ...]
    warnings: tuple[Problem, ...]

    def expired(self, now: float) -> list[Problem]:
        """Return a problem for each certificate that has expired. ``now`` is in seconds since the epoch."""
        return [
            Problem(key.pair.option("certificate"), f"{key.pair.certificate} has expired: clients refuse it")
            for key in self.keys
            if key.days_left(now) <= 0
        ]

    def connection(self) -> SSL.Connection:
        """Return a new connection that waits for the handshake of a client."""
        connection = SSL.Connection(self.names.default)
        connection.set_accept_state()
        connection.set_app_data([])  # the refusals of the verification
        return connection


def build(settings: TLSSettings, now: float) -> Contexts:
    """Read all files, and build the contexts. ``now`` is in seconds since the epoch. Raises UnusableTLS."""
    reading = Reading()
    keys = [reading.certified_key(pair, now) for pair in settings.pairs]
    authorities: Sequence[Any] | None = None
    if settings.client_ca is not None:
        authorities = reading.certificates("client_ca", settings.client_ca)
    lists: Sequence[Any] | None = None
    if settings.crl is not None:
        lists = reading.revocation_lists("crl", settings.crl)
    if reading.problems:
        raise UnusableTLS(reading.problems)
    usable = tuple(key for key in keys if key is not None)
    contexts = []
    for key in usable:
        try:
            contexts.append((_context(settings, key, authorities, lists), key.names))
        except SSL.Error as error:
            raise UnusableTLS(
                [Problem(key.pair.option("certificate"), f"{key.pair.certificate}: {_refusal(error)}")]
            ) from None
    names = ServerNames(contexts)
    if len(contexts) > 1:

        def choose(connection: SSL.Connection) -> None:
            chosen = names.find(connection.get_servername())
            if chosen is not names.default:
                connection.set_context(chosen)

        names.default.set_tlsext_servername_callback(choose)
    return Contexts(names, usable, tuple(reading.warnings))


def _context(
    settings: TLSSettings, key: CertifiedKey, authorities: Sequence[Any] | None, lists: Sequence[Any] | None
) -> SSL.Context:
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(_VERSIONS[settings.minimum])
    context.set_options(_OPTIONS | (0 if authorities is None else SSL.OP_NO_TICKET))
    context.set_timeout(_TICKET_SECONDS)
    context.set_cipher_list(_SUITES)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_session_id(b"holdfast")
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # an idle connection needs 34 KB less
    context.use_certificate(key.chain[0])
    for authority in key.chain[1:]:
        context.add_extra_chain_cert(authority)
    context.use_privatekey(key.key)
    context.check_privatekey()
    context.set_alpn_select_callback(_Selection(settings.protocol).select)
    if authorities is not None:
        _ask_clients(context, settings.client_required, authorities, lists)
    return context


class _Selection:
    """Selects the protocol of a listener. RFC 7301 refuses clients that offer only others."""

    def __init__(self, protocol: bytes) -> None:
        self._protocol = protocol

    def select(self, _connection: SSL.Connection, offered: list[bytes]) -> bytes:
        if self._protocol not in offered:
            raise NoCommonProtocol
        return self._protocol


def _ask_clients(context: SSL.Context, required: bool, authorities: Sequence[Any], lists: Sequence[Any] | None) -> None:
    store = context.get_cert_store()
    assert store is not None
    flags = X509StoreFlags.PARTIAL_CHAIN  # each certificate in client_ca is trusted, be it a root or not
    for authority in authorities:
        store.add_cert(X509.from_cryptography(authority))
        context.add_client_ca(authority)
    if lists is not None:
        for each in lists:
            store.add_crl(each)
        flags |= X509StoreFlags.CRL_CHECK | X509StoreFlags.CRL_CHECK_ALL
    store.set_flags(flags)
    mode = SSL.VERIFY_PEER | (SSL.VERIFY_FAIL_IF_NO_PEER_CERT if required else 0)
    context.set_verify(mode, _note_refusal)


def _note_refusal(connection: SSL.Connection, _certificate: X509, error: int, depth: int, accepted: int) -> bool:
    """Leave OpenSSL's verdict as it is, and note why it refuses a certificate."""
    if not accepted:
        connection.get_app_data().append((error, depth))
    return bool(accepted)


def _refusal(error: SSL.Error) -> str:
    queue = error.args[0] if error.args else ()
    return f"OpenSSL refuses it: {queue[-1][2] if queue else 'no reason is given'}"


# Choosing a certificate by the host that a client names (SNI), as RFC 9525 compares names.


T = TypeVar("T")


class ServerNames(Generic[T]):
    """Finds the value for a host name. ``named`` has values with their names, the default one first.

    ``*.example.org`` stands for names with one label in its place. A whole name prevails over it, and an earlier value
    over a later one with the same name.
    """

    def __init__(self, named: Sequence[tuple[T, Iterable[str]]]) -> None:
        self.default = named[0][0]
        self._exact: dict[str, T] = {}
        self._parents: dict[str, T] = {}
        for value, names in named:
            for name in names:
                label, _, parent = name.partition(".")
                if label == "*" and parent:
                    self._parents.setdefault(parent, value)
                else:
                    self._exact.setdefault(name, value)

    def find(self, name: bytes | None) -> T:
        """Return the value for this host, or the default one."""
        if name is None or not name.isascii():
            return self.default
        text = name.decode("ascii").lower().rstrip(".")
        if text in self._exact:
            return self._exact[text]
        label, _, parent = text.partition(".")
        return self._parents.get(parent, self.default) if label and parent else self.default
