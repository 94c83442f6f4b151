"""Coverage of the beginnings of tests: a long test repeats the same lines, and measured code takes twice the time."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from coverage import Coverage

#: Seconds of this process's own work in a test. What comes later is not measured.
_MEASURED = 0.05


class Beginnings:
    """A plugin of pytest. It stops ``coverage`` in each test after 50 ms of work, and starts it with the next."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._is_measuring = True
        signal.signal(signal.SIGVTALRM, self._stop)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Measure the beginning of a test."""
        if not self._is_measuring:
            self._coverage.start()
            self._is_measuring = True
        signal.setitimer(signal.ITIMER_VIRTUAL, _MEASURED)
        return (yield)

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        """Save what was measured. The process that hands out the tests ends this one a few seconds after this."""
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self._coverage.stop()
        self._coverage.save()

    def _stop(self, *_: object) -> None:
        if self._is_measuring:
            self._is_measuring = False
            self._coverage.stop()
