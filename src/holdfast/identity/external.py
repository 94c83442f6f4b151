"""Makes the authentication methods that rely on others for the proof, from their options.

Each method imports its libraries only if it is configured: a start without them takes no time for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from holdfast.config.options import Section
from holdfast.config.secrets import Secret, UnusableSecret
from holdfast.config.sections.authentication import CertificateConfig, CredConfig
from holdfast.config.sections.remote_methods import HTTPConfig, JWTConfig
from holdfast.identity.interfaces import IAuthenticationMethod

#: bytes of an answer with keys
_LONGEST_KEYS = 256 * 1024


class UnusableOption(ValueError):
    """An option of a method cannot be used now: what it names is missing or damaged. ``key`` is its name."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@frozen(kw_only=True)
class Surroundings:
    """What a method needs from outside: the reactor, the time (milliseconds since the epoch), and places of files."""

    reactor: Any
    now: Callable[[], int]
    folder: Path  #: relative paths begin here
    environment: Mapping[str, str]

    def secret(self, key: str, secret: Secret) -> bytes:
        """Return a secret. Raises UnusableOption."""
        try:
            return secret.read(self.folder, self.environment)
        except UnusableSecret as unusable:
            raise UnusableOption(key, str(unusable)) from None


#: connections to an HTTP service, each with one request at a time
_MOST_CONNECTIONS = 8
#: requests to an HTTP service that wait for a connection; a client beyond them is refused with Server busy (0x89)
_MOST_WAITING_REQUESTS = 200
#: acceptances of an HTTP service that are remembered; one takes about 300 bytes
_MOST_REMEMBERED = 10_000
#: seconds that the answer of a URL with keys may take
_PATIENCE_FOR_KEYS = 5.0
#: Seconds after which keys of a URL are fetched again. Longer: a key that the issuer withdraws counts longer.
_KEYS_REFRESHED = 300.0
#: seconds that keys of a URL count if they cannot be fetched again
_KEYS_COUNT_FOR = 86_400.0


def external_method(section: Section, around: Surroundings) -> IAuthenticationMethod:
    """Return the method of a section. Raises UnusableOption."""
    match section:
        case CertificateConfig():
            return certificate_method(section)
        case CredConfig():
            return checker_method(section)
        case HTTPConfig():
            return service_method(section, around)
        case JWTConfig():
            return token_method(section, around)
    raise TypeError(f"{type(section).__name__} is no section of an authentication method")


def certificate_method(config: CertificateConfig) -> IAuthenticationMethod:
    """Return the method for TLS certificates."""
    from holdfast.identity.certificates import CertificateMethod, NamePart

    return CertificateMethod(NamePart(config.name), config.ignore_username)


def checker_method(config: CredConfig) -> IAuthenticationMethod:
    """Return the method for a checker of twisted.cred. Raises UnusableOption."""
    from holdfast.identity import cred_checkers

    try:
        checker = cred_checkers.checker_of(config.checker)
    except cred_checkers.UnusableChecker as unusable:
        raise UnusableOption("checker", str(unusable)) from None
    run = cred_checkers.one_at_a_time() if cred_checkers.blocks(checker) else None
    return cred_checkers.CheckerMethod(checker, run)


def service_method(config: HTTPConfig, around: Surroundings) -> IAuthenticationMethod:
    """Return the method for an HTTP service. Raises UnusableOption."""
    from holdfast.identity.http_client import Bounds, HTTPClient
    from holdfast.identity.http_service import RememberedAnswers, ServiceMethod, ServiceOptions

    headers = dict(config.headers)
    for name, secret in config.secret_headers.items():
        value = around.secret("secret_headers", secret)
        if not value.isascii() or not value.decode().isprintable():
            raise UnusableOption("secret_headers", f"{name}: {secret} has characters that a header cannot have")
        headers[name] = value.decode()
    bounds = Bounds(timeout=config.timeout, connections=_MOST_CONNECTIONS, queue=_MOST_WAITING_REQUESTS)
    agent = _agent(around, bounds, config.url, "ca", config.ca)
    return ServiceMethod(
        HTTPClient(agent, around.reactor, config.url, bounds),
        ServiceOptions(headers=headers, memory=config.cache, superuser_group=config.superuser_group),
        RememberedAnswers(_MOST_REMEMBERED, around.reactor.seconds),
        around.now,
    )


def token_method(config: JWTConfig, around: Surroundings) -> IAuthenticationMethod:
    """Return the method for tokens. Raises UnusableOption."""
    from holdfast.identity.token_keys import UnusableKey
    from holdfast.identity.tokens import ClaimRules, TokenMethod

    rules = ClaimRules(
        username_claim=config.username_claim,
        groups_claim=config.groups_claim,
        required=config.claims,
        issuer=config.issuer,
        audience=config.audience,
        leeway=config.leeway,
        requires_expiry=config.require_exp,
    )
    source = next(key for key in ("secret", "public_key", "jwks", "jwks_url") if getattr(config, key))
    try:
        keys = _keys(config, around)
    except UnusableKey as unusable:
        raise UnusableOption(source, f"{getattr(config, source)}: {unusable}") from None
    return TokenMethod(keys, rules, around.now, config.token_in == "username")  # noqa: S105 - the name of a part


def _keys(config: JWTConfig, around: Surroundings) -> Any:
    """Return the source of keys. Raises UnusableOption, UnusableKey."""
    from holdfast.identity.token_keys import FileKeys, FixedKeys, key_set, pem_key, secret_key

    allowed = config.algorithms
    if config.secret is not None:
        return FixedKeys([secret_key(around.secret("secret", config.secret), allowed)])
    if config.public_key:
        return FileKeys(around.folder / config.public_key, lambda pem: [pem_key(pem, allowed)])
    if config.jwks:
        return FileKeys(around.folder / config.jwks, partial(key_set, allowed=allowed))
    from holdfast.identity.http_client import Bounds, HTTPClient
    from holdfast.identity.token_keys import Freshness, ServedKeys

    bounds = Bounds(timeout=_PATIENCE_FOR_KEYS, connections=1, queue=0, longest_answer=_LONGEST_KEYS)
    agent = _agent(around, bounds, config.jwks_url, "jwks_ca", config.jwks_ca)
    client = HTTPClient(agent, around.reactor, config.jwks_url, bounds)
    freshness = Freshness(_KEYS_REFRESHED, _KEYS_COUNT_FOR)
    return ServedKeys(client, partial(key_set, allowed=allowed), around.reactor, config.jwks_url, freshness)


def _agent(around: Surroundings, bounds: Any, url: str, key: str, ca: str) -> Any:
    from holdfast.identity.http_client import agent_of

    try:
        return agent_of(around.reactor, bounds, https=url.startswith("https:"), ca=around.folder / ca if ca else None)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UnusableOption(key, f"{ca}: the file cannot be used: {why}") from None
