"""``[authentication.NAME]``: the methods that the chains of listeners consist of, each with its type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import FilePath
from holdfast.config.sections.methods.certificate import CertificateConfig
from holdfast.config.sections.methods.cred import CredConfig
from holdfast.config.sections.methods.http import HTTPConfig
from holdfast.config.sections.methods.jwt import JWTConfig
from holdfast.config.sections.methods.passwords import DatabaseUsersConfig, PasswordFileConfig


@frozen
class ScramConfig(Section):
    """Users of SCRAM-SHA-256, an Authentication Method of MQTT 5: clients prove a password without sending it."""

    path: str = option(
        FilePath(),
        "",
        help="File with the users. Written by: holdfast scram set FILE USERNAME. A relative path begins at the folder"
        " of this file.",
        effect="The clients of the listeners that name this method may authenticate with SCRAM-SHA-256.",
        example="users.scram",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, tuple[str, ...]]]:
        """Return a problem if there is no path."""
        if not self.path:
            yield "path", "is missing; set the path of the file with the users", ("path",)


#: the values of the key ``type``, each with the section of its other keys
METHODS: Mapping[str, type[Section]] = {
    "file": PasswordFileConfig,
    "database": DatabaseUsersConfig,
    "scram": ScramConfig,
    "certificate": CertificateConfig,
    "jwt": JWTConfig,
    "http": HTTPConfig,
    "cred": CredConfig,
}
