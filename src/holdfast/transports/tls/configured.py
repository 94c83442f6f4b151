"""From the options of the listeners to their TLS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.config import Config, ConfigError
from holdfast.config.sections.listeners import WEBSOCKET
from holdfast.config.sections.tls import CertificateConfig, TLSConfig
from holdfast.transports.tls.contexts import UnusableTLS
from holdfast.transports.tls.listener_tls import Loaded, load
from holdfast.transports.tls.settings import KeyPair, TLSSettings


def load_all(config: Config, now: float) -> Mapping[str, Loaded]:
    """Read the files of all listeners with TLS. ``now`` is in seconds since the epoch.

    Raises ConfigError with all problems, each with the key that names the file.
    """
    loaded, problems = {}, []
    for name, listener in config.listeners.items():
        if listener.tls is None:
            continue
        protocol = b"http/1.1" if listener.transport == WEBSOCKET else b"mqtt"
        try:
            loaded[name] = load(settings_of(listener.tls, config.folder, protocol), now)
        except UnusableTLS as unusable:
            problems += [
                config.source.problem(("listeners", name, "tls", *problem.option.split(".")), problem.message)
                for problem in unusable.problems
            ]
    if problems:
        raise ConfigError(problems)
    return loaded


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
