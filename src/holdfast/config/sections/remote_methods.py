"""The authentication methods that ask a server, or trust its keys: ``type = "http"`` and ``type = "jwt"``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address
from typing import ClassVar
from urllib.parse import SplitResult, urlsplit

from attrs import field, frozen

from holdfast.config.options import (
    Choice,
    Duration,
    FilePath,
    Flag,
    InvalidValue,
    Section,
    TakesEffect,
    Text,
    invalid_value,
    option,
)
from holdfast.config.secrets import Secret, SecretSource
from holdfast.config.toml import literal

# The kind of options with the URL of a server that the broker asks.


_PRINTABLE = re.compile(r"[\x21-\x7e]+")


@frozen
class ServerURL:
    """A URL of http or https without a user and without templates, or an empty string."""

    allowed: str = field(default="https://HOST/PATH, http://HOST/PATH or an empty string", init=False)

    def read(self, value: object) -> str:
        """Return the URL; raises InvalidValue, whose text never shows a part that may have a password."""
        url = Text(allowed=self.allowed).read(value)
        if not url:
            return url
        try:
            parts = urlsplit(url)
            parts.port  # noqa: B018 - reading it checks it
        except ValueError:
            raise InvalidValue(f"found a URL whose host or port cannot be read; allowed: {self.allowed}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidValue(f"found no URL of https or http with a host; allowed: {self.allowed}")
        if parts.username is not None or parts.password is not None:
            raise InvalidValue(
                "found a user or a password before the host; name the place of a secret in secret_headers"
            )
        if parts.fragment or _PRINTABLE.fullmatch(url) is None:
            raise InvalidValue(f"found a # or a character that has to be escaped as %XX; allowed: {self.allowed}")
        if "{" in url or "}" in url or "%u" in url or "%c" in url:
            raise InvalidValue("found a place for a client's name in the URL; such names stand in the body only")
        return url


def is_plain_beyond_loopback(url: str) -> bool:
    """Tell whether others on the network could read and change what is exchanged with this server."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not _is_loopback(parts)


def _is_loopback(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# ``[authentication.NAME]`` with ``type = "http"``.


_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
#: belong to the connection and the body
_OWN = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "accept", "expect", "te"}
)


@frozen
class HeaderValues:
    """The kind of options with headers of a request: a table of names, with values of another kind."""

    value: Text | SecretSource
    allowed: str

    def read(self, value: object) -> Mapping[str, object]:
        """Return the headers; raises InvalidValue."""
        if not isinstance(value, dict):
            raise InvalidValue(f"found no table; allowed: {self.allowed}")
        headers: dict[str, object] = {}
        for name, text in value.items():
            if _HEADER.fullmatch(name) is None or name.lower() in _OWN:
                raise InvalidValue(f"found {literal(name)}, which no option sets; allowed: {self.allowed}")
            try:
                found = self.value.read(text)
            except InvalidValue as invalid:
                raise InvalidValue(f"{name}: {invalid}") from None
            if not found or (isinstance(found, str) and not found.isascii()):
                raise InvalidValue(f"{name}: found an empty value, or one that is not ASCII; allowed: {self.allowed}")
            headers[name] = found
        return headers


@frozen
class HTTPConfig(Section):
    """A service judges User Name and Password: the broker sends it a POST with a JSON object for each login."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    url: str = option(
        ServerURL(),
        "",
        help="URL of the service. What a client sends never becomes a part of it.",
        effect="Another service is asked.",
        example="https://accounts.example.com/mqtt/login",
    )
    allow_plaintext: bool = option(
        Flag(),
        False,
        help="Permit http:// to a service on another machine.",
        effect="true: everyone on the way to the service can read the passwords and admit clients.",
        example=True,
    )
    ca: str = option(
        FilePath(),
        "",
        help="File with the certification authorities (PEM) that are trusted for https. Empty = those of the system.",
        effect="The service needs a certificate of one of them.",
        example="/etc/holdfast/ca.pem",
    )
    headers: Mapping[str, str] = option(
        HeaderValues(Text(), 'a table of headers and their texts, such as { X-Broker = "hall-3" }'),
        {},
        help="Headers that are added to each request.",
        effect="The service gets them.",
        example={"X-Broker": "hall-3"},
    )
    secret_headers: Mapping[str, Secret] = option(
        HeaderValues(SecretSource(), f"a table of headers and the places of their values: {SecretSource().allowed}"),
        {},
        help="Headers whose values are secrets, by their places.",
        effect="The service gets them. They are never shown.",
        example={"Authorization": "file:/etc/holdfast/service-token"},
    )
    timeout: float = option(
        Duration("100ms", "25s"),
        "5s",
        help="Longest time for an answer, with the time in which the request waits for its turn.",
        effect="A client without an answer in this time is refused: Server unavailable (0x88).",
        example="2s",
    )
    cache: float = option(
        Duration("1s", "1d", zero="nothing is remembered"),
        "0s",
        help="Time for which an acceptance is remembered, if the answer has no ttl. It counts for a client with the"
        " same values in all fields only, the password among them, which is not kept.",
        effect="Longer: fewer requests when clients come back. A user whom the service removes can connect for this"
        " time.",
        example="10m",
    )
    superuser_group: str = option(
        Text(allowed="the name of a group", empty=False),
        "administrators",
        help="Group of a user for whom the service answers is_superuser = true.",
        effect="Rules for this group apply to these users. Without such rules they may do nothing special.",
        example="superusers",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problems of a missing URL, and of one that lets others read passwords."""
        if not self.url:
            yield "url", 'is missing; for example: url = "https://accounts.example.com/mqtt/login"', ("url",)
        elif is_plain_beyond_loopback(self.url) and not self.allow_plaintext:
            message = "sends passwords in plain text to another machine; write https://, or set allow_plaintext = true"
            yield "url", message, ("url", "allow_plaintext")
        if self.ca and not self.url.startswith("https"):
            yield "ca", "has no effect: the URL is not of https", ("ca", "url")
        both = {name.lower() for name in self.headers} & {name.lower() for name in self.secret_headers}
        if both:
            yield (
                "secret_headers",
                f"{min(both)} is in headers, too; allowed: one of them",
                ("headers", "secret_headers"),
            )


# ``[authentication.NAME]`` with ``type = "jwt"``.


#: the algorithms that an operator can name
ALGORITHMS = (
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip

_PLACES = ("%u", "%c")
_CLAIM_ALLOWED = (
    'a table of claims with a string, an integer or true or false each; "%u" and "%c" are the User Name and'
    " the Client Identifier in CONNECT"
)


@frozen
class Names:
    """The kind of options with a list of strings, or a single one; ``choices`` are the only ones, if there are any."""

    allowed: str
    choices: tuple[str, ...] = ()

    def read(self, value: object) -> tuple[str, ...]:
        """Return the strings; raises InvalidValue."""
        names = [value] if isinstance(value, str) and value else value
        if not isinstance(names, list):
            raise invalid_value(value, self.allowed)
        for name in names:
            if not isinstance(name, str) or not name or (self.choices and name not in self.choices):
                raise InvalidValue(f"found {literal(name)} in the list; allowed: {self.allowed}")
        return tuple(names)


@frozen
class ClaimValues:
    """The kind of options with required claims."""

    allowed: str = field(default=_CLAIM_ALLOWED, init=False)

    def read(self, value: object) -> Mapping[str, object]:
        """Return the claims; raises InvalidValue."""
        if not isinstance(value, dict):
            raise InvalidValue(f"found no table; allowed: {self.allowed}")
        for name, wanted in value.items():
            if not isinstance(wanted, str | int | bool) or (isinstance(wanted, str) and not wanted):
                raise InvalidValue(f"{name}: found {literal(wanted)}; allowed: {self.allowed}")
            if isinstance(wanted, str) and wanted not in _PLACES and any(place in wanted for place in _PLACES):
                raise InvalidValue(f"{name}: found {literal(wanted)}; allowed: %u and %c as the whole value only")
        return dict(value)


@frozen
class JWTConfig(Section):
    """The user is the one that a signed token names (JSON Web Token), which the client sends as its Password."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    secret: Secret | None = option(
        SecretSource(),
        "",
        help="Place of the secret that the issuer of tokens shares with this broker, for HS256, HS384 and HS512. It has"
        " 32, 48 or 64 bytes, or more. Whoever has it can make tokens for every user.",
        effect="Tokens signed with it are accepted. Exactly one of secret, public_key, jwks and jwks_url is set.",
        example="file:/etc/holdfast/token-secret",
    )
    public_key: str = option(
        FilePath(),
        "",
        help="File with the issuer's public key or certificate (PEM): RSA, EC or Ed25519. Read again after a change.",
        effect="Tokens signed with the private key of it are accepted.",
        example="/etc/holdfast/issuer.pem",
    )
    jwks: str = option(
        FilePath(),
        "",
        help="File with the issuer's public keys (JSON Web Key Set). Read again after a change.",
        effect="Tokens signed with one of these keys are accepted.",
        example="/etc/holdfast/issuer.jwks",
    )
    jwks_url: str = option(
        ServerURL(),
        "",
        help="URL at which the issuer publishes its public keys: https, or http on this machine. Fetched when they are"
        " needed.",
        effect="Tokens signed with one of these keys are accepted. While they cannot be fetched for the first time,"
        " clients are refused: Server unavailable (0x88).",
        example="https://keycloak.example.com/realms/plant/protocol/openid-connect/certs",
    )
    jwks_ca: str = option(
        FilePath(),
        "",
        help="File with the certification authorities (PEM) that are trusted for jwks_url. Empty = those of the"
        " system.",
        effect="The server needs a certificate of one of them.",
        example="/etc/holdfast/ca.pem",
    )
    algorithms: tuple[str, ...] = option(
        Names("a list of " + ", ".join(ALGORITHMS), ALGORITHMS),
        [],
        help="Algorithms of accepted signatures. Empty = all that fit the key: a shared secret never verifies a"
        " signature of a key pair, nor the other way round.",
        effect="Tokens with other algorithms are denied. A key that fits none of them stops the start.",
        example=["RS256"],
    )
    token_in: str = option(
        Choice(("password", "username")),
        "password",
        help="The part of CONNECT that has the token.",
        effect='"username": for clients that can send a User Name only.',
        example="username",
    )
    username_claim: str = option(
        Text(allowed="the name of a claim, or an empty string"),
        "sub",
        help="Claim with the user name. Parts of nested claims are joined by dots. Empty = the user is the User Name in"
        ' CONNECT, which a claim must repeat: claims = { preferred_username = "%u" }.',
        effect="Clients get other user names. A name with + # / or control characters is denied.",
        example="preferred_username",
    )
    groups_claim: str = option(
        Text(allowed="the name of a claim, or an empty string"),
        "",
        help="Claim with the groups of the user: a list of strings, or a string with spaces between them. Parts of"
        " nested claims are joined by dots. Empty = the user has no groups.",
        effect="Rules for these groups apply.",
        example="realm_access.roles",
    )
    claims: Mapping[str, object] = option(
        ClaimValues(),
        {},
        help="Claims that a token must have, with their values. A claim that is a list must have the value in it."
        ' "%u" is the User Name in CONNECT, "%c" the Client Identifier.',
        effect='Tokens without them are denied. { client_id = "%c" }: a token is good for one Client Identifier.',
        example={"client_id": "%c", "azp": "holdfast"},
    )
    issuer: str = option(
        Text(),
        "",
        help="Issuer (claim iss) that a token must have. Empty = any.",
        effect="Tokens of other issuers are denied.",
        example="https://keycloak.example.com/realms/plant",
    )
    audience: tuple[str, ...] = option(
        Names("a list of strings, or one string"),
        [],
        help="Audiences, one of which a token must have (claim aud). Empty = only tokens without an audience.",
        effect="Tokens for others are denied.",
        example=["holdfast"],
    )
    require_exp: bool = option(
        Flag(),
        True,
        help="Deny tokens without a time of expiry (claim exp). A client is disconnected when its token expires.",
        effect="false: such a token is good for ever, also when it is stolen.",
        example=False,
    )
    leeway: float = option(
        Duration("0s", "5m"),
        "0s",
        help="Tolerated difference between the clocks of the issuer and of this broker, for exp and nbf.",
        effect="Longer: tokens are good for longer.",
        example="10s",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problems of keys that are missing or too many, and of users that nothing proves."""
        sources = ("secret", "public_key", "jwks", "jwks_url")
        named = [key for key in sources if getattr(self, key)]
        if len(named) != 1:
            what = "is missing" if not named else f"is one of {len(named)} sources of keys"
            yield (named or sources)[-1], f"{what}; allowed: exactly one of {', '.join(sources)}", sources
        if is_plain_beyond_loopback(self.jwks_url):
            yield "jwks_url", "others on the network could change the keys; write https://", ("jwks_url",)
        if self.jwks_ca and not self.jwks_url.startswith("https"):
            yield "jwks_ca", "has no effect: jwks_url is not of https", ("jwks_ca", "jwks_url")
        in_username = self.token_in == "username"  # noqa: S105 - the name of a part
        if in_username and "%u" in self.claims.values():
            yield "claims", "has %u, but the User Name is the token (token_in)", ("claims", "token_in")
        elif not self.username_claim and (in_username or "%u" not in self.claims.values()):
            message = (
                "is empty, and no claim repeats the User Name: any token would be good for every user; allowed: a"
                ' claim, or claims = { preferred_username = "%u" }'
            )
            yield "username_claim", message, ("username_claim", "claims", "token_in")
