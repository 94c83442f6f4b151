"""The user name in the TLS certificate of a client.

TLS has verified the certificate: a client whose certificate is not signed by ``client_ca`` has none here. The method
only reads the name. A User Name in CONNECT proves nothing: it must be the name in the certificate, or the operator lets
it be ignored.
"""

from __future__ import annotations

from enum import Enum

from zope.interface import implementer

from holdfast.identity.chain import name_problem, wrong
from holdfast.identity.interfaces import (
    IGNORED,
    Accepted,
    Credentials,
    Denied,
    IAuthenticationMethod,
    PeerCertificate,
    Verdict,
)


class NamePart(Enum):
    """The part of a certificate that is the user name."""

    COMMON_NAME = "common_name"
    ALTERNATIVE_NAME = "alternative_name"
    SUBJECT = "subject"


@implementer(IAuthenticationMethod)
class CertificateMethod:
    """Accepts Clients by their certificates. ``ignores_username``: the User Name in CONNECT may be any."""

    def __init__(self, part: NamePart, ignores_username: bool = False) -> None:
        self._part = part
        self._ignores_username = ignores_username

    def judge(self, credentials: Credentials) -> Verdict:
        """Return the name in the certificate; ignore a Client without one."""
        certificate = credentials.certificate
        if certificate is None:
            return IGNORED
        said = None if self._ignores_username else credentials.username
        found = self._name(certificate, said)
        if isinstance(found, Denied):
            return found
        problem = name_problem(found)
        if problem is not None:
            return wrong(f"the name in the certificate {problem}")
        if said is not None and said != found:
            return wrong("the User Name is not the name in the certificate")
        return Accepted(found)

    def _name(self, certificate: PeerCertificate, said: str | None) -> str | Denied:
        """Return the name; with several alternative names, the one that the Client has said."""
        if self._part is NamePart.SUBJECT:
            return certificate.subject
        if self._part is NamePart.COMMON_NAME:
            return certificate.common_name or ""
        names = certificate.alternative_names
        if said is not None and said in names:
            return said
        if len(names) > 1:
            return wrong("the certificate has several alternative names, and the User Name is none of them")
        return names[0] if names else ""
