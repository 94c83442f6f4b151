"""The lines that clients cause: a few each second, however many clients cause them, and none can be forged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent
from twisted.python.failure import Failure

from holdfast.watch.log import LONGEST, MOST_LINES, MOST_NAMED, MOST_PAIRS, ClientLog, client_sentence, client_text
from tests.logs import logged


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> ClientLog:
    return ClientLog(clock)


@pytest.fixture
def events() -> Iterator[list[LogEvent]]:
    with logged(ClientLog) as found:
        yield found


def texts(events: list[LogEvent]) -> list[str]:
    """Return the lines logged since the last call."""
    found = [formatEvent(event) for event in events]
    events.clear()
    return found


def test_a_pair_has_one_line_a_second_and_a_count_of_the_rest(
    clock: Clock, log: ClientLog, events: list[LogEvent]
) -> None:
    for number in range(50):
        log.write("a fault", "192.0.2.1", lambda number=number: f"line {number}")  # type: ignore[misc]
    log.write("another fault", "192.0.2.1", lambda: "another cause")
    log.write("a fault", "192.0.2.2", lambda: "another address")
    assert texts(events) == ["line 0", "another cause", "another address"]
    clock.advance(1)
    assert texts(events) == ["192.0.2.1: 49 more lines like the last one left out: a fault"]
    log.write("a fault", "192.0.2.1", lambda: "left out")
    clock.advance(1)
    assert texts(events) == ["192.0.2.1: 1 more line like the last one left out: a fault"]
    clock.advance(1)
    log.write("a fault", "192.0.2.1", lambda: "after a pause")
    assert texts(events) == ["after a pause"]
    assert clock.getDelayedCalls() == []


def test_the_count_names_what_the_lines_would_have_quoted(clock: Clock, log: ClientLog, events: list[LogEvent]) -> None:
    """Different topics of one client are no repetition. Some are named, cut and harmless, and each once."""

    def deny(topic: str) -> None:
        log.write("may not publish this", "192.0.2.1", lambda: f"may not publish this: {topic}", quoted=topic)

    for topic in ("a", "b", "a", "c", "b"):
        deny(topic)
    assert texts(events) == ["may not publish this: a"]
    clock.advance(1)
    rest = "like the last one left out: may not publish this"
    assert texts(events) == [f"192.0.2.1: 4 more lines {rest}: 'b', 'c'"]
    deny("a")
    clock.advance(1)
    assert texts(events) == [f"192.0.2.1: 1 more line {rest}"]
    clock.advance(1)
    for number in range(100):
        deny(f"{number}\n")
    deny("x" * 70_000)
    texts(events)
    (pair,) = log._pairs.values()
    assert sum(map(len, pair.named)) <= MOST_NAMED * LONGEST
    clock.advance(1)
    named = ", ".join(f"'{number}\\n'" for number in range(1, 1 + MOST_NAMED))
    assert texts(events) == [f"192.0.2.1: 100 more lines {rest}: {named} and others"]


def test_all_pairs_together_have_a_hundred_lines_a_second(clock: Clock, log: ClientLog, events: list[LogEvent]) -> None:
    """The counts of lines that were left out are lines too. Nothing is lost."""
    for _ in range(3):
        for number in range(400):
            log.write("a fault", f"192.0.2.{number}", lambda: "line")
    lines = texts(events)
    assert len(lines) == MOST_LINES
    counted = len(lines)
    for _ in range(20):
        clock.advance(1)
        told = texts(events)
        assert len(told) <= MOST_LINES
        counted += sum(int(line.split()[1]) for line in told)
    assert counted == 1200
    assert clock.getDelayedCalls() == []


def test_at_most_1024_pairs_are_remembered(clock: Clock, log: ClientLog, events: list[LogEvent]) -> None:
    for number in range(5000):
        log.write("a fault", f"192.0.2.{number}", lambda: "line")
        assert len(log._pairs) <= MOST_PAIRS
    counted = len(texts(events))
    for _ in range(20):
        clock.advance(1)
        for line in texts(events):
            words = line.split()
            counted += int(words[0] if "other addresses" in line else words[1])
    assert counted == 5000


def test_the_text_of_a_line_that_is_left_out_is_not_made(log: ClientLog, events: list[LogEvent]) -> None:
    made: list[str] = []

    def line() -> str:
        made.append("line")
        return "line"

    for _ in range(10):
        log.write("a fault", "192.0.2.1", line)
    assert made == ["line"]


def test_tracebacks_are_limited_too(log: ClientLog, events: list[LogEvent], logged_failures: list[LogEvent]) -> None:
    for _ in range(10):
        log.failure("unexpected error", "192.0.2.1", lambda: "line", Failure(ValueError()))
    assert len(events) == len(logged_failures) == 1
    logged_failures.clear()


def test_clients_that_come_and_go_are_a_sample_above_a_hundred_a_second(
    clock: Clock, log: ClientLog, events: list[LogEvent]
) -> None:
    for number in range(250):
        log.coming(lambda number=number: f"client {number}")  # type: ignore[misc]
    assert texts(events) == [f"client {number}" for number in range(MOST_LINES)]
    clock.advance(1)
    assert texts(events) == ["not listed: 150 more clients that came or went"]
    log.coming(lambda: "later")
    assert texts(events) == ["later"]


def test_clients_that_come_and_go_can_be_left_out(clock: Clock, events: list[LogEvent]) -> None:
    log = ClientLog(clock, connections=False)
    log.coming(lambda: "not logged")
    log.write("a fault", "192.0.2.1", lambda: "logged")
    assert texts(events) == ["logged"]


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "\x1b[2J", "\x85", "\u2028", "\u202e", "\x00", "\ud800"])
def test_text_of_clients_stays_in_its_line(text: str) -> None:
    for shown in (client_text(text), client_sentence(text)):
        assert shown.isprintable()
        assert len(shown.splitlines()) == 1
    assert client_text("x' from 192.0.2.9") == repr("x' from 192.0.2.9")


def test_text_of_clients_is_cut() -> None:
    assert client_text("x" * LONGEST) == repr("x" * LONGEST)
    assert client_text("x" * 60_000) == repr("x" * LONGEST) + "... (60000 characters)"
    assert client_sentence("x" * 60_000) == "x" * LONGEST + "... (60000 characters)"
