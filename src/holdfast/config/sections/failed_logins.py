"""``[failed_logins]``: what failed logins cost the address that they come from."""

from __future__ import annotations

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Duration, Flag, Integer


@frozen
class FailedLoginsConfig(Section):
    """The failures that are free, the delays after them, and the ban."""

    enable: bool = option(
        Flag(),
        True,
        help="Count failed logins for each address, and for each address with a User Name. All addresses of an IPv6 /64"
        " are one. Delay the answers of failures, and ban the address after too many.",
        effect="false: passwords can be guessed as fast as the broker verifies them.",
        example=False,
    )
    free_per_minute: int = option(
        Integer(1, 1000),
        5,
        help="Failures in a minute that are answered at once. The answer of each further one waits for 1 s, 2 s, 4 s"
        " and so on. Right credentials never wait.",
        effect="Higher: more guesses without a delay.",
        example=10,
    )
    longest_delay: float = option(
        Duration("1s", "10m"),
        "60s",
        help="The longest time that the answer of a failure waits.",
        effect="Longer: a guessing client holds its connection for longer.",
        example="30s",
    )
    max_count: int = option(
        Integer(1, 100000),
        20,
        help="Failures of one address within window_time after which it is banned. Loopback addresses, UNIX domain"
        " sockets and trusted proxies are never banned.",
        effect="Lower: fewer guesses, but a device with an old password sooner bans all devices behind its address.",
        example=100,
    )
    window_time: float = option(
        Duration("1s", "1d"),
        "10m",
        help="The time in which failures add up.",
        effect="Longer: slower guessing leads to a ban, too.",
        example="1h",
    )
    ban_time: float = option(
        Duration("1s", "7d"),
        "10m",
        help="How long an address is banned. Its connections are closed before a byte is read. A restart ends the ban.",
        effect="Longer: fewer guesses a day.",
        example="1h",
    )
