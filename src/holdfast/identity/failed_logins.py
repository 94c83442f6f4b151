"""Failed logins: they are counted, their answers are delayed, and too many of them ban their address.

How it works. *The credentials are verified first, and only the answer of a failure waits.* So nobody's failures delay
right credentials, and no delay needs to know whose credentials are right. Failures are counted

- for each pair of an address and a User Name, and
- for each address (all addresses of an IPv6 /64 are one),

and never for a User Name alone, since then a stranger could lock out a user. The longer of both delays holds.

What a delay and a ban are worth:

- A failure counts when it is verified, not when it is answered. A client that does not wait for its answer gains
  nothing: it guesses sooner, and is banned sooner.
- A delayed CONNECT holds a connection, but no place in the line of password hashes. Few may wait at once, for each
  address and in all (:class:`.WaitingRefusals`); others are answered at once, and count the same.
- An answer for which a client waits in vain tells it that its guess was wrong, as the answer itself would. The delay
  depends on the names that clients sent and on their failures, never on whether a user exists.
- The twentieth failure bans the address. From then on no answer about its credentials is given. The bans are asked
  again after a verification, so guesses that were sent at the same time get no answer even if they are right: a
  thousand guesses in one moment are worth no more than twenty.
- A success takes back the failures of its own pair, also from those of the address: a user who mistypes owes nothing
  afterwards. Only the User Name that was *proven* counts here. So one's own account does not pay for guesses at others,
  whatever name one sends with a certificate or a token of one's own.

Clients of loopback addresses and UNIX domain sockets, and the addresses of trusted proxies, stand for many: only their
pairs are counted, and they are never banned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Protocol

from attrs import define, frozen

from holdfast.identity.addresses import Peer
from holdfast.identity.bans import Exempt
from holdfast.wire.reasons import ReasonCode

# The failures of one subject, such as an address, and a bounded table of them.
#
# How it works. A record has two windows: of a minute, in which a few failures are free, and of ``window`` seconds, in
# which failures add up to a ban. Each begins with the first failure after the last one has ended. Once a failure was
# not free, no further failure is until the long window ends. An example with 5 free failures and a ban after 20:
#
#     0 s      5 failures: answered at once
#     1 s      the sixth: its answer waits for 1 s, the next ones for 2, 4, 8, 16, 32, 60, 60 ... s
#     545 s    the twentieth: a ban
#
# No record has a timer. A table forgets the record that was changed longest ago when it is full, and records that are
# worth nothing when it adds one.


#: the records in one table: an attacker with more addresses makes the broker forget, but not grow
MOST_RECORDS = 50_000

_MINUTE = 60.0
#: records that are looked at for each new one: more than one, so that they become fewer
_LOOKS = 2


@frozen(kw_only=True)
class FailureLimits:
    """What failures cost.

    ``free`` failures in a minute are answered at once, each further one after twice the time of the one before, from
    ``shortest`` to ``longest`` seconds. ``most`` failures in ``window`` seconds are a ban of ``ban`` seconds.
    """

    free: int = 5
    shortest: float = 1.0
    longest: float = 60.0
    most: int = 20
    window: float = 600.0
    ban: float = 600.0


@define
class Record:
    """The failures of one subject. ``changed`` is the time of the last one."""

    began: float
    minute: float
    changed: float
    count: int = 0
    in_minute: int = 0
    delayed: int = 0

    def add(self, limits: FailureLimits, now: float) -> None:
        """Add a failure."""
        if now - self.began >= limits.window:
            self.began, self.count, self.delayed = now, 0, 0
        if now - self.minute >= _MINUTE:
            self.minute, self.in_minute = now, 0
        self.changed = now
        self.count += 1
        self.in_minute += 1
        if self.delayed or self.in_minute > limits.free:
            self.delayed += 1

    def take_back(self, count: int) -> None:
        """Forget some failures: whoever caused them has proved who he is."""
        self.count = max(0, self.count - count)
        self.in_minute = max(0, self.in_minute - count)
        self.delayed = max(0, self.delayed - count)

    def delay(self, limits: FailureLimits) -> float:
        """Return the seconds that the answer to the last failure waits."""
        if not self.delayed:
            return 0.0
        return min(limits.longest, limits.shortest * 2.0 ** min(self.delayed - 1, 64))

    def is_over(self, limits: FailureLimits, now: float) -> bool:
        """Tell whether the record is worth no more than a new one."""
        return now - self.changed >= max(limits.window, _MINUTE)


class Records:
    """The records of many subjects, at most ``most``. The keys are short: their owner bounds them."""

    def __init__(self, limits: FailureLimits, most: int = MOST_RECORDS) -> None:
        self._limits = limits
        self._most = most
        #: from the record that was changed longest ago to the latest
        self._records: OrderedDict[Hashable, Record] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._records)

    def add(self, key: Hashable, now: float) -> Record:
        """Add a failure of this subject; return its record."""
        records = self._records
        record = records.get(key)
        if record is None:
            self._make_room(now)
            record = records[key] = Record(now, now, now)
        records.move_to_end(key)
        record.add(self._limits, now)
        return record

    def forget(self, key: Hashable) -> int:
        """Forget a subject; return the number of its failures."""
        record = self._records.pop(key, None)
        return 0 if record is None else record.count

    def take_back(self, key: Hashable, count: int) -> None:
        """Forget some failures of a subject."""
        record = self._records.get(key)
        if record is not None:
            record.take_back(count)
            if not record.count:
                del self._records[key]

    def _make_room(self, now: float) -> None:
        records = self._records
        for _ in range(_LOOKS):
            if not records:
                return
            key, record = next(iter(records.items()))
            if len(records) < self._most and not record.is_over(self._limits, now):
                return
            del records[key]


#: Refusals that say that credentials are wrong. Others, such as Server busy, say nothing about them.
FAILED_LOGIN = frozenset({ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED})


class IFailures(Protocol):
    """Counts failed logins. ``waiting`` has the refusals that are not answered yet."""

    waiting: WaitingRefusals

    def failed(self, peer: Peer, username: str | None) -> float:
        """Count a failed login under the User Name that was claimed; return the seconds that its answer waits."""

    def succeeded(self, peer: Peer, username: str) -> None:
        """Take back the failures of this address and user. The User Name is proven."""


class UncountedFailures:
    """Counts nothing: all failures are answered at once."""

    def __init__(self) -> None:
        self.waiting = WaitingRefusals()

    def failed(self, peer: Peer, username: str | None) -> float:
        """Answer at once."""
        return 0.0

    def succeeded(self, peer: Peer, username: str) -> None:
        """Note nothing."""


class Failures:
    """Counts failed logins. ``ban`` bans the address of a peer for some seconds. ``seconds`` is any clock."""

    def __init__(
        self,
        limits: FailureLimits,
        *,
        seconds: Callable[[], float],
        ban: Callable[[Peer, float, str], None],
        exempt: Exempt,
        most: int = MOST_RECORDS,
    ) -> None:
        self.waiting = WaitingRefusals()
        self._limits = limits
        self._seconds = seconds
        self._ban = ban
        self._exempt = exempt
        self._addresses = Records(limits, most)
        self._pairs = Records(limits, most)

    def __len__(self) -> int:
        """Return the number of records that are kept."""
        return len(self._addresses) + len(self._pairs)

    def failed(self, peer: Peer, username: str | None) -> float:
        """Count a failed login under the User Name that was claimed; return the seconds that its answer waits."""
        now, limits, key = self._seconds(), self._limits, _pair(peer, username)
        pair = self._pairs.add(key, now)
        if peer in self._exempt:
            return pair.delay(limits)
        address = self._addresses.add(peer.group, now)
        if address.count < limits.most:
            return max(pair.delay(limits), address.delay(limits))
        self._addresses.forget(peer.group)  # after its ban the address begins anew
        self._pairs.forget(key)
        self._ban(peer, limits.ban, f"{address.count} failed logins")
        self.waiting.answer_all(peer.group)
        return 0.0

    def succeeded(self, peer: Peer, username: str) -> None:
        """Take back the failures of this address and user. The User Name is proven."""
        own = self._pairs.forget(_pair(peer, username))
        if own:
            self._addresses.take_back(peer.group, own)


def _pair(peer: Peer, username: str | None) -> int:
    """Return the key of an address and a user: a number, since a User Name may have 64 KiB.

    Python's hash has a secret key, and 50,000 of its 64-bit numbers hardly ever collide.
    """
    return hash((peer.group, username))


# The refusals that wait for their time: few for each address, and few in all.


#: refusals that may wait for one address, and in all
MOST_FOR_ADDRESS = 16
MOST_ADDRESSES = 1000


class WaitingRefusals:
    """Refused Clients that wait for their answer, by the groups of their addresses.

    Each is a function that answers now. What comes beyond the bounds does not wait.
    """

    def __init__(self, most_for_address: int = MOST_FOR_ADDRESS, most: int = MOST_ADDRESSES) -> None:
        self._most_for_address = most_for_address
        self._most = most
        self._waiting: dict[str, set[Callable[[], None]]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return self._count

    def enter(self, group: str, answer: Callable[[], None]) -> bool:
        """Let a refusal wait; False if too many do."""
        if self._count >= self._most or len(self._waiting.get(group, ())) >= self._most_for_address:
            return False
        self._waiting.setdefault(group, set()).add(answer)
        self._count += 1
        return True

    def leave(self, group: str, answer: Callable[[], None]) -> None:
        """Forget a refusal: it was answered, or its Client is gone."""
        of_group = self._waiting.get(group, set())
        if answer in of_group:
            of_group.remove(answer)
            self._count -= 1
            if not of_group:
                del self._waiting[group]

    def answer_all(self, group: str) -> None:
        """Answer all refusals of a group now."""
        for answer in tuple(self._waiting.get(group, ())):
            answer()
