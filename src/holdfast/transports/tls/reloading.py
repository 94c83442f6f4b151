"""Changed certificates take effect while the broker runs: all of them together, or none.

A file is looked at every ``INTERVAL`` seconds. A change is taken when two looks in a row have found the same new state,
so that files in the middle of a renewal, where key and certificate differ, are left alone. Files are read in a
thread. A state that cannot be used is told once; the broker goes on with what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.scheduling.periodic import PeriodicJob
from holdfast.transports.tls.contexts import UnusableTLS
from holdfast.transports.tls.listener_tls import ListenerTLS, Loaded, load, states_of, table_of

#: seconds between two looks at the files
INTERVAL = 10.0
_DAY = 86400.0

#: runs a function, in a thread or at once, and returns its result
Run = Callable[[Callable[[], list[Loaded]]], Deferred[list[Loaded]]]


class CertificateReloads(Service):
    """Reloads the certificates of all listeners. ``now`` returns seconds since the epoch."""

    _log = Logger()

    def __init__(
        self, listeners: Sequence[ListenerTLS], *, clock: IReactorTime, now: Callable[[], float], run: Run
    ) -> None:
        self._listeners = tuple(listeners)
        self._now = now
        self._run = run
        self._seen: object = None  #: the changed state at the last look
        self._failed: object = None  #: the changed state that could not be used
        self._is_over = False
        self._looks = PeriodicJob(self._look, name="looking at certificates", interval=INTERVAL, clock=clock)
        self._days = PeriodicJob(self._warn, name="looking at the ends of certificates", interval=_DAY, clock=clock)

    def startService(self) -> None:
        """Tell what is loaded, and look at the files from now on."""
        Service.startService(self)
        for listener in self._listeners:
            listener.tell()
        self._looks.start(INTERVAL)
        self._days.start(_DAY)

    def stopService(self) -> None:
        """Look no longer."""
        Service.stopService(self)
        self._is_over = True  # a reading under way changes nothing any more
        self._looks.stop()
        self._days.stop()

    def reload(self) -> Deferred[list[str]]:
        """Read all files now. Fires with the problems; with any, nothing has changed."""
        settings = [listener.loaded.settings for listener in self._listeners]

        def build() -> list[Loaded]:
            loaded, problems = [], []
            for listener, each in zip(self._listeners, settings, strict=True):
                try:
                    loaded.append(load(each, self._now()))
                except UnusableTLS as unusable:
                    problems += [f"{'.'.join(table_of(listener.listener))}.{one.option}: {one.message}"
                                 for one in unusable.problems]  # fmt: skip
            if problems:
                raise _Unusable(problems)
            return loaded

        def take(loaded: list[Loaded]) -> list[str]:
            if self._is_over:
                return []
            for listener, each in zip(self._listeners, loaded, strict=True):
                listener.take(each)
            return []

        def refused(failure: Failure) -> list[str]:
            failure.trap(_Unusable)
            assert isinstance(failure.value, _Unusable)
            problems = failure.value.problems
            for problem in problems:
                self._log.error("the certificates stay as they are: {problem}", problem=problem)
            return problems

        return self._run(build).addCallbacks(take, refused)

    def _look(self) -> Deferred[list[str]]:
        present = [states_of(listener.loaded.settings) for listener in self._listeners]
        before, self._seen = self._seen, present
        if present in ([listener.loaded.files for listener in self._listeners], self._failed) or present != before:
            return succeed([])

        def told(problems: list[str]) -> list[str]:
            self._failed = present if problems else None
            return problems

        return self.reload().addCallback(told)

    def _warn(self) -> None:
        for listener in self._listeners:
            listener.warn_of_ends()


class _Unusable(Exception):
    """Some files cannot be used: has the ``problems`` as texts."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
