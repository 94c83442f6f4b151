"""Mirrors kept by tokens equal the retained messages at every marker: through kills, cuts, stops, and on two nodes."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.never_stale.mirrors import Mirror, States, Writer
from tests.postgres import drop, empty_database, wait_for_end
from tests.processes import PATIENCE, BrokerProcess, lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.crash]

_CONFIG = """
node.id = {id}
[retainer]
flow_control.batch_read_number = 7
flow_control.batch_deliver_number = 3
"""


class Scene:
    """Brokers on one database, a writer for each, and two mirrors that go to any of them."""

    def __init__(self, directory: Path, url: str | None, seed: int) -> None:
        self.url = url
        self.chance = random.Random(seed)
        self.states = States()
        self.brokers = [self._broker(directory, number, url) for number in range(1, 2 if url is None else 3)]
        topics = self.states.topics
        self.writers = [
            Writer(f"w{number}", topics[number::2], self.states, random.Random(seed + number)) for number in range(2)
        ]
        self.mirrors = [Mirror(f"m{number}", self.states) for number in range(2)]

    def _broker(self, directory: Path, number: int, url: str | None) -> BrokerProcess:
        own = directory / str(number)
        own.mkdir()
        cluster = 'cluster.name = "mirrors"\n' if url is not None else ""
        (own / "holdfast.toml").write_text(cluster + _CONFIG.format(id=number))
        options = ["--config", "holdfast.toml", "--listen", f"tcp:{lasting_port()}:interface=127.0.0.1"]
        if url is not None:
            options += ["--storage", url]
        return BrokerProcess(own, *options, listen=False).start()

    @property
    def any_port(self) -> int:
        """The port of a broker."""
        return self.chance.choice(self.brokers).port

    def bursts(self) -> list[threading.Thread]:
        """Let all writers publish, each to any broker."""
        threads = [threading.Thread(target=writer.burst, args=(self.any_port,)) for writer in self.writers]
        for thread in threads:
            thread.start()
        return threads

    def write(self) -> None:
        """Let all writers publish, and wait for it."""
        join(self.bursts())

    def update(self) -> list[str]:
        """Update all mirrors, each at any broker."""
        return [mirror.update(self.any_port) for mirror in self.mirrors]

    def settle(self) -> None:
        """Update until every node brings only the changes: a node that was alone has noticed the new one."""
        deadline = time.monotonic() + PATIENCE
        while any(mirror.update(broker.port) != "delta" for mirror in self.mirrors for broker in self.brokers):
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def update_during_changes(self) -> None:
        """Update, cut and update the mirrors while the writers publish; messages come live after the marker."""
        threads = self.bursts()
        first, second = self.mirrors
        first.update(self.any_port, cut_after=self.chance.randrange(1, 9))
        second.update(self.any_port, beyond=lambda: join(threads))
        first.update(self.any_port)
        join(threads)


def join(threads: list[threading.Thread]) -> None:
    """Wait for the writers."""
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.fixture(params=["sqlite", "postgresql"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """One broker on SQLite, or two on one Postgres database."""
    url = None if request.param == "sqlite" else empty_database()
    scene = None
    try:
        scene = Scene(tmp_path, url, 1)
        scene.write()
        assert scene.update() == ["full", "full"]
        scene.settle()
        yield scene
    finally:
        for broker in [] if scene is None else scene.brokers:
            broker.end()
        if url is not None:
            drop(url)


def go_through(scene: Scene, ends: int) -> None:
    """Let brokers end while writers publish and mirrors have replays; a third of the ends are stops."""
    for number in range(ends):
        scene.update_during_changes()
        assert scene.update() == ["delta", "delta"]
        broker = scene.chance.choice(scene.brokers)
        threads = scene.bursts()
        second = threading.Thread(target=_try_to_update, args=(scene.mirrors[1], scene.any_port))
        second.start()
        is_stopped = number % 3 == 2
        if is_stopped:
            assert broker.stop() == (0, "")
        else:
            broker.kill()
        join([*threads, second])
        for other in scene.brokers:
            if other is not broker:  # before the killed one has started again
                if scene.url is not None:
                    wait_for_end(scene.url, 1 + scene.brokers.index(broker))
                assert scene.mirrors[0].update(other.port) == ("delta" if is_stopped else "full")
        broker.start()
        answers = scene.update()
        assert is_stopped or answers == ["full", "full"]
        scene.write()
        scene.settle()


def _try_to_update(mirror: Mirror, port: int) -> None:
    """Update; the broker may end meanwhile."""
    try:
        mirror.update(port)
    except (OSError, StopIteration):
        pass
    except AssertionError as ended:
        if "ended the connection" not in str(ended):
            raise


def test_mirrors_are_exact_at_every_marker_through_kills_and_stops(scene: Scene) -> None:
    """Cut replays, changes during replays, and on Postgres a client that goes from one node to the other."""
    go_through(scene, 3)


@pytest.mark.nightly
def test_mirrors_are_exact_at_every_marker_through_many_kills(scene: Scene) -> None:
    """The same with fifty ends."""
    go_through(scene, 50)


def test_a_mirror_that_knows_more_than_a_restored_backup_gets_everything(tmp_path: Path) -> None:
    """And one whose token is older than the backup only the changes, which lead to the state of the backup."""
    scene = Scene(tmp_path, None, 2)
    (broker,) = scene.brokers
    ahead, behind = scene.mirrors
    try:
        scene.write()
        scene.update()
        scene.write()
        backup, database = tmp_path / "backup.db", broker.directory / "data" / "holdfast.db"
        command = [str(Path(sys.executable).parent / "holdfast"), "db", "backup", str(backup)]
        subprocess.run([*command, "--data-dir", str(database.parent)], check=True, capture_output=True)
        present = scene.states.present()
        scene.write()
        assert ahead.update(broker.port) == "delta"
        assert broker.stop() == (0, "")
        for file in database.parent.glob(f"{database.name}*"):
            file.unlink()
        shutil.copy(backup, database)
        scene.states.restored(present)
        broker.start()
        answers = [ahead.update(broker.port), behind.update(broker.port)]
        assert answers[0] == "full"
        scene.write()
        assert scene.update() == ["delta", "delta"]
    finally:
        broker.end()
