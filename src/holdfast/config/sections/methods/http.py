"""``[authentication.NAME]`` with ``type = "http"``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Duration, FilePath, Flag, Integer, InvalidValue, Text
from holdfast.config.secrets import Secret, SecretSource
from holdfast.config.sections.methods.server_url import ServerURL, is_plain_beyond_loopback
from holdfast.config.toml.text import literal

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
    max_connections: int = option(
        Integer(1, 256, unit="connections"),
        8,
        help="Most connections to the service. Each has one request at a time, and stays open.",
        effect="Higher: more logins at the same time, and more load for the service.",
        example=32,
    )
    max_waiting: int = option(
        Integer(0, 10000, unit="requests"),
        200,
        help="Most requests that wait for a connection.",
        effect="A client beyond it is refused: Server busy (0x89).",
        example=1000,
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
    max_cached: int = option(
        Integer(1, 1000000, unit="acceptances"),
        10000,
        help="Most acceptances that are remembered. One takes about 300 bytes.",
        effect="Beyond it, the one that was used longest ago is forgotten.",
        example=50000,
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
