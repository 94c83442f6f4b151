"""What each payer (:mod:`holdfast.core.clients`) has in Sessions: their number, and the bytes that wait in them.

How it works. The registry tells of each Session that begins and ends, queues count their messages, and
:mod:`~holdfast.sessions.wills` counts stored Wills. So a question costs one look into a dict. For example, with
``max_sessions = 2`` and the Sessions a and b of alice:

    alice connects as c                 refused
    alice connects as b, Clean Start    admitted: the Session replaces one of hers
    the Session a expires               alice may connect as c

The Session of a guest counts for the guest, and for all guests of the listener through which it was connected last.
"""

from __future__ import annotations

from collections import defaultdict

from attrs import define

from holdfast.core.clients import is_guest, payer_of
from holdfast.core.messages import held_size
from holdfast.identity.interfaces import Principal
from holdfast.sessions.limits import Limits
from holdfast.wire.packets import Will


class OverLimit(Exception):
    """The payer may not have one more Session, or this Will. The text names the option of the limit."""


@define(eq=False)
class Account:
    """What one payer has. ``bytes`` are those of queued messages and stored Wills."""

    sessions: int = 0
    bytes: int = 0
    holders: int = 0  #: Sessions and Wills


class Accounts:
    """The accounts of all payers. ``names_proven`` tells whether User Names are payers."""

    def __init__(self, names_proven: bool) -> None:
        self.names_proven = names_proven
        self._accounts: dict[str, Account] = {}
        #: Sessions of guests, by listener
        self._guests: defaultdict[str, int] = defaultdict(int)
        #: the payers and the listeners of Sessions, by Client Identifier
        self._sessions: dict[str, tuple[str, str]] = {}
        #: the payers and the sizes of stored Wills, by Client Identifier
        self._wills: dict[str, tuple[str, int]] = {}

    def check(self, newcomer: Principal, will: Will | None, limits: Limits, listener: str) -> None:
        """Raise OverLimit if a Client may not connect. It may resume or replace a Session of its own payer."""
        payer = self._payer(newcomer)
        account = self._accounts.get(payer)
        if self._sessions.get(newcomer.client_id, ("", ""))[0] != payer:
            most = limits.max_sessions
            if most is not None and account is not None and account.sessions >= most:
                raise OverLimit(f"limits.max_sessions = {most} is reached by {_told(payer)}")
            most = limits.guests_max_sessions
            if most is not None and is_guest(payer) and self._guests[listener] >= most:
                raise OverLimit(f"limits.guests_max_sessions = {most} is reached by the guests of listener {listener}")
        if will is not None and limits.max_waiting_bytes is not None:
            known, size = self._wills.get(newcomer.client_id, ("", 0))
            used = (0 if account is None else account.bytes) - (size if known == payer else 0)
            if used + _size_of(will) > limits.max_waiting_bytes:
                raise OverLimit(
                    f"limits.max_waiting_bytes = {limits.max_waiting_bytes} has no room for the Will Message"
                )

    def opened(self, principal: Principal, listener: str) -> Account:
        """Count a Session; return the account of its payer."""
        payer = self._payer(principal)
        account = self._hold(payer)
        account.sessions += 1
        self._sessions[principal.client_id] = payer, listener
        self._guests[listener] += is_guest(payer)
        return account

    def moved(self, client_id: str, listener: str) -> None:
        """Note that the Client of a Session comes through a listener now."""
        payer, before = self._sessions[client_id]
        self._sessions[client_id] = payer, listener
        self._guests[before] -= is_guest(payer)
        self._guests[listener] += is_guest(payer)

    def ended(self, client_id: str) -> None:
        """Count a Session no longer."""
        payer, listener = self._sessions.pop(client_id)
        self._accounts[payer].sessions -= 1
        self._guests[listener] -= is_guest(payer)
        self._leave(payer)

    def will_kept(self, principal: Principal, will: Will) -> None:
        """Count the Will of a Client in place of its earlier one."""
        self.will_over(principal.client_id)
        payer, size = self._payer(principal), _size_of(will)
        self._hold(payer).bytes += size
        self._wills[principal.client_id] = payer, size

    def will_over(self, client_id: str) -> None:
        """Count the Will of a Client no longer."""
        payer, size = self._wills.pop(client_id, ("", 0))
        if payer:
            self._accounts[payer].bytes -= size
            self._leave(payer)

    def usage(self, principal: Principal) -> tuple[int, int]:
        """Return the Sessions of a principal's payer, and the bytes that wait in them."""
        account = self._accounts.get(self._payer(principal))
        return (0, 0) if account is None else (account.sessions, account.bytes)

    def guests(self, listener: str) -> int:
        """Return the Sessions of the guests of a listener."""
        return self._guests.get(listener, 0)

    def __len__(self) -> int:
        return len(self._accounts)

    def _payer(self, principal: Principal) -> str:
        payer = payer_of(principal.username, principal.client_id, self.names_proven)
        assert payer is not None  # each Session has a Client Identifier
        return payer

    def _hold(self, payer: str) -> Account:
        account = self._accounts.get(payer)
        if account is None:
            account = self._accounts[payer] = Account()
        account.holders += 1
        return account

    def _leave(self, payer: str) -> None:
        account = self._accounts[payer]
        account.holders -= 1
        if not account.holders:
            del self._accounts[payer]


def _told(payer: str) -> str:
    return payer.split(" ", 1)[0] + " " + ascii(payer.split(" ", 1)[1][:64])


def _size_of(will: Will) -> int:
    return held_size(len(will.topic.encode()), will.properties, len(will.payload))
