"""What a lake knows of the history: the file ``coverage.json`` beside the tables that ``sync`` keeps.

How it works. The file is written after the rows. So rows that a killed run has added do not count yet, and the next run
finds them again. Periods come from the database, and keep the ``complete_since`` and ``depths`` of their first run: the
database may forget entries later, and then answers for less, but the lake still has them. Example: a period from 10:00
was read at 11:00; at 12:00 the database has forgotten everything before 11:30; the lake still answers for 10:00.

If the database has forgotten entries of a period before they were read, the lake may have a message without the entry
that cleared it. So the period is ``cut``: the lake answers for its moments before the gap only. The file says so before
the table gets the rows behind the gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import asdict, evolve, field, frozen

from holdfast.changes.api import HistoryUnavailable, Moment, Period, check_recorded
from holdfast.core.topics import EVERY_TOPIC
from holdfast.core.units import date_of
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder

COVERAGE = "coverage.json"


@frozen
class Coverage:
    """A lake has all entries up to ``last_seq``, whose time is ``last_at``, and they were read at ``read_at``.

    Both times are in milliseconds since the epoch. Of the periods with a first position in ``cut``, entries are
    missing: each answers for moments before the time there, None for none. ``versions`` has the metadata files of
    Iceberg tables by their names: readers need no catalogue.
    """

    last_seq: int = 0
    last_at: int = 0
    read_at: int = 0
    periods: list[Period] = field(factory=list)
    cut: dict[int, int | None] = field(factory=dict)
    versions: dict[str, str] = field(factory=dict)

    def without(self, periods: Iterable[Period], since_here: bool = True) -> Coverage:
        """Return the coverage if entries after ``last_seq`` are missing from periods.

        Without ``since_here`` entries before may be missing, too.
        """
        until = self.last_at if since_here else None
        return evolve(self, cut={**{one.first_seq: until for one in periods}, **self.cut})

    def extended(
        self, periods: Sequence[Period], last_seq: int, last_at: int, read_at: int
    ) -> Coverage:  # fmt: skip
        """Return the coverage once the lake has all entries up to ``last_seq``; the database has these periods."""
        known = {one.first_seq: one for one in self.periods}
        for period in periods:
            if period.first_seq > last_seq:
                continue
            before = known.get(period.first_seq)
            since = before.complete_since if before and before.complete_since is not None else period.complete_since
            depths = before.depths if before and before.depths is not None else period.depths
            known[period.first_seq] = evolve(period, complete_since=since, depths=depths)
        there = {period.first_seq for period in periods}
        for first, one in known.items():
            if first not in there and one.ended_at is None:  # the database has forgotten it with its end
                known[first] = evolve(one, ended_at=self.last_at)
        return Coverage(last_seq, last_at, read_at, [known[first] for first in sorted(known)], self.cut, self.versions)

    def only_read_since(self, before: Coverage, most: int) -> bool:
        """Tell whether only the time of the last read differs from an earlier coverage, by less than ``most`` ms."""
        return self.read_at - before.read_at < most and evolve(self, read_at=before.read_at) == before

    @property
    def present(self) -> Period:
        """The period that goes on. Raises :class:`PipelineError` if there is none, or while its baseline is written."""
        last = next(iter(self.periods[-1:]), None)
        if last is None or last.ended_at is not None:
            raise PipelineError("the lake does not know what is retained now: the broker records no changes")
        if last.complete_since is None:
            raise PipelineError(
                "the lake does not know what is retained now: the broker writes the baseline of its history; run "
                "holdfast-pipeline sync again soon"
            )
        return last

    def moment(self, at: int, topic_filter: str = EVERY_TOPIC) -> Moment:
        """Find a time (milliseconds since the epoch).

        Raises :class:`PipelineError` for a time that is not covered, or at which the lake knows no topic of the Topic
        Filter.
        """
        for number, period in reversed(list(enumerate(self.periods))):
            if at < self._end(period) and period.answers_for(at):
                following = self.periods[number + 1 :]
                last = min([self.last_seq, *(other.first_seq - 1 for other in following)])
                return recorded(
                    Moment(at, period.first_seq, last, period.hidden_at(at), period.rules), period, topic_filter
                )
        raise PipelineError(f"the lake does not cover {date_of(at)}; it covers {self._shown()}")

    def _end(self, period: Period) -> int:
        """Return the first moment that the lake does not answer for in a period."""
        ended = self.last_at if period.ended_at is None else min(self.last_at, period.ended_at)
        cut = self.cut.get(period.first_seq, ended)
        return 0 if cut is None else min(cut, ended)

    def _shown(self) -> str:
        spans = [
            f"the time from {date_of(since)} to before {date_of(self._end(period))}"
            for period in self.periods
            if (since := period.since) is not None and since < self._end(period)
        ]
        return " and ".join(spans) or "no time yet"


def recorded(moment: Moment, period: Period, topic_filter: str) -> Moment:
    """Return the moment. Raises :class:`PipelineError` if its period knows no topic of the Topic Filter then."""
    try:
        check_recorded(period, moment.at, topic_filter)
    except HistoryUnavailable as error:
        raise PipelineError(str(error)) from error
    return moment


def read_coverage(lake: Folder) -> Coverage | None:
    """Return the coverage of a lake; None without one. Raises :class:`PipelineError`."""
    content = lake.read_json(COVERAGE)
    if content is None:
        return None
    try:
        return _coverage_in(content)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise PipelineError(f"{lake.below(COVERAGE)}: is not the coverage of a lake ({error})") from error


def write_coverage(lake: Folder, coverage: Coverage) -> None:
    """Write the coverage of a lake, after its rows. Raises :class:`PipelineError`."""
    lake.write_json(COVERAGE, asdict(coverage))


def _coverage_in(content: Any) -> Coverage:
    periods = [Period(**period) for period in content["periods"]]
    cut = {int(first): until for first, until in content["cut"].items()}
    known = content.get("versions", {})
    return Coverage(content["last_seq"], content["last_at"], content["read_at"], periods, cut, known)
