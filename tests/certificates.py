"""Certificates for tests: authorities, certificates of brokers and clients, and revocation lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


def name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Issued:
    """A certificate, its key, and the certificates above it, as PEM."""

    def __init__(
        self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, above: Sequence[x509.Certificate] = ()
    ) -> None:
        self.certificate = certificate
        self.key = key
        self.chain = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in (certificate, *above))

    def key_pem(self, password: bytes | None = None) -> bytes:
        encryption = (
            serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
        )
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)

    def write(self, folder: Path, stem: str) -> tuple[Path, Path]:
        """Write STEM.pem and STEM.key into a folder; return their paths."""
        certificate, key = folder / f"{stem}.pem", folder / f"{stem}.key"
        certificate.write_bytes(self.chain)
        key.write_bytes(self.key_pem())
        key.chmod(0o600)
        return certificate, key


class Authority(Issued):
    """An authority, a root or one below another."""

    def __init__(self, common_name: str = "Test CA", parent: Authority | None = None) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = name(common_name)
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if parent is None else parent.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=3650))
            .add_extension(x509.BasicConstraints(True, None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        certificate = builder.sign(key if parent is None else parent.key, hashes.SHA256())
        super().__init__(certificate, key)
        self.parent = parent

    def issue(
        self,
        common_name: str | x509.Name = "localhost",
        names: Sequence[str] = (),
        usage: x509.ObjectIdentifier = SERVER,
        days: float = 90,
        since: float = 1,
        general_names: Sequence[x509.GeneralName] = (),
    ) -> Issued:
        """Return a certificate that is valid for some days, from ``since`` days ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name(common_name) if isinstance(common_name, str) else common_name)
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=since))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        alternative = [*map(x509.DNSName, names), *general_names]
        if alternative:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
        above = [] if self.parent is None else [self.certificate]
        return Issued(builder.sign(self.key, hashes.SHA256()), key, above)

    def revocations(self, *revoked: Issued, days: float = 7) -> bytes:
        """Return a revocation list as PEM that expires in some days."""
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - timedelta(days=30))
            .next_update(now + timedelta(days=days))
        )
        for each in revoked:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(each.certificate.serial_number)
                .revocation_date(now - timedelta(days=1))
                .build()
            )
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
