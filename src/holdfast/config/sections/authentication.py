"""``[authentication]``: how clients show who they are."""

from __future__ import annotations

from attrs import field, frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Refused, Text


@frozen
class File:
    """The kind of an option that holds the path of a file, or nothing."""

    allowed: str = field(default="the path of a file, relative or absolute, or an empty string for none", init=False)

    def read(self, value: object) -> str:
        """Return the path; raises Refused."""
        path = Text(allowed=self.allowed).read(value)
        if path.startswith("~"):
            raise Refused(f"found a path that begins with ~, which is not expanded; allowed: {self.allowed}")
        return path


@frozen
class AuthenticationConfig(Section):
    """The Authentication Methods of MQTT 5. With any, clients that show nothing come in only where that is said."""

    scram_file: str = option(
        File(),
        "",
        help="File of the users of the Authentication Method SCRAM-SHA-256 of v5 clients, as written by: holdfast scram"
        " set FILE USERNAME. A relative path begins at the folder of this file. Empty = the method is not offered.",
        effect="With a file, clients have to name the method and know a password of the file. Those that name no"
        " method, as all v3 clients, are refused, except by listeners with allow_anonymous = true.",
        example="users.scram",
    )

    @property
    def is_configured(self) -> bool:
        """Whether there is any way for clients to show who they are."""
        return bool(self.scram_file)
