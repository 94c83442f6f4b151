"""Builds the hooks. Only a configuration with ``[[hooks]]`` imports this module and what it builds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from attrs import frozen
from twisted.application.service import MultiService

from holdfast.admin.api.happenings import Happenings
from holdfast.admin.routing import Route
from holdfast.broker.base import Base
from holdfast.broker.retainer import RetainerParts
from holdfast.config import Config, ConfigError
from holdfast.config.options import InvalidValue
from holdfast.config.secrets import Secret, UnusableSecret
from holdfast.config.sections.hooks import HookConfig
from holdfast.config.sections.remote_methods import ServerURL
from holdfast.core.topics import matching
from holdfast.hooks.batches import key_of
from holdfast.hooks.calls import HookCalls, Running, hook_metrics
from holdfast.hooks.delivery import Hook, Lane
from holdfast.hooks.sources import HappeningSource, RetainedSource, Source
from holdfast.identity.http_client import Bounds, HTTPClient, agent_of
from holdfast.watch.alarms import Alarms
from holdfast.watch.metrics import Metric

#: bytes of an answer; none of it is read but the status
_LONGEST_ANSWER = 1 << 20
_HEADER_VALUE = re.compile(r"[\x20-\x7e]+")


@frozen(kw_only=True)
class HookParts:
    """The hooks: their calls, their metrics, and what runs while the broker does."""

    routes: Sequence[Route]
    metrics: Sequence[Metric]
    service: MultiService


def build(config: Config, base: Base, retainer: RetainerParts, happenings: Happenings, alarms: Alarms) -> HookParts:
    """Build the hooks. Raises ConfigError if a file or a secret that they need cannot be used."""
    service, running = MultiService(), []
    for number, section in enumerate(config.hooks, 1):
        if section.retained and retainer.changes is None:
            raise _problem(config, number, "retained", "needs retainer.changes.enable = true: changes are not stored")
        hook = _hook(config, base, number, section)
        lanes = {
            name: Lane(hook, make, alarms, base.reactor, base.now)
            for name, make in _sources(section, base, retainer, happenings).items()
        }
        for lane in lanes.values():
            service.addService(lane)
        running.append(Running(hook, lanes))
    return HookParts(
        routes=HookCalls(running).routes, metrics=hook_metrics(running, lambda: base.now() / 1000), service=service
    )


def _sources(
    section: HookConfig, base: Base, retainer: RetainerParts, happenings: Happenings
) -> Mapping[str, Callable[[], Source]]:
    """Return what makes the sources of a hook, by the names of their lanes."""
    sources: dict[str, Callable[[], Source]] = {}
    changes = retainer.changes
    if section.retained and changes is not None:

        def wanted(topic: str) -> bool:
            return any(map(matching(topic), section.retained))

        sources["retained"] = lambda: RetainedSource(
            section.name, wanted, retainer.store, changes, base.reactor, base.now, section.batch
        )
    kinds = [kind for kind, is_wanted in (("client", section.clients), ("alarm", section.alarms)) if is_wanted]
    if kinds:
        sources["happenings"] = lambda: HappeningSource(happenings, kinds, base.reactor, section.batch)
    return sources


def _hook(config: Config, base: Base, number: int, section: HookConfig) -> Hook:
    def secret(key: str, place: Secret) -> bytes:
        try:
            return place.read(config.folder, base.environment)
        except UnusableSecret as unusable:
            raise _problem(config, number, key, str(unusable)) from None

    url = section.url or _secret_url(config, number, section, secret)
    headers = {}
    for name, place in section.secret_headers.items():
        value = secret("secret_headers", place).decode("latin-1")
        if _HEADER_VALUE.fullmatch(value) is None:
            raise _problem(
                config, number, "secret_headers", f"{name}: {place} has characters that a header cannot have"
            )
        headers[name] = value
    bounds = Bounds(timeout=section.timeout, connections=2, queue=0, longest_answer=_LONGEST_ANSWER)
    ca = config.absolute(section.ca) if section.ca else None
    try:
        agent = agent_of(base.reactor, bounds, https=url.startswith("https:"), ca=ca)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise _problem(config, number, "ca", f"{ca}: the file cannot be used: {why}") from None
    events: dict[str, Any] = {"retained": list(section.retained), "clients": section.clients, "alarms": section.alarms}
    return Hook(
        name=section.name, place=urlsplit(url).netloc, node=config.node.id, format=section.format,
        retry_for=section.retry_for, events=events, client=HTTPClient(agent, base.reactor, url, bounds),
        key=None if section.secret is None else key_of(secret("secret", section.secret)), headers=headers,
    )  # fmt: skip


def _secret_url(config: Config, number: int, section: HookConfig, secret: Callable[[str, Secret], bytes]) -> str:
    assert section.secret_url is not None  # one of both is there
    try:
        url = ServerURL().read(secret("secret_url", section.secret_url).decode("utf-8", "replace"))
    except InvalidValue as invalid:
        raise _problem(config, number, "secret_url", str(invalid)) from None
    if not url.startswith("https:") and not section.insecure:
        raise _problem(config, number, "secret_url", "the URL there is not of https; or set insecure = true")
    return url


def _problem(config: Config, number: int, key: str, message: str) -> ConfigError:
    return ConfigError([config.source.problem(("hooks", str(number), key), message)])
