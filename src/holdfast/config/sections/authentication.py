"""``[authentication]``: the ways for clients to prove their identity."""

from __future__ import annotations

from attrs import field, frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import InvalidValue, Text


@frozen
class FilePath:
    """The kind of options with the path of a file, or an empty string."""

    allowed: str = field(default="the path of a file, relative or absolute, or an empty string for none", init=False)

    def read(self, value: object) -> str:
        """Return the path; raises InvalidValue."""
        path = Text(allowed=self.allowed).read(value)
        if path.startswith("~"):
            raise InvalidValue(f"found a path that begins with ~, which is not expanded; allowed: {self.allowed}")
        return path


@frozen
class AuthenticationConfig(Section):
    """The Authentication Methods of MQTT 5. With one, only listeners with ``allow_anonymous`` admit other clients."""

    scram_file: str = option(
        FilePath(),
        "",
        help="File with the users of SCRAM-SHA-256, an Authentication Method for v5 clients. Written by: holdfast scram"
        " set FILE USERNAME. A relative path begins at the folder of this file. Empty = the method is not offered.",
        effect="With a file, clients must name the method and know a password. Clients that name no method, among them"
        " all v3 clients, are refused, except by listeners with allow_anonymous = true.",
        example="users.scram",
    )

    @property
    def is_configured(self) -> bool:
        """Whether an Authentication Method is configured."""
        return bool(self.scram_file)
