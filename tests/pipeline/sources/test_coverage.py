"""A lake knows the times that it covers, and refuses all others."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from holdfast.changes.periods import Period
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.sources.lake import Coverage, read_coverage, write_coverage

DAY = 86_400_000
#: Two periods, with a time between them in which nothing was recorded.
COVERAGE = Coverage(
    last_seq=50,
    last_at=3 * DAY + 7,
    read_at=3 * DAY + 9,
    periods=[Period(1, DAY, 2 * DAY, "", 1), Period(20, 2 * DAY + 5, None, "", 20)],
)


def test_a_moment_lies_in_its_period() -> None:
    """From the period's first complete time to its end or to the end of the lake."""
    assert (COVERAGE.moment(DAY).first_seq, COVERAGE.moment(DAY).last_seq) == (1, 19)
    assert (COVERAGE.moment(3 * DAY + 6).first_seq, COVERAGE.moment(3 * DAY + 6).last_seq) == (20, 50)


@pytest.mark.parametrize("at", [0, DAY - 1, 2 * DAY, 2 * DAY + 4, 3 * DAY + 7, 99 * DAY])
def test_times_that_are_not_covered_are_refused(at: int) -> None:
    """Before, between and after the periods: the last moment may get more entries."""
    with pytest.raises(PipelineError, match=r"from 1970-01-02T00:00:00\.000Z to before 1970-01-03T00:00:00\.000Z"):
        COVERAGE.moment(at)
    with pytest.raises(PipelineError, match="it covers no time yet"):
        Coverage().moment(at)


def test_the_written_coverage_is_read_again(tmp_path: Path) -> None:
    """Another file with this name is refused."""
    folder = Folder(str(tmp_path))
    assert read_coverage(folder) is None
    write_coverage(folder, COVERAGE)
    assert read_coverage(folder) == COVERAGE
    for wrong in ("{", "[]", '{"periods": []}', '{"last_seq": 1, "periods": [{}]}'):
        (tmp_path / "coverage.json").write_text(wrong)
        with pytest.raises(PipelineError, match=r"coverage\.json"):
            read_coverage(folder)


def test_topics_are_unknown_where_the_period_did_not_record_or_keep_them() -> None:
    """As its rules say. Pruning after the first run leaves nothing more out."""
    rules = '[["noise/#",0],["short/#",1000],["long/#",9000]]'
    depths = f'{{"1000":[9,{DAY + 500}],"9000":[1,{DAY - 500}]}}'
    covered = evolve(COVERAGE, periods=[Period(1, DAY, 2 * DAY, "", 1, rules, depths)])
    assert covered.moment(DAY).left_out("") == ("noise/#", "short/#")
    assert covered.moment(DAY + 500).left_out("") == ("noise/#",)
    assert covered.moment(DAY - 500).left_out("#") == ("noise/#", "short/#", "#")
    assert covered.moment(DAY).left_out("long/+") == ()
    with pytest.raises(PipelineError, match="neither old nor new"):
        covered.moment(DAY, "noise/a")
    with pytest.raises(PipelineError, match=r"from 1970-01-01T23:59:59\.500Z to before"):
        covered.moment(DAY - 501)
