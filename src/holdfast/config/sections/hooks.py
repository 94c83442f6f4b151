"""``[[hooks]]``: HTTP servers that the broker tells of events."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from attrs import field, frozen

from holdfast.config.options import (
    Choice,
    Duration,
    FilePath,
    Flag,
    Integer,
    Section,
    TakesEffect,
    invalid_value,
    option,
)
from holdfast.config.reader import KeyProblem
from holdfast.config.secrets import Secret, SecretSource
from holdfast.config.sections.remote_methods import HeaderValues, ServerURL
from holdfast.config.sections.retainer import FilterString
from holdfast.config.toml import literal

_NAME = re.compile(r"[A-Za-z0-9_-]{0,64}")  # "" stands for none, which is a problem of the table


@frozen
class HookName:
    """The kind of the name of a hook."""

    allowed: str = field(default="1 to 64 letters, digits, - and _", init=False)

    def read(self, value: object) -> str:
        """Return the name; raises InvalidValue."""
        if not isinstance(value, str) or _NAME.fullmatch(value) is None:
            raise invalid_value(value, self.allowed)
        return value


@frozen
class TopicFilters:
    """The kind of options with a list of Topic Filters."""

    allowed: str = field(default="a list of Topic Filters", init=False)

    def read(self, value: object) -> tuple[str, ...]:
        """Return the Topic Filters; raises InvalidValue."""
        if not isinstance(value, list):
            raise invalid_value(value, self.allowed)
        return tuple(dict.fromkeys(FilterString().read(each) for each in value))


@frozen
class HookConfig(Section):
    """A server that gets a POST for each batch of events."""

    applies: ClassVar[TakesEffect] = TakesEffect.RESTART

    name: str = option(
        HookName(),
        "",
        help="Name of the hook: in the database, where its place is kept, in metrics and in alarms.",
        effect="Another name is another hook: it begins with the events since the start of the broker.",
        example="home-assistant",
    )
    url: str = option(
        ServerURL(),
        "",
        help="URL of the server.",
        effect="Events go there.",
        example="https://automation.example.org/holdfast",
    )
    secret_url: Secret | None = option(
        SecretSource(),
        "",
        help="Place of the URL, in place of url, if the URL itself is a secret. It is never shown.",
        effect="Events go there.",
        example="file:/etc/holdfast/webhook-url",
    )
    insecure: bool = option(
        Flag(),
        False,
        help="Permit http://, which sends events in plain text.",
        effect="true: everyone on the way to the server can read the events.",
        example=True,
    )
    ca: str = option(
        FilePath(),
        "",
        help="File with the certification authorities (PEM) that are trusted for https. Empty = those of the system.",
        effect="The server needs a certificate of one of them.",
        example="/etc/holdfast/ca.pem",
    )
    secret: Secret | None = option(
        SecretSource(),
        "",
        help="Place of the key that signs each request: HMAC-SHA256 over its id, time and body, as Standard Webhooks"
        " does. Empty = requests are not signed.",
        effect="The server can tell that a request is the broker's, and is new.",
        example="file:/etc/holdfast/hook-key",
    )
    secret_headers: Mapping[str, Secret] = option(
        HeaderValues(SecretSource(), f"a table of headers and the places of their values: {SecretSource().allowed}"),
        {},
        help="Headers whose values are secrets, by their places.",
        effect="The server gets them. They are never shown.",
        example={"Authorization": "file:/etc/holdfast/hook-token"},
    )
    retained: tuple[str, ...] = option(
        TopicFilters(),
        [],
        help="Topic Filters of the retained messages whose changes are sent: at least once, the newest change of each"
        " topic, in order for each topic.",
        effect="Changes of other topics are not sent.",
        example=["plant/+/state"],
    )
    clients: bool = option(
        Flag(),
        False,
        help="Send which clients connect, disconnect and are refused. At best effort: a mark tells that some are"
        " missing.",
        effect="true: at most 100 of these events a second are sent.",
        example=True,
    )
    alarms: bool = option(
        Flag(),
        False,
        help="Send the beginnings and the ends of alarms. At best effort: a mark tells that some are missing.",
        effect="true: a server hears of problems of the broker while the broker can tell.",
        example=True,
    )
    format: str = option(
        Choice(("events", "text")),
        "events",
        help='Body of a request. events: JSON with all events of the batch. text: {"text": "..."} with one line for'
        " each event, as Slack and Mattermost take it.",
        effect="text leaves out details and long payloads.",
        example="text",
    )
    batch: int = option(
        Integer(1, 1000, unit="events"),
        100,
        help="Most events of one request. A request has about 256 KiB at most, or a single event.",
        effect="Higher: fewer requests after an outage of the server.",
        example=1,
    )
    timeout: float = option(
        Duration("100ms", "1m"),
        "10s",
        help="Longest time for an answer. A request without one is repeated.",
        effect="Shorter: a slow server gets more requests twice.",
        example="5s",
    )
    retry_for: float = option(
        Duration("1s", "30d"),
        "1d",
        help="Time for which a request is repeated, after 1 s, 2 s and so on up to 5 minutes. Then its batch is given"
        " up, counted, and the next one is sent.",
        effect="Longer: longer outages of the server lose nothing. Retained changes wait in the database, one for each"
        " topic; other events wait in memory, the newest 1000.",
        example="7d",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problems of a missing name or URL, of one in plain text, and of a hook without events."""
        if not self.name:
            yield "name", 'is missing; for example: name = "home-assistant"', ("name",)
        if bool(self.url) is (self.secret_url is not None):
            yield "url", "one of url and secret_url is needed", ("url", "secret_url")
        elif self.url.startswith("http:") and not self.insecure:
            yield "url", "sends events in plain text; write https://, or set insecure = true", ("url", "insecure")
        if self.ca and self.url and not self.url.startswith("https"):
            yield "ca", "has no effect: the URL is not of https", ("ca", "url")
        if not (self.retained or self.clients or self.alarms):
            yield "retained", "the hook has no events; name retained, clients or alarms", ("retained",)


def repeated_hooks(hooks: Sequence[HookConfig]) -> Iterator[KeyProblem]:
    """Yield a problem for each hook with the name of an earlier one."""
    names: set[str] = set()
    for number, hook in enumerate(hooks, 1):
        if hook.name and hook.name in names:
            path = ("hooks", str(number), "name")
            yield KeyProblem(path, f"another hook is named {literal(hook.name)}, too", needs=(path,))
        names.add(hook.name)
