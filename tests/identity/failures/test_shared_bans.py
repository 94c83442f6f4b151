"""The bans of a cluster: each member has all of them, whoever made them, and loses none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from twisted.internet.defer import Deferred

from holdfast.identity.bans import FILE_NAME, Ban, Bans, Exempt, Kind, store_bans
from holdfast.identity.shared_bans import SharedBans
from holdfast.storage.location import StoreUnusable
from tests.postgres import drop, fresh_database, synchronous
from tests.storage.doubles import result_of


@pytest.fixture
def url() -> Iterator[str]:
    made = fresh_database()
    yield made
    drop(made)


class Member:
    """The bans of a member, with its own data directory; ``applied`` are those that others have made."""

    def __init__(self, url: str, folder: Path, number: int, *own: Ban) -> None:
        self.folder = folder / str(number)
        self.folder.mkdir()
        if own:
            store_bans(self.folder, own)
        self.bans = Bans(now=lambda: 1000.0, exempt=Exempt())
        self.store, _ = synchronous(url, number)
        self.shared = SharedBans(self.store, self.bans, self.folder)
        self.applied: list[Ban] = []
        self.shared.apply = self.applied.append
        self.store.open()

    def add(self, ban: Ban) -> None:
        """Ban as the API does."""
        self.bans.add(ban)
        result_of(self.shared.put(ban))

    def remove(self, ban: Ban) -> None:
        """Lift a ban as the API does."""
        assert self.bans.remove(ban.kind, ban.who) is not None
        result_of(self.shared.remove(ban))

    def names(self) -> set[str]:
        """Return whom the bans name."""
        result_of(self.shared.refresh())
        return {ban.who for ban in self.bans}


def user(name: str, until: int | None = None) -> Ban:
    """Return the ban of a user."""
    return Ban(kind=Kind.USERNAME, who=name, until=until)


def test_each_member_has_the_bans_of_all(url: str, tmp_path: Path) -> None:
    """Those that it finds at its start concern nobody connected; later ones are applied, changed ones too."""
    one = Member(url, tmp_path, 1)
    one.add(user("a"))
    two = Member(url, tmp_path, 2)
    assert (two.names(), two.applied) == ({"a"}, [])
    one.add(user("b"))
    two.add(user("c"))
    assert (one.names(), one.applied) == ({"a", "b", "c"}, [user("c")])
    assert (two.names(), two.applied) == ({"a", "b", "c"}, [user("b")])
    one.remove(user("a"))
    one.add(user("b", 5000))
    assert (two.names(), two.applied) == ({"b", "c"}, [user("b"), user("b", 5000)])
    two.remove(user("b"))
    assert one.names() == {"c"}


@pytest.mark.parametrize("name", ["\0", "\ud800", "\U0001f600" * 1024, "'; DROP TABLE cluster_bans; --"])
def test_a_ban_may_have_any_name(url: str, tmp_path: Path, name: str) -> None:
    """Texts that no column takes, and long ones, are stored and removed."""
    one, two = Member(url, tmp_path, 1), Member(url, tmp_path, 2)
    one.add(user(name))
    assert two.names() == {name}
    two.remove(user(name))
    assert one.names() == set()


def test_a_broker_that_becomes_a_member_brings_its_bans(url: str, tmp_path: Path) -> None:
    """They are added to those of the others, once; its file is kept under another name."""
    one = Member(url, tmp_path, 1, user("a"), user("b"))
    assert one.names() == {"a", "b"}
    assert [each.name for each in one.folder.iterdir()] == [f"{FILE_NAME}.shared"]
    two = Member(url, tmp_path, 2, user("b", 5000), user("c"))
    assert (two.names(), one.names()) == ({"a", "b", "c"}, {"a", "b", "c"})
    assert user("b") in list(two.bans)


def test_a_look_does_not_take_back_a_change_that_is_under_way(url: str, tmp_path: Path) -> None:
    """The ban is in memory, and its row is not yet committed."""
    one, two = Member(url, tmp_path, 1), Member(url, tmp_path, 2)
    two.add(user("b"))
    looking: list[Deferred[None]] = []
    one.bans.add(user("a"))
    one.shared._change(lambda _connection: looking.append(one.shared.refresh()))
    assert {ban.who for ban in one.bans} == {"a"}


def test_a_row_that_no_broker_has_written_ends_a_start(url: str, tmp_path: Path) -> None:
    """A broker that ignored a ban would let the banned in."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("INSERT INTO cluster_bans VALUES ('username', '', 1, 'no JSON')")
    with pytest.raises(StoreUnusable, match=r"the table cluster_bans has a row .*'no JSON'.* holdfast ban add"):
        Member(url, tmp_path, 1)
