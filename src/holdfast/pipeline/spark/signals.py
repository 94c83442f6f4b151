"""How a command ends when a signal asks it to: soon, in order, and with the status that shells expect."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: What a shell adds to a signal's number.
_BY_SIGNAL = 128


class Ended(BaseException):
    """A signal has asked this process to end."""


class Ending:
    """The signals that end a process, as long as :meth:`heard` runs.

    The first one raises :class:`Ended` where the process is; after :meth:`patient` it is only noted, and the second one
    raises. What goes on raising or failing after that is part of the end.
    """

    def __init__(self) -> None:
        self._asked: list[int] = []
        self._patience = 0

    @property
    def asked(self) -> bool:
        """Whether the process has been asked to end."""
        return bool(self._asked)

    @property
    def forced(self) -> bool:
        """Whether it was asked more often than it had patience for: what it does is not to be completed."""
        return len(self._asked) > self._patience

    @property
    def status(self) -> int:
        """The exit status after a signal."""
        return _BY_SIGNAL + self._first

    @property
    def name(self) -> str:
        """The name of the signal."""
        return signal.Signals(self._first).name

    @property
    def _first(self) -> int:
        return self._asked[0] if self._asked else signal.SIGINT

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen to those of the signals that are not ignored; afterwards they are what they were."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        try:
            yield
        finally:
            for number, handler in before.items():
                if handler is not None:  # None is one that Python did not set, and cannot set again
                    signal.signal(number, handler)

    def listen(self) -> None:
        """Listen, also if something else has begun to listen since."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._hear)

    def patient(self) -> None:
        """Let the job end by itself when it is first asked to."""
        self._patience = 1

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._asked.append(number)
        if len(self._asked) > self._patience:
            self._raise()

    @staticmethod
    def _raise() -> NoReturn:
        raise Ended
