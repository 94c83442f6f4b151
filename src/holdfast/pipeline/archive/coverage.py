"""What an archive answers for: the periods of the history that are in it, and how far it reaches.

It is a file beside the data, written when the data is there: what a run that was killed had added does not count yet.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from attrs import asdict, evolve, field, frozen

from holdfast.pipeline.database.connection import ReadTransaction
from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.output.folder import Folder
from holdfast.retained.history.moments import Moment, shown_time
from holdfast.retained.history.periods import Period, read_periods

#: The folder of the Parquet files, by date.
DATA = "data"
#: The file that says what they answer for.
COVERAGE = "archive.json"
_LAST = "SELECT changed_at FROM retained_history WHERE seq <= ? ORDER BY seq DESC LIMIT 1"


@frozen
class Coverage:
    """Everything up to the entry ``last_seq``, of the time ``last_at`` (milliseconds since the epoch).

    ``store`` names the database it comes from; ``days`` those that are written for good, as 2026-11-21.
    """

    store: str
    last_seq: int = 0
    last_at: int = 0
    periods: list[Period] = field(factory=list)
    days: list[str] = field(factory=list)

    def extended(self, transaction: ReadTransaction, last_seq: int) -> Coverage:
        """Return what there is once everything up to an entry is archived.

        A period answers for what it answered for when it was first archived, or at least now: what the database has
        forgotten since, the archive has not.
        """
        rows = transaction.rows(_LAST, (last_seq,))
        known = {period.first_seq: period for period in self.periods}
        for period in read_periods(transaction.connection.cursor()):
            if period.first_seq > last_seq:
                continue
            before = known.get(period.first_seq)
            since = before.complete_since if before and before.complete_since is not None else period.complete_since
            known[period.first_seq] = evolve(period, complete_since=since)
        periods = [known[first] for first in sorted(known)]
        return evolve(self, last_seq=last_seq, last_at=rows[0][0] if rows else self.last_at, periods=periods)

    def is_of(self, transaction: ReadTransaction) -> bool:
        """Tell whether a database may be what this was archived from: what it has up to there is no younger.

        One that was replaced by an older state of itself has given the places since to other entries, which are.
        """
        rows = transaction.rows(_LAST, (self.last_seq,))
        return not rows or rows[0][0] <= self.last_at

    def moment(self, at: int) -> Moment:
        """Find a time (milliseconds since the epoch). Raises :class:`PipelineError` outside what is covered."""
        for number, period in enumerate(self.periods):
            if at < self.last_at and period.answers_for(at):
                following = self.periods[number + 1 :]
                return Moment(at, period.first_seq, min([self.last_seq, *(other.first_seq - 1 for other in following)]))
        raise PipelineError(f"the archive does not say what was retained at {shown_time(at)}; it does {self._shown()}")

    def _shown(self) -> str:
        spans = [
            f"from {shown_time(period.complete_since)} to before {shown_time(min(self.last_at, ended))}"
            for period in self.periods
            if period.complete_since is not None
            and period.complete_since < min(self.last_at, ended := period.ended_at or self.last_at)
        ]
        return " and ".join(spans) or "for no time yet"

    @property
    def last_day(self) -> date:
        """The day of the last entry, which is not over: the days before it are complete."""
        return datetime.fromtimestamp(self.last_at / 1000, UTC).date()

    def complete(self) -> Coverage:
        """Return what the complete days answer for."""
        return self.until(self.last_day, self.last_seq)

    def until(self, day: date, last_seq: int) -> Coverage:
        """Return what the days before one answer for; they go up to an entry."""
        midnight = datetime.combine(day, datetime.min.time(), UTC)
        return evolve(self, last_seq=last_seq, last_at=round(midnight.timestamp() * 1000))


def read_coverage(folder: Folder) -> Coverage | None:
    """Return what the archive in a folder answers for, None where there is none. Raises :class:`PipelineError`."""
    content = folder.read_json(COVERAGE)
    if content is None:
        return None
    try:
        return _coverage_in(content)
    except (TypeError, KeyError) as error:
        raise PipelineError(f"{folder.below(COVERAGE)}: is not what an archive says of itself ({error})") from error


def require_coverage(folder: Folder) -> Coverage:
    """Return what the archive in a folder answers for. Raises :class:`PipelineError`, also where there is none."""
    found = read_coverage(folder)
    if found is None:
        raise PipelineError(f"{folder.uri}: holds no archive of a history; make one: holdfast-pipeline archive --out")
    return found


def write_coverage(folder: Folder, coverage: Coverage) -> None:
    """Say what the archive in a folder answers for, once its files are there. Raises :class:`PipelineError`."""
    folder.write_json(COVERAGE, asdict(coverage))


def _coverage_in(content: Any) -> Coverage:
    return Coverage(**{**content, "periods": [Period(**period) for period in content["periods"]]})
