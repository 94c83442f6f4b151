"""The report of the load generator, and where the program comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import generator
from benchmarks.brokers import Unavailable
from benchmarks.connection import BenchError
from benchmarks.generator import parsed

REPORT = """{"seconds": 2, "generator_cpu_s": 0.5, "broker_cpu_s": 1.8, "messages": 1000000, "rate": 5e5, "lost": 3,
 "disordered": 2, "duplicates": 0}"""


def test_a_report_tells_the_processor_time_of_both_sides() -> None:
    """The report has processor times for each message, and as a part of the run."""
    report = parsed(REPORT)
    assert report["rate"] == 500_000
    assert report.lost == 3
    assert report.mistakes == "2 out of order"
    assert (report.broker_us, report.generator_us) == (1.8, 0.5)
    assert (report.broker_busy, report.generator_busy) == (0.9, 0.25)
    assert not report.limited


def test_a_part_of_a_run_has_a_report_of_its_own() -> None:
    """The storm of a fleet has processor times for each of its connects, beside those of the messages before."""
    report = parsed(
        '{"seconds": 9, "broker_cpu_s": 3, "messages": 9, "lost": 0, "storm_seconds": 2, "storm_broker_cpu_s": 1,'
        ' "storm_generator_cpu_s": 1.9, "storm_messages": 1000, "storm_lost": 4, "storm_pings_lost": 2}'
    )
    storm = report.part("storm_")
    assert (storm.broker_us, storm.lost, storm.limited) == (1000, 4, True)
    assert storm.mistakes == "2 pings without an answer"
    assert (report.lost, report.mistakes) == (0, "")


@pytest.mark.parametrize(
    ("broker", "own", "limited"), [(1.0, 1.98, True), (1.96, 1.98, False), (0.5, 1.0, False), (1.9, 0.5, False)]
)
def test_the_generator_is_the_limit_if_it_is_busier_than_the_broker(broker: float, own: float, limited: bool) -> None:
    """The generator must also be busy for nearly the whole time."""
    report = parsed(f'{{"seconds": 2, "generator_cpu_s": {own}, "broker_cpu_s": {broker}, "messages": 1, "lost": 0}}')
    assert report.limited is limited


@pytest.mark.parametrize("text", ["", "Segmentation fault", "[1]", "{"])
def test_output_that_is_no_report_is_an_error(text: str) -> None:
    with pytest.raises(BenchError, match="no report"):
        parsed(text)


def test_an_error_of_the_generator_is_told() -> None:
    with pytest.raises(BenchError, match="CONNECT refused: 0x05"):
        parsed('{"error": "CONNECT refused: 0x05"}')


def test_a_run_without_messages_has_no_processor_time_for_each() -> None:
    report = parsed('{"seconds": 0, "generator_cpu_s": 0, "broker_cpu_s": 0, "messages": 0, "lost": 5}')
    assert report.broker_us != report.broker_us
    assert not report.limited


def test_without_a_compiler_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "BINARY", tmp_path / "build" / "generator")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(Unavailable, match="apt-get install gcc"):
        generator.compiled()
