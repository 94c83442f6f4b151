"""The memory of a Postgres server, beside that of the broker."""

from __future__ import annotations

from contextlib import suppress

import psycopg
from sqlalchemy.engine import make_url

from benchmarks.brokers import Unavailable, rss_anon

_BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def backends_mib(url: str) -> float:
    """Return the anonymous memory of the server processes that serve this database, in MiB.

    Shared memory (`shared_buffers`) is not part of it. The figure is 0 if the server runs on another machine.
    """
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address) as connection:
        processes = [pid for (pid,) in connection.execute(_BACKENDS)]
    total = 0.0
    for process in processes:
        with suppress(Unavailable):
            total += rss_anon(process)
    return total
