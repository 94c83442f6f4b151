"""The files of TLS: certificates, keys, authorities and revocation lists, and what one listener needs of them."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from holdfast.config.toml import without_mark
from holdfast.identity.interfaces import PeerCertificate

# Reading the files of certificates, keys, authorities and revocation lists, in PEM form.


#: bytes of a file of certificates or of a key
LONGEST = 4 << 20
#: bytes of a file of revocation lists
LONGEST_CRL = 64 << 20

_CRL = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_DAY = 86400.0


@frozen
class Problem:
    """One problem of a file. ``option`` is the key of the configuration that names it."""

    option: str
    message: str


class UnusableFile(Exception):
    """A file cannot be used; the text names the file and the reason, and says what to do."""


@frozen
class CertifiedKey:
    """One certificate of the broker with the certificates above it, and its private key."""

    pair: KeyPair
    chain: tuple[x509.Certificate, ...]
    key: Any = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The DNS names of the certificate, in lower case; its common name if it has none."""
        certificate = self.chain[0]
        try:
            found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            names = found.get_values_for_type(x509.DNSName)
        except (x509.ExtensionNotFound, ValueError):
            names = []
        if not names:
            common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
            names = [str(each.value) for each in common]
        return tuple(name.lower().rstrip(".") for name in names)

    @property
    def expires(self) -> datetime:
        """The time from which the certificate is not valid any more."""
        return self.chain[0].not_valid_after_utc

    def days_left(self, now: float) -> float:
        """Return the days until the certificate expires, negative if it has. ``now``: seconds since the epoch."""
        return (self.expires.timestamp() - now) / _DAY


@define
class Reading:
    """Reads files, and collects the ``problems``, and the ``warnings`` about files that can be used."""

    problems: list[Problem] = field(factory=list)
    warnings: list[Problem] = field(factory=list)

    def certified_key(self, pair: KeyPair, now: float) -> CertifiedKey | None:
        """Return a certificate and its key; None if there is a problem. ``now`` is in seconds since the epoch."""
        chain = self.certificates(pair.option("certificate"), pair.certificate)
        key_option = pair.option("key")
        key = self._key(key_option, pair)
        if chain is None or key is None:
            return None
        if _public_bytes(key.public_key()) != _public_bytes(chain[0].public_key()):
            self.problems.append(
                Problem(key_option, f"{pair.key} is not the key of the first certificate in {pair.certificate}")
            )
            return None
        self._judge_beginning(pair, chain[0], now)
        return CertifiedKey(pair, chain, key)

    def certificates(self, option: str, path: Path) -> tuple[x509.Certificate, ...] | None:
        """Return the certificates in a file, at least one; None if there is a problem."""
        try:
            data = _contents(path, LONGEST)
            if b"-----BEGIN CERTIFICATE-----" not in data:
                raise UnusableFile(f"{path} has no certificate in PEM form{_other_form(data)}")
            return tuple(x509.load_pem_x509_certificates(data))
        except UnusableFile as unusable:
            self.problems.append(Problem(option, str(unusable)))
        except (ValueError, UnsupportedAlgorithm) as error:
            self.problems.append(Problem(option, f"{path} has a certificate that cannot be read: {_short(error)}"))
        return None

    def revocation_lists(self, option: str, path: Path) -> tuple[x509.CertificateRevocationList, ...] | None:
        """Return the revocation lists in a file, at least one; None if there is a problem."""
        try:
            blocks = _CRL.findall(_contents(path, LONGEST_CRL))
            if not blocks:
                raise UnusableFile(
                    f"{path} has no revocation list in PEM form; convert it: openssl crl -inform DER -in FILE"
                )
            lists = tuple(map(x509.load_pem_x509_crl, blocks))
        except UnusableFile as unusable:
            self.problems.append(Problem(option, str(unusable)))
            return None
        except (ValueError, UnsupportedAlgorithm) as error:
            self.problems.append(Problem(option, f"{path} has a list that cannot be read: {_short(error)}"))
            return None
        now = datetime.now(UTC)
        for each in lists:
            if each.next_update_utc is not None and each.next_update_utc <= now:
                self.warnings.append(
                    Problem(option, f"the list of {each.issuer.rfc4514_string()} in {path} has expired: all"
                            " certificates of this authority are refused; put a newer list into the file")
                )  # fmt: skip
        return lists

    def _key(self, option: str, pair: KeyPair) -> Any:
        try:
            password = None
            if pair.password_file is not None:
                password = without_mark(_contents(pair.password_file, LONGEST)).partition(b"\n")[0].rstrip(b"\r")
            data = _contents(pair.key, LONGEST)
            if b"PRIVATE KEY-----" not in data:
                raise UnusableFile(f"{pair.key} has no private key in PEM form{_other_form(data)}")
            key = _loaded_key(data, password, pair)
        except UnusableFile as unusable:
            self.problems.append(Problem(option, str(unusable)))
            return None
        mode = pair.key.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            others = "every user" if mode & stat.S_IRWXO else "the group"
            self.warnings.append(Problem(option, f"{others} may use {pair.key}; run: chmod 600 {pair.key}"))
        return key

    def _judge_beginning(self, pair: KeyPair, certificate: x509.Certificate, now: float) -> None:
        if certificate.not_valid_before_utc.timestamp() > now:
            text = f"{pair.certificate} is valid from {certificate.not_valid_before_utc:%Y-%m-%d}: look at the clock"
            self.warnings.append(Problem(pair.option("certificate"), text))


def _contents(path: Path, longest: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(longest + 1)
    except FileNotFoundError:
        raise UnusableFile(f"there is no file {path}") from None
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > longest:
        raise UnusableFile(f"{path} has more than {longest >> 20} MB")
    return data


def _loaded_key(data: bytes, password: bytes | None, pair: KeyPair) -> Any:
    # Only the part of the key: its file may have certificates too.
    start = data.index(b"-----BEGIN", max(0, data.rindex(b"-----BEGIN", 0, data.index(b"PRIVATE KEY-----"))))
    try:
        # The pair is compared with its certificate below. The checks of the numbers would hold the broker for long.
        return serialization.load_pem_private_key(data[start:], password, unsafe_skip_rsa_key_validation=True)
    except TypeError:
        if password is None:
            advice = f"set key_password_file, or decrypt it: openssl pkey -in {pair.key} -out FILE"
            raise UnusableFile(f"{pair.key} is encrypted; {advice}") from None
        raise UnusableFile(f"{pair.key} is not encrypted; remove key_password_file") from None
    except (ValueError, UnsupportedAlgorithm):
        reason = "cannot be read"
        if password is not None:
            reason = f"cannot be decrypted with the password in {pair.password_file}"
        raise UnusableFile(f"{pair.key}: the private key {reason}") from None


def _public_bytes(key: Any) -> bytes:
    data: bytes = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return data


def _other_form(data: bytes) -> str:
    if data[:1] == b"\x30":
        return "; it seems to be in DER form: openssl x509 -inform DER or openssl pkey -inform DER converts it"
    return ""


def _short(error: Exception) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__


# The names in the certificate of a client.


#: what a certificate with harmful or unreadable names tells
_NO_NAMES = PeerCertificate(None, (), "")


def peer_certificate(certificate: x509.Certificate) -> PeerCertificate:
    """Return the names of a certificate.

    One with a control character in a name, or with a name that is not text, has no names at all: parts of a
    broken name could be another client's name. Several common names are ambiguous, and so count as none.
    """
    try:
        attributes = [str(each.value) for each in certificate.subject]
        common = [str(each.value) for each in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
        alternative = _alternative_names(certificate)
        subject = certificate.subject.rfc4514_string()
    except (ValueError, x509.DuplicateExtension):
        return _NO_NAMES
    if not all(map(_is_harmless, [*attributes, *alternative, subject])):
        return _NO_NAMES
    return PeerCertificate(common[0] if len(common) == 1 else None, alternative, subject)


def _alternative_names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    kinds = (x509.DNSName, x509.RFC822Name, x509.UniformResourceIdentifier)
    return tuple(name.value for name in found if isinstance(name, kinds))


def _is_harmless(name: str) -> bool:
    """Tell whether a name has neither control characters nor surrogates."""
    return not any(ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0 or 0xD800 <= ord(one) < 0xE000 for one in name)


# What TLS of one listener needs: the files, and the rules. The paths are absolute.


@frozen
class KeyPair:
    """The files of one certificate. ``table`` is the path of its table in the configuration, below ``tls``."""

    table: str
    certificate: Path
    key: Path
    password_file: Path | None = None

    def option(self, key: str) -> str:
        """Return the path of a key of the certificate's table."""
        return f"{self.table}.{key}" if self.table else key


@frozen(kw_only=True)
class TLSSettings:
    """The settings of one listener. ``client_ca`` is None if clients are not asked for a certificate."""

    pairs: tuple[KeyPair, ...]
    minimum: str = "1.2"
    client_ca: Path | None = None
    client_required: bool = False
    crl: Path | None = None
    #: the protocol that clients may negotiate (ALPN)
    protocol: bytes = b"mqtt"

    @property
    def files(self) -> Iterator[Path]:
        """All files, some of them perhaps twice."""
        for pair in self.pairs:
            yield from (pair.certificate, pair.key)
            if pair.password_file is not None:
                yield pair.password_file
        if self.client_ca is not None:
            yield self.client_ca
        if self.crl is not None:
            yield self.crl
