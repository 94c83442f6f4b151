"""What participants may ask for in User Properties, and how a bad request is explained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.extensions import (
    ALL_FACTS,
    ANSWER,
    NO_REQUESTS,
    OFFERED,
    TOLD_BY_BROKER,
    BadRequest,
    SubscribeRequests,
    facts_in,
    named,
    subscribe_requests,
    takes_part,
    text_of,
)
from holdfast.wire import Properties


def test_a_question_mark_takes_part() -> None:
    """The question is answered with the version and the features; other User Properties do not matter."""
    assert takes_part(Properties(user_properties=(("region", "north"), ("holdfast", "?"))))
    assert not takes_part(Properties(user_properties=(("region", "north"),)))
    assert ("holdfast", f"1 {','.join(OFFERED)}") == ANSWER


@pytest.mark.parametrize("values", [("1",), ("",), ("?", "?")])
def test_another_question_is_bad(values: tuple[str, ...]) -> None:
    """A client cannot ask twice, or for something else, and is told what is allowed."""
    with pytest.raises(BadRequest, match="User Property holdfast "):
        takes_part(Properties(user_properties=tuple(("holdfast", value) for value in values)))


def test_topic_for_markers() -> None:
    """A Topic Name is taken as it is, and other User Properties are not looked at."""
    asked = (("unit", "C"), ("holdfast-replay-end", "my/end"))
    assert subscribe_requests(asked, 128) == SubscribeRequests("my/end")
    assert subscribe_requests((("unit", "C"),), 128) is NO_REQUESTS


def test_interval_of_conflation() -> None:
    """An interval from a millisecond to an hour is taken, alone or together with a topic for markers."""
    assert subscribe_requests((("holdfast-conflate", "250"),), 128) == SubscribeRequests(conflate=250)
    both = (("holdfast-conflate", "3600000"), ("holdfast-replay-end", "my/end"))
    assert subscribe_requests(both, 128) == SubscribeRequests("my/end", 3_600_000)


def test_facts_have_one_order() -> None:
    """Facts are asked for in any order, and are kept in the order in which they are told."""
    found = subscribe_requests([("holdfast-replay-info", "publisher,stored-at")], 128)
    assert found == SubscribeRequests(replay_info=("stored-at", "publisher"))
    assert facts_in(text_of(ALL_FACTS)) == ALL_FACTS


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ([("holdfast-replay-end", "a"), ("holdfast-replay-end", "a")], "holdfast-replay-end is given more than once"),
        ([("holdfast-replay-end", "a/+")], "holdfast-replay-end is a Topic Name: .* no wildcard"),
        ([("holdfast-replay-end", "a/b/c")], "at most 2 levels"),
        ([("holdfast-replay-end", 257 * "a")], "at most 256 bytes"),
        ([("holdfast-replay-end", "$share/g")], "a topic that does not begin with"),
        ([("holdfast-replay-info", "")], "one or more of stored-at, revision, publisher"),
        ([("holdfast-replay-info", "revision,age")], "holdfast-replay-info has one or more of"),
        ([("holdfast-replay-info", "revision,revision")], "each once"),
        ([("holdfast-replay-info", "revision, stored-at")], "with commas"),
        *(
            ([("holdfast-conflate", ms)], "holdfast-conflate is a number of milliseconds from 1 to 3600000")
            for ms in (
                "0",
                "-1",
                "1.5",
                "1s",
                "",
                "3600001",
                "\u0663",
                9 * "9",
            )
        ),
        (
            [("holdfast-later", "1")],
            "holdfast-later is not offered for SUBSCRIBE, only .*holdfast-replay-end",
        ),
    ],
)
def test_bad_requests(asked: list[tuple[str, str]], why: str) -> None:
    """A bad request names its property and what is allowed."""
    with pytest.raises(BadRequest, match=why):
        subscribe_requests(asked, 2)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "holdfast", "holdfast-replay-end", "holdfast-replay-info", "holdfast-x"]), st.text()
        )
    )
)
def test_any_properties_are_understood_or_refused(properties: list[tuple[str, str]]) -> None:
    """Whatever comes, it is a request or a BadRequest with a text."""
    try:
        found = subscribe_requests(properties, 128)
    except BadRequest as bad:
        told = str(bad)
    else:
        told = ""
        assert found.replay_end == dict(properties).get("holdfast-replay-end")
    assert not told or told.startswith("User Property holdfast-")


def test_names_of_the_broker() -> None:
    """Only the names that the broker tells are its own."""
    assert named([("a", "b"), ("holdfast-revision", "7")], TOLD_BY_BROKER) == "holdfast-revision"
    assert named([("holdfast-replay-end", "x")], TOLD_BY_BROKER) is None
