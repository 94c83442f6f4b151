"""The audit log: one JSON object a line, bounded, without secrets, and harmless whatever clients write."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from configparser import RawConfigParser
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from zope.interface import implementer

from holdfast.admin.call import DONE, Answer, Call, Caller
from holdfast.admin.jobs import Jobs
from holdfast.broker.audit import compose_audit, denials_of, end_of_jobs_of, open_audit, witness_of
from holdfast.config import ConfigError, default
from holdfast.config.sections.watching import AuditConfig
from holdfast.identity.addresses import Peer
from holdfast.identity.interfaces import Credentials, Denied, IAuthenticator, Principal
from holdfast.watch.audit import CONNECTED, KINDS, OPERATED, REFUSED, REJECTED, WINDOW, Audit
from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.logs import logged

ROOT = Path(__file__).parents[2]


class Lines:
    """A sink in memory, which may be broken."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.batches = 0
        self.broken = False

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def write(self, lines: Sequence[bytes]) -> None:
        if self.broken:
            raise OSError(28, "No space left on device")
        self.batches += 1
        self.lines += lines

    def events(self) -> list[dict[str, Any]]:
        """Return the events so far."""
        return [json.loads(line) for line in self.lines]


class Book:
    """An audit log with a fake clock."""

    def __init__(self, most: int = 1000, kinds: Sequence[str] = KINDS) -> None:
        self.clock = Clock()
        self.sink = Lines()
        self.audit = Audit(
            [self.sink], clock=self.clock, now=lambda: 1_800_000_000_000 + round(self.clock.seconds() * 1000),
            most=most, kinds=kinds,
        )  # fmt: skip

    def tell(self, kind: str = REFUSED, group: str | None = "192.0.2.1", times: int = 1, **texts: str | None) -> None:
        for _ in range(times):
            self.audit.tell(kind, group, {"address": group}, **texts)

    def written(self) -> list[dict[str, Any]]:
        """Return the events that are written within a window and a little."""
        self.clock.advance(WINDOW)
        self.clock.advance(1)
        return self.sink.events()


def test_an_event_is_a_line_with_its_time_and_the_clients_texts_last() -> None:
    book = Book()
    book.tell(user="alice", client_id=None)
    book.clock.advance(1)
    assert book.sink.lines == [
        b'{"time":"2027-01-15T08:00:00.000Z","event":"refused","address":"192.0.2.1","user":"alice"}'
    ]


@given(text=st.text(max_size=400))
def test_no_text_of_a_client_makes_another_line_or_field(text: str) -> None:
    book = Book()
    book.tell(user=text, topic=text)
    book.clock.advance(1)
    (line,) = book.sink.lines
    assert all(32 <= byte < 127 for byte in line)
    event = json.loads(line)
    assert list(event) == ["time", "event", "address", "user", "topic"]
    assert event["user"] == text[:256]


def test_lines_are_written_together() -> None:
    book = Book()
    book.tell(times=50)
    assert book.sink.batches == 0
    book.clock.advance(1)
    assert (len(book.sink.lines), book.sink.batches) == (50, 1)


def test_a_storm_of_strangers_has_few_lines_and_one_with_the_count() -> None:
    book = Book(most=100)
    for number in range(5000):
        book.tell(group=f"192.0.2.{number % 250}")
    events = book.written()
    assert len(events) == 101
    assert {name: events[-1][name] for name in ("event", "of", "count", "seconds")} == {
        "event": "suppressed", "of": "refused", "count": 4900, "seconds": 10,
    }  # fmt: skip


def test_one_address_does_not_take_the_lines_of_the_others() -> None:
    book = Book(most=100)
    book.tell(group="192.0.2.66", times=1000)
    book.tell(group="192.0.2.1")
    events = book.written()
    assert [event["address"] for event in events if event["event"] == "refused"] == ["192.0.2.66"] * 10 + ["192.0.2.1"]
    assert events[-1]["count"] == 990


def test_one_kind_does_not_take_the_lines_of_another_and_operators_are_never_left_out() -> None:
    book = Book(most=10)
    book.tell(REJECTED, times=1000)
    book.tell(CONNECTED)
    book.tell(OPERATED, None, times=100)
    kinds = [event["event"] for event in book.written()]
    assert (kinds.count(CONNECTED), kinds.count(OPERATED)) == (1, 100)


def test_after_a_window_lines_are_written_again() -> None:
    book = Book(most=10)
    book.tell(times=5)
    book.written()
    book.tell(times=1)
    assert [event["event"] for event in book.written()].count(REFUSED) == 2
    assert book.clock.getDelayedCalls() == []


def test_only_the_wanted_kinds_are_written() -> None:
    book = Book(kinds=[REFUSED])
    book.tell(CONNECTED)
    book.tell(REFUSED)
    assert [event["event"] for event in book.written()] == [REFUSED]


def test_lines_that_cannot_be_written_are_reported_once_and_counted() -> None:
    book = Book()
    book.sink.broken = True
    with logged() as events:
        for _ in range(3):
            book.tell(times=2)
            book.clock.advance(1)
        book.sink.broken = False
        book.tell()
        book.clock.advance(1)
    assert len(events) == 2
    assert [event["event"] for event in book.sink.events()] == ["lost", "refused"]
    assert book.sink.events()[0]["count"] == 6


def test_at_the_end_everything_is_written() -> None:
    book = Book(most=10)
    book.tell(times=3)
    book.audit.close()
    assert [event["event"] for event in book.sink.events()] == ["refused", "suppressed"]
    assert book.clock.getDelayedCalls() == []


# --- the events of a broker


@implementer(IAuthenticator)
class Passwords:
    """Knows one password."""

    def authenticate(self, credentials: Credentials) -> Principal | Denied:
        if credentials.password == b"right":
            return Principal(credentials.client_id, credentials.username, method="passwords")
        counts = credentials.password != b"expired"
        return Denied(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "the password is wrong", counts=counts)


def life(username: str = "alice", password: bytes = b"right") -> tuple[list[dict[str, Any]], list[bytes]]:
    """Return the events of one client's life, and their lines."""
    book = Book()
    broker = MemoryBroker(authenticator=Passwords(), audit=book.audit)
    client = Client(broker, 5)
    client.send(p.Connect("pump", 5, True, 0, username, password))
    if not client.network.closed:
        client.send(p.Disconnect())
    book.clock.advance(1)
    return book.sink.events(), book.sink.lines


def test_who_connects_from_where_with_what_and_how_it_ends() -> None:
    connected, disconnected = life()[0]
    place = {"address": "192.0.2.1", "port": 5555, "listener": "test", "user": "alice", "client_id": "pump"}
    assert place.items() <= connected.items()
    assert place.items() <= disconnected.items()
    assert (connected["protocol"], connected["method"], connected["session_present"]) == (5, "passwords", False)
    assert disconnected["cause"] == "DISCONNECT 0x00"


def test_a_refusal_names_its_code_and_the_claimed_user_but_no_password() -> None:
    (refused,), (line,) = life(password=b"hunter2")
    assert (refused["reason"], refused["code"], refused["user"]) == ("BAD_USER_NAME_OR_PASSWORD", 0x86, "alice")
    assert b"hunter2" not in line


def test_a_denial_names_user_action_and_topic_and_is_limited_for_each_user() -> None:
    book = Book(most=100)
    denied = denials_of(book.audit)
    for _ in range(50):
        denied(Principal("pump", "mallory", listener="tls", address="192.0.2.1"), "publish", "a/b")
    denied(Principal("other", None), "subscribe", "#")
    events = book.written()
    assert len(events) == 12
    assert {"action": "publish", "user": "mallory", "client_id": "pump", "topic": "a/b"}.items() <= events[0].items()
    assert (events[10]["action"], events[10]["client_id"]) == ("subscribe", "other")
    assert "user" not in events[10]


def test_an_operators_change_names_the_operator() -> None:
    book = Book()
    call = Call("DELETE", "/api/v5/banned/username/bob", {}, b"secret", Caller("root", 0))
    witness_of(book.audit)(call, DONE)
    (event,) = book.written()
    assert (event["operator"], event["uid"], event["status"]) == ("root", 0, 204)
    assert "secret" not in str(event)


def test_the_end_of_a_job_names_its_operator_and_what_it_has_done() -> None:
    """Also of a job that was cancelled."""
    book = Book()
    jobs = Jobs(lambda: 1_800_000_000_000, end_of_jobs_of(book.audit))
    job = jobs.begin("clear", "alice", lambda _: Deferred(), "plant/#")
    job.done, job.total = 500, 800
    jobs.cancel(job)
    (event,) = book.written()
    assert (event["event"], event["operator"], event["about"]) == ("operated", "alice", "plant/#")
    assert (event["job"], event["kind"], event["state"]) == (job.number, "clear", "cancelled")
    assert (event["done"], event["total"]) == (500, 800)


def test_refused_calls_of_one_operator_are_limited_and_cut() -> None:
    """They change nothing. A key that may only read could fill the disk with them otherwise."""
    book = Book(most=50)
    call = Call("DELETE", "/api/v5/clients/" + "%41" * 5000, {"topic": "x" * 15_000}, b"", Caller("key grafana"))
    for _ in range(100):
        witness_of(book.audit)(call, Answer(403, note={"reason": "y" * 5000}))
    lines = book.sink.lines
    *told, summed = book.written()
    assert len(told) == 5
    assert all(len(line) < 1500 for line in lines)
    assert told[0]["arguments"] == {"topic": "x" * 256}
    assert (summed["event"], summed["of"], summed["count"]) == ("suppressed", "operated", 95)


@pytest.mark.parametrize("status", [204, 499, 500, 503])
def test_calls_that_may_have_changed_something_are_never_left_out(status: int) -> None:
    """Nor are those whose caller has hung up."""
    book = Book(most=10)
    call = Call("DELETE", "/a", {}, b"", Caller("root", 0))
    for _ in range(100):
        witness_of(book.audit)(call, Answer(status))
    assert len(book.written()) == 100


# --- the configuration


def test_without_a_file_or_journal_there_is_no_audit_log() -> None:
    clock = Clock()
    audit = compose_audit(default(), clock=clock, now=lambda: 0)
    audit.open()
    audit.tell(OPERATED, "", {})
    assert not clock.getDelayedCalls()


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    from attrs import evolve

    config = evolve(default(), audit=AuditConfig(file=str(tmp_path / "none" / "audit.log")))
    audit = compose_audit(config, clock=Clock(), now=lambda: 0)
    with pytest.raises(ConfigError, match=r"none/audit\.log cannot be opened: No such file or directory"):
        open_audit(audit, config)


# --- fail2ban


def failregex() -> re.Pattern[str]:
    """Return the filter's expression as fail2ban reads it."""
    parser = RawConfigParser()
    parser.read(ROOT / "etc/fail2ban/filter.d/holdfast.conf")
    address = r"(?P<host>(?:\d{1,3}\.){3}\d{1,3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)"
    return re.compile(parser["Definition"]["failregex"].replace("<ADDR>", address))


def found(lines: Sequence[bytes]) -> list[str]:
    """Return the addresses that fail2ban would count. It cuts the time out of a line before it searches."""
    hits = (failregex().search(re.sub(r'^\{"time":"[^"]*",', "", line.decode())) for line in lines)
    return [hit["host"] for hit in hits if hit]


def test_the_filter_of_fail2ban_finds_the_address_of_a_failed_login_only() -> None:
    assert found(life(password=b"wrong")[1]) == ["192.0.2.1"]
    assert found(life(password=b"expired")[1]) == []
    assert found(life()[1]) == []


@given(name=st.text(max_size=50) | st.builds("{}203.0.113.9{}".format, st.text(), st.text()))
def test_no_user_name_makes_the_filter_find_another_address(name: str) -> None:
    book = Book()
    hostile = f'{name}","event":"refused","address":"203.0.113.9","listener":"x","failed_login":true,'
    for text in (name, hostile, f"\n{{{hostile}", hostile * 2):
        peer = Peer(ip_address("192.0.2.1"), 5)
        fields = {"address": str(peer.ip), "port": 5, "listener": "tls", "failed_login": True}
        book.audit.tell(REFUSED, "g", fields, user=text, client_id=text, cause=text)
        book.audit.tell(CONNECTED, "g", {"address": str(peer.ip)}, user=text, client_id=text)
    book.clock.advance(1)
    assert found(book.sink.lines) == ["192.0.2.1"] * 4


def test_lines_are_counted_by_what_became_of_them() -> None:
    """The numbers of the metric: written, suppressed and lost."""
    book = Book(most=10)
    book.tell(times=3)
    book.clock.advance(1)
    assert (book.audit.written, book.audit.suppressed, book.audit.lost) == (1, 2, 0)
    book.sink.broken = True
    book.tell(group="192.0.2.2")
    book.clock.advance(1)
    assert book.audit.lost == 1
