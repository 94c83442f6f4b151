"""A scrape: its text is what Prometheus and OpenMetrics parse, it has pieces, and one bad metric spoils no other."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from twisted.internet.defer import maybeDeferred
from twisted.logger import LogEvent

from holdfast.watch.log import LastingFailure
from holdfast.watch.metrics import Histogram, Kind, Metric, counter, gauge, histogram
from holdfast.watch.scrape import Metrics, Scrape, scrape
from tests.logs import logged


def observed() -> Histogram:
    made = Histogram((0.1, 1.0))
    made.observe(0.05, 4)
    made.observe(7.0)
    return made


def metrics() -> list[Metric]:
    by_cause = Metric(
        name="holdfast_refused_total", help="Refused.", kind=Kind.COUNTER, labels=("cause",),
        read=lambda: {("full",): 3, ('a"\n\\',): 1},
    )  # fmt: skip
    many = [gauge(f"holdfast_number_{number}", "A number.", lambda: 7) for number in range(30)]
    return [
        counter("holdfast_messages_total", "Messages.", lambda: 2**60),
        gauge("holdfast_unknown", "Not known now.", lambda: None),
        histogram("holdfast_wait_seconds", "Waits.", observed),
        by_cause,
        *many,
    ]


def taken(accept: str, all_metrics: list[Metric]) -> tuple[str, list[bytes]]:
    """Return the content type and the pieces of a scrape."""
    begun: list[Scrape] = []
    scrape(Metrics(all_metrics), accept, maybeDeferred).addCallback(begun.append)
    pieces: list[bytes] = []
    while not pieces or pieces[-1]:
        begun[0].more().addCallback(pieces.append)
    return begun[0].content_type, pieces[:-1]


@pytest.mark.parametrize(("accept", "parse"), [
    ("", parse_text),
    ("text/plain;version=0.0.4", parse_text),
    ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", parse_openmetrics),
])  # fmt: skip
def test_the_text_is_valid_and_complete(accept: str, parse: object) -> None:
    content_type, pieces = taken(accept, metrics())
    assert content_type.startswith("application/openmetrics-text" if "openmetrics" in accept else "text/plain")
    text = b"".join(pieces).decode()
    assert text.count("# EOF") == ("openmetrics" in accept)
    assert callable(parse)
    families = {family.name: family for family in parse(text)}
    samples = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["holdfast_messages_total", ()] == 2**60
    assert samples["holdfast_refused_total", ("full",)] == 3
    assert samples["holdfast_refused_total", ('a"\n\\',)] == 1
    assert samples["holdfast_wait_seconds_bucket", ("0.1",)] == 4
    assert samples["holdfast_wait_seconds_bucket", ("+Inf",)] == 5
    assert samples["holdfast_wait_seconds_count", ()] == 5
    assert samples["holdfast_wait_seconds_sum", ()] == pytest.approx(7.2)
    assert not families["holdfast_unknown"].samples
    assert "process_resident_memory_bytes" in families
    assert "python_info" in families


def test_a_long_text_comes_in_pieces_that_end_with_a_line() -> None:
    """So other work has its turn between them."""
    _, pieces = taken("", metrics())
    assert len(pieces) >= 4
    assert all(piece.endswith(b"\n") for piece in pieces)


def test_a_metric_that_cannot_be_read_is_left_out_and_logged_once(logged_failures: list[LogEvent]) -> None:
    bad = gauge("holdfast_bad", "Bad.", lambda: 1 / 0)
    all_metrics = Metrics([bad, *metrics()])
    with logged(LastingFailure) as lines:
        first = [metric.name for metric, _ in all_metrics.readings()]
        second = [metric.name for metric, _ in all_metrics.readings()]
    assert first == second == [metric.name for metric in metrics()]
    assert len(lines) == 1
    logged_failures.clear()


@pytest.mark.parametrize(("name", "kind", "labels"), [
    ("messages_total", Kind.COUNTER, ()),
    ("holdfast_messages", Kind.COUNTER, ()),
    ("holdfast_messages_total", Kind.GAUGE, ()),
    ("holdfast_messages", Kind.GAUGE, ("client_id",)),
])  # fmt: skip
def test_names_and_labels_follow_the_rules(name: str, kind: Kind, labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=name):
        Metric(name=name, help="", kind=kind, read=lambda: 1, labels=labels)


def test_names_are_unique() -> None:
    with pytest.raises(ValueError, match="one name"):
        Metrics([gauge("holdfast_a", "", lambda: 1), gauge("holdfast_a", "", lambda: 2)])
