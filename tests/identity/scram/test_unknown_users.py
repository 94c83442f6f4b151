"""Unknown users look like known ones, and their answers do not change."""

from __future__ import annotations

from collections import Counter

from holdfast.identity.scram import UnknownUserVerifiers, Verifier
from holdfast.identity.scram_iterations import DEFAULT_ITERATIONS


def user(iterations: int, salt_bytes: int = 16) -> Verifier:
    return Verifier(iterations, bytes(salt_bytes), bytes(32), bytes(32))


def shape(verifier: Verifier) -> tuple[int, int]:
    return verifier.iterations, len(verifier.salt)


def seen(unknown: UnknownUserVerifiers, name: str) -> tuple[int, bytes]:
    verifier = unknown.verifier(name)
    return verifier.iterations, verifier.salt


def test_the_same_name_has_the_same_answer_also_after_a_restart() -> None:
    users = {"a": user(4096), "b": user(10_000, 24)}
    names = [f"user-{number}" for number in range(50)]
    first, restarted = UnknownUserVerifiers(users, b"key"), UnknownUserVerifiers(users, b"key")
    assert [seen(first, name) for name in names] == [seen(first, name) for name in names]
    assert [seen(first, name) for name in names] == [seen(restarted, name) for name in names]
    assert len({seen(first, name) for name in names}) == 50


def test_the_answer_depends_on_the_key() -> None:
    users = {"a": user(4096)}
    assert seen(UnknownUserVerifiers(users, b"key"), "x") != seen(UnknownUserVerifiers(users, b"other"), "x")


def test_no_proof_fits_an_unknown_user() -> None:
    """Its keys are new random bytes each time."""
    unknown = UnknownUserVerifiers({}, b"key")
    one, other = unknown.verifier("x"), unknown.verifier("x")
    assert one.stored_key != other.stored_key
    assert one.server_key != other.server_key
    assert (len(one.stored_key), len(one.server_key)) == (32, 32)


def test_unknown_users_have_the_parameters_of_real_users() -> None:
    users = {f"u{number}": user(4096, 12 + number % 3) for number in range(300)}
    unknown = UnknownUserVerifiers(users, b"key")
    shapes = Counter(shape(unknown.verifier(f"nobody-{number}")) for number in range(3000))
    assert set(shapes) == {(4096, 12), (4096, 13), (4096, 14)}
    assert min(shapes.values()) > 500


def test_without_users_unknown_ones_have_the_parameters_of_new_ones() -> None:
    assert shape(UnknownUserVerifiers({}, b"key").verifier("x")) == (DEFAULT_ITERATIONS, 16)


def test_a_new_or_removed_user_changes_few_unknown_ones() -> None:
    """Answers from before and after a change reveal next to nothing."""
    users = {f"u{number}": user(4096 + number % 2) for number in range(100)}
    before = UnknownUserVerifiers(users, b"key")
    after = UnknownUserVerifiers({**users, "new": user(4096)}, b"key")
    names = [f"nobody-{number}" for number in range(1000)]
    assert sum(seen(before, name) != seen(after, name) for name in names) < 100
