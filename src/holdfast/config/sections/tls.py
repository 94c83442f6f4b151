"""``[listeners.NAME.tls]``: certificates, and the certificates of clients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, Literal

from attrs import field, frozen

from holdfast.config.options import Choice, FilePath, Section, TakesEffect, named_tables, option
from holdfast.config.toml import literal

ClientCertificates = Literal["none", "optional", "required"]


@frozen
class CertificateConfig(Section):
    """One certificate and its key."""

    applies: ClassVar[TakesEffect] = TakesEffect.CONNECTING

    certificate: str = option(
        FilePath(),
        "",
        help="File with the certificate of this broker in PEM form, followed by those of the authorities between it and"
        " the root. Relative paths in this table begin at the folder of this file. The table needs this key.",
        effect="Clients connect with TLS, and see this certificate unless they name the host of another one. The broker"
        " reads changed files while it runs, and keeps its connections.",
        example="/etc/letsencrypt/live/mqtt.example.org/fullchain.pem",
    )
    key: str = option(
        FilePath(),
        "",
        help="File with the private key of the certificate in PEM form; empty if the certificate's file has it.",
        effect="Only the owner of the file needs to read it: chmod 600.",
        example="/etc/letsencrypt/live/mqtt.example.org/privkey.pem",
    )
    key_password_file: str = option(
        FilePath(),
        "",
        help="File whose first line is the password of an encrypted key; empty for a key that is not encrypted.",
        effect="The key is of no use to a thief of the key's file alone.",
        example="/run/credentials/holdfast.service/key-password",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problem of a missing certificate."""
        if not self.certificate:
            yield "certificate", "is missing: name the file of the certificate", ("certificate",)


@frozen
class TLSConfig(CertificateConfig):
    """TLS for the connections of a listener."""

    minimum: str = option(
        Choice(("1.2", "1.3")),
        "1.2",
        help="Lowest version of TLS.",
        effect="1.3 refuses clients that know TLS 1.2 only, such as many devices.",
        example="1.3",
    )
    client: ClientCertificates = option(
        Choice(("none", "optional", "required")),
        "none",
        help="Whether clients show a certificate. none: they are not asked. optional: a certificate must be valid, but"
        " clients may have none. required: clients without a valid certificate are refused in the handshake.",
        effect="With required, nobody without a certificate reaches the protocol. Authentication with"
        ' type = "certificate" takes the User Name from the certificate.',
        example="required",
    )
    client_ca: str = option(
        FilePath(),
        "",
        help="File with the authorities whose certificates clients may show: their own certificates, in PEM form."
        " Needed for optional and required.",
        effect="Every certificate of these authorities that is made for clients is accepted: name only authorities of"
        " your own.",
        example="clients-ca.pem",
    )
    crl: str = option(
        FilePath(),
        "",
        help="File with lists of revoked certificates (CRL) in PEM form: one list of each authority in the chains of"
        " the clients. Empty = none is looked at.",
        effect="Clients with a revoked certificate are refused. When a list expires, all certificates of its authority"
        " are refused, until the file has a newer one.",
        example="clients-crl.pem",
    )

    certificates: Mapping[str, CertificateConfig] = field(
        factory=dict,
        metadata=named_tables(
            CertificateConfig,
            "More certificates of the listener, for clients that name another host (SNI): one table each, with a name"
            " of your choice. A certificate serves its DNS names; *. stands for one label. Clients that name no host,"
            " or one without a certificate, get the certificate in the table tls itself.",
        ),
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problems of keys that need another, or have no effect without it."""
        yield from CertificateConfig.problems(self, given)
        if self.client == "none":
            for key in ("client_ca", "crl"):
                if getattr(self, key):
                    message = 'has no effect with client = "none"; write client = "required" or "optional"'
                    yield key, message, (key, "client")
        elif not self.client_ca:
            message = f"{literal(self.client)} needs client_ca, the file of the authorities of the clients"
            yield "client", message, ("client", "client_ca")
