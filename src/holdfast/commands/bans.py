"""The bans of a broker: through the running broker, or in their file if none runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.commands.access import BrokerClient
from holdfast.commands.interfaces import Inaccessible, content_of
from holdfast.commands.opening import locked
from holdfast.storage.location import DirectoryLock, DirectoryUnusable

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.identity.bans import Ban


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
    if config.cluster.name:
        lock.release()
        raise Inaccessible(
            f'the bans of the cluster "{config.cluster.name}" are changed by a running member: start this broker, or'
            " run this on the machine of another member"
        )
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

        from holdfast.admin.api.bans import BanAPI, BanFile
        from holdfast.admin.routing import RoutingTable
        from holdfast.identity.addresses import TrustedProxies
        from holdfast.identity.bans import Bans, Exempt, load_bans, store_bans

        folder = config.data_dir
        lists = [*(listener.trusted_proxies for listener in config.listeners.values()), config.admin.trusted_proxies]
        proxies = [TrustedProxies(names) for names in lists]
        bans = Bans(now=time.time, exempt=Exempt(proxies))
        bans.load(load_bans(folder))

        def store(kept: Iterable[Ban]) -> Deferred[None]:
            return execute(store_bans, folder, kept)

        api = BanAPI(bans, now=lambda: time.time_ns() // 1_000_000, store=BanFile(bans, store), apply=lambda _ban: None)
        self._table = RoutingTable(api.routes)

    def call(self, method: str, path: str, *, body: bytes = b"") -> Any:
        """Return the content of the answer."""
        from holdfast.admin.call import Call
        from holdfast.admin.callers import this_operator

        answers: list[Any] = []
        self._table.answer(Call(method, path, {}, body, this_operator())).addBoth(answers.append)
        if not answers:
            raise Inaccessible("the bans are being changed by another call")
        return content_of(answers[0].status, answers[0].body)
