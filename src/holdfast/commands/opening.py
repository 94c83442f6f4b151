"""Chooses between the running broker and a stand-in for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.admin.address import SOCKET_NAME
from holdfast.commands.access import BrokerClient
from holdfast.commands.interfaces import Access
from holdfast.storage.location import DirectoryInUse, DirectoryLock, DirectoryUnusable

if TYPE_CHECKING:
    from holdfast.config import Config

#: how often the holder of the data directory's lock is asked to answer, and the seconds between
_ATTEMPTS = 50
_PAUSE = 0.1


@contextmanager
def access_to(config: Config) -> Iterator[Access]:
    """Give access to the retained messages of a broker, running or not.

    Raises :class:`holdfast.commands.interfaces.Inaccessible`, StoreUnusable or DirectoryUnusable.
    """
    broker = BrokerClient(config)
    lock = DirectoryLock(config.data_dir)
    if not locked(broker, lock):
        yield broker
        return
    from holdfast.commands.stand_in import standing_in  # only here: it imports the whole broker

    try:
        with standing_in(config) as stand_in:
            yield stand_in
    finally:
        lock.release()


def locked(broker: BrokerClient, lock: DirectoryLock) -> bool:
    """Lock the data directory, unless a broker answers. Raises Inaccessible or DirectoryUnusable.

    If the lock holder does not answer, it is starting or stopping: a broker, or the last process of a job that was
    killed. Wait for it.
    """
    for left in reversed(range(_ATTEMPTS)):
        if broker.answers():
            return False
        try:
            if lock.directory.is_dir():  # a broker always makes its data directory, so without one none runs
                lock.acquire()
        except DirectoryInUse as error:
            if not left:
                raise DirectoryUnusable(f"{error}; no broker answers at {lock.directory / SOCKET_NAME}") from error
            time.sleep(_PAUSE)
        else:
            break
    return True
