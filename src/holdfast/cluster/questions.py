"""Questions to all other members, for operators: a short question, one answer of each, two seconds. Without I/O.

How it works. A question has a number, a subject, and a body whose form only the subject knows. Each member that has a
part for the subject answers, in parts of at most :data:`_PART` bytes:

    node 1   question 7 "calls"       to nodes 2, 3 and 4
    node 2   7: part 0, part 1, last  its answer is complete
    node 3   7: no answer             it has no such part, or that part has failed: it counts as silent at once
    node 4   nothing                  two seconds later it counts as silent
    node 4   7: part 0, last          nobody waits any more: dropped

A member that has not been heard lately is not waited for, so a call is late only in the seconds in which nobody knows
yet that a member stands still. A part that is lost makes the member silent; nothing is asked twice, since an answer may
be the result of a change.

Memory is bounded: :data:`MOST_ASKED` questions at a time, and :data:`MOST_ANSWERED` bytes of the answer of one member.
Questions decide nothing: what has to be right after a crash goes through the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from attrs import define, field, frozen
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.cluster.messages import LAST, MORE, NO_ANSWER, Question, Reply

#: seconds that a question waits for its answers
PATIENCE = 2.0
#: questions that wait for answers, and questions of others that are being answered
MOST_ASKED, MOST_ANSWERING = 64, 64
#: bytes of the body of a question, and of an answer
MOST_BODY, MOST_ANSWERED = 128 << 10, 1 << 20
#: bytes of one part of an answer
_PART = 128 << 10

#: Answers a question of a node about one subject.
Handler = Callable[[int, bytes], Deferred[bytes]]


class TooManyQuestions(Exception):
    """Too many questions wait for answers; ask later."""


@frozen
class Answers:
    """The answers by node, and the ``silent`` nodes, which have none."""

    by_node: Mapping[int, bytes]
    silent: frozenset[int]


NO_ANSWERS = Answers({}, frozenset())


@define(eq=False)
class _Asked:
    """A question that waits: the nodes that have not answered in full, with the parts that they have sent."""

    waits_for: dict[int, list[bytes]]
    done: Deferred[Answers]
    answers: dict[int, bytes] = field(factory=dict)
    silent: set[int] = field(factory=set)
    timer: IDelayedCall | None = None


class MemberQuestions:
    """Asks the other members, and answers their questions. ``send`` sends a message to a node; it may be lost."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, send: Callable[[int, Question | Reply], None]) -> None:
        self._clock = clock
        self._send = send
        self._handlers: dict[str, Handler] = {}
        self._asked: dict[int, _Asked] = {}
        self._last = 0
        self._answering = 0

    def answer_with(self, subject: str, handler: Handler) -> None:
        """Let a function answer the questions about a subject."""
        self._handlers[subject] = handler

    def ask(self, subject: str, body: bytes, nodes: Collection[int], heard: Collection[int]) -> Deferred[Answers]:
        """Ask nodes; those that are not ``heard`` are silent at once. Fires after :data:`PATIENCE` at the latest.

        Raises :class:`TooManyQuestions`, and ValueError for a body that is too long.
        """
        if len(body) > MOST_BODY:
            raise ValueError(f"a question to members has {len(body)} bytes, more than {MOST_BODY}")
        awaited = [node for node in nodes if node in heard]
        silent = set(nodes).difference(awaited)
        if not awaited:
            return succeed(Answers({}, frozenset(silent)))
        if len(self._asked) >= MOST_ASKED:
            raise TooManyQuestions(f"{MOST_ASKED} questions to other members are under way")
        self._last += 1
        number = self._last
        done: Deferred[Answers] = Deferred(lambda _: self._end(number))
        asked = self._asked[number] = _Asked({node: [] for node in awaited}, done, silent=silent)
        asked.timer = self._clock.callLater(PATIENCE, self._end, number)
        for node in awaited:
            self._send(node, Question(number, subject, body))
        return done

    def take(self, node: int, message: Question | Reply) -> None:
        """Take a question, or a part of an answer, of a node."""
        if isinstance(message, Question):
            self._answer(node, message)
        else:
            self._take_reply(node, message)

    def peer_down(self, node: int) -> None:
        """Note that a node is gone: it answers nothing any more."""
        for number, asked in list(self._asked.items()):
            if node in asked.waits_for:
                self._silent(number, asked, node)

    def stop(self) -> None:
        """Wait for no answer any more."""
        for number in list(self._asked):
            self._end(number)

    # --- asking -------------------------------------------------------------------------------------------------------

    def _take_reply(self, node: int, reply: Reply) -> None:
        asked = self._asked.get(reply.number)
        parts = None if asked is None else asked.waits_for.get(node)
        if asked is None or parts is None:  # it comes too late
            return
        size = sum(map(len, parts)) + len(reply.body)
        if reply.end == NO_ANSWER or reply.part != len(parts) or size > MOST_ANSWERED:
            self._silent(reply.number, asked, node)
            return
        parts.append(reply.body)
        if reply.end == LAST:
            asked.answers[node] = b"".join(asked.waits_for.pop(node))
            self._end_if_complete(reply.number, asked)

    def _silent(self, number: int, asked: _Asked, node: int) -> None:
        del asked.waits_for[node]
        asked.silent.add(node)
        self._end_if_complete(number, asked)

    def _end_if_complete(self, number: int, asked: _Asked) -> None:
        if not asked.waits_for:
            self._end(number)

    def _end(self, number: int) -> None:
        """Tell the answers that are there."""
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        if asked.timer is not None and asked.timer.active():
            asked.timer.cancel()
        asked.done.callback(Answers(asked.answers, frozenset(asked.silent | asked.waits_for.keys())))

    # --- answering ----------------------------------------------------------------------------------------------------

    def _answer(self, node: int, question: Question) -> None:
        handler = self._handlers.get(question.subject)
        if handler is None or self._answering >= MOST_ANSWERING:
            self._send(node, Reply(question.number, 0, NO_ANSWER, b""))
            return
        self._answering += 1
        answering = maybeDeferred(handler, node, question.body)
        answering.addBoth(self._answered)
        answering.addCallbacks(partial(self._reply, node, question.number), partial(self._failed, node, question))

    def _answered(self, outcome: bytes | Failure) -> bytes | Failure:
        self._answering -= 1
        return outcome

    def _reply(self, node: int, number: int, body: bytes) -> None:
        if len(body) > MOST_ANSWERED:
            self._log.error("an answer to node {node} has more than {most} bytes", node=node, most=MOST_ANSWERED)
            self._send(node, Reply(number, 0, NO_ANSWER, b""))
            return
        count = max(1, -(-len(body) // _PART))
        for part in range(count):
            end = LAST if part == count - 1 else MORE
            self._send(node, Reply(number, part, end, body[part * _PART : (part + 1) * _PART]))

    def _failed(self, node: int, question: Question, failure: Failure) -> None:
        self._log.failure(
            "a question of node {node} about {subject} has no answer", failure, node=node, subject=question.subject
        )
        self._send(node, Reply(question.number, 0, NO_ANSWER, b""))
