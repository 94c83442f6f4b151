"""``[authentication]``: the methods by which clients prove their identity, and the methods of each listener."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from attrs import field, frozen

from holdfast.config.fields import Section, option, variants
from holdfast.config.kinds import FilePath
from holdfast.config.reader import KeyProblem
from holdfast.config.sections.authentication_methods import METHODS, ScramConfig
from holdfast.config.sections.listeners import ListenerConfig
from holdfast.config.sections.methods.certificate import CertificateConfig
from holdfast.config.sections.methods.cred import CredConfig
from holdfast.config.sections.methods.jwt import JWTConfig
from holdfast.config.sections.methods.passwords import DatabaseUsersConfig, PasswordFileConfig
from holdfast.config.toml.text import dotted, literal

#: the name of the method that ``scram_file`` configures, on every listener
SCRAM_FILE = "scram_file"


@frozen
class AuthenticationConfig(Section):
    """The methods by which clients prove their identity. With one, only ``allow_anonymous`` admits guests."""

    scram_file: str = option(
        FilePath(),
        "",
        help="File with the users of SCRAM-SHA-256, an Authentication Method for v5 clients. Written by: holdfast scram"
        " set FILE USERNAME. A relative path begins at the folder of this file. Empty = no such file. The same as a"
        ' table with type = "scram" that every listener names.',
        effect="Clients that name the Authentication Method must know a password. Other clients are refused, unless"
        " another method accepts them, or the listener has allow_anonymous = true.",
        example="users.scram",
    )
    methods: Mapping[str, Section] = field(
        factory=dict,
        metadata=variants(
            METHODS,
            "The methods by which clients prove their identity: one table each, with a name of your choice. A listener"
            " asks those that its option authentication names, in that order. Without that option it asks all methods,"
            " in the order of this file.",
        ),
    )

    @property
    def is_configured(self) -> bool:
        """Whether clients have to authenticate."""
        return bool(self.scram_file or self.methods)

    @property
    def gives_groups(self) -> bool:
        """Whether a method may tell groups of users that neither the files with rules nor the database know."""
        none = (PasswordFileConfig, DatabaseUsersConfig, ScramConfig, CertificateConfig, CredConfig)
        return any(
            bool(method.groups_claim) if isinstance(method, JWTConfig) else not isinstance(method, none)
            for method in self.methods.values()
        )

    @property
    def scram_files(self) -> tuple[str, ...]:
        """The paths of all files of SCRAM users."""
        named = (method.path for method in self.methods.values() if isinstance(method, ScramConfig))
        return (*([self.scram_file] if self.scram_file else []), *named)

    @property
    def password_files(self) -> tuple[str, ...]:
        """The paths of all password files."""
        return tuple(method.path for method in self.methods.values() if isinstance(method, PasswordFileConfig))

    @property
    def database_users(self) -> DatabaseUsersConfig | None:
        """The first method that takes users from the database, None if there is none."""
        found = (method for method in self.methods.values() if isinstance(method, DatabaseUsersConfig))
        return next(found, None)

    def names_of(self, listener: ListenerConfig) -> tuple[str, ...]:
        """Return the names of a listener's methods, in the order in which it asks them."""
        everywhere = (SCRAM_FILE,) if self.scram_file else ()
        return everywhere + (tuple(self.methods) if listener.authentication is None else listener.authentication)


def authentication_problems(
    listeners: Mapping[str, ListenerConfig], authentication: AuthenticationConfig
) -> Iterator[KeyProblem]:
    """Yield the problems of the methods that listeners name."""
    for name, listener in listeners.items():
        path = ("listeners", name, "authentication")
        for method in listener.authentication or ():
            if method not in authentication.methods:
                near = get_close_matches(method, authentication.methods, n=1)
                advice = f"did you mean {literal(near[0])}?" if near else _methods_in_words(authentication.methods)
                yield KeyProblem(
                    path,
                    f"no table is named [authentication.{method}]; {advice}",
                    needs=(path, ("authentication", method, "type")),
                )
        anonymous = ("listeners", name, "allow_anonymous")
        if listener.authentication == () and not authentication.scram_file and not listener.allow_anonymous:
            message = (
                "an empty list admits nobody; name methods, or admit clients without credentials:"
                f" {dotted(anonymous)} = true"
            )
            yield KeyProblem(path, message, needs=(path, anonymous, ("authentication", SCRAM_FILE)))
        scram = [
            method
            for method in authentication.names_of(listener)
            if method == SCRAM_FILE or isinstance(authentication.methods.get(method), ScramConfig)
        ]
        if len(scram) > 1:
            message = (
                f"SCRAM-SHA-256 is offered by {', '.join(scram)}; a listener can have one file of these users: name the"
                " methods of each listener, and leave out authentication.scram_file"
            )
            yield KeyProblem(path, message, needs=(path,))


def _methods_in_words(methods: Mapping[str, Section]) -> str:
    if not methods:
        return "there are no such tables"
    return f"there are: {', '.join(map(literal, methods))}"
