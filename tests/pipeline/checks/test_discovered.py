"""Findings without rules, from figures: what is worth telling, in which words, and how many of a kind."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from holdfast_pipeline.checks.discovered import (
    LISTED,
    NOTHING,
    Chatty,
    Clock,
    Command,
    Discovered,
    FarValues,
    Flapping,
    Gone,
    Lone,
    Lost,
    Malformed,
    Missing,
    Publishers,
    Stale,
    Stuck,
    Uncompared,
    Undiscovered,
    findings_in,
)

_AT = 1_795_000_000_000
_HOUR = 3_600_000
EACH: dict[str, Any] = {
    "malformed": Malformed("a/{b}", 1000, 3, "object", ("a/1",)),
    "stale": Stale("a/2", 3, 70_000, 6_500, ("a/2/t",)),
    "commands": Command("a/{b}/set", 3, 50, ("a/7/set",)),
    "undiscovered": Undiscovered("plug", 2, ("homeassistant/switch/plug/a/config",)),
    "missing": Missing("a/{b}", ("temp", "lux"), 217, 1, ("a/8",)),
    "clocks": Clock("a/10", "at", 7200, ("a/10/t",)),
    "lone": Lone("a/9", "a/{b}", ("tmep",), 217),
    "chatty": Chatty("a/3", "a/{b}", 4320, 12, 86_400),
    "lost": Lost("a/status", "gateway", _AT - 2 * _HOUR, None),
    "publishers": Publishers("a/4", 7, ("one", "two")),
    "stuck": Stuck("a/11", ".t", 21.5, _AT - _HOUR, 430, 3, ("a/11/t",)),
    "flapping": Flapping("a/12", "off", "on", 160, 2, 960, ("a/12/relay",), is_quick=True),
    "uncompared": Uncompared("a/{b}", 20_001),
    "gone": Gone("old-device", 12, 40 * 86_400, ("a/6", "a/7")),
    "far": FarValues("a/{b}", ".t", 100, 1, 21.5, 0.5, [("a/5", 900.0)]),
}


def test_each_kind_tells_what_it_has_seen() -> None:
    """Only malformed payloads are errors: consumers fail on them. Others may be meant so."""
    found = {one.kind: one for one in findings_in(Discovered(_AT, **{name: [one] for name, one in EACH.items()}))}
    assert {kind: (one.severity, one.subject) for kind, one in found.items()} == {
        "malformed payloads": ("error", "a/{b}"),
        "retained command": ("warning", "a/{b}/set"),
        "discovery without device": ("warning", "plug"),
        "stale device": ("warning", "a/2"),
        "missing topics": ("note", "a/{b}: temp, lux"),
        "lone topic": ("note", "a/9"),
        "wrong clock": ("warning", "a/10"),
        "lost connection": ("warning", "a/status"),
        "chatty topic": ("warning", "a/3"),
        "stuck value": ("warning", "a/11"),
        "flapping": ("warning", "a/12"),
        "not compared": ("note", "a/{b}"),
        "several publishers": ("warning", "a/4"),
        "unusual values": ("note", "a/{b} .t"),
        "orphans": ("note", "old-device"),
    }
    for kind, words in {
        "retained command": "3 commands are retained; its family has 50 devices.",
        "discovery without device": "2 retained configurations for discovery announce it, and none of the topics",
        "stale device": "3 of its topics have not been stored again for 19 h 26 min or longer. Nine of ten",
        "missing topics": "1 of 217 devices has no such topic, nearly all others do: a/8.",
        "wrong clock": "The time in at is 2 h too early, compared with its siblings.",
        "lone topic": "Only this one of 217 devices has tmep.",
        "lost connection": "The client gateway lost its connection on 2026-11-18 09:06 UTC, and has not come back.",
        "chatty topic": "It changed 4,320 times in 1 d; nine of ten of its siblings changed at most 12 times.",
        "stuck value": "It has published 21.5 in t 430 times in a row, since 2026-11-18 10:06 UTC.",
        "flapping": "It changed 160 times in 16 min between off and on. Nine of ten siblings changed so",
        "not compared": "Its devices have 20,001 different sets of topics.",
        "several publishers": "one, two; 7 turns",
        "orphans": "This client has set 12 retained messages, and none for 40 d.",
        "unusual values": "far from the median 21.5, from which half of all differ by 0.5 at most: 900 in a/5.",
    }.items():
        assert words in found[kind].evidence
    assert list(findings_in(NOTHING)) == []


def test_a_client_that_came_back_is_told_with_its_absence() -> None:
    lost = evolve(EACH["lost"], back=_AT)
    (found,) = findings_in(Discovered(_AT + _HOUR, lost=[lost]))
    assert "came back after 2 h" in found.evidence


def test_a_topic_without_siblings_is_compared_with_all_topics() -> None:
    (found,) = findings_in(Discovered(_AT, chatty=[evolve(EACH["chatty"], shape="")]))
    assert "99 of 100 topics changed" in found.evidence


@pytest.mark.parametrize(
    "figures",
    [
        {"malformed": [Malformed("mixed/{a}", 1000, 100, "object"), Malformed("few/{a}", 4, 1, "object")]},
        {"malformed": [Malformed("good/{a}", 1000, 0, "object")]},
        {"far": [FarValues("a/{b}", "", 100, 10, 1.0, 1.0, [])]},
    ],
)
def test_a_second_kind_of_topics_is_no_mistake(figures: Any) -> None:
    assert list(findings_in(Discovered(_AT, **figures))) == []


@given(st.sampled_from(sorted(EACH)), st.integers(LISTED, 40), st.randoms())
def test_findings_of_a_kind_are_bounded_and_do_not_depend_on_the_order(name: str, count: int, random: Any) -> None:
    """A hostile tree cannot fill the page."""
    fields = {
        "malformed": "shape", "commands": "shape", "far": "shape", "missing": "family", "gone": "client_id",
        "stale": "device", "lone": "device", "clocks": "device", "undiscovered": "device",
        "stuck": "device", "flapping": "device", "uncompared": "family",
    }  # fmt: skip
    field = fields.get(name, "topic")
    some = [evolve(EACH[name], **{field: f"x/{number}"}) for number in range(count)]
    told = list(findings_in(Discovered(_AT, **{name: some})))
    random.shuffle(some)
    assert list(findings_in(Discovered(_AT, **{name: some}))) == told
    assert [one.kind for one in told[LISTED:]] == ["more findings"] * (count > LISTED)
