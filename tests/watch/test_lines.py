"""The lines of the log: what a reader at a terminal gets, and what a program gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import LogLevel
from twisted.python.failure import Failure

from holdfast.watch.log_output import JSONLines, TextLines

MOMENT = 1795285356.3429


def event(
    text: str, level: Any = LogLevel.info, namespace: str = "holdfast.broker.service", **more: Any
) -> dict[str, Any]:
    """An event of Twisted's log."""
    values = {"log_time": MOMENT, "log_level": level, "log_namespace": namespace, "log_format": "{text}", "text": text}
    return {**values, **more}


def failure() -> Failure:
    """A failure with a traceback."""
    try:
        raise ValueError("a\nb")
    except ValueError:
        return Failure()


def test_json_is_one_flat_object_a_line() -> None:
    """Time in UTC with milliseconds, the level under the name that the configuration has, the module, and the text."""
    line = JSONLines()(event('it says "x"', LogLevel.warn))
    assert line is not None
    assert json.loads(line) == {
        "time": "2026-11-21T18:22:36.342Z",
        "level": "warning",
        "logger": "holdfast.broker.service",
        "message": 'it says "x"',
    }


@given(st.text())
def test_no_text_makes_two_lines_of_json(text: str) -> None:
    line = JSONLines()(event(text))
    assert line is not None
    assert line.splitlines() == [line.rstrip("\n")]
    assert json.loads(line)["message"] == text


def test_a_traceback_is_in_the_same_object() -> None:
    line = JSONLines()(event("it broke", LogLevel.critical, log_failure=failure()))
    assert line is not None
    shown = json.loads(line)
    assert shown["level"] == "critical"
    assert "ValueError" in shown["failure"]
    assert all(isinstance(value, str) for value in shown.values())


def test_text_has_the_time_and_the_message() -> None:
    line = TextLines()(event("the broker is ready"))
    assert line is not None
    assert line.endswith(" the broker is ready\n")
    assert line.count(":") == 2


def test_text_names_the_levels_that_need_attention_and_indents_a_traceback() -> None:
    text = TextLines()(event("it broke", LogLevel.critical, log_failure=failure()))
    assert text is not None
    first, *rest = text.splitlines()
    assert first.endswith(" critical: it broke")
    assert rest
    assert all(line.startswith("         ") for line in rest)


def test_colours_are_there_for_terminals_only() -> None:
    warning = event("careful", LogLevel.warn)
    assert "\x1b[33mwarning\x1b[0m: careful" in str(TextLines(coloured=True)(warning))
    assert "\x1b" not in str(TextLines()(warning))


@pytest.mark.parametrize("namespace", ["twisted.internet.base", "log_legacy"])
@pytest.mark.parametrize("lines", [TextLines, JSONLines])
def test_of_twisted_the_log_has_only_what_needs_attention(namespace: str, lines: Any) -> None:
    """It tells of each port and each pool of threads; ``log.level = "debug"`` shows that."""
    assert lines()(event("starting", namespace=namespace)) is None
    assert lines()(event("it broke", LogLevel.error, namespace)) is not None
    assert lines("debug")(event("starting", namespace=namespace)) is not None


@pytest.mark.parametrize("lines", [TextLines, JSONLines])
@pytest.mark.parametrize(
    ("level", "written"),
    [("debug", "debug info warn error critical"), ("info", "info warn error critical"),
     ("warning", "warn error critical"), ("error", "error critical")],
)  # fmt: skip
def test_less_important_lines_are_left_out(lines: Any, level: str, written: str) -> None:
    of = lines(level)
    assert " ".join(each.name for each in LogLevel.iterconstants() if of(event("x", each))) == written
