"""Lanes: batches in their order, repeated with one id, given up, and at a cost of one request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.hooks.calls import HookCalls, Running, hook_metrics
from holdfast.hooks.delivery import Hook, Lane
from holdfast.identity.http_client import Answer, HTTPClient, RequestFailed
from holdfast.watch.alarms import Alarms


class Client:
    """A server that answers with the next of some statuses: None is no answer, "hang" answers never."""

    def __init__(self) -> None:
        self.answers: list[int | str | None] = []
        self.sent: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.hanging = 0

    def request(self, method: bytes, headers: dict[str, str], body: bytes) -> Deferred[Answer]:
        assert method == b"POST"
        self.sent.append((headers, json.loads(body)))
        answer = self.answers.pop(0) if self.answers else 200
        if answer is None:
            return fail(RequestFailed("no answer within 10 s"))
        if answer == "hang":
            self.hanging += 1
            return Deferred(lambda _: self._left())
        return succeed(Answer(cast("int", answer), "", b""))

    def _left(self) -> None:
        self.hanging -= 1

    @property
    def numbers(self) -> list[list[int]]:
        """The events of each request."""
        return [[each["number"] for each in body["events"]] for _, body in self.sent]


class Source:
    """Gives batches of numbers."""

    is_elsewhere = False

    def __init__(self) -> None:
        self.waiting: list[list[int]] = []
        self.confirmed = 0
        self.is_kept = True
        self.stopped = 0
        self.failures = 0
        self._news: Deferred[None] | None = None

    def add(self, *numbers: int) -> None:
        self.waiting.append(list(numbers))
        news, self._news = self._news, None
        if news is not None:
            news.callback(None)

    async def next(self) -> Sequence[bytes]:
        if self.failures:
            self.failures -= 1
            raise StorageFailure(FailureKind.UNAVAILABLE, "the database is away")
        while not self.waiting:
            news: Deferred[None] = Deferred()
            self._news = news
            await news
        return [b'{"number":%d}' % number for number in self.waiting.pop(0)]

    async def keep(self) -> bool:
        return self.is_kept

    async def confirm(self) -> None:
        self.confirmed += 1

    def stop(self) -> None:
        self.stopped += 1


class Desk:
    """One lane."""

    def __init__(self, retry_for: float = 1000.0) -> None:
        self.clock = Clock()
        self.client, self.source = Client(), Source()
        self.alarms = Alarms(self.now)
        self.hook = Hook(
            name="test", place="a.example", node=1, format="events", retry_for=retry_for, events={},
            client=cast("HTTPClient", self.client), key=b"key", headers={"X-Own": "1"},
        )  # fmt: skip
        self.lane = Lane(self.hook, lambda: self.source, self.alarms, self.clock, self.now, lambda: 1.0)
        self.lane.startService()

    def now(self) -> int:
        return round(1000 * self.clock.seconds()) + 1_000_000

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(10 * seconds)):
            self.clock.advance(0.1)


def test_batches_come_in_their_order_and_are_confirmed() -> None:
    desk = Desk()
    desk.source.add(1, 2)
    desk.source.add(3)
    desk.pass_time(1)
    assert desk.client.numbers == [[1, 2], [3]]
    assert desk.source.confirmed == 2
    headers, _ = desk.client.sent[0]
    assert (headers["X-Own"], headers["content-type"]) == ("1", "application/json")
    assert headers["webhook-signature"].startswith("v1,")


def test_a_batch_is_repeated_under_its_id_and_nothing_overtakes_it() -> None:
    """After errors, redirects and no answer; the signature is over the new time."""
    desk = Desk()
    desk.client.answers = [500, 302, None, 200]
    desk.source.add(1)
    desk.source.add(2)
    desk.pass_time(0.5)
    assert desk.client.numbers == [[1]]
    assert desk.lane.state == "failing"
    desk.pass_time(20)
    assert desk.client.numbers == [[1], [1], [1], [1], [2]]
    ids = {headers["webhook-id"] for headers, _ in desk.client.sent[:4]}
    signatures = {headers["webhook-signature"] for headers, _ in desk.client.sent[:4]}
    assert (len(ids), len(signatures)) == (1, 4)
    figures = desk.hook.figures
    assert (figures.failed_attempts, figures.delivered_events, figures.failing_since) == (3, 2, None)


def test_a_batch_is_given_up_counted_and_confirmed() -> None:
    """The next one goes on: a server that cannot take one event does not lose all others."""
    desk = Desk()
    desk.client.answers = [400, 400, 400]
    desk.source.add(1, 2)
    desk.source.add(3)
    desk.pass_time(10)
    figures = desk.hook.figures
    assert (figures.dead_batches, figures.dead_events, figures.delivered_events) == (1, 2, 1)
    assert desk.source.confirmed == 2


def test_a_server_that_hangs_has_one_request_and_stopping_leaves_none() -> None:
    desk = Desk()
    desk.client.answers = ["hang"]
    for number in range(100):
        desk.source.add(number)
    desk.pass_time(5)
    assert (desk.client.hanging, len(desk.client.sent)) == (1, 1)
    desk.lane.stopService()
    assert (desk.client.hanging, desk.source.stopped, desk.clock.getDelayedCalls()) == (0, 1, [])


def test_an_alarm_begins_after_a_minute_of_failures_and_ends_with_a_delivery() -> None:
    desk = Desk()
    desk.client.answers = [503] * 8
    desk.source.add(1)
    desk.pass_time(30)
    assert desk.alarms.active == []
    desk.pass_time(60)
    (alarm,) = desk.alarms.active
    assert alarm.name == "hook_failing/test"
    assert "503" in alarm.message
    desk.pass_time(300)
    assert desk.alarms.active == []
    assert desk.hook.figures.delivered_events == 1


def test_a_batch_of_another_node_is_left_to_it() -> None:
    desk = Desk()
    desk.client.answers = [500]
    desk.source.add(1)
    desk.pass_time(0.1)
    desk.source.is_kept = False
    desk.pass_time(10)
    assert (len(desk.client.sent), desk.source.confirmed) == (1, 0)


def test_a_source_that_fails_is_asked_again() -> None:
    desk = Desk()
    desk.lane.stopService()
    desk.source.failures = 2
    desk.lane.startService()
    desk.source.add(1)
    desk.pass_time(12)
    assert desk.client.numbers == [[1]]


def test_the_list_and_the_metrics_show_what_a_hook_has_done() -> None:
    desk = Desk()
    desk.client.answers = [200, 500]
    desk.source.add(1)
    desk.source.add(2)
    desk.pass_time(0.5)
    running = Running(desk.hook, {"retained": desk.lane})
    (found,) = json.loads(_content(HookCalls([running])))["data"]
    assert (found["name"], found["server"], found["state"]) == ("test", "a.example", {"retained": "failing"})
    assert (found["delivered_events"], found["failed_attempts"]) == (1, 1)
    assert found["last_error"] == "the server has answered 500"
    values = {metric.name: metric.read() for metric in hook_metrics([running], lambda: desk.now() / 1000)}
    assert values["holdfast_hook_events_total"] == {("test",): 1}
    assert values["holdfast_hook_failures_total"] == {("test",): 1}
    assert "key" not in repr(desk.hook)


def _content(calls: HookCalls) -> bytes:
    answers: list[Any] = []
    calls.list_hooks(cast("Any", None)).addCallback(answers.append)
    body: bytes = answers[0].body
    return body
