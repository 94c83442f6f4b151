"""``[authentication]``: the methods by which clients prove their identity, and the methods of each listener."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar

from attrs import field, frozen

from holdfast.config.options import Choice, FilePath, Flag, Integer, Section, Size, TakesEffect, Text, option, variants
from holdfast.config.reader import KeyProblem
from holdfast.config.sections.listeners import ListenerConfig
from holdfast.config.sections.remote_methods import HTTPConfig, JWTConfig
from holdfast.config.toml import dotted, literal

# ``type = "file"`` and ``type = "database"``: users with passwords, in a file or in the broker's database.


def _memory() -> Any:
    return option(
        Size("64KB", "1GB"),
        "19MB",
        help="Memory for one argon2id hash. Two passwords are hashed at a time.",
        effect="Higher: a thief of the hashes needs more memory for each guess, and a first login takes longer.",
        example="46MB",
    )


def _passes() -> Any:
    return option(
        Integer(1, 100),
        2,
        help="Passes of argon2id over its memory. Hashes of another number are verified too.",
        effect="Higher: each guess takes longer, and so does a first login.",
        example=3,
    )


@frozen
class PasswordFileConfig(Section):
    """A file of users with their hashed passwords. It can be one of mosquitto."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    path: str = option(
        FilePath(),
        "",
        help="File with a line NAME:HASH for each user. Written by: holdfast passwd add FILE USER, or mosquitto_passwd."
        " A relative path begins at the folder of this file.",
        effect="Clients can log in with the User Names and Passwords of this file.",
        example="passwords",
    )
    rehash: bool = option(
        Flag(),
        True,
        help="Replace a hash that is less work than memory and passes ask for, such as one of mosquitto or bcrypt, when"
        " its user logs in. The broker needs the right to write to the file and its folder.",
        effect="false: hashes stay as they are. A thief of the file guesses passwords of weak hashes sooner.",
        example=False,
    )
    memory: int = _memory()
    passes: int = _passes()

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, tuple[str, ...]]]:
        """Return a problem if there is no path."""
        if not self.path:
            yield "path", "is missing; set the path of the file with the users", ("path",)


@frozen
class DatabaseUsersConfig(Section):
    """Users in the broker's own database, which the commands ``holdfast user`` add, change and remove."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    memory: int = _memory()
    passes: int = _passes()


#: the sections of methods that compare passwords with hashes
HashedConfig = PasswordFileConfig | DatabaseUsersConfig


# ``[authentication.NAME]`` with ``type = "certificate"``.


@frozen
class CertificateConfig(Section):
    """The user is the one that a client's TLS certificate names."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    name: str = option(
        Choice(("common_name", "alternative_name", "subject")),
        "common_name",
        help="The part of the certificate that is the user name: the common name (CN), the alternative name (a DNS"
        " name, an e-mail address or a URI), or the whole subject. Of several alternative names, the client tells one"
        " as its User Name.",
        effect="Clients get other user names. A name with + # / or control characters is denied.",
        example="alternative_name",
    )
    ignore_username: bool = option(
        Flag(),
        False,
        help="Take no notice of the User Name in CONNECT. Otherwise a client that sends another one than the name in"
        " its certificate is denied.",
        effect="true: clients may send any User Name; it counts for nothing.",
        example=True,
    )


# ``[authentication.NAME]`` with ``type = "cred"``.


@frozen
class CredConfig(Section):
    """User Name and Password are verified by a checker of twisted.cred, one of Twisted's or of a plugin."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    checker: str = option(
        Text(allowed='the description of a checker, as "TYPE:ARGUMENTS"'),
        "",
        help="Description of the checker. twistd holdfast --help-auth lists the types that are installed. A relative"
        " path begins at the folder that the broker is started in.",
        effect="Another checker verifies the passwords.",
        example="file:/etc/holdfast/cred.passwd",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problem of a missing checker."""
        if not self.checker:
            yield "checker", 'is missing; for example: checker = "file:/etc/holdfast/cred.passwd"', ("checker",)


# ``[authentication.NAME]``: the methods that the chains of listeners consist of, each with its type.


@frozen
class ScramConfig(Section):
    """Users of SCRAM-SHA-256, an Authentication Method of MQTT 5: clients prove a password without sending it."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

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

#: the name of the method that ``scram_file`` configures, on every listener
SCRAM_FILE = "scram_file"


@frozen
class AuthenticationConfig(Section):
    """The methods by which clients prove their identity. With one, only ``allow_anonymous`` admits guests."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

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


# Passwords over connections that everyone on the way can read.


#: the types of methods whose clients prove who they are without sending a secret
_WITHOUT_SECRETS = ("scram", "certificate")


def plaintext_problems(
    listeners: Mapping[str, ListenerConfig], authentication: AuthenticationConfig
) -> Iterator[KeyProblem]:
    """Yield a problem for each listener that takes secrets from other machines without TLS and without permission."""
    harmless = tuple(METHODS[name] for name in _WITHOUT_SECRETS if name in METHODS)
    for name, listener in listeners.items():
        if listener.allow_plaintext or listener.is_loopback or listener.tls is not None:
            continue
        methods = [
            method
            for method in authentication.names_of(listener)
            if method in authentication.methods and not isinstance(authentication.methods[method], harmless)
        ]
        if not methods:
            continue
        proxied = listener.server_endpoint.proxied
        whose = "takes clients of a proxy" if proxied else "listens beyond this machine"
        permission = dotted(["listeners", name, "allow_plaintext"])
        when = "if the proxy ends TLS" if proxied else "if the network is safe"
        message = (
            f"listener {name} {whose} ({literal(listener.endpoint)}) without TLS, and clients send passwords or tokens"
            f" for {', '.join(dotted(['authentication', method]) for method in methods)}; add"
            f" {dotted(['listeners', name, 'tls'])}, or set {permission} = true {when}"
        )
        path = ("listeners", name, "endpoint")
        needs = (path, ("listeners", name, "allow_plaintext"), ("listeners", name, "tls"), ("authentication",))
        yield KeyProblem(path, message, needs)
