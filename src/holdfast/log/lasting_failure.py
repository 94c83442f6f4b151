"""Reports a failure that lasts: its beginning and its end, not its repetitions."""

from __future__ import annotations

from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.terminal_text import counted


class LastingFailure:
    """One thing that may fail many times in a row. The first failure is logged, and the first success after it.

    ``name`` is the subject of these lines, such as "the sweep of expired messages", ``consequence`` their end, such as
    "and is tried again every 60 s". Failures of the types ``foreseen`` are logged as a sentence, others with their
    traceback.
    """

    _log = Logger()

    def __init__(self, name: str, consequence: str, foreseen: tuple[type[Exception], ...] = ()) -> None:
        self._name = name
        self._consequence = consequence
        self._foreseen = foreseen
        self._count = 0

    def failed(self, failure: Failure) -> None:
        """Note a failure."""
        self._count += 1
        if self._count > 1:
            return
        text = f"{self._name} failed, {self._consequence}"
        if self._foreseen and failure.check(*self._foreseen):
            self._log.error("{text}: {error}", text=text, error=failure.getErrorMessage())
        else:
            self._log.failure("{text}", failure, text=text)

    def succeeded(self) -> None:
        """Note a success."""
        if self._count:
            self._log.info(
                "{name} works again, after {failures}",
                name=self._name, failures=counted(self._count, "failure"), count=self._count,
            )  # fmt: skip
            self._count = 0
