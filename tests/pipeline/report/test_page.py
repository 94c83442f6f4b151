"""The page is one file of bounded size, and all names in it stay text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from attrs import evolve
from jinja2 import UndefinedError
from markupsafe import Markup

from holdfast_pipeline.choices import PAGES
from holdfast_pipeline.report.figures import Figures, PrefixTotals, anchor
from holdfast_pipeline.report.page import page
from holdfast_pipeline.report.templating import environment
from tests.pipeline.report.figures import HOSTILE, NOW, details, empty, figures, shapes_found


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


def markup(found: Figures, title: str = "T") -> str:
    """Return the page without its scripts: the library has words of its own."""
    return re.sub("<script>.*?</script>", "", page(found, title), flags=re.DOTALL)


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
    for file in files("holdfast_pipeline.report").joinpath("templates").iterdir():
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
    assert [said.get("type") for tag, said in hostile if tag == "script"] == [
        "application/json",
        "application/json",
        None,
        None,
        None,
    ]
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
    assert "unknown" not in markup(found)
    imported = markup(evolve(found, totals=evolve(found.totals, clients=0)))
    assert "<b>unknown</b><span>publishers</span>" in imported
    without = markup(evolve(found, deliveries=evolve(found.deliveries, deliveries=())))
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
    assert len(page(large).encode()) < 5_500_000
