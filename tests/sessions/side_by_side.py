"""A broker in memory around a real database, its Clients and their model, advanced together step by step."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from twisted.logger import ILogObserver, LogEvent, globalLogPublisher

from holdfast.retained.limits import RetainerLimits
from holdfast.sessions.limits import Limits
from holdfast.wire import packets as p
from tests.doubles import START
from tests.sessions.model import Model
from tests.sessions.restartable import RestartableBroker
from tests.sessions.state import LONGEST, TOPICS
from tests.sessions.witness import Witness
from tests.storage.doubles import fresh_file

LIMITS = Limits(session_expiry_interval=LONGEST, max_inflight=3, idle_timeout=1e6)
#: no sweep: it would be a commit of its own at times the model does not know
RETAINER = RetainerLimits(msg_clear_interval=0)
TABLES = ("sessions", "session_subscriptions", "session_messages", "session_deliveries", "session_received", "wills")


class SideBySide:
    """The broker commits when the test says so; when ``eager``, after every action. Each effect is compared at once."""

    def __init__(self) -> None:
        self._directory = TemporaryDirectory(prefix="holdfast-model-")
        path = fresh_file(Path(self._directory.name))
        self.broker = RestartableBroker(path, manual=True, limits=LIMITS, retainer=RETAINER)
        self.model = Model(START)
        self.peers = {name: Witness(name, self.model) for name in "abc"}
        self.eager = False
        self._failures: list[str] = []
        globalLogPublisher.addObserver(cast("ILogObserver", self._observe))

    def close(self) -> None:
        """Leave nothing behind."""
        globalLogPublisher.removeObserver(cast("ILogObserver", self._observe))
        self.broker.kill()
        self._directory.cleanup()

    def look(self, late: bool = False) -> None:
        """Compare the effects of an action, and note the commit that it has begun.

        ``late``: some packets were sent some time ago.
        """
        self._listen(late)
        if self.broker.executor.waiting:
            self.model.hand_over()
            if self.eager:
                self.commit()
        for peer in self.peers.values():
            if peer.established and peer.must_be_clean:
                peer.drop()
                self.look()

    def commit(self) -> None:
        """Commit everything, and check the rows and the Clients."""
        self.broker.commit()
        self.model.committed()
        self._listen()
        self.model.committed()
        for peer in self.peers.values():
            peer.check_rest()
        self.look()

    def step(self) -> None:
        """Finish the commit under way, without later changes."""
        self.model.stored()
        self.broker.executor.step()
        self.broker.settle()
        self.look()

    def advance(self, seconds: int) -> None:
        """Let time pass, second by second."""
        for _ in range(seconds):
            self.model.advance(1)
            self.broker.advance(1)
            self.look()

    def kill(self, after: int, stored: bool) -> None:
        """Kill the broker, perhaps after a commit is ``stored`` and before it is reported; then start another one."""
        if stored and self.broker.executor.waiting:
            work, *_ = self.broker.executor.waiting[0]
            work()
            self.model.stored()
        self.broker = self.broker.restart(after, manual=True)
        self._restarted()

    def stop(self, after: int) -> None:
        """Stop the broker in order, and start another one."""
        self.model.stop()
        self.broker = self.broker.stop(after, manual=True)
        self._restarted()

    def retained(self, topic_filter: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Return the retained messages that a new subscriber gets, and those that it should get."""
        client = self.broker.client("fresh", 5)
        sent = client.subscribe(topic_filter)
        self.commit()
        sent += client.packets()
        client.drop()
        found = {packet.topic: packet.payload for packet in sent if isinstance(packet, p.Publish) and packet.retain}
        now = self.model.now
        return found, {
            topic: message.payload
            for topic, (_, message) in self.model.live.retained.items()
            if topic_filter in TOPICS[topic] and not message.has_expired(now)
        }

    def rows(self) -> dict[str, int]:
        """Return the number of rows of each table that is not empty."""
        counts = {table: self.broker.rows(table) for table in TABLES}
        return {table: count for table, count in counts.items() if count}

    def _restarted(self) -> None:
        for peer in self.peers.values():
            peer.gone()
        self.model.restart(round(self.broker.clock.seconds()))
        self.look()

    def _listen(self, late: bool = False) -> None:
        """Let every Client read its packets. A QoS 0 message comes now or never."""
        for peer in self.peers.values():
            was_there = peer.established and not peer.deaf
            peer.fleeting += [message.payload for client, message in self.model.fleeting if client == peer.name]
            peer.take(late)
            assert not (was_there and peer.fleeting), f"{peer.name} was not sent {peer.fleeting}"
            if not peer.deaf:
                peer.fleeting.clear()
        self.model.fleeting.clear()
        assert not self._failures, self._failures[0]

    def _observe(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        if failure is not None:
            self._failures.append(failure.getTraceback())
