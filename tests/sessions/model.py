"""A model of a broker that can be killed at any time: dictionaries, without packets or a database.

The model keeps the broker's whole state three times: the present state (``live``), the state that the commit under way
stores (``handed``, None if no commit is under way), and the state on disk (``disk``). A commit copies one to the next,
a kill copies ``disk`` back. So the model need not say which changes a kill loses: all changes since.

Every change that may be acknowledged is a *fact* with a number. Its acknowledgement may not come before the fact is on
disk.

A Will Message may be published twice if the broker was killed before the first publication was on disk: only
subscribers of that process have seen it, and it would be lost otherwise. It may also be published after a DISCONNECT,
if the broker was killed before that was on disk: DISCONNECT has no answer that could wait. Both follow from the copies;
in the model every Will is published once.

Times are in whole seconds.
"""

from __future__ import annotations

import pickle
from itertools import count

from tests.sessions.state import GRACE, TOPICS, Delivery, Message, Session, State, Will


def _copy(state: State) -> State:
    copied: State = pickle.loads(pickle.dumps(state))
    return copied


class Model:
    """The state that the broker must have. ``fleeting`` takes (Client, QoS 0 message): sent now or never."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.live = State()
        self.handed: State | None = None
        self.disk = State()
        self.fleeting: list[tuple[str, Message]] = []
        self._numbers = count(1)

    # --- facts

    def _fact(self) -> int:
        self.live.fact = next(self._numbers)
        return self.live.fact

    def is_durable(self, fact: int | None) -> bool:
        """Tell whether this fact may be acknowledged. None stands for an answer that needs no commit."""
        return fact is None or fact <= self.disk.fact

    # --- actions of Clients; each returns the fact that must be on disk before the acknowledgement, or None

    def connect(self, client: str, clean: bool, expiry: int, will: Will | None) -> tuple[bool, int | None]:
        """Connect a Client. Return also whether its Session is present."""
        state = self.live
        old = state.sessions.get(client)
        if old is not None and old.expires_at is None:
            self.leave(client)  # taken over
        waiting = state.wills.get(client)
        if waiting is not None and waiting.restored:
            del state.wills[client]  # after a restart, any return counts
        durable = False
        if client in state.sessions and clean:
            durable = state.sessions[client].durable
            self._end(client)
        session = state.sessions.get(client)
        present = session is not None
        if session is None:
            session = state.sessions[client] = Session(self._fact(), expiry != 0, expiry)
        state.wills.pop(client, None)
        session.expiry, session.expires_at = expiry, None
        fact = self._fact()
        if will is not None:
            will.accepted = fact
            state.wills[client] = will
        return present, fact if durable or session.durable or will is not None else None

    def leave(self, client: str, normally: bool = False, expiry: int | None = None, stopping: bool = False) -> None:
        """End a Client's connection: ``normally`` if with a DISCONNECT that discards its Will."""
        session = self.live.sessions[client]
        if expiry is not None:
            session.expiry = expiry
        session.expires_at = self.now + session.expiry
        will = self.live.wills.get(client)
        if will is not None and (normally or not self.is_durable(will.accepted)):
            del self.live.wills[client]
        elif will is not None and not stopping:
            will.due = self.now + min(will.delay, session.expiry)
            if will.due == self.now:
                self._publish_will(client)
        if not session.expiry:
            self._end(client)

    def subscribe(self, client: str, topic_filter: str, qos: int, identifier: int | None) -> int | None:
        session = self.live.sessions[client]
        session.subscriptions[topic_filter] = qos, identifier
        fact = self._fact()
        session.subscribed_at.setdefault(topic_filter, fact)
        return fact if session.durable else None

    def unsubscribe(self, client: str, topic_filter: str) -> int | None:
        session = self.live.sessions[client]
        existed = session.subscriptions.pop(topic_filter, None)
        return self._fact() if existed and session.durable else None

    def publish(self, client: str, packet_identifier: int, message: Message) -> int | None:
        session = self.live.sessions[client]
        if message.qos == 2 and packet_identifier in session.received:
            return session.received[packet_identifier]  # it is the same message again
        fact = self._route(message, needed=message.qos == 2 and session.durable)
        if message.qos == 2:
            session.received[packet_identifier] = fact
        return fact

    def release(self, client: str, packet_identifier: int) -> int | None:
        """Take a PUBREL."""
        session = self.live.sessions[client]
        if packet_identifier not in session.received:
            return None
        del session.received[packet_identifier]
        return self._fact() if session.durable else None

    def received(self, client: str, packet_identifier: int) -> None:
        """Take a PUBREC."""
        for delivery in self.live.sessions[client].owed:
            if delivery.seen == packet_identifier and delivery.qos == 2:
                delivery.released = True

    def acknowledged(self, client: str, packet_identifier: int) -> None:
        """Take a PUBACK or PUBCOMP."""
        owed = self.live.sessions[client].owed
        owed[:] = [delivery for delivery in owed if delivery.seen != packet_identifier]

    # --- time

    def advance(self, seconds: int) -> None:
        """Let time pass: Sessions end, Wills become due."""
        self.now += seconds
        for client, session in list(self.live.sessions.items()):
            if session.expires_at is not None and session.expires_at <= self.now:
                self._end(client)
        for client, will in list(self.live.wills.items()):
            if will.due is not None and will.due <= self.now:
                self._publish_will(client)

    # --- commits, kills and restarts

    def hand_over(self) -> None:
        """Note that the writer has begun the next commit, unless one is under way."""
        if self.handed is None:
            self.handed = _copy(self.live)

    def stored(self) -> None:
        """Note that the commit under way is on disk."""
        assert self.handed is not None
        handed, self.handed = self.handed, None
        before = {
            (client, delivery.number): delivery.seen
            for client, session in self.disk.sessions.items()
            for delivery in session.owed
        }
        for client, session in handed.sessions.items():
            for delivery in session.owed:
                if delivery.qos == 1:  # it may have left after that
                    delivery.seen = before.get((client, delivery.number))
        self.disk = handed

    def committed(self) -> None:
        """Note that everything is on disk."""
        self.handed = None
        self.disk = _copy(self.live)

    def stop(self) -> None:
        """Stop the broker in order."""
        for client, session in list(self.live.sessions.items()):
            if session.expires_at is None:
                self.leave(client, stopping=True)
        self.committed()

    def restart(self, now: int) -> None:
        """Start another broker with the state on disk. Clients that were connected then count as disconnected now."""
        self.now = now
        self.handed = None
        self.live = _copy(self.disk)
        self.fleeting.clear()
        for client, session in list(self.live.sessions.items()):
            if not session.durable:
                del self.live.sessions[client]
            elif session.expires_at is None:
                session.expires_at = now + session.expiry
        for client, will in self.live.wills.items():
            expiry = self.live.sessions[client].expiry if client in self.live.sessions else 0
            due = now + min(will.delay, expiry) if will.due is None else will.due
            will.due = max(due, now + GRACE)
            will.restored = True
        self.advance(0)

    # --- how

    def _end(self, client: str) -> None:
        """End a Session. A Will that still waits is published then, unless it waits for a restarted Client."""
        del self.live.sessions[client]
        will = self.live.wills.get(client)
        if will is not None and will.due is not None and not will.restored:
            self._publish_will(client)

    def _publish_will(self, client: str) -> None:
        will = self.live.wills.pop(client)
        message = will.message
        if will.lifetime is not None:
            expires_at = self.now + will.lifetime
            message = Message(client, message.topic, message.payload, message.qos, message.retain, expires_at)
        self._route(message, needed=True)

    def _route(self, message: Message, needed: bool) -> int | None:
        """Retain the message if it has RETAIN 1, and owe it to every Session that subscribes to it."""
        fact = self._fact()
        state = self.live
        if message.retain:
            needed = True
            old = state.retained.pop(message.topic, None)
            if old is not None:
                state.replaced[old[1].payload] = fact
            if message.payload:
                state.retained[message.topic] = fact, message
                state.replaced.pop(message.payload, None)
        for client, session in state.sessions.items():
            matching = [session.subscriptions[one] for one in TOPICS[message.topic] if one in session.subscriptions]
            if not matching:
                continue
            qos = min(message.qos, max(qos for qos, _ in matching))
            if not qos:
                self.fleeting.append((client, message))
                continue
            identifiers = frozenset(identifier for _, identifier in matching if identifier is not None)
            session.owed.append(Delivery(fact, message, qos, identifiers))
            needed = needed or session.durable
        return fact if needed else None
