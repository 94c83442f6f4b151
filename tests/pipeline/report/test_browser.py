"""The page in a real browser: charts, tables, print, and names of strangers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from attrs import evolve

from holdfast_pipeline.report.figures import NumberTotals, ShapeDetails, ValueStep, anchor
from holdfast_pipeline.report.page import page
from tests.pipeline.report.browser import CHROMIUM, Browser, browser
from tests.pipeline.report.figures import DAY, HOSTILE, NOW, empty, figures

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.xdist_group("report-browser"),
]

AXE = Path(__file__).resolve().parents[2] / "e2e" / "node_modules" / "axe-core" / "axe.min.js"

SHOWN_TEXTS = """
[...document.querySelectorAll('[data-chart]')].filter(one => one.clientWidth).map(chart => {
  const box = one => (b => [b.left, b.top, b.right, b.bottom])(one.getBoundingClientRect());
  return { name: chart.dataset.chart, box: box(chart), texts: [...chart.querySelectorAll('svg text')].map(box) };
})
"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests: each opens its page."""
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(page(figures(HOSTILE), "Report"), encoding="utf-8")
    return file


def test_the_page_shows_without_errors_and_runs_no_script_in_a_name(shown: Path, window: Browser) -> None:
    """On a wide and a narrow screen, light and dark. It fetches nothing else, and does not scroll sideways."""
    for width, dark in ((1280, False), (390, True)):
        window.open(shown, width, dark)
        assert window.ask("document.documentElement.dataset.ready") == "yes"
        assert window.ask("document.title") == "Report"
        assert window.ask("document.documentElement.scrollWidth") <= width
        assert window.ask("document.querySelectorAll('section:not(.shape)').length") == 9
        assert window.ask("document.querySelectorAll('script:not([type]), img, iframe').length") == 3
        assert window.ask("document.querySelectorAll('[data-chart] svg').length") == 7
        assert HOSTILE[0] in window.ask("document.body.innerText")
        assert window.complaints == []
        assert [url for url in window.requests if not url.startswith("data:")] == [shown.as_uri()]


def test_on_a_phone_rows_of_many_columns_are_cards(shown: Path, window: Browser) -> None:
    """Nothing inside a card is wider than the screen, and each value names its head. No text is tiny.

    On a wide screen, the same table is a table.
    """
    cells = (
        "[...document.querySelectorAll('.cards tbody td')]"
        ".filter(one => one.offsetHeight && one !== one.parentNode.cells[0])"
    )
    heads = f"{cells}.map(one => getComputedStyle(one, '::before').content)"
    window.open(shown, 390)
    assert window.ask("document.querySelectorAll('.cards').length") > 4
    assert {"none", "normal", '""'}.isdisjoint(window.ask(heads))
    assert window.ask(f"{cells}.filter(one => one.getBoundingClientRect().right > 390).length") == 0
    assert window.ask("[...document.querySelectorAll('.cards')].every(one => one.scrollWidth <= one.clientWidth)")
    shown_elements = "[...document.querySelectorAll('main *')].filter(one => one.offsetHeight)"
    tiny = f"{shown_elements}.filter(one => parseFloat(getComputedStyle(one).fontSize) < 12).length"
    assert window.ask(tiny) == 0
    window.open(shown, 1280)
    assert set(window.ask(heads)) == {"none"}
    assert window.complaints == []


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed")
def test_axe_finds_nothing(shown: Path, window: Browser) -> None:
    """Contrast, labels and landmarks of the report on a wide light screen, of a shape's page on a narrow dark one."""
    found = "axe.run().then(all => all.violations.map(one => [one.id, one.nodes.map(node => node.html.slice(0, 99))]))"
    for width, dark, place in ((1280, False, ""), (390, True, anchor(HOSTILE[0]))):
        window.open(shown, width, dark)
        window.ask(f"location.hash = '{place}'")
        window.drawn()
        window.ask(AXE.read_text("utf-8") + "; 0")
        assert window.ask(found) == []


def test_tooltips_and_labels_of_charts_show_names_as_text(shown: Path, window: Browser) -> None:
    """Each tile's tooltip is two texts, also if ECharts would replace or style a part of the name."""
    window.open(shown)
    tip = "document.querySelector('[data-chart=map] .tip')"
    seen = set()
    for across in range(1, 9):
        for down in range(1, 5):
            window.point("[data-chart=map]", across / 9, down / 5)
            if window.ask(f"{tip} && {tip}.innerText"):
                seen.add(window.ask(f"{tip}.querySelector('b').textContent"))
                elements = f"[...{tip}.querySelectorAll('*')].map(one => one.tagName).join(' ')"
                assert window.ask(elements) == "DIV B DIV"
    assert any("onerror=\"document.title='owned'\"" in one for one in seen)
    assert any("{b}{a|__proto__}" in one for one in seen)
    labels = window.ask("[...document.querySelectorAll('[data-chart=map] text')].map(one => one.textContent)")
    assert any(one.startswith("{b}{a|") for one in labels)
    assert window.ask("document.title") == "Report"
    assert window.complaints == []


def test_labels_of_charts_neither_overlap_nor_hang_over_the_edge(shown: Path, tmp_path: Path, window: Browser) -> None:
    """On a wide and a narrow screen, also for a history of nine minutes, whose labels are the longest."""
    found = figures()
    assert found.history is not None
    minutes = evolve(found.history, since=NOW - 8 * 60_000, step=60, churn=())
    brief = tmp_path / "brief.html"
    brief.write_text(page(evolve(found, history=minutes, sizes=found.sizes[:8])), encoding="utf-8")
    for file, width in ((shown, 1280), (shown, 390), (brief, 390)):
        window.open(file, width)
        charts = [one for one in window.ask(SHOWN_TEXTS) if one["name"] != "map"]
        assert len(charts) == 6
        for chart in charts:
            left, top, right, bottom = chart["box"]
            assert len(chart["texts"]) > 4
            for one, other in combinations(chart["texts"], 2):
                apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] + 2 or other[3] <= one[1] + 2
                assert apart, (chart["name"], one, other)
            for text in chart["texts"]:
                assert left - 1 <= text[0] < text[2] <= right + 1, chart["name"]
                assert top - 2 <= text[1] < text[3] <= bottom + 2, chart["name"]


def test_the_map_shows_messages_or_bytes_and_a_prefix_by_itself(tmp_path: Path, window: Browser) -> None:
    """A click shows what is below a prefix, also while the page is printed; the line below the map leads back."""
    found = figures()
    bytes_elsewhere = tuple(
        evolve(one, bytes=10**6 if one.prefix.startswith("lab") else one.bytes) for one in found.branches
    )
    file = tmp_path / "map.html"
    file.write_text(page(evolve(found, branches=bytes_elsewhere)), encoding="utf-8")
    window.open(file, 390)

    def labels() -> Counter[str]:
        window.frames()
        return Counter(
            window.ask("[...document.querySelectorAll('[data-chart=map] text')].map(one => one.textContent)")
        )

    by_messages = labels()
    assert by_messages["All topics"] == 1
    window.ask("document.querySelector('label[for=by-bytes]').click()")
    assert labels() != by_messages
    window.ask("document.querySelector('label[for=by-messages]').click()")
    assert labels() == by_messages
    window.point("[data-chart=map]", 0.02, 0.02, click=True)
    inside = labels()
    assert inside["home"] == inside["lab"] == 1
    assert inside["plant"] == 3  # the tile below, the head of the map, and the line below the map
    assert window.print()
    assert labels() == inside
    window.point("[data-chart=map]", 0.05, 0.97, click=True)
    assert labels() == by_messages
    assert window.complaints == []


def test_each_chart_has_its_figures_in_a_table(shown: Path, window: Browser) -> None:
    """They are open in the page as it is written, and closed once the chart is drawn. Charts of values make theirs."""
    text = shown.read_text(encoding="utf-8")
    assert text.count('<details class="behind" open="">') == 7
    window.open(shown)
    assert window.ask("document.querySelectorAll('section:not(.shape) .behind').length") == 7
    assert window.ask("document.querySelectorAll('.behind[open]').length") == 0
    window.ask(f"location.hash = '{anchor(HOSTILE[0])}'")
    window.drawn()
    rows = "[...document.querySelector('.shape:target figure table').rows].slice(0, 3).map(row => row.innerText)"
    window.ask("document.querySelector('.shape:target .behind').open = true")
    assert window.ask(rows) == ["value\tretained values", "0 to 1\t0", "1 to 2\t1"]
    assert window.ask("document.querySelectorAll('.shape:target .behind .tools button').length") == 7
    assert window.complaints == []


def test_charts_of_any_values_are_drawn(tmp_path: Path, window: Browser) -> None:
    """A payload may hold any double: the largest, the smallest, all the same, or large ones that hardly differ."""
    ranges = ((-1.7e308, 1.7e308), (1e-300, 2e-300), (1e15, 1e15 + 0.5), (5.0, 5.0), (0.0, 0.0), (1e12, 1e12 + 1))
    numbers = tuple(
        NumberTotals(
            f".f{place}", 9, low, low, low, high, high, (1,) * 24,
            tuple(ValueStep(NOW - DAY + hour * 3_600_000, low, low, high) for hour in range(24)),
        )
        for place, (low, high) in enumerate(ranges)
    )  # fmt: skip
    found = figures()
    file = tmp_path / "values.html"
    kinds = found.details["home"].kinds
    file.write_text(page(evolve(found, details={"home": ShapeDetails(kinds, numbers)})), encoding="utf-8")
    window.open(file)
    window.ask(f"location.hash = '{anchor('home')}'")
    window.drawn()
    drawn = window.ask("[...document.querySelectorAll('.shape svg [d]')].map(one => one.getAttribute('d'))")
    assert len(drawn) > 12 * 5
    assert not [one for one in drawn if re.search("NaN|Infinity|e[+]?[0-9]{2}", one)]
    assert window.complaints == []


def test_a_course_is_interrupted_where_nothing_changed_for_long(tmp_path: Path, window: Browser) -> None:
    """A line across the night would show values that never were. A single value between two nights is a point."""
    hours = (0, 1, 2, 3, 12, 21, 22, 23)
    course = tuple(ValueStep(NOW - DAY + hour * 3_600_000, 1.0, 2.0, 3.0) for hour in hours)
    numbers = NumberTotals("$", 9, 1.0, 1.0, 2.0, 3.0, 3.0, (1,) * 24, course)
    found = figures()
    file = tmp_path / "night.html"
    shape = ShapeDetails(found.details["home"].kinds, (numbers,))
    file.write_text(page(evolve(found, details={"home": shape})), encoding="utf-8")
    window.open(file)
    window.ask(f"location.hash = '{anchor('home')}'")
    window.drawn()
    lines = window.ask("[...document.querySelectorAll('[data-chart$=course] path')].map(one => [one.getAttribute('d'),"
                       " one.getAttribute('fill'), one.getAttribute('stroke-width')])")  # fmt: skip
    (mean,) = [path for path, fill, width in lines if fill == "none" and width == "2"]
    assert mean.count("M") == 3  # the evening, the one at noon, the morning
    points = [path for path, fill, _ in lines if fill == "var(--c0)" and "A" in path]
    assert len(points) == 1
    window.point("[data-chart$=course]", 0.35, 0.5)
    window.point("[data-chart$=course]", 0.5, 0.5)
    tip = window.ask("document.querySelector('[data-chart$=course] .tip').innerText")
    assert tip.endswith("mean 2, from 1 to 3")
    assert window.complaints == []


def test_print_is_light_and_without_controls_and_fits_the_paper(shown: Path, window: Browser) -> None:
    """Also from a dark screen. Afterwards the screen is as it was."""
    window.open(shown, 1280, dark=True)
    width = "document.querySelector('[data-chart=changes] svg').getAttribute('width')"
    before = window.ask(width)
    window.ask("globalThis.widths = []; addEventListener('beforeprint', () => widths.push(" + width + "))")
    assert window.print().startswith(b"%PDF")
    assert int(window.ask("widths[0]")) < 720 < int(before)
    assert window.ask(width) == before
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    window.call("Emulation.setEmulatedMedia", media="print", features=[dark])
    try:
        assert window.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        label = "getComputedStyle(document.querySelector('[data-chart=changes] text')).fill"
        assert window.ask(label) == "rgb(91, 102, 117)"
        controls = (
            "[...document.querySelectorAll('.tools, input, summary, nav')].filter(one => one.offsetHeight).length"
        )
        assert window.ask(controls) == 0
    finally:
        window.call("Emulation.setEmulatedMedia", media="", features=[])
    assert window.complaints == []


def test_an_empty_database_has_no_charts_and_no_errors(tmp_path: Path, window: Browser) -> None:
    file = tmp_path / "empty.html"
    file.write_text(page(empty()), encoding="utf-8")
    window.open(file, 390)
    assert window.ask("document.querySelectorAll('[data-chart], .scripted').length") == 0
    assert window.complaints == []


def test_tables_are_searched_ordered_and_saved_and_each_shape_has_a_page(shown: Path, window: Browser) -> None:
    """In a saved table, a topic that begins like a formula is text. Back and forth needs no script."""
    saved = "globalThis.saved = []; URL.createObjectURL = (blob) => { saved.push(blob); return '#shapes'; };"
    table = "document.querySelector('.of-shapes')"
    search = f"globalThis.search = {table}.previousSibling.querySelector('input'); search.value = 'ONERROR img';"
    seen = f"[...{table}.querySelectorAll('tbody tr')].filter(row => !row.hidden).length"
    first = f"{table}.querySelector('tbody tr').cells[1].textContent"
    window.open(shown)
    window.ask(f"{saved} {search} search.dispatchEvent(new Event('input'))")
    assert window.ask(seen) == 1
    window.ask(f"{table}.previousSibling.querySelector('button').click()")
    assert window.ask("saved.length") == 1
    lines = window.ask("saved[0].text()").strip().split("\r\n")
    assert lines[0] == '"shape","messages","bytes","payload","other kinds","changes a day","newest"'
    assert lines[1].startswith('"""><img src=x onerror=')
    window.ask("search.value = ''; search.dispatchEvent(new Event('input'))")
    order = f"{table}.querySelectorAll('th button')[1].click()"
    window.ask(order)
    assert window.ask(first) == "1,000"
    window.ask(order)
    assert window.ask(first) == f"{1001 - len(HOSTILE):,}"
    address = anchor(HOSTILE[0])
    pages = "[...document.querySelectorAll('section')].filter(one => one.offsetHeight).map(one => one.id)"
    window.ask(f"location.hash = '{address}'")
    assert window.ask(pages) == [address]
    window.ask("document.querySelector(`#${location.hash.slice(1)} .back a`).click()")
    assert "shapes" in window.ask(pages)
    assert address not in window.ask(pages)
    assert window.complaints == []
