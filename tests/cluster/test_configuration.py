"""``[cluster]`` in the configuration: what is refused, and what ``holdfast doctor`` looks at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.selectreactor import SelectReactor

from holdfast.broker.cluster import hash_of, member_of
from holdfast.cluster import members
from holdfast.commands.cluster_examination import fencing
from holdfast.commands.examination import examine
from holdfast.config import Config, ConfigError, load
from tests.postgres import drop, fresh_database

URL = 'storage.url = "postgresql+psycopg://db.example.org/holdfast"\n'


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], Config]:
    """Read a configuration as a start does."""

    def read(text: str) -> Config:
        file = tmp_path / "holdfast.toml"
        file.write_text(text)
        return load(file).override([], None, None, allow_anonymous=True, cwd=tmp_path)

    return read


@pytest.mark.parametrize(
    ("text", "key", "sentence"),
    [
        ('cluster.name = "plant"\n', "cluster.name", "needs Postgres.*set storage.url =.*or remove"),
        (URL + 'cluster.name = "plant"\nstorage.durability = "async"\n', "storage.durability",
         'found "async".*with .cluster., allowed: "full" or "process"'),
        (URL + 'cluster.lease = "10s"\n', "cluster.name", "is missing: .cluster. begins with the name of the cluster"),
        (URL + 'cluster.name = "plant"\ncluster.lease = "1s"\n', "cluster.lease", "allowed"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_cluster_is_refused(read: Callable[[str], Config], text: str, key: str, sentence: str) -> None:
    """With one sentence, the key, and what is allowed."""
    with pytest.raises(ConfigError, match=sentence) as caught:
        read(text)
    (problem,) = caught.value.problems
    assert problem.key == key


def test_the_database_may_come_from_the_command_line(tmp_path: Path) -> None:
    """The file alone does not tell it."""
    file = tmp_path / "holdfast.toml"
    file.write_text('cluster.name = "plant"\n')
    url = "postgresql+psycopg://db.example.org/holdfast"
    config = load(file).override([], None, url, allow_anonymous=True, cwd=tmp_path)
    assert config.cluster.name == "plant"


def test_a_reactor_that_cannot_be_guarded_is_refused(read: Callable[[str], Config]) -> None:
    """A member has to notice that it stood still before it reads."""
    with pytest.raises(ConfigError, match=r"needs Linux and its epoll reactor; remove .cluster."):
        member_of(read(URL + 'cluster.name = "plant"\n'), SelectReactor())


def test_the_sign_of_a_configuration_is_that_of_what_members_share(read: Callable[[str], Config]) -> None:
    """Listeners, folders, addresses and the way to NATS are each member's own; limits are not."""
    text = URL + 'cluster.name = "plant"\n'
    sign = hash_of(read(text))
    assert hash_of(read(text + 'cluster.address = "a:1"\nnode.id = 7\nnode.data_dir = "d"\n')) == sign
    nats = 'cluster.bus = "tls://me:secret@nats2"\ncluster.secret = "env:SECRET"\ncluster.tls.ca = "ca.pem"\n'
    assert hash_of(read(text + nats)) == sign
    assert hash_of(read(text + "mqtt.max_inflight = 7\n")) != sign


@pytest.mark.parametrize(
    ("function", "found", "words"),
    [("pooler_between", True, "a pooler is in between"), ("may_end_connections", False, "may not end its own")],
)
def test_the_doctor_looks_at_what_a_member_needs(
    read: Callable[[str], Config], monkeypatch: pytest.MonkeyPatch, function: str, found: bool, words: str
) -> None:
    """On the real server it finds nothing; without ``[cluster]`` it does not look."""
    url = fresh_database()
    try:
        config = read(f"storage.url = '{url}'\ncluster.name = 'plant'\n")
        assert list(examine(config, [fencing])) == []
        monkeypatch.setattr(members, function, lambda *_: found)
        (finding,) = examine(config, [fencing])
        assert words in finding.message
        assert list(examine(read(f"storage.url = '{url}'\n"), [fencing])) == []
    finally:
        drop(url)
