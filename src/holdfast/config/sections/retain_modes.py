"""``[retainer]``, as far as it can differ from zone to zone: what a message with RETAIN 1 is to the broker."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Choice, Flag


@frozen
class RetainModes(Section):
    """What becomes of the messages with RETAIN 1 that clients publish."""

    retained_messages_mode: str = option(
        Choice(("enabled", "enabled_without_retaining", "downgrade", "drop")),
        "enabled",
        help="What to do with messages with RETAIN 1: enabled = store and route; enabled_without_retaining = route"
        " only; downgrade = treat as if RETAIN were 0; drop = acknowledge and do nothing. To refuse them, set"
        " mqtt.retain_available = false.",
        effect="Other than enabled: clients neither retain nor clear messages; they still get what is retained. Of"
        " their Will Messages RETAIN is cleared, or with drop, those with RETAIN 1 are not published.",
        example="enabled_without_retaining",
    )
    stop_publish_clear_msg: bool = option(
        Flag(),
        False,
        help="Do not route messages with RETAIN 1 and an empty payload, which clear a retained message.",
        effect="true: present subscribers are not told that a retained message has been cleared. A Will Message that"
        " clears one follows [retainer], whatever its client's zone says.",
        example=True,
    )
