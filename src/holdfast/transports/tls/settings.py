"""What TLS of one listener needs: the files, and the rules. The paths are absolute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attrs import frozen


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
