"""The coverage of an archive: the periods of the history in it, and its last entry.

How it works. The file ``archive.json`` is written after the data. So data that a killed run has added does not count
yet, and the next run finds it again. Periods come from the database, and keep the ``complete_since`` and ``depths`` of
their first run: the database may forget entries later, and then answers for less, but the archive still has them.
Example: a period from 10:00 was archived at 11:00; at 12:00 the database has forgotten everything before 11:30; the
archive still answers for 10:00.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from attrs import asdict, evolve, field, frozen

from holdfast.changes.api import HistoryUnavailable, Moment, Period, check_recorded, read_periods
from holdfast.core.topics import EVERY_TOPIC
from holdfast.core.units import date_of
from holdfast_pipeline.database.connection import ReadTransaction
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.names import COVERAGE

_LAST = "SELECT changed_at FROM retained_history WHERE seq <= ? ORDER BY seq DESC LIMIT 1"


@frozen
class Coverage:
    """An archive has all entries up to ``last_seq``, whose time is ``last_at`` (milliseconds since the epoch).

    ``store`` is the database's URL. ``days`` are the days that a compacted archive has in final form, such as
    "2026-11-21".
    """

    store: str
    last_seq: int = 0
    last_at: int = 0
    periods: list[Period] = field(factory=list)
    days: list[str] = field(factory=list)

    def extended(self, transaction: ReadTransaction, last_seq: int) -> Coverage:
        """Return the coverage once all entries up to ``last_seq`` are archived."""
        rows = transaction.rows(_LAST, (last_seq,))
        known = {period.first_seq: period for period in self.periods}
        for period in read_periods(transaction.connection.cursor()):
            if period.first_seq > last_seq:
                continue
            before = known.get(period.first_seq)
            since = before.complete_since if before and before.complete_since is not None else period.complete_since
            depths = before.depths if before and before.depths is not None else period.depths
            known[period.first_seq] = evolve(period, complete_since=since, depths=depths)
        periods = [known[first] for first in sorted(known)]
        return evolve(self, last_seq=last_seq, last_at=rows[0][0] if rows else self.last_at, periods=periods)

    def is_of(self, transaction: ReadTransaction) -> bool:
        """Tell whether this may be the archive of a database.

        If the database was replaced by an older backup, it has used the same numbers for other entries. The times of
        those entries are later than the archived times.
        """
        rows = transaction.rows(_LAST, (self.last_seq,))
        return not rows or rows[0][0] <= self.last_at

    def moment(self, at: int, topic_filter: str = EVERY_TOPIC) -> Moment:
        """Find a time (milliseconds since the epoch).

        Raises :class:`PipelineError` for a time that is not covered, or at which the archive knows no topic of the
        Topic Filter.
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
        raise PipelineError(f"the archive does not cover {date_of(at)}; it covers {self._shown()}")

    def _shown(self) -> str:
        spans = [
            f"the time from {date_of(since)} to before {date_of(min(self.last_at, ended))}"
            for period in self.periods
            if (since := period.since) is not None
            and since < min(self.last_at, ended := period.ended_at or self.last_at)
        ]
        return " and ".join(spans) or "no time yet"

    @property
    def last_day(self) -> date:
        """The day of the last entry. It may get more entries; all days before it are complete."""
        return datetime.fromtimestamp(self.last_at / 1000, UTC).date()

    def complete(self) -> Coverage:
        """Return the coverage of the complete days."""
        return self.until(self.last_day, self.last_seq)

    def until(self, day: date, last_seq: int) -> Coverage:
        """Return the coverage of the days before ``day``, whose last entry is ``last_seq``."""
        midnight = datetime.combine(day, datetime.min.time(), UTC)
        return evolve(self, last_seq=last_seq, last_at=round(midnight.timestamp() * 1000))


def read_coverage(folder: Folder) -> Coverage | None:
    """Return the coverage of the archive in a folder; None without an archive. Raises :class:`PipelineError`."""
    content = folder.read_json(COVERAGE)
    if content is None:
        return None
    try:
        return _coverage_in(content)
    except (TypeError, KeyError) as error:
        raise PipelineError(f"{folder.below(COVERAGE)}: is not the coverage of an archive ({error})") from error


def require_coverage(folder: Folder) -> Coverage:
    """Return the coverage of the archive in a folder. Raises :class:`PipelineError`, also without an archive."""
    found = read_coverage(folder)
    if found is None:
        raise PipelineError(f"{folder.uri}: holds no archive of a history; make one: holdfast-pipeline archive --out")
    return found


def write_coverage(folder: Folder, coverage: Coverage) -> None:
    """Write the coverage of an archive, after its data. Raises :class:`PipelineError`."""
    folder.write_json(COVERAGE, asdict(coverage))


def _coverage_in(content: Any) -> Coverage:
    return Coverage(**{**content, "periods": [Period(**period) for period in content["periods"]]})
