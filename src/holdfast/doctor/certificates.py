"""The certificates of the listeners: their end, their names, and the chains that are sent to clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.config import Config, ConfigError
from holdfast.doctor.finding import Finding, advice, problem

if TYPE_CHECKING:
    from holdfast.transports.tls.files import CertifiedKey

#: days before the end of a certificate that are too few, and those that are few
_URGENT_DAYS, _EARLY_DAYS = 7, 21

_REMEDY = "correct it, see docs/operator/tls.md"
_RENEW = "renew it; a running broker notices the new file"


def certificates(config: Config, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Yield findings about the certificates of all listeners with TLS."""
    if config.admin.tls is None and all(each.tls is None for each in config.listeners.values()):
        return
    from holdfast.transports.tls.configured import load_all
    from holdfast.transports.tls.listener_tls import table_of

    try:
        loaded = load_all(config, now())
    except ConfigError as error:
        for unusable in error.problems:
            yield problem(unusable.key or unusable.file, unusable.message, f"the broker does not start: {_REMEDY}")
        return
    for name, tls in loaded.items():
        for warning in tls.contexts.warnings:
            yield problem(f"{'.'.join(table_of(name))}.{warning.option}", warning.message, _REMEDY)
        for key in tls.contexts.keys:
            yield from _end(key, now())
            yield from _names(key)
            yield from _chain(key)


def _end(key: CertifiedKey, now: float) -> Iterator[Finding]:
    days = key.days_left(now)
    if days <= 0:
        yield problem(key.pair.certificate, "it has expired: clients refuse it", _RENEW)
    elif days <= _URGENT_DAYS:
        yield problem(key.pair.certificate, f"it expires in {days:.0f} days", _RENEW)
    elif days <= _EARLY_DAYS:
        yield advice(key.pair.certificate, f"it expires in {days:.0f} days", _RENEW)


def _names(key: CertifiedKey) -> Iterator[Finding]:
    from cryptography import x509

    try:
        key.chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        yield advice(
            key.pair.certificate,
            "it has no alternative name: most clients look for the name of the host there only",
            "have it issued anew with subjectAltName = DNS:the name that clients use",
        )


def _chain(key: CertifiedKey) -> Iterator[Finding]:
    for below, above in zip(key.chain, key.chain[1:], strict=False):
        try:
            below.verify_directly_issued_by(above)
        except Exception:  # noqa: BLE001 - a wrong name, a wrong signature, or a kind of key that is not known
            yield problem(
                key.pair.certificate,
                f"the certificate of {below.subject.rfc4514_string()!r} is not issued by the next one in the file,"
                f" {above.subject.rfc4514_string()!r}: clients cannot follow the chain",
                "put the certificates in order: the broker's first, then the one that issued it, and so on",
            )
            return
