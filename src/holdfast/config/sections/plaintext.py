"""Passwords over connections that everyone on the way can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.config.reader import KeyProblem
from holdfast.config.sections.authentication import AuthenticationConfig
from holdfast.config.sections.authentication_methods import METHODS
from holdfast.config.sections.listeners import ListenerConfig
from holdfast.config.toml.text import dotted, literal

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
