"""The sockets to remote brokers: by name or address, with TLS or without.

How it works. The files of TLS are read when the configuration is, so that a damaged one is refused then, by its key.
The remote broker's certificate is verified always, for the host in ``addresses``.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.protocol import Factory

from holdfast.bridges.bridge import CONNECT_TIME, Reach
from holdfast.config import Config
from holdfast.config.sections.bridges import BridgeConfig, BridgeTLSConfig, RemoteAddress
from holdfast.config.toml import ConfigProblem

if TYPE_CHECKING:
    from OpenSSL.crypto import X509

_END = b"-----END CERTIFICATE-----"


class UnusableFile(ValueError):
    """A file of TLS cannot be used. ``key`` is the option that names it."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


def reach_of(reactor: Any, config: Config, name: str) -> tuple[Reach, str]:
    """Return what opens the sockets of a bridge, and a text that differs when its files do.

    Raises :class:`UnusableFile`.
    """
    bridge: BridgeConfig = config.bridges[name]
    if bridge.tls is None:

        def plain(address: RemoteAddress, factory: Factory) -> Deferred[Any]:
            return HostnameEndpoint(reactor, address.host, address.port or 0, timeout=CONNECT_TIME).connect(factory)

        return plain, ""
    files = _TLSFiles.read(config, bridge.tls)

    def secure(address: RemoteAddress, factory: Factory) -> Deferred[Any]:
        endpoint = HostnameEndpoint(reactor, address.host, address.port or 0, timeout=CONNECT_TIME)
        return wrapClientTLS(files.options(address.host), endpoint).connect(factory)

    return secure, files.fingerprint


def problem_of(config: Config, name: str, error: UnusableFile) -> ConfigProblem:
    """Return the problem of a file for the operator."""
    return config.source.problem(("bridges", name, "tls", error.key), str(error))


@frozen
class _TLSFiles:
    """What the files of TLS have."""

    authorities: Any
    certificate: Any
    chain: tuple[X509, ...]
    fingerprint: str

    @classmethod
    def read(cls, config: Config, tls: BridgeTLSConfig) -> _TLSFiles:
        from twisted.internet.ssl import Certificate, PrivateCertificate, platformTrust, trustRootFromCertificates

        authorities: Any = platformTrust()
        ca = _content("ca", config.absolute(tls.ca)) if tls.ca else b""
        if tls.ca:
            parts = ca.split(_END)[:-1]
            if not parts:
                raise UnusableFile("ca", "there is no certificate in PEM (-----BEGIN CERTIFICATE-----)")
            authorities = trustRootFromCertificates([_certificate("ca", part + _END) for part in parts])
        if not tls.certificate:
            return cls(authorities, None, (), sha256(ca).hexdigest())
        pem = _content("certificate", config.absolute(tls.certificate))
        key = _content("key", config.absolute(tls.key)) if tls.key else b""
        try:
            shown: Any = PrivateCertificate.loadPEM(pem + b"\n" + key)
        except Exception:  # noqa: BLE001 - pyOpenSSL has its own errors
            text = "there is no certificate with its key in PEM, or the key is encrypted"
            raise UnusableFile("key" if tls.key else "certificate", text) from None
        chain = [Certificate.loadPEM(part + _END).original for part in pem.split(_END)[1:-1]]
        return cls(authorities, shown, tuple(chain), sha256(b"\0".join((ca, pem, key))).hexdigest())

    def options(self, host: str) -> Any:
        """Return the options of TLS for a host."""
        from twisted.internet.ssl import optionsForClientTLS

        extra = {"extraCertChain": self.chain} if self.chain else {}
        return optionsForClientTLS(host, self.authorities, self.certificate, extraCertificateOptions=extra)


def _content(key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnusableFile(key, f"{path} cannot be read: {error.strerror}") from None


def _certificate(key: str, pem: bytes) -> Any:
    from twisted.internet.ssl import Certificate

    try:
        return Certificate.loadPEM(pem)
    except Exception:  # noqa: BLE001 - pyOpenSSL has its own errors
        raise UnusableFile(key, "a certificate is damaged") from None
