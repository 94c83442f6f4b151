"""The call that explains which policy applies to a topic, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed

from holdfast.admin.address import API_PREFIX
from holdfast.admin.api.settings import Settings
from holdfast.admin.api.settings_view import shown
from holdfast.admin.arguments import ANYTHING, BOOLEAN, INTEGER, STRING, TOPIC, array, nullable, record
from holdfast.admin.call import DONE, Answer, Call, Scope, answer, bad_request
from holdfast.admin.routing import NOTHING, Content, Route, query, routes_of
from holdfast.config.sections.retainer import INHERIT, PolicyConfig
from holdfast.core.tickets import CommitTicket
from holdfast.core.topics import MOST_LEVELS, InvalidTopicName, TopicTree, check_topic_name
from holdfast.retained.configured import policies_of
from holdfast.scheduling.waiting import durable

#: the options of a policy with a general option of the same name
_GENERAL = ("msg_expiry_interval", "msg_expiry_interval_override", "max_payload_size", "announce_expiry")

#: the options of a policy with a general option in ``[retainer.history]``, by their name there
_HISTORY = {"history": "enable", "history_keep": "keep"}

#: the others
_POLICIES_ONLY = (
    "max_retained_messages",
    "max_retained_bytes",
    "force_retain",
    "write_interval",
    "record",
    "record_acknowledge",
)

_OPTION = record({"key": STRING, "value": ANYTHING, "by_policy": BOOLEAN})
_EXPLAINED = record(
    {
        "topic": STRING,
        "policy": nullable(record({"number": INTEGER, "filter": STRING})),
        "options": array(_OPTION),
        "quotas": array(STRING),
    }
)


class PolicyCalls:
    """Answers the call about policies."""

    def __init__(self, settings: Settings, flushed: Callable[[], CommitTicket]) -> None:
        """Answer them; ``flushed`` returns a ticket that is settled when all changes accepted before are stored."""
        self._settings = settings
        self._flushed = flushed
        self.routes = routes_of(self)

    @Route(
        method="POST",
        path=f"{API_PREFIX}/flush",
        scope=Scope.ADMIN,
        stores=True,
        summary="Write all messages that wait for the write_interval of their policy",
        answers={204: NOTHING},
        finishes=True,
    )
    def flush(self, _call: Call) -> Deferred[Answer]:
        """Write what waits."""
        return durable(self._flushed()).addCallback(lambda _: DONE)

    @Route(
        method="GET",
        path=f"{API_PREFIX}/policy",
        scope=Scope.READ,
        summary="Show the policy of a topic, the options that follow from it, and the quotas that count for it",
        parameters=(query("topic", {**TOPIC, "minLength": 1}, "the Topic Name", required=True),),
        answers={200: Content(_EXPLAINED, "the policy")},
    )
    def explain(self, call: Call) -> Deferred[Answer]:
        """Explain what applies to a topic."""
        topic = call.arguments["topic"]
        try:
            check_topic_name(topic, MOST_LEVELS)
        except InvalidTopicName as invalid:
            raise bad_request(f"topic is no Topic Name: {invalid}", "topic", "a Topic Name") from None
        config = self._settings.config
        policy = policies_of(config).of(topic)
        general = shown(config)
        own = {} if policy is None else shown(config.policies[policy.number - 1])
        options: list[dict[str, Any]] = []
        for key in _GENERAL:
            by_policy = own.get(key, INHERIT) != INHERIT
            options.append({"key": key, "value": own[key] if by_policy else general[key], "by_policy": by_policy})
        for key, name in _HISTORY.items():
            by_policy = own.get(key, INHERIT) != INHERIT
            value = own[key] if by_policy else general["history"][name]
            options.append({"key": key, "value": value, "by_policy": by_policy})
        for key in _POLICIES_ONLY:
            default = getattr(PolicyConfig(), key)
            value = own.get(key, shown(PolicyConfig())[key])
            changed = policy is not None and getattr(config.policies[policy.number - 1], key) != default
            options.append({"key": key, "value": value, "by_policy": changed})
        quotas: TopicTree[str, None] = TopicTree()
        for name, quota in config.topic_quotas.items():
            quotas.add(quota.topic_filter, name, None)
        return succeed(
            answer(
                {
                    "topic": topic,
                    "policy": None if policy is None else {"number": policy.number, "filter": policy.topic_filter},
                    "options": options,
                    "quotas": sorted(name for name, _ in quotas.match(topic)),
                }
            )
        )
