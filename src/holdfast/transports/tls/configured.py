"""From the options of the listeners to their TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.config import Config, ConfigError
from holdfast.config.sections.listeners import WEBSOCKET
from holdfast.config.sections.tls import CertificateConfig, TLSConfig
from holdfast.transports.tls.contexts import UnusableTLS
from holdfast.transports.tls.listener_tls import ADMIN, Loaded, load, table_of
from holdfast.transports.tls.settings import KeyPair, TLSSettings

#: the protocol that a client may ask for by ALPN
HTTP = b"http/1.1"


def load_all(config: Config, now: float) -> Mapping[str, Loaded]:
    """Read the files of all listeners with TLS, and of the API. ``now`` is in seconds since the epoch.

    Raises ConfigError with all problems, each with the key that names the file.
    """
    loaded, problems = {}, []
    for name, tls, protocol in _tables(config):
        try:
            loaded[name] = load(settings_of(tls, config.folder, protocol), now)
        except UnusableTLS as unusable:
            problems += [
                config.source.problem((*table_of(name), *problem.option.split(".")), problem.message)
                for problem in unusable.problems
            ]
    if problems:
        raise ConfigError(problems)
    return loaded


def check_files(config: Config, now: float) -> None:
    """Judge the files of all listeners with TLS. Raises ConfigError, also for what a broker starts with: expired
    certificates, and keys that others can read.
    """
    problems = [
        config.source.problem((*table_of(name), *problem.option.split(".")), problem.message)
        for name, loaded in load_all(config, now).items()
        for problem in (*loaded.contexts.warnings, *loaded.contexts.expired(now))
    ]
    if problems:
        raise ConfigError(problems)


def _tables(config: Config) -> Iterator[tuple[str, TLSConfig, bytes]]:
    """Yield the name of each listener with TLS, its options, and the protocol inside."""
    for name, listener in config.listeners.items():
        if listener.tls is not None:
            yield name, listener.tls, HTTP if listener.transport == WEBSOCKET else b"mqtt"
    if config.admin.tls is not None and config.admin.endpoint:
        yield ADMIN, config.admin.tls, HTTP


def settings_of(options: TLSConfig, folder: Path, protocol: bytes) -> TLSSettings:
    """Return the settings of one listener. Relative paths begin at ``folder``."""
    asks = options.client != "none"
    certificates: dict[str, CertificateConfig] = {"": options}
    certificates.update((f"certificates.{name}", each) for name, each in options.certificates.items())
    return TLSSettings(
        pairs=tuple(
            KeyPair(
                table,
                folder / each.certificate,
                folder / (each.key or each.certificate),
                folder / each.key_password_file if each.key_password_file else None,
            )
            for table, each in certificates.items()
        ),
        minimum=options.minimum,
        client_ca=folder / options.client_ca if asks else None,
        client_required=options.client == "required",
        crl=folder / options.crl if asks and options.crl else None,
        protocol=protocol,
    )
