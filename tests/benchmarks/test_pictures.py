"""Charts show their values at the right places, and a soak tells what grows."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.charts import Chart, Line, picture
from benchmarks.generator import Report
from benchmarks.pictures import draw
from benchmarks.results import P99, Row
from benchmarks.scenarios import growth, live
from benchmarks.scenarios.memory import MEMORY
from benchmarks.soak import GENERATIONS, Sample, drawn, is_growing, problems

DONE = Report({"lost": 0, "rate": 1})


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]


def lines(svg: str) -> list[list[tuple[float, float]]]:
    """Return the points of each line."""
    found = re.findall(r'points="([^"]*)"', svg)
    return [[(float(x), float(y)) for x, y in (pair.split(",") for pair in points.split())] for points in found]


def test_a_line_goes_through_its_values() -> None:
    """Larger values are higher, and further to the right. Text is escaped."""
    svg = picture("<a & b>", [Chart("c", [Line("<x>", [(0, 0), (5, 10), (10, 20)])])])
    assert {"<a & b>", "<x>", "0", "10", "20"} <= set(texts(svg))
    ((first, middle, last),) = lines(svg)
    assert first[0] < middle[0] < last[0]
    assert first[1] > middle[1] > last[1]
    assert middle == pytest.approx(((first[0] + last[0]) / 2, (first[1] + last[1]) / 2))


def test_a_logarithmic_axis_has_equal_steps_for_equal_factors() -> None:
    """And leaves out what it cannot show."""
    svg = picture("", [Chart("c", [Line("x", [(0, 5), (1, 0.1), (10, 1), (100, 10)])], log_x=True, log_y=True)])
    ((a, b, c),) = lines(svg)
    assert b == pytest.approx(((a[0] + c[0]) / 2, (a[1] + c[1]) / 2))
    assert {"0.1", "1", "10", "100"} <= set(texts(svg))


def test_labels_do_not_cover_each_other() -> None:
    svg = picture("", [Chart("c", [Line(str(one), [(0, 1), (1, 5)], one) for one in range(4)])])
    heights = sorted(float(y) for y in re.findall(r'<text x="604" y="([0-9.]+)"', svg))
    assert len(heights) == 4
    assert all(after - before >= 12 for before, after in pairwise(heights))


@pytest.mark.parametrize("value", [0, 0.003, 1, 7, 1e6])
def test_a_chart_of_one_value_can_be_drawn(value: float) -> None:
    assert lines(picture("", [Chart("c", [Line("x", [(value, value)])])]))


def test_a_chart_without_figures_says_so() -> None:
    assert "c: no figures" in texts(picture("", [Chart("c", [])]))


@pytest.mark.parametrize(
    ("values", "grows"),
    [
        ([1.0] * 50, False),
        ([float(value) for value in range(50)], True),
        ([*range(10), *([10.0] * 40)], False),  # at the beginning only
        ([10 + value / 100 for value in range(50)], False),  # by less than a tenth
        ([10 + (value % 10) for value in range(50)], False),
        ([1.0, 2.0], False),
    ],
)
def test_values_that_go_on_growing_are_told_from_others(values: list[float], grows: bool) -> None:
    assert is_growing(values, 0.1) is grows


def sample(number: int, memory: float = 50.0, files: int = 20) -> Sample:
    return Sample(number, memory, files, number / 10, number * 100.0, [number, number // 3, 0], 0, 1.5)


def test_a_soak_tells_what_grows_and_what_is_lost() -> None:
    assert problems([sample(number) for number in range(50)], DONE) == []
    leaking = [sample(number, 50.0 + number, 20 + number) for number in range(50)]
    lossy = Report({"lost": 3, "unacknowledged": 2})
    assert problems(leaking, lossy) == [
        "memory goes on growing", "the number of open files goes on growing", "3 messages are lost",
        "2 without PUBACK",
    ]  # fmt: skip


def test_the_picture_of_a_soak_has_all_figures() -> None:
    svg = drawn([sample(number) for number in range(200)], ["a caption"])
    assert "a caption" in texts(svg)
    assert len(lines(svg)) == 5 + len(GENERATIONS)
    assert all(len(line) > 1 for line in lines(svg))


def test_pictures_are_drawn_of_what_was_measured(tmp_path: Path) -> None:
    figures = {
        ("live", live.name(1000, 1), P99): {
            "holdfast": [Row("", P99, value) for value in (1.0, 2.0, 9.0)],
            "mosquitto-nodelay": [Row("", P99, 100.0)],
            "flashmq": [Row("", P99, failure="TIMEOUT")],
        }
    }
    (path,) = draw(figures, 1000, tmp_path, ["caption"])
    assert {"Holdfast", "mosquitto", "caption", "1 replaying 1,000"} <= set(texts(path.read_text()))
    figures[("growth", growth.name(100), MEMORY)] = {"holdfast": [Row("", MEMORY, 50.0)]}
    assert [path.name for path in draw(figures, 1000, tmp_path, [])] == ["live-beside-replays.svg", "memory.svg"]
