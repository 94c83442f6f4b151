"""The names in the certificate of a client."""

from __future__ import annotations

from cryptography import x509

from holdfast.auth.interfaces import PeerCertificate

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
