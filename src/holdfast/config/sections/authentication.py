"""``[authentication]``: the ways for clients to prove their identity."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import FilePath


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
