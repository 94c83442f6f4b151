"""Rules of the dashboard's modules, run in the browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboard.fake_api import FakeAPI


@pytest.fixture(scope="module")
def page(browser: Any, served: FakeAPI) -> Iterator[Any]:
    """A page of the dashboard's origin, without the dashboard."""
    served.reset()
    page = browser.new_page()
    page.goto(served.origin + "/icon.svg")
    yield page
    page.close()


@pytest.fixture
def modules(page: Any) -> Any:
    """Return what calls an exported function: modules("csv.js", "csv", argument, ...)."""
    call = "async ([file, name, given]) => (await import(`/${file}`))[name](...given)"
    return lambda file, name, *given: page.evaluate(call, [file, name, list(given)])


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@A1", "\t=1", " =1", "\r=1", "|cmd", "%0a", "\u200b=1"])
def test_cells_that_a_spreadsheet_would_run_become_text(modules: Any, text: str) -> None:
    assert modules("csv.js", "csv", ["a"], [{"a": text}]) == f'"a"\r\n"\'{text}"\r\n'


def test_csv_quotes_what_needs_it(modules: Any) -> None:
    assert modules("csv.js", "csv", ["a", "b"], [{"a": 'x"y,z\n', "b": -5}]) == '"a","b"\r\n"x""y,z\n",-5\r\n'


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (999, "999"), (12_345, "12.3 k"), (1_234_567, "1.23 M"), (2.5, "2.50"), (None, "\u2013")],
)
def test_numbers_are_short(modules: Any, value: float | None, shown: str) -> None:
    assert modules("format.js", "compact", value) == shown


@pytest.mark.parametrize("name", ["compact", "rate", "bytes", "byteRate", "milliseconds"])
@pytest.mark.parametrize(
    ("first", "step"), [(100_000, 200), (9_900, 50), (0, 0.25), (1_000_132, 2), (1 << 30, 1 << 20)]
)
def test_the_labels_of_an_axis_are_different(modules: Any, name: str, first: float, step: float) -> None:
    """However near to each other the values are."""
    if name in ("bytes", "byteRate") and step < 1:
        step = 1
    labels = [modules("format.js", name, first + at * step, step) for at in range(5)]
    assert len(set(labels)) == 5, labels


def test_long_numbers_keep_their_digits(modules: Any) -> None:
    assert modules("format.js", "count", "90071992547409931") == "90,071,992,547,409,931"
    assert modules("format.js", "bytes", 1536) == "1.50 KiB"
    assert modules("format.js", "duration", 93_784) == "1 d 2 h"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ([], "$"), (["a", 0, "b"], "$.a[0].b"), (["it's"], "$['it\\'s']"), (["a b", "\n"], "$['a b']['\\n']"),
        (['"'], "$['\"']"), (["\\"], "$['\\\\']"),
    ],
)  # fmt: skip
def test_paths_are_those_of_the_rfc(modules: Any, path: list[Any], text: str) -> None:
    assert modules("payload.js", "pathText", path) == text


@pytest.mark.parametrize("topic", ["a/b", "", "a b%2F?&=#", "\u202e", "ü/𝄞", "a?b"])
def test_every_topic_survives_the_address(modules: Any, topic: str) -> None:
    address = modules("router.js", "href", ["retained", "tree"], {"topic": topic, "q": ""})
    assert modules("router.js", "placeIn", address) == {"path": ["retained", "tree"], "params": {"topic": topic}}


def test_a_broken_address_is_no_error(modules: Any) -> None:
    place = modules("router.js", "placeIn", "#/retained?topic=%&x")
    assert place == {"path": ["retained"], "params": {"topic": "%", "x": ""}}


@pytest.mark.parametrize("text", ['{"a": 12345678901234567890}', "[1.10, 1e400, -0]", '{"__proto__": 1}', "3.0"])
def test_json_is_written_as_it_was_read(page: Any, text: str) -> None:
    """Up to spaces: no digit of a number is lost where a JavaScript number would lose it."""
    written = page.evaluate(
        "async text => { const it = await import('/payload.js'); return it.jsonText(it.jsonIn(text).value); }", text
    )
    lossy = {"[1.10, 1e400, -0]": "[1.1,null,0]", "3.0": "3"}
    assert written == lossy.get(text, json.dumps(json.loads(text), separators=(",", ":")))
