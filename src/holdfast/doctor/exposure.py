"""What strangers can reach: listeners beyond this machine, and what limits those who come through them."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.config import Config
from holdfast.config.sections.listeners import ListenerConfig
from holdfast.doctor.finding import Finding, advice, problem

_EXAMPLE = "take it from etc/examples/internet.toml"


def exposed(config: Config) -> Iterator[tuple[str, ListenerConfig]]:
    """Yield the listeners that other machines can reach, with their keys."""
    for name, listener in config.listeners.items():
        if not listener.is_loopback:
            yield f"listeners.{name}", listener


def open_to_everyone(config: Config) -> Iterator[Finding]:
    """Yield a finding for each exposed listener that admits clients without authentication."""
    for key, listener in exposed(config):
        if listener.allow_anonymous:
            yield problem(
                f"{key}.allow_anonymous",
                "everyone who reaches it can connect" + ("" if _is_authorized(config) else ", and publish everything"),
                "remove it, and let clients authenticate; or give guests rules in an authorization source",
            )


def plain_text(config: Config) -> Iterator[Finding]:
    """Yield a finding for each exposed listener whose clients send their passwords in plain text."""
    for key, listener in exposed(config):
        if listener.allow_plaintext and listener.tls is None and not listener.server_endpoint.proxied:
            yield problem(
                f"{key}.allow_plaintext",
                "everyone on the way to a client can read its password and its messages",
                "give the listener a certificate: see docs/operator/tls.md",
            )


def plain_api(config: Config) -> Iterator[Finding]:
    """Yield a finding if operators send their keys to the API in plain text from other machines."""
    if not config.admin.is_loopback and config.admin.tls is None:
        yield problem(
            "admin.allow_plaintext",
            "everyone on the way to the API can read the operators' keys and passwords",
            "give it a certificate: see docs/operator/api.md",
        )


def unlimited_connections(config: Config) -> Iterator[Finding]:
    """Yield advice for each exposed listener on which one address may take all connections."""
    for key, listener in exposed(config):
        if listener.max_connections_per_address is None:
            yield advice(
                f"{key}.max_connections_per_address", "one stranger can take all connections of the process", _EXAMPLE
            )


def unlimited_users(config: Config) -> Iterator[Finding]:
    """Yield advice for each exposed listener whose users or guests may fill the broker."""
    for key, listener in exposed(config):
        limits = config.zone(listener.zone).limits
        wanted = ["max_sessions", "max_waiting_bytes", "max_retained_messages", "max_retained_bytes"]
        if listener.allow_anonymous or not config.authentication.is_configured:
            wanted += ["guests_max_sessions", "guests_max_retained_messages", "guests_max_retained_bytes"]
        missing = [option for option in wanted if getattr(limits, option) is None]
        if missing:
            table = f"zones.{listener.zone}.limits" if listener.zone else "limits"
            yield advice(
                key,
                f"one stranger can fill the broker: [{table}] leaves {', '.join(missing)} unlimited",
                f"{_EXAMPLE}, and see docs/operator/limits.md",
            )


def unlimited_memory(config: Config) -> Iterator[Finding]:
    """Yield advice if other machines can reach the broker and its memory has no limit."""
    if config.limits.memory is None and any(True for _ in exposed(config)):
        yield advice("limits.memory", "strangers can use all memory of this machine", 'set it, for example to "80%"')


def unlimited_rights(config: Config) -> Iterator[Finding]:
    """Yield a finding if clients of other machines may publish and subscribe to everything."""
    if any(True for _ in exposed(config)) and not _is_authorized(config):
        yield problem(
            "authorization",
            "no source of rules is configured, so each client may publish, clear and read everything",
            "see docs/operator/permissions.md",
        )


def _is_authorized(config: Config) -> bool:
    return bool(config.authorization.sources)
