"""``[retainer]``, the options that zones can have too: the handling of messages with RETAIN 1."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Choice, Flag


@frozen
class RetainModes(Section):
    """The handling of messages with RETAIN 1 from clients."""

    retained_messages_mode: str = option(
        Choice(("enabled", "enabled_without_retaining", "downgrade", "drop")),
        "enabled",
        help="Handling of messages with RETAIN 1: enabled = store and route; enabled_without_retaining = route"
        " only; downgrade = treat as if RETAIN were 0; drop = acknowledge and do nothing. To refuse them, set"
        " mqtt.retain_available = false.",
        effect="With every value but enabled, clients neither retain nor clear messages, and still get retained"
        " messages. The broker sets RETAIN of their Will Messages to 0; with drop, it does not publish Will Messages"
        " with RETAIN 1.",
        example="enabled_without_retaining",
    )
    tell_publishers: bool = option(
        Flag(),
        False,
        help="Tell clients the Client Identifiers of the publishers of retained messages, if they ask with"
        " holdfast-replay-info. Where rules are configured, they also have to allow subscribe and receive on"
        " $replay/publisher/FILTER, where FILTER is the Topic Filter of the Subscription.",
        effect="true: clients learn the names of others.",
        example=True,
    )
    stop_publish_clear_msg: bool = option(
        Flag(),
        False,
        help="Do not route messages with RETAIN 1 and an empty payload, which clear a retained message.",
        effect="true: present subscribers do not learn that a retained message was cleared. For Will Messages, only the"
        " value in [retainer] counts, not that of a zone.",
        example=True,
    )
