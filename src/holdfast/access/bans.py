"""The bans of a broker: through the running broker, or in their file if none runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.access.client import BrokerClient
from holdfast.access.interfaces import Inaccessible, content_of
from holdfast.access.opening import locked
from holdfast.storage.lock import DirectoryLock, DirectoryUnusable

if TYPE_CHECKING:
    from holdfast.auth.failures.ban import Ban
    from holdfast.config import Config


class BanAccess(Protocol):
    """Makes calls of the API about bans."""

    def call(self, method: str, path: str, *, body: bytes = ...) -> Any:
        """Return the content of the answer. Raises Inaccessible."""


@contextmanager
def bans_of(config: Config) -> Iterator[BanAccess]:
    """Give access to the bans of a broker, running or not. Raises Inaccessible, ConfigError or DirectoryUnusable."""
    broker, lock = BrokerClient(config), DirectoryLock(config.data_dir)
    if not locked(broker, lock):
        yield broker
        return
    try:
        if not config.data_dir.is_dir():
            raise DirectoryUnusable(f"{config.data_dir}: there is no such folder; name the broker's with --data-dir")
        yield _StandIn(config)
    finally:
        lock.release()


class _StandIn:
    """The API in this process, over the file of bans. The data directory is locked."""

    def __init__(self, config: Config) -> None:
        from twisted.internet.defer import Deferred, execute

        from holdfast.admin.accounts.bans import BanAPI
        from holdfast.admin.routing.table import RoutingTable
        from holdfast.auth.failures.ban_file import load_bans, store_bans
        from holdfast.auth.failures.bans import Bans
        from holdfast.auth.failures.exempt import Exempt
        from holdfast.peers.trusted_proxies import TrustedProxies

        folder = config.data_dir
        lists = [*(listener.trusted_proxies for listener in config.listeners.values()), config.admin.trusted_proxies]
        proxies = [TrustedProxies(names) for names in lists]
        bans = Bans(now=time.time, exempt=Exempt(proxies))
        bans.load(load_bans(folder))

        def store(kept: Iterable[Ban]) -> Deferred[None]:
            return execute(store_bans, folder, kept)

        api = BanAPI(bans, now=lambda: time.time_ns() // 1_000_000, store=store, apply=lambda _ban: None)
        self._table = RoutingTable(api.routes)

    def call(self, method: str, path: str, *, body: bytes = b"") -> Any:
        """Return the content of the answer."""
        from holdfast.admin.callers.operators import this_operator
        from holdfast.admin.calls.call import Call

        answers: list[Any] = []
        self._table.answer(Call(method, path, {}, body, this_operator())).addBoth(answers.append)
        if not answers:
            raise Inaccessible("the bans are being changed by another call")
        return content_of(answers[0].status, answers[0].body)
