"""What a lake knows of the history: the file ``coverage.json`` beside the tables that ``sync`` keeps.

How it works. The file is written after the rows. So rows that a killed run has added do not count yet, and the next run
finds them again. Periods come from the database, and keep the ``complete_since`` and ``depths`` of their first run: the
database may forget entries later, and then answers for less, but the lake still has them. Example: a period from 10:00
was read at 11:00; at 12:00 the database has forgotten everything before 11:30; the lake still answers for 10:00.
"""

from __future__ import annotations

from typing import Any

from attrs import asdict, evolve, field, frozen

from holdfast.changes.api import HistoryUnavailable, Moment, Period, check_recorded, read_periods
from holdfast.core.topics import EVERY_TOPIC
from holdfast.core.units import date_of
from holdfast_pipeline.database.connection import ReadTransaction
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder

COVERAGE = "coverage.json"


@frozen
class Coverage:
    """A lake has all entries up to ``last_seq``, whose time is ``last_at``, and they were read at ``read_at``.

    Both times are in milliseconds since the epoch.
    """

    last_seq: int = 0
    last_at: int = 0
    read_at: int = 0
    periods: list[Period] = field(factory=list)

    def extended(self, transaction: ReadTransaction, last_seq: int, last_at: int, read_at: int) -> Coverage:
        """Return the coverage once the lake has all entries up to ``last_seq``."""
        known = {period.first_seq: period for period in self.periods}
        for period in read_periods(transaction.connection.cursor()):
            if period.first_seq > last_seq:
                continue
            before = known.get(period.first_seq)
            since = before.complete_since if before and before.complete_since is not None else period.complete_since
            depths = before.depths if before and before.depths is not None else period.depths
            known[period.first_seq] = evolve(period, complete_since=since, depths=depths)
        return Coverage(last_seq, last_at, read_at, [known[first] for first in sorted(known)])

    def moment(self, at: int, topic_filter: str = EVERY_TOPIC) -> Moment:
        """Find a time (milliseconds since the epoch).

        Raises :class:`PipelineError` for a time that is not covered, or at which the lake knows no topic of the Topic
        Filter.
        """
        for number, period in enumerate(self.periods):
            if at < self.last_at and period.answers_for(at):
                try:
                    check_recorded(period, at, topic_filter)
                except HistoryUnavailable as error:
                    raise PipelineError(str(error)) from error
                following = self.periods[number + 1 :]
                last = min([self.last_seq, *(other.first_seq - 1 for other in following)])
                return Moment(at, period.first_seq, last, period.hidden_at(at), period.rules)
        raise PipelineError(f"the lake does not cover {date_of(at)}; it covers {self._shown()}")

    def _shown(self) -> str:
        spans = [
            f"the time from {date_of(since)} to before {date_of(min(self.last_at, ended))}"
            for period in self.periods
            if (since := period.since) is not None
            and since < min(self.last_at, ended := period.ended_at or self.last_at)
        ]
        return " and ".join(spans) or "no time yet"


def read_coverage(lake: Folder) -> Coverage | None:
    """Return the coverage of a lake; None without one. Raises :class:`PipelineError`."""
    content = lake.read_json(COVERAGE)
    if content is None:
        return None
    try:
        return _coverage_in(content)
    except (TypeError, KeyError) as error:
        raise PipelineError(f"{lake.below(COVERAGE)}: is not the coverage of a lake ({error})") from error


def write_coverage(lake: Folder, coverage: Coverage) -> None:
    """Write the coverage of a lake, after its rows. Raises :class:`PipelineError`."""
    lake.write_json(COVERAGE, asdict(coverage))


def _coverage_in(content: Any) -> Coverage:
    periods = [Period(**period) for period in content["periods"]]
    return Coverage(content["last_seq"], content["last_at"], content["read_at"], periods)
