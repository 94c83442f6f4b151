"""The requested Topic Filters of files, command lines, and Sessions in the database."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, insert

from holdfast.storage import tables
from holdfast_pipeline import snapshot_of
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.filters import (
    InvalidFilter,
    Replayed,
    RequestedFilter,
    RequestedFilters,
    of_file,
    of_lines,
    of_sessions,
)
from tests.pipeline.stores import Filled


def requested(topic_filter: str, subscriptions: int, replayed: Replayed = Replayed.YES) -> RequestedFilter:
    return RequestedFilter(topic_filter, subscriptions, replayed)


def test_a_file_has_a_filter_in_each_line_and_may_have_comments() -> None:
    """``#`` alone is a Topic Filter. ``#`` and a space begin a comment. Spaces belong to filters."""
    found = of_lines(["# all of it\n", "#\r\n", "\n", "  \n", "a/b \n", "## more\n", "a/b \n"])
    assert found == RequestedFilters((requested("#", 1), requested("a/b ", 2)))


def test_an_invalid_filter_is_refused_with_its_line_and_the_others_count() -> None:
    found = of_lines(["a/#/b", "ok", "a+", "#x", "$share//f", "x" * 65_536, "/".join("a" * 51), "a\0"])
    assert [(one.line, one.reason) for one in found.refused] == [
        (1, "'#' stands alone in the last level"),
        (3, "'+' stands alone in its level"),
        (4, "'#' stands alone in the last level"),
        (5, "a shared subscription is $share/SHARENAME/TOPICFILTER"),
        (6, "a Topic Filter has at most 65535 bytes"),
        (7, "a Topic Filter has at most 50 levels here"),
        (8, "a Topic Filter contains no U+0000"),
    ]
    assert [one.topic_filter for one in found.filters] == ["ok"]


def test_a_file_need_not_be_text(tmp_path: Path) -> None:
    """A line that is not UTF-8 is refused alone. A byte order mark does not belong to the first filter."""
    file = tmp_path / "filters"
    file.write_bytes(b"\xef\xbb\xbfa/b\n\xff\xfe\ngr\xc3\xbcn")
    found = of_file(str(file))
    assert [one.topic_filter for one in found.filters] == ["a/b", "grün"]
    assert found.refused == (InvalidFilter(2, r"\xff\xfe", "is not UTF-8"),)  # as text that can be written anywhere
    with pytest.raises(PipelineError, match=r"missing: the Topic Filters cannot be read \(No such file"):
        of_file(str(tmp_path / "missing"))


def test_shared_subscriptions_and_the_broker_s_own_topics_have_no_replay() -> None:
    """[MQTT5-4.8.2]"""
    found = of_lines(["$share/g/a/#", "$SYS/#", "$sys/x", "$shared/g"])
    assert [one.replayed for one in found.filters] == [Replayed.SHARED, Replayed.SYS, Replayed.YES, Replayed.YES]


def test_subscriptions_to_the_same_filter_are_added_up() -> None:
    """Subscriptions with Retain Handling 2 do not count beside others."""
    declined = RequestedFilters((requested("a", 5, Replayed.DECLINED), requested("b", 1)))
    assert declined.also(of_lines(["a", "b", "b"])).filters == (
        requested("a", 1),
        requested("b", 3),
    )
    assert of_lines(["a"]).also(declined).filters == (
        requested("a", 1),
        requested("b", 1),
    )


def test_the_sessions_in_the_database_give_their_filters(filled: Filled) -> None:
    """Subscriptions with Retain Handling 2 have no replay. Others with the same filter do."""
    rows = [(1, "a/#", 0), (2, "a/#", 1), (3, "a/#", 2), (4, "b", 2), (5, "b", 2), (6, "$share/g/b", 0)]
    with filled.store():
        pass
    engine = create_engine(filled.url)
    with engine.begin() as connection:
        connection.execute(
            insert(tables.session_subscriptions),
            [
                {"session_id": session, "topic_filter": text, "qos": 0, "no_local": 0, "retain_as_published": 0,
                 "retain_handling": handling, "identifier": None, "replay_after": None}
                for session, text, handling in rows
            ],
        )  # fmt: skip
    engine.dispose()
    with snapshot_of(filled.url) as snapshot:
        found = of_sessions(snapshot)
    assert found.filters == (
        requested("$share/g/b", 1, Replayed.SHARED),
        requested("a/#", 2),
        requested("b", 2, Replayed.DECLINED),
    )
