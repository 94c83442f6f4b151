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
  address and in all (:mod:`holdfast.auth.failures.waiting`); others are answered at once, and count the same.
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

from collections.abc import Callable
from typing import Protocol

from holdfast.auth.failures.exempt import Exempt
from holdfast.auth.failures.records import MOST_RECORDS, FailureLimits, Records
from holdfast.auth.failures.waiting import WaitingRefusals
from holdfast.peers.address import Peer
from holdfast.wire.reasons import ReasonCode

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
