"""For all tests: a folder, the profiles of Hypothesis, a check for logged failures, and a count of skipped tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from typing import cast

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher

from tests.beginnings import Beginnings
from tests.processes import COVERAGE
from tests.scratch import use_memory

SCRATCH = use_memory()  # before any temporary file

settings.register_profile(
    "holdfast", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.register_profile("soak", settings.get_profile("holdfast"), max_examples=5000, stateful_step_count=80)
# A change is judged by the same examples each time; `make test` and long runs look for new ones.
settings.register_profile("ci", settings.get_profile("holdfast"), derandomize=True, max_examples=50)
settings.load_profile("holdfast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fail-on-skip", action="store_true", help="a skipped test makes the run fail")


@pytest.hookimpl(tryfirst=True)  # before pytest chooses the folder of its tests
def pytest_configure(config: pytest.Config) -> None:
    """Keep the paths of the tests short: the path of a socket has at most 107 bytes."""
    if SCRATCH is not None and config.option.basetemp is None:
        config.option.basetemp = str(SCRATCH / "t")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Measure the coverage of this process, and of none that a test starts.

    Measured processes take twice the time, and most of their lines are covered by tests in this process.
    """
    coverage = Coverage.current()
    if session.config.pluginmanager.has_plugin("dsession"):  # it hands out the tests to workers, and runs none of them
        if coverage is not None:
            coverage.stop()
        return
    for name in [name for name in os.environ if name.startswith(COVERAGE)]:
        del os.environ[name]
    if coverage is not None:
        session.config.pluginmanager.register(Beginnings(coverage))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long parameter by its length: the names of tests go to workers, reports and PYTEST_CURRENT_TEST."""
    return f"{argname} of {len(val)}" if isinstance(val, str | bytes) and len(val) > 200 else None


@pytest.hookimpl(tryfirst=True)  # before the workers look at groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers, begin with the tests that take long: the slow ones, then those with Spark.

    So no worker has a long test left when the others have ended. Each worker has a Spark session of its own: with one
    for all, its worker takes twice as long as the other one.
    """
    if config.pluginmanager.has_plugin("xdist"):
        items.sort(key=lambda item: [item.get_closest_marker(marker) is None for marker in ("slow", "spark")])


def pytest_collection_finish() -> None:
    """Leave the tests, and the modules that they import, out of all garbage collections: they stay until the end.

    They are 440,000 objects, and each full collection would look at all of them, for 0.2 s.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = len(terminalreporter.stats.get("skipped", []))
    if skipped and config.getoption("--fail-on-skip"):
        terminalreporter.write_line(f"{skipped} tests were skipped, and --fail-on-skip is given", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--fail-on-skip") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Remove pytest-twisted's wrapper from a Hypothesis test, else the next parameter set is wrapped twice."""
    hypothesis = getattr(pyfuncitem.obj, "hypothesis", None)
    inner = getattr(hypothesis, "inner_test", None)
    try:
        return (yield)
    finally:
        if hypothesis is not None:
            hypothesis.inner_test = inner


@pytest.fixture
def logged_failures() -> Iterator[list[LogEvent]]:
    """The failures logged so far; a test that expects some empties the list."""
    failures: list[LogEvent] = []

    def observe(event: LogEvent) -> None:
        if event.get("log_failure") is not None:
            failures.append(event)

    observer = cast("ILogObserver", observe)
    globalLogPublisher.addObserver(observer)
    yield failures
    globalLogPublisher.removeObserver(observer)


@pytest.fixture(autouse=True)
def no_failure_left_behind(logged_failures: list[LogEvent]) -> Iterator[None]:
    """Fail a test that leaves a logged failure behind: an unhandled error in a Deferred, most often."""
    yield
    gc.collect(1)  # a Deferred reports its unhandled error when it is collected; young ones are enough
    if logged_failures:
        first = logged_failures[0]["log_failure"]
        pytest.fail(f"{len(logged_failures)} failures were logged; the first: {first.getTraceback()}")
