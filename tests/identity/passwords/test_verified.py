"""Verified credentials: each part counts, the oldest are forgotten, and nothing of them can be read."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from holdfast.identity.passwords import VerifiedCredentials

PARTS = st.tuples(st.text(max_size=3), st.text(max_size=3), st.binary(max_size=3), st.text(max_size=3))


@given(PARTS, PARTS)
def test_only_the_same_method_user_password_and_hash_are_known(
    one: tuple[str, str, bytes, str], other: tuple[str, str, bytes, str]
) -> None:
    verified = VerifiedCredentials()
    verified.add(*one)
    assert verified.knows(*one)
    assert verified.knows(*other) is (one == other)


def test_the_least_recently_used_are_forgotten() -> None:
    verified = VerifiedCredentials(2)
    for user in ("a", "b"):
        verified.add("file", user, b"x", "hash")
    assert verified.knows("file", "a", b"x", "hash")
    verified.add("file", "c", b"x", "hash")
    assert [verified.knows("file", user, b"x", "hash") for user in "abc"] == [True, False, True]
    assert len(verified) == 2


def test_another_process_could_not_use_what_is_remembered() -> None:
    """The digests are made with a key of the process, and have no password in them."""
    one, other = VerifiedCredentials(), VerifiedCredentials()
    for each in (one, other):
        each.add("file", "alice", b"correct horse", "hash")
    assert vars(one)["_digests"] != vars(other)["_digests"]
    assert "correct horse" not in repr(vars(one))


def test_credentials_take_the_memory_that_the_page_tells() -> None:
    verified = VerifiedCredentials()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(10_000):
        verified.add("file", f"user-{number}", b"password", "hash")
    taken = (tracemalloc.get_traced_memory()[0] - before) / 10_000
    tracemalloc.stop()
    assert taken < 250
