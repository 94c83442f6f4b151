"""Sessions and links of the dashboard: what ends them, and how many there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from holdfast.admin.call import Caller
from holdfast.admin.callers import (
    IDLE_SESSION,
    LINK_LIFETIME,
    LONGEST_SESSION,
    MOST_LINKS,
    MOST_SESSIONS,
    DashboardSessions,
    Links,
    digest_of,
)

ALICE = Caller("user alice via dashboard")


def test_a_link_counts_once_and_for_a_quarter_of_an_hour() -> None:
    clock = Clock()
    links = Links(clock.seconds)
    first, second = links.new(), links.new()
    assert links.use(first)
    assert not links.use(first)
    clock.advance(LINK_LIFETIME)
    assert not links.use(second)


def test_guesses_use_up_no_link_and_of_many_uses_one_counts() -> None:
    """Wrong tokens, parts of a token and its digest neither count nor end a link; of a hundred uses one counts."""
    links = Links(Clock().seconds)
    token = links.new()
    guesses = [
        token[:-1],
        token + "A",
        token.swapcase(),
        digest_of(token).hex(),
        "",
        *(f"guess{n}" for n in range(1000)),
    ]
    assert not any(links.use(guess) for guess in guesses)
    assert [links.use(token) for _ in range(100)] == [True] + [False] * 99


def test_links_are_limited_in_number() -> None:
    links = Links(Clock().seconds)
    tokens = [links.new() for _ in range(MOST_LINKS + 1)]
    assert not links.use(tokens[0])
    assert links.use(tokens[1])


def test_a_session_ends_when_it_is_not_used_and_after_a_week() -> None:
    clock = Clock()
    sessions = DashboardSessions(clock.seconds)
    idle, _ = sessions.begin(ALICE, "alice")
    clock.advance(IDLE_SESSION)
    assert sessions.find(idle) is None
    used, session = sessions.begin(ALICE, "alice")
    for _ in range(int(LONGEST_SESSION // IDLE_SESSION * 2)):
        assert sessions.find(used) is session
        clock.advance(IDLE_SESSION / 2)
    clock.advance(IDLE_SESSION / 2)
    assert sessions.find(used) is None
    assert len(sessions) == 0


def test_sessions_are_limited_in_number() -> None:
    clock = Clock()
    sessions = DashboardSessions(clock.seconds)
    first, _ = sessions.begin(ALICE, "alice")
    clock.advance(1)
    second, _ = sessions.begin(ALICE, "alice")
    clock.advance(1)
    assert sessions.find(first) is not None  # so the second one was not used for a longer time
    for _ in range(MOST_SESSIONS - 1):
        sessions.begin(ALICE, "alice")
    assert len(sessions) == MOST_SESSIONS
    assert sessions.find(first) is not None
    assert sessions.find(second) is None


def test_the_sessions_of_a_user_who_is_removed_end() -> None:
    sessions = DashboardSessions(Clock().seconds)
    alice, bob, link = (sessions.begin(ALICE, user)[0] for user in ("alice", "bob", None))
    sessions.end_of({"alice"})
    assert sessions.find(alice) is None
    assert sessions.find(bob) is not None
    assert sessions.find(link) is not None
    sessions.end(bob)
    assert sessions.find(bob) is None


@given(st.text(max_size=50))
def test_no_text_is_a_session_or_a_link(text: str) -> None:
    clock = Clock()
    sessions, links = DashboardSessions(clock.seconds), Links(clock.seconds)
    sessions.begin(ALICE, None)
    links.new()
    assert sessions.find(text) is None
    assert not links.use(text)
