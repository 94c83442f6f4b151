"""What a member needs for NATS: the servers, the secret of the cluster, and TLS. Read when the broker starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from OpenSSL.crypto import X509
from twisted.internet.ssl import Certificate, optionsForClientTLS, platformTrust, trustRootFromCertificates

from holdfast.cluster.sealing import SHORTEST_SECRET
from holdfast.config import Config, ConfigError
from holdfast.config.secrets import UnusableSecret
from holdfast.config.sections.cluster import ClusterConfig, NatsServer


@frozen
class ClientTLS:
    """Whom this broker trusts, None for the authorities of the system; and the certificates and key that it shows."""

    authorities: Sequence[x509.Certificate] | None = None
    chain: Sequence[x509.Certificate] = ()
    key: PrivateKeyTypes | None = field(default=None, repr=False)

    def context(self, host: str) -> Any:
        """Return the creator of connections to this host, for ``startTLS``."""
        trust = (
            platformTrust()
            if self.authorities is None
            else trustRootFromCertificates([Certificate(X509.from_cryptography(each)) for each in self.authorities])
        )
        shown = (
            {"certificate": self.chain[0], "privateKey": self.key, "extraCertChain": list(self.chain[1:])}
            if self.chain
            else {}
        )
        return optionsForClientTLS(host, trustRoot=trust, extraCertificateOptions=shown)


@frozen
class NatsSettings:
    """The servers, the name and the secret of the cluster, and TLS."""

    servers: Sequence[NatsServer]
    cluster: str
    secret: bytes = field(repr=False)
    tls: ClientTLS = ClientTLS()


def nats_settings(config: Config, environment: Mapping[str, str]) -> NatsSettings | None:
    """Return the settings, None if the database is the only bus. Raises ConfigError."""
    cluster = config.cluster
    servers = cluster.servers
    if not servers:
        return None
    assert cluster.secret is not None, "the configuration is checked"
    try:
        secret = cluster.secret.read(config.folder, environment)
    except UnusableSecret as unusable:
        raise _refused(config, "secret", str(unusable)) from None
    if len(secret) < SHORTEST_SECRET:
        raise _refused(
            config,
            "secret",
            f"{cluster.secret} has {len(secret)} bytes; allowed: {SHORTEST_SECRET} or more. Make one with: openssl rand"
            " -base64 32, and copy it to all members",
        )
    return NatsSettings(servers, cluster.name, secret, _tls(config, cluster))


def _tls(config: Config, cluster: ClusterConfig) -> ClientTLS:
    tls = cluster.tls
    authorities: Sequence[x509.Certificate] | None = None
    if tls.ca:
        with _explained(config, "ca", config.folder / tls.ca) as content:
            authorities = x509.load_pem_x509_certificates(content)
    if not tls.certificate:
        return ClientTLS(authorities)
    with _explained(config, "certificate", config.folder / tls.certificate) as content:
        chain = x509.load_pem_x509_certificates(content)
    name = "key" if tls.key else "certificate"
    with _explained(config, name, config.folder / (tls.key or tls.certificate)) as content:
        key = serialization.load_pem_private_key(content, None)
        if key.public_key() != chain[0].public_key():
            raise ValueError("the key is not that of the certificate")
        return ClientTLS(authorities, chain, key)


@contextmanager
def _explained(config: Config, key: str, path: Path) -> Iterator[bytes]:
    """Give the content of a file. Raises ConfigError if it cannot be read, or not be used."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _refused(config, ("tls", key), f"{path}: the file cannot be read: {error.strerror}") from None
    try:
        yield content
    except TypeError:
        message = f"{path}: the key is encrypted; write it without a password: openssl pkey -in FILE -out FILE"
        raise _refused(config, ("tls", key), message) from None
    except ValueError as error:
        what = "key" if key == "key" else "certificate"
        if "is not that of" in str(error):
            raise _refused(config, ("tls", key), f"{path}: {error}") from None
        raise _refused(config, ("tls", key), f"{path}: there is no usable {what} in PEM form") from None


def _refused(config: Config, key: str | tuple[str, str], message: str) -> ConfigError:
    path = ("cluster", key) if isinstance(key, str) else ("cluster", *key)
    return ConfigError([config.source.problem(path, message)])
