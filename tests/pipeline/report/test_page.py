"""The page is one file of bounded size, and all names in it stay text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from markupsafe import Markup

from holdfast.pipeline.choices import PAGES
from holdfast.pipeline.report.column_chart import ceiling
from holdfast.pipeline.report.figures import Figures, PrefixTotals
from holdfast.pipeline.report.page import page
from holdfast.pipeline.report.shape_details import anchor
from holdfast.pipeline.report.templating import environment
from holdfast.pipeline.report.topic_map import HEIGHT, SMALLEST, tiles
from tests.pipeline.report.browser import CHROMIUM, browser
from tests.pipeline.report.figures import HOSTILE, NOW, branch, details, empty, figures, shapes_found


class _Outline(HTMLParser):
    """The elements and the texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))


def outline(found: Figures, title: str = "T") -> list[tuple[str, dict[str, str | None]]]:
    parser = _Outline()
    parser.feed(page(found, title))
    return parser.elements


def rendered(template: str, **values: object) -> str:
    return environment().from_string(template).render(values)


def test_text_becomes_markup_only_by_being_escaped() -> None:
    """In an element and in an attribute. Markup stays markup, and characters that hide become visible."""
    assert rendered('<p title="{{ it }}">{{ it }}</p>', it="\"<b>'") == (
        '<p title="&#34;&lt;b&gt;&#39;">&#34;&lt;b&gt;&#39;</p>'
    )
    assert rendered("{{ it }}", it=Markup("<i>")) == "<i>"
    assert rendered("{{ it }}", it="\u202e\x1b") == "\\u202e\\x1b"
    assert rendered('<rect x="{{ it }}"/>', it=1.50) == '<rect x="1.5"/>'


def test_a_template_that_misspells_a_name_or_shows_nothing_fails() -> None:
    """Such a mistake must not end as an empty place, or as None, on the page."""
    with pytest.raises(UndefinedError):
        rendered("{{ missing }}")
    with pytest.raises(TypeError):
        rendered("{{ it }}", it=None)


def test_templates_quote_each_attribute_and_never_declare_text_safe() -> None:
    """An attribute without quotes ends at a space, even if its value is escaped."""
    for file in files("holdfast.pipeline.report").joinpath("templates").iterdir():
        if file.name.endswith(".html"):
            text = file.read_text("utf-8")
            assert not re.search(r"=\{\{|\| *safe|autoescape", text), file.name


def test_hostile_names_change_only_text() -> None:
    """The page has the same elements as with harmless names, and runs only its own script."""
    letters = "abcdefghijklmno"
    # The same levels, of letters, so that all is drawn in the same places.
    harmless = tuple(
        letters[at : at + 1 if one else at] + re.sub("[^/]", "x", one[1:]) for at, one in enumerate(HOSTILE)
    )
    hostile = outline(figures(HOSTILE), HOSTILE[2])
    assert [(tag, sorted(said)) for tag, said in hostile] == [
        (tag, sorted(said)) for tag, said in outline(figures(harmless))
    ]
    assert [said.get("type") for tag, said in hostile if tag == "script"] == ["application/json", None]
    assert not [said for _, said in hostile if any(name.startswith("on") for name in said)]


def test_the_page_has_no_invisible_characters_and_none_that_change_direction() -> None:
    assert "\\x0a" not in page(figures())  # our own line breaks in tooltips are no hidden characters
    text = page(figures(HOSTILE), "\u202etitle")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200b-\u200c\u200e\u200f\u202a-\u202e\u2066-\u2069]", text)


def test_the_page_loads_nothing() -> None:
    """It has no links to other pages, and its policy allows only its own style and script."""
    elements = outline(figures())
    links = [said[name] for _, said in elements for name in ("href", "src", "action") if name in said]
    assert links
    assert all(link is not None and (link.startswith("#") or link == "data:,") for link in links)
    policy = next(said["content"] for _, said in elements if said.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_every_link_has_a_target_and_every_picture_a_label() -> None:
    elements = outline(figures())
    named = {said["id"] for _, said in elements if "id" in said}
    assert {link[1:] for _, said in elements if (link := said.get("href")) and link.startswith("#")} <= named
    assert all(said.get("aria-label") for _, said in elements if said.get("role") == "img")


def test_the_page_names_missing_data() -> None:
    """Without history, subscriptions and messages, each part says so."""
    text = page(empty())
    for sentence in (
        "No messages are retained.",
        "There is no history", "No Topic Filters are known", "No retained message expires.",
        "it is not known which topics have never been updated",
    ):  # fmt: skip
        assert sentence in text


def test_a_shape_without_details_is_in_the_table_and_has_no_page() -> None:
    found = figures()
    some = outline(evolve(found, details={"home": found.details["home"]}))
    links = {link for _, said in some if (link := said.get("href")) and link.startswith("#shape-")}
    assert links == {"#" + anchor("home")}
    assert [said["id"] for tag, said in some if tag == "section" and said.get("class") == "shape"] == [anchor("home")]
    assert "plant</bdi>" in page(evolve(found, details={}))


def test_the_page_says_unknown_where_nobody_can_know() -> None:
    """Not 0: imported messages have no publisher, and without Topic Filters no replay can be counted."""
    found = figures()
    assert found.deliveries is not None
    assert "unknown" not in page(found)
    imported = page(evolve(found, totals=evolve(found.totals, clients=0)))
    assert "<b>unknown</b><span>publishers</span>" in imported
    without = page(evolve(found, deliveries=evolve(found.deliveries, deliveries=())))
    assert "<b>unknown</b><span>messages if all subscribe at once" in without


def test_a_history_of_minutes_gives_no_changes_an_hour() -> None:
    """The rate by the hour needs an hour of history."""
    found = figures()
    assert found.history is not None
    short = evolve(found, history=evolve(found.history, since=NOW - 90_000, changes=1234))
    assert "1.2k changes in 1 min 30 s" in page(short)
    assert "changes an hour" not in page(short)
    assert "changes an hour" in page(found)


def test_the_size_of_a_page_is_bounded() -> None:
    """Here with the most prefixes that are drawn, and more shapes than have pages, all with the longest names."""
    names = tuple(f"{place:04}{'ü' * 3_000}" for place in range(400))
    branches = [PrefixTotals(1, name, 2500, 2500, 1, 1, 1, 1, NOW) for name in names]
    for depth in range(2, 6):
        branches += [PrefixTotals(depth, name + "/x" * (depth - 1), 2500, 2500, 1, 1, 1, 1, NOW) for name in names]
    found = figures()
    large = evolve(
        found,
        branches=tuple(branches),
        totals=evolve(found.totals, messages=10**6, bytes=10**6),
        shapes=shapes_found(names * 2),
        details={name: details(names) for name in names[:PAGES]},
    )
    assert len(page(large).encode()) < 5_000_000


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 500)), max_size=12))
def test_tiles_lie_beside_their_parents_and_do_not_overlap(found: list[tuple[int, int, int]]) -> None:
    below = {(first, second): count for first, second, count in found}
    first: dict[int, int] = {}
    for (one, _), count in below.items():
        first[one] = first.get(one, 0) + count
    branches = [branch(str(one), count) for one, count in first.items()]
    branches += [branch(f"{one}/{other}", count) for (one, other), count in below.items()]
    placed = tiles(branches, lambda one: one.messages, sum(first.values()))
    by_prefix = {tile.branch.prefix: tile for tile in placed}
    for tile in placed:
        assert tile.high * HEIGHT >= SMALLEST
        if tile.branch.depth == 2:
            parent = by_prefix[tile.branch.prefix.rpartition("/")[0]]
            assert parent.top - 1e-9 <= tile.top
            assert tile.top + tile.high <= parent.top + parent.high + 1e-9
    for depth in (1, 2):
        ends = sorted((tile.top, tile.top + tile.high) for tile in placed if tile.branch.depth == depth)
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(ends))


@given(st.floats(0, 1e15))
def test_a_scale_is_at_least_the_highest_value_and_not_much_higher(highest: float) -> None:
    for thousand in (1000, 1024):
        assert highest <= ceiling(highest, thousand) <= max(2, 2.5 * highest)


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    file = tmp_path / "report.html"
    file.write_text(page(figures(HOSTILE), "Report"), encoding="utf-8")
    return file


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_real_browser_shows_the_page_without_errors_and_runs_no_script_in_a_name(shown: Path, tmp_path: Path) -> None:
    """On a wide and a narrow screen, light and dark. It fetches nothing else, and does not scroll sideways."""
    with browser(tmp_path) as window:
        for width, dark in ((1280, False), (390, True)):
            window.open(shown, width, dark)
            assert window.ask("document.documentElement.dataset.ready") == "yes"
            assert window.ask("document.title") == "Report"
            assert window.ask("document.documentElement.scrollWidth") <= width
            assert window.ask("document.querySelectorAll('section:not(.shape)').length") == 9
            assert window.ask("document.querySelectorAll('script:not([type]), img, iframe').length") == 1
            assert window.ask("document.querySelector('.icicle').getBoundingClientRect().height") == HEIGHT
            assert HOSTILE[0] in window.ask("document.body.innerText")
            assert window.complaints == []
            assert [url for url in window.requests if not url.startswith("data:")] == [shown.as_uri()]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_labels_of_charts_neither_overlap_nor_hang_over_the_edge(shown: Path, tmp_path: Path) -> None:
    """On a wide and a narrow screen. The figures of the scale stand beside the columns, not on them.

    Also for a history of nine minutes, whose labels are the longest, and for payloads of some hundred bytes.
    """
    found = figures()
    assert found.history is not None
    minutes = evolve(found.history, since=NOW - 8 * 60_000, step=60, churn=())
    brief = tmp_path / "brief.html"
    brief.write_text(page(evolve(found, history=minutes, sizes=found.sizes[:8])), encoding="utf-8")
    with browser(tmp_path) as window:
        for file, width in ((shown, 1280), (shown, 390), (brief, 390)):
            window.open(file, width)
            edges = window.ask(_LABELS)
            assert len(edges) > 5
            for chart in edges:
                assert all(first[1] <= second[0] for first, second in pairwise(chart["labels"]))
                assert chart["labels"][0][0] >= chart["left"] - 1
                assert chart["labels"][-1][1] <= chart["right"] + 1
                assert all(chart["room"] <= left < right <= chart["left"] for left, right in chart["figures"])


_LABELS = """
[...document.querySelectorAll('svg.columns')].map(chart => {
  const box = chart.getBoundingClientRect();
  const shown = [...chart.querySelectorAll('.tick:not(.figure)')].map(label => label.getBoundingClientRect());
  return {
    labels: shown.filter(label => label.width).map(label => [label.left, label.right]),
    left: box.left, right: box.right, room: chart.closest('section').getBoundingClientRect().left,
    figures: [...chart.querySelectorAll('.figure')].map(each => each.getBoundingClientRect())
      .map(one => [one.left, one.right]),
  };
})
"""


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_map_shows_messages_or_bytes_and_zooms(shown: Path, tmp_path: Path) -> None:
    """A click makes a prefix as high as the map, Escape shows all again, and a tooltip has the whole prefix."""
    maps = "[...document.querySelectorAll('.icicle')].map(map => map.getBoundingClientRect().height > 0)"
    tile = "document.querySelectorAll('.icicle > svg')[1]"
    with browser(tmp_path) as window:
        window.open(shown)
        assert window.ask(maps) == [True, False]
        window.ask("document.querySelector('label[for=by-bytes]').click()")
        assert window.ask(maps) == [False, True]
        window.ask("document.querySelector('label[for=by-messages]').click()")
        before = window.ask(f"{tile}.getAttribute('height')")
        window.ask(f"{tile}.querySelector('rect').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
        assert window.ask(f"{tile}.getAttribute('height')") == "100%"
        window.ask("dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
        assert float(window.ask(f"{tile}.getAttribute('height')").rstrip("%")) == pytest.approx(
            float(before.rstrip("%"))
        )
        window.ask(f"{tile}.querySelector('rect').dispatchEvent(new MouseEvent('pointermove', {{bubbles: true}}))")
        assert " messages (" in window.ask("document.getElementById('tip').textContent")
        assert window.complaints == []


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_tables_are_searched_ordered_and_saved_and_each_shape_has_a_page(shown: Path, tmp_path: Path) -> None:
    """In a saved table, a topic that begins like a formula is text. Back and forth needs no script."""
    saved = "globalThis.saved = []; URL.createObjectURL = (blob) => { saved.push(blob); return '#shapes'; };"
    table = "document.querySelector('.of-shapes')"
    search = f"const search = {table}.previousSibling.querySelector('input'); search.value = 'ONERROR img';"
    seen = f"[...{table}.querySelectorAll('tbody tr')].filter(row => !row.hidden).length"
    first = f"{table}.querySelector('tbody tr').cells[1].textContent"
    with browser(tmp_path) as window:
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
        assert window.ask(first) == "990"
        address = anchor(HOSTILE[0])
        pages = "[...document.querySelectorAll('section')].filter(one => one.offsetHeight).map(one => one.id)"
        window.ask(f"location.hash = '{address}'")
        assert window.ask(pages) == [address]
        window.ask("document.querySelector(`#${location.hash.slice(1)} .back a`).click()")
        assert "shapes" in window.ask(pages)
        assert address not in window.ask(pages)
        assert window.complaints == []
