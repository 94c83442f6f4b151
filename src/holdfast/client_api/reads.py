"""The call of MQTT clients over HTTP: one retained message, a page of them, or a stream that goes on live.

How it works. A client logs in with the credentials of a CONNECT (:mod:`.logins`), and gets what a SUBSCRIBE with
the same Topic Filter would get. Pages are the answers to ``$retained/get``
(:class:`holdfast.sessions.questions.Questions`): the same fields, the same places to go on, the same fair line. A
stream is such a list, page by page, and then the changes since its beginning
(:class:`holdfast.changes.watch.ChangeWatch`):

    follow from now      a = 1 is retained          position 7
    list                 a = 2 is committed, position 8, and is listed
    ready                the list is complete
    position 8           a = 2 is left out: the client has this revision

So no change is missing, and no older value follows a newer one. Nothing is queued for a client: a piece is made when
the client has taken the previous one, and a slow client gets the newest change of each topic. One that is so slow that
changes are missing is told so, and its stream ends; it connects again and gets a new list. Each second the stream looks
whether its client would still be admitted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.web import http

from holdfast.admin.address import CLIENTS_PATH
from holdfast.admin.api.events import CONTENT_TYPE, PING_INTERVAL, beginning, event, not_stored, ping
from holdfast.admin.api.parameters import REFUSALS
from holdfast.admin.arguments import STRING, TOPIC_FILTER, number_of, optional_filter_of, whole
from holdfast.admin.call import JSON, Answer, Call, RefusedCall, Scope, bad_request, not_found, unavailable
from holdfast.admin.routing import Content, Route, query, routes_of
from holdfast.changes.recent import LONGEST_PAYLOAD, StoredChange
from holdfast.changes.watch import ChangeWatch, Follower, ListedRevisions, NotStored
from holdfast.client_api.logins import ClientLogin, ClientLogins
from holdfast.core.extensions import MOST_IN_ANSWER, USUAL_IN_ANSWER, BadRequest, Question
from holdfast.core.messages import ChangeKind
from holdfast.core.tickets import StorageFailure
from holdfast.core.topics import (
    ASK_GET,
    QUEUE_PREFIX,
    SHARED_PREFIX,
    has_wildcard,
    is_of_broker,
    level_count,
    levels_before_wildcard,
)
from holdfast.identity.interfaces import Grant, Principal
from holdfast.retained.service import RetainedMessages
from holdfast.retained.store.values import ListedMessage
from holdfast.scheduling.fair_line import LineFull
from holdfast.scheduling.waiting import as_deferred
from holdfast.sessions.questions import Questions

#: The streams of one user or address, and of all: connections are left for operators.
MOST_STREAMS_OF_ONE, MOST_STREAMS = 16, 128
#: The bytes of a piece, about, and the messages of a page of a stream.
_BYTES, _PAGE = 1 << 16, 100
#: Seconds between two looks at the client's rights, between two pieces, and until a busy broker is asked again.
_LOOKS, _GATHERING, _LATER = 1.0, 0.1, 1.0
#: Milliseconds after which a client connects again.
_RETRY = 3000
#: in place of a Maximum Packet Size
_UNLIMITED = 1 << 28
_BYTES_TYPE = "application/octet-stream"


class RetainedStream:
    """One stream: the retained messages of a Topic Filter, then their changes. ``stopped`` is called once."""

    def __init__(
        self,
        login: ClientLogin,
        principal: Principal,
        question: Question,
        questions: Questions,
        clock: IReactorTime,
        stopped: Callable[[], None],
    ) -> None:
        self._login = login
        self._epoch = login.epoch
        self._principal = principal
        self._question = question
        self._questions = questions
        self._clock = clock
        self._stopped: Callable[[], None] | None = stopped
        self._follower: Follower | None = None
        self._after: str | None = ""  #: where the list goes on, None at its end
        self._count = 0
        self._pieces = [beginning(_RETRY, None)]  #: what the next piece begins with
        self._is_over = False
        self._news: Deferred[None] | None = None
        self._next = self._ping_at = 0.0
        self._listed = ListedRevisions(clock.seconds())

    def follow(self, follower: Follower) -> None:
        """Send the changes of a follower, which begins before the list does."""
        self._follower = follower

    def news(self) -> None:
        """Look soon: something has changed."""
        news, self._news = self._news, None
        if news is not None:
            news.callback(None)

    def stop(self) -> None:
        """End the stream, because its client has left."""
        stopped, self._stopped = self._stopped, None
        if stopped is None:
            return
        if self._follower is not None:
            self._follower.close()
            self._follower = None
        stopped()

    @as_deferred
    async def more(self) -> bytes:
        """Return the next piece; b"" after the end of the stream."""
        if self._is_over:
            return b""
        await deferLater(self._clock, max(0.0, self._next - self._clock.seconds()))
        try:
            while (why := await self._refusal()) is None:
                if self._after is not None:
                    await self._list()
                else:
                    why = await self._take()
                if why is not None or self._pieces:
                    break
                if self._clock.seconds() >= self._ping_at:
                    self._pieces.append(ping(None))
                    break
                await self._wait(_LOOKS)
        except (StorageFailure, NotStored):
            why = "the broker cannot read the changes now; connect again"
        if why is not None:
            self._pieces.append(event("end", _json({"reason": why})))
            self._is_over = True
        now = self._clock.seconds()
        self._next = now if self._after is not None else now + _GATHERING
        self._ping_at = now + PING_INTERVAL
        piece, self._pieces = b"".join(self._pieces), []
        return piece

    async def _refusal(self) -> str | None:
        """Return why the client may have nothing more. After a change of the rules, a SUBSCRIBE is judged anew."""
        why, epoch = self._login.over(), self._login.epoch
        if why is None and epoch != self._epoch:
            self._epoch = epoch
            allowed = await self._login.may_subscribe(self._question.topic_filter)
            why = None if allowed else "you may not subscribe to this any more"
        return why

    async def _list(self) -> None:
        """Send the next page of the list."""
        asked = evolve(self._question, after=self._after or "")
        try:
            page = await self._questions.page(asked, self._login, self._principal, _UNLIMITED, self._note)
        except LineFull:
            await self._wait(_LATER)
            return
        self._pieces += [event("retained", entry) for entry in page.entries]
        self._count += len(page.entries)
        self._after = page.after
        if self._after is None:
            self._listed.ended(self._clock.seconds())
            self._pieces.append(event("ready", _json({"count": self._count})))

    def _note(self, listed: ListedMessage) -> None:
        self._listed.note(listed.message.topic, listed.message.revision)

    async def _take(self) -> str | None:
        """Send the next changes. Return why the stream has to end, None if it goes on."""
        if self._follower is None:
            return "the stream is over"
        taken = await self._follower.take(_BYTES)
        if taken.reset is not None:
            return f"changes are missing: {taken.reset}; connect again for all messages"
        if not taken.more:
            self._listed.caught_up(self._clock.seconds())
        grant = self._login.grant(self._question.topic_filter)
        for change in taken.changes:
            if self._listed.is_behind(change):
                continue
            if change.kind is not ChangeKind.SET:
                if grant is Grant.GRANTED or await _allows(self._login.may_receive(change.topic)):
                    self._pieces.append(_cleared(change))
            elif await self._questions.permits(self._login, grant, change):
                self._pieces += await self._set(change)
        return None

    async def _set(self, change: StoredChange) -> list[bytes]:
        """Return the event of a new value. The memory of changes has no long payload: then the message is read."""
        if change.size <= LONGEST_PAYLOAD:
            return [event("retained", _json(_fields(change)))]
        asked = Question(ASK_GET, change.topic, 1)
        try:
            page = await self._questions.page(asked, self._login, self._principal, _UNLIMITED, _nothing)
        except LineFull:
            return [event("retained", _json(_fields(change)))]
        return [event("retained", entry) for entry in page.entries]

    async def _wait(self, seconds: float) -> None:
        """Wait for news, and no longer than this."""
        news: Deferred[None] = Deferred()
        self._news = news
        timer = self._clock.callLater(seconds, self.news)
        try:
            await news
        finally:
            self._news = None
            if timer.active():
                timer.cancel()


def _nothing(_listed: ListedMessage) -> None:
    """Note nothing."""


async def _allows(answer: bool | Deferred[bool]) -> bool:
    return (await answer if isinstance(answer, Deferred) else answer) is True


def _json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _cleared(change: StoredChange) -> bytes:
    told = json.loads(change.json())
    fields = {"topic": change.topic, "revision": told["revision"], "at": told["publish_at"], "reason": told["event"]}
    return event("cleared", _json(fields))


def _fields(change: StoredChange) -> dict[str, Any]:
    """Return a change with the fields of a listed message."""
    told = json.loads(change.json())
    return {
        "topic": change.topic, "payload": told.get("payload"), "qos": told["qos"], "size": told["size"],
        "revision": told["revision"], "stored_at": told["publish_at"], "expires_at": told["expiry_at"],
        "properties": told["properties"],
    }  # fmt: skip


class ClientReads:
    """Answers the calls of clients. Without ``changes`` there are no streams."""

    def __init__(
        self,
        logins: ClientLogins,
        retained: RetainedMessages,
        questions: Questions,
        changes: ChangeWatch | None,
        clock: IReactorTime,
        most_of_one: int = MOST_STREAMS_OF_ONE,
        most: int = MOST_STREAMS,
    ) -> None:
        self._logins = logins
        self._retained = retained
        self._questions = questions
        self._changes = changes
        self._clock = clock
        self._most_of_one = most_of_one
        self._most = most
        self._open: Counter[str] = Counter()
        self.routes = routes_of(self)

    @property
    def open(self) -> int:
        """The number of streams."""
        return self._open.total()

    @Route(
        method="GET",
        path=CLIENTS_PATH,
        scope=Scope.OPEN,
        summary="For MQTT clients, with their user name and password or token, and their rights: show the retained"
        " message of a topic, a page of those that match a filter, or a stream of server-sent events"
        " (Accept: text/event-stream) of these messages and their changes",
        parameters=(
            query("topic", TOPIC_FILTER, "one topic"),
            query("filter", TOPIC_FILTER, "a Topic Filter"),
            query("limit", whole(1, MOST_IN_ANSWER, USUAL_IN_ANSWER), "the most messages of a page"),
            query("after", STRING, "where to go on: after of the page before"),
        ),
        answers={
            200: Content(
                {"type": "object"}, "the message, or a page: messages, and after if there are more",
                also=(_BYTES_TYPE, CONTENT_TYPE),
            ),
            304: None,
        },
        refusals={**REFUSALS, NotStored: not_stored},
    )  # fmt: skip
    @as_deferred
    async def read(self, call: Call) -> Answer:
        """Answer a client."""
        login: ClientLogin = await self._logins.login(call)
        question = self._question_of(call, login)
        allowed = await login.may_subscribe(question.topic_filter)
        if not allowed:
            raise RefusedCall(http.FORBIDDEN, "FORBIDDEN", "you may not subscribe to this Topic Filter")
        if self._retained.refuses_replays:
            raise unavailable("retained messages cannot be read now; try again later")
        # Guests wait in the line by their addresses: they have no Client Identifiers here.
        principal = evolve(login.principal, client_id=login.peer.group)
        if CONTENT_TYPE in call.accept:
            return await self._stream(call, login, principal, question)
        if "topic" in call.arguments:
            return await self._one(call, login, principal, question)
        body: bytes = await self._questions.answer(question, login, principal, _UNLIMITED)
        return Answer(body=body + b"\n")

    def _question_of(self, call: Call, login: ClientLogin) -> Question:
        """Return what is asked, within the limits of the client's zone. Raises RefusedCall."""
        arguments, limits = call.arguments, login.limits
        topic, topic_filter = optional_filter_of(arguments, "topic"), optional_filter_of(arguments, "filter")
        if (topic is None) is (topic_filter is None):
            raise bad_request("name one of topic and filter", "topic", "either topic or filter")
        name, asked = ("topic", topic) if topic is not None else ("filter", topic_filter or "")
        if topic is not None and has_wildcard(topic):
            raise bad_request("topic has no wildcards; use filter", "topic", "a Topic Name")
        if asked.startswith((SHARED_PREFIX, QUEUE_PREFIX)) or is_of_broker(asked):
            raise bad_request(f"{name}: no message is retained there for clients", name, "topics of clients")
        if level_count(asked) > limits.max_topic_levels:
            raise bad_request(f"{name} has more than {limits.max_topic_levels} levels", name, "fewer levels")
        if has_wildcard(asked):
            if not limits.wildcard_subscription:
                raise bad_request("wildcards are not offered here (mqtt.wildcard_subscription)", name, "a Topic Name")
            if levels_before_wildcard(asked) < limits.min_replay_levels:
                least = f"{limits.min_replay_levels} levels before the first wildcard"
                raise bad_request(f"{name} needs {least} (mqtt.min_replay_levels)", name, least)
        limit = number_of(arguments, "limit", USUAL_IN_ANSWER, MOST_IN_ANSWER) if topic is None else 1
        question = Question(ASK_GET, asked, limit, arguments.get("after", ""))
        try:
            self._questions.check(question)
        except BadRequest as bad:
            raise bad_request(str(bad), "after", "after of the page before") from None
        return question

    async def _one(self, call: Call, login: ClientLogin, principal: Principal, question: Question) -> Answer:
        """Answer with one message: as JSON, or its payload alone."""
        found: list[ListedMessage] = []
        page = await self._questions.page(question, login, principal, _UNLIMITED, found.append)
        if not found:
            raise not_found("no message is retained on this topic that you may receive")
        etag = f'"{found[0].message.revision}"'
        headers = (("ETag", etag), ("Vary", "Accept, Authorization"))
        if call.head is not None and call.head.etags == etag:
            return Answer(HTTPStatus.NOT_MODIFIED, headers=headers)
        if _BYTES_TYPE in call.accept:
            return Answer(body=found[0].message.payload, content_type=_BYTES_TYPE, headers=headers)
        if not page.entries:
            raise bad_request(f"the message is too long for JSON; ask for Accept: {_BYTES_TYPE}", "topic")
        return Answer(body=page.entries[0] + b"\n", content_type=JSON, headers=headers)

    async def _stream(self, call: Call, login: ClientLogin, principal: Principal, question: Question) -> Answer:
        if self._changes is None:
            raise NotStored("this broker does not store which topics change: retainer.changes.enable = false")
        if "after" in call.arguments or "limit" in call.arguments:
            raise bad_request("a stream has neither after nor limit", "after", "nothing for a stream")
        asked = evolve(question, limit=_PAGE)
        stream = RetainedStream(login, principal, asked, self._questions, self._clock, self._counted(login))
        try:
            stream.follow(await self._changes.follow(question.topic_filter, None, stream.news))
        except BaseException:
            stream.stop()
            raise
        return Answer(
            content_type=CONTENT_TYPE,
            headers=(("X-Accel-Buffering", "no"),),  # nginx would gather the events
            more=stream.more,
            stopped=stream.stop,
        )

    def _counted(self, login: ClientLogin) -> Callable[[], None]:
        """Count a stream; return what to call at its end. Raises RefusedCall if there are too many."""
        who = login.name
        for count, most, whose in ((self._open[who], self._most_of_one, "of yours"), (self.open, self._most, "in all")):
            if count >= most:
                raise RefusedCall(
                    HTTPStatus.TOO_MANY_REQUESTS, "TOO_MANY_STREAMS", f"there are {most} streams {whose} already",
                    (("Retry-After", "10"),), allowed=f"{most} streams",
                )  # fmt: skip

        def stopped() -> None:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]

        self._open[who] += 1
        return stopped
