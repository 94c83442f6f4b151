"""Builds the authentication of clients: for each listener a chain of methods, and its Authentication Method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from attrs import field, frozen
from twisted.application.service import MultiService

from holdfast.auth.anonymous import AnonymousAuthenticator
from holdfast.auth.chain import Chain, Chains, EnhancedByListener, Entry
from holdfast.auth.external import Surroundings, UnusableOption, external_method
from holdfast.auth.interfaces import IAuthenticationMethod, IAuthenticator, IEnhancedAuthenticator, Principal
from holdfast.compose.passwords import Passwords
from holdfast.config import Config
from holdfast.config.fields import Section
from holdfast.config.problems import ConfigError
from holdfast.config.sections.authentication import SCRAM_FILE
from holdfast.config.sections.authentication_methods import ScramConfig
from holdfast.config.sections.methods.passwords import PasswordFileConfig


class IRevoking(Protocol):
    """A method that tells which users it does not know any more."""

    def on_revoked(self, callback: Callable[[Callable[[Principal], bool]], object]) -> None:
        """Call this whenever users are revoked, with a function that tells their Principals."""


@frozen(kw_only=True)
class AuthenticationParts:
    """The parts that authenticate clients."""

    authenticator: IAuthenticator
    enhanced_authenticator: IEnhancedAuthenticator | None = None
    #: what runs while the broker does
    services: MultiService = field(factory=MultiService)
    #: the methods whose users can be revoked
    revoking: Sequence[IRevoking] = ()


def compose_authentication(
    config: Config, *, reactor: Any, now: Callable[[], int], environment: Mapping[str, str]
) -> AuthenticationParts:
    """Build the authentication. Raises ConfigError if a file that the configuration names cannot be used.

    ``now`` returns milliseconds since the epoch. The ``environment`` may have secrets. Libraries are imported for the
    methods that are configured: they are large, and most brokers need few of them.
    """
    if not config.authentication.is_configured:
        return AuthenticationParts(authenticator=AnonymousAuthenticator())
    around = Surroundings(reactor=reactor, now=now, folder=config.folder, environment=environment)
    methods: dict[str, IAuthenticationMethod] = {}
    scram: dict[str, IEnhancedAuthenticator] = {}
    if config.authentication.scram_file:
        scram[SCRAM_FILE] = _scram(config, SCRAM_FILE, config.authentication.scram_file)
    files = {name: each for name, each in config.authentication.methods.items() if isinstance(each, PasswordFileConfig)}
    services = MultiService()
    passwords = Passwords(config, files, services, reactor) if files else None
    for name, section in config.authentication.methods.items():
        if isinstance(section, ScramConfig):
            scram[name] = _scram(config, name, section.path)
        elif passwords is not None and name in passwords.files:
            methods[name] = passwords.files[name]
        else:
            methods[name] = _external(config, name, section, around)
    chains: dict[str, Chain] = {}
    enhanced: dict[str, IEnhancedAuthenticator] = {}
    for listener_name, listener in config.listeners.items():
        names = config.authentication.names_of(listener)
        entries = [Entry(name, methods[name]) for name in names if name in methods]
        if passwords is not None:
            entries += passwords.last_entries(names)
        chains[listener_name] = Chain(entries, guests=listener.allow_anonymous, clock=reactor)
        for name in names:
            if name in scram:
                enhanced[listener_name] = scram[name]
    return AuthenticationParts(
        authenticator=Chains(chains),
        enhanced_authenticator=EnhancedByListener(enhanced) if enhanced else None,
        services=services,
        revoking=() if passwords is None else tuple(passwords.files.values()),
    )


def _external(config: Config, name: str, section: Section, around: Surroundings) -> IAuthenticationMethod:
    """Return a method that relies on others for the proof of identity."""
    try:
        return external_method(section, around)
    except UnusableOption as unusable:
        raise ConfigError([config.method_problem(name, unusable.key, str(unusable))]) from None


def _scram(config: Config, name: str, path: str) -> IEnhancedAuthenticator:
    """Return the authenticator for SCRAM-SHA-256."""
    from holdfast.auth.scram.mechanism import ScramAuthenticator
    from holdfast.auth.scram.secret_file import persistent_secret
    from holdfast.auth.scram.users_file import UsersFile

    users = UsersFile(config.absolute(path))
    return ScramAuthenticator(users.users, persistent_secret(config.data_dir / "holdfast.secret"), name)
