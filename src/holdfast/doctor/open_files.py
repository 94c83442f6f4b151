"""The limit of open files: each connection takes one."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from holdfast.config import Config
from holdfast.doctor.finding import Finding, advice, problem
from holdfast.listening import BACKLOG
from holdfast.peers.limits import ProcessConnections

#: the limit that a service for strangers should have, and the one that every system gives to each process
_USUAL, _LEAST = 65_536, 1_024
_SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


def open_files(config: Config) -> Iterator[Finding]:
    """Yield a finding if the listeners allow more connections than the process may have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return
    most = ProcessConnections.within(hard).most
    wanted = [listener.max_connections for listener in config.listeners.values()]
    allowed = sum(each for each in wanted if each is not None)
    remedy = "raise the hard limit of open files (LimitNOFILE= in systemd, ulimit -Hn in a shell)"
    if most is not None and allowed > most:
        yield problem(
            "open files",
            f"the listeners allow {allowed:,} connections, but {hard:,} open files suffice for {most:,}",
            f"{remedy}, or lower max_connections",
        )
    elif hard < _USUAL and None in wanted:
        weigh = problem if hard < _LEAST else advice
        yield weigh("open files", f"{hard:,} allow no more connections than {most:,}", remedy)


def backlog(_config: Config, somaxconn: Path = _SOMAXCONN) -> Iterator[Finding]:
    """Yield a finding if the kernel shortens the queue of connections that wait to be accepted."""
    try:
        longest = int(somaxconn.read_text())
    except (OSError, ValueError):  # not Linux
        return
    if longest < BACKLOG:
        yield advice(
            "net.core.somaxconn",
            f"only {longest:,} connections can wait to be accepted, so a fleet that returns at once waits longer",
            f"sysctl net.core.somaxconn={BACKLOG}",
        )
