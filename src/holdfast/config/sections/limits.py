"""``[limits]``: what strangers may cost: for each user, for all guests together, and for the whole broker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from attrs import field, frozen

from holdfast.config.options import (
    Choice,
    Flag,
    Integer,
    InvalidValue,
    Rate,
    Section,
    Size,
    TakesEffect,
    invalid_value,
    option,
)
from holdfast.core import units

_PERCENTAGE = re.compile("([0-9]{1,3}) ?%")
_INFINITY: dict[str, int | None] = {"infinity": None}


@frozen
class MemoryShare:
    """A part of the memory that the process may have, in percent."""

    percent: int

    def __str__(self) -> str:
        """Return the percentage as in the configuration."""
        return f"{self.percent}%"


@frozen
class Memory:
    """The kind of options with an amount of memory: a size, a percentage, or ``"infinity"``."""

    words: ClassVar[Mapping[str, None]] = {"infinity": None}
    allowed: str = field(
        default='a size (KB, MB, GB; a plain integer is bytes) of 64MB or more, a whole percentage from "10%" to "95%",'
        ' or "infinity"',
        init=False,
    )

    def read(self, value: object) -> MemoryShare | int | None:
        """Return the bytes or the percentage, None for ``"infinity"``; raises InvalidValue."""
        if isinstance(value, str) and (match := _PERCENTAGE.fullmatch(value)):
            percent = int(match[1])
            if not 10 <= percent <= 95:
                raise invalid_value(value, self.allowed)
            return MemoryShare(percent)
        try:
            return Size("64MB", "1048576GB", infinity=True).read(value)
        except InvalidValue:
            raise invalid_value(value, self.allowed) from None


@frozen
class LimitsOfClients(Section):
    """The limits that zones can have too. None is the value of infinity, "no limit"."""

    applies: ClassVar[TakesEffect] = TakesEffect.RESTART

    max_sessions: int | None = option(
        Integer(1, words=_INFINITY, unit="Sessions"),
        "infinity",
        help="Most Sessions of one user, connected and stored. A user is the User Name that a client has proven; for a"
        " guest, and without authentication, it is the Client Identifier.",
        effect="A CONNECT that needs one more Session is refused with Quota exceeded (0x97; v3: 3, server"
        " unavailable). Clients that resume or replace a Session are always admitted.",
        example=100,
    )
    guests_max_sessions: int | None = option(
        Integer(1, words=_INFINITY, unit="Sessions"),
        "infinity",
        help="Most Sessions of all guests of one listener together, connected and stored. Without authentication,"
        " every client is a guest.",
        effect="As max_sessions.",
        example=1000,
    )
    max_waiting_bytes: int | None = option(
        Size("1KB", "1048576GB", infinity=True),
        "infinity",
        help="Most bytes that wait in all Sessions of one user together: queued Application Messages, counted as for"
        " mqtt.max_mqueue_bytes, and Will Messages, counted in the same way.",
        effect="Further messages for absent clients of this user are handled as mqtt.mqueue_full says. A CONNECT whose"
        " Will Message does not fit is refused with Quota exceeded (0x97; v3: 3).",
        example="64MB",
    )
    max_retained_messages: int | None = option(
        Integer(1, words=_INFINITY, unit="retained messages"),
        "infinity",
        help="Most retained messages of one user. A retained message belongs to the user who published it last.",
        effect="At the limit, messages of new topics are not retained (see retainer.on_limit); topics of the user are"
        " still replaced, and all topics are cleared. Earlier retained messages stay and count.",
        example=10000,
    )
    max_retained_bytes: int | None = option(
        Size("1KB", "1048576GB", infinity=True),
        "infinity",
        help="Most bytes of the retained messages of one user, counted as for retainer.max_retained_bytes.",
        effect="As max_retained_messages. Replacing a message by one of at most the same size is always possible.",
        example="16MB",
    )
    guests_max_retained_messages: int | None = option(
        Integer(1, words=_INFINITY, unit="retained messages"),
        "infinity",
        help="Most retained messages of all guests together, of all listeners.",
        effect="As max_retained_messages, for guests only.",
        example=10000,
    )
    guests_max_retained_bytes: int | None = option(
        Size("1KB", "1048576GB", infinity=True),
        "infinity",
        help="Most bytes of the retained messages of all guests together, of all listeners.",
        effect="As max_retained_bytes, for guests only.",
        example="16MB",
    )
    messages_rate: units.Rate | None = option(
        Rate(),
        "infinity",
        help="Rate of the PUBLISH packets of one client. After a pause the number may come at once: 100 with 100/s.",
        effect="The broker reads the client's packets later. Nothing is dropped, and other clients do not wait.",
        example="100/s",
        applies=TakesEffect.CONNECTING,
    )
    bytes_rate: units.Rate | None = option(
        Rate(),
        "infinity",
        help="Rate of the bytes of the PUBLISH packets of one client. After a pause the number may come at once. A"
        " longer packet is taken, and the client then waits for its whole length.",
        effect="As messages_rate.",
        example="1000000/s",
        applies=TakesEffect.CONNECTING,
    )


@frozen
class LimitsConfig(LimitsOfClients):
    """All limits, with those of the whole broker."""

    memory: MemoryShare | int | None = option(
        Memory(),
        "infinity",
        help="Most memory of the broker's process: a size, or a part of what it may have, such as 80% of the machine,"
        " container or systemd unit. Only for [limits], not for zones. Only on Linux.",
        effect="At 90 % of it, the broker refuses every CONNECT with Server busy (0x89; v3: 3), until it has less than"
        " 85 %. At 95 %, it disconnects the client for which most bytes wait, 1 MB or more, with Quota exceeded"
        " (0x97), at most one in a second.",
        example="80%",
    )


# ``[force_shutdown]``: limits on the memory of a slow connection.


@frozen
class ForceShutdownConfig(Section):
    """The messages and bytes that may wait for one Network Connection before the broker closes it."""

    applies: ClassVar[TakesEffect] = TakesEffect.CONNECTING

    enable: bool = option(
        Flag(),
        True,
        help="Close a Network Connection that exceeds the limits below.",
        effect="false: a client that stops reading can use memory without limit.",
        example=False,
    )
    policy: str = option(
        Choice(("disconnect", "conflate")),
        "disconnect",
        help="What happens before the limits are reached. conflate: as soon as half of a limit waits for a connection,"
        " a new message that was published with RETAIN 1 takes the place of the waiting one of its topic. Other"
        " messages are queued as ever, and at the limits the connection is closed.",
        effect="conflate: slow clients stay connected through floods and miss values that newer ones have replaced.",
        example="conflate",
    )
    max_mailbox_size: int = option(
        Integer(0, unit="Application Messages; 0 is no limit"),
        100000,
        help="Application Messages that may wait in memory for one Network Connection. 0 = no limit.",
        effect="Higher: slow clients stay connected longer and hold more memory.",
        example=10000,
    )
    max_bytes: int = option(
        Size("1KB", "64GB", zero="no limit"),
        "32MB",
        help="Bytes of all packets that may wait in memory for one Network Connection. 0 = no limit. The broker stops"
        " reading from a client much earlier, when 64 KiB of answers wait for it (all packets but PUBLISH).",
        effect="Higher: slow clients stay connected longer and hold more memory.",
        example="8MB",
    )
