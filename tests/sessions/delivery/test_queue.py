"""The queue of a Session: in order, also when messages leave from its middle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.messages import ApplicationMessage, held_size
from holdfast.sessions.counters import Holdings
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.queue import MessageQueue, Queued, QueuedRun
from holdfast.wire import NO_PROPERTIES, PacketParser, Run, encode
from holdfast.wire import packets as p


def queued(topic: str, retain: bool = True) -> Queued:
    return Queued(OutgoingMessage(ApplicationMessage(topic, b"12", 1, retain)), 1, False, (), None)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("abc"), st.booleans()),
        st.tuples(st.just("pop"), st.just(""), st.just(False)),
        st.tuples(st.just("take"), st.sampled_from("abc"), st.just(False)),
        st.tuples(st.just("remove"), st.just(""), st.just(False)),
    ),
    max_size=60,
)


@given(_STEPS)
def test_it_agrees_with_a_list(steps: list[tuple[str, str, bool]]) -> None:
    """Length, bytes, order and counts are those of a plain list, whatever was taken out of it."""
    queue, model, added = MessageQueue(Holdings()), list[Queued](), 0
    places: dict[Queued, int] = {}
    for kind, topic, retain in steps:
        if kind == "append":
            one = queued(topic, retain)
            queue.append(one)
            model.append(one)
            added += 1
            places[one] = added
        elif kind == "pop" and model:
            assert queue.pop() is model.pop(0)
        elif kind == "take":
            taken = [one for one in model if one.outgoing.message.topic == topic and one.outgoing.message.retain]
            assert queue.take_retained(topic) == taken
            model = [one for one in model if one not in taken]
        elif kind == "remove" and model:
            one = model.pop(len(model) // 2)
            assert queue.remove(one)
            assert not queue.remove(one)
        assert list(queue) == model
        assert (len(queue), bool(queue)) == (len(model), bool(model))
        assert queue.bytes == sum(one.outgoing.size() for one in model)
        assert (queue.enqueued, queue.dequeued) == (added, added - len(model))
        if model:
            assert queue.first is model[0]
        for so_many in range(added + 1):
            assert queue.have_left(so_many) == all(places[one] > so_many for one in model)


def test_messages_from_the_middle_do_not_stand_for_older_ones() -> None:
    """A replay waits for the messages queued before it, however many newer ones were taken out meanwhile."""
    queue = MessageQueue(Holdings())
    queue.append(queued("old"))
    before = queue.enqueued
    for topic in ("a", "b"):
        queue.append(queued(topic))
        queue.take_retained(topic)
    assert not queue.have_left(before)
    queue.pop()
    assert queue.have_left(before)


def test_taking_many_topics_looks_at_each_message_a_few_times() -> None:
    """A clear of a thousand topics does not search the whole queue a thousand times."""
    looks = 0

    class Watched(ApplicationMessage):
        __slots__ = ()

        def __getattribute__(self, name: str) -> object:
            nonlocal looks
            looks += name == "topic"
            return super().__getattribute__(name)

    queue = MessageQueue(Holdings())
    for number in range(1000):
        queue.append(Queued(OutgoingMessage(Watched(f"t/{number}", b"", 1, True)), 1, False, (), None))
    looks = 0
    for number in reversed(range(1000)):
        (taken,) = queue.take_retained(f"t/{number}")
        assert taken.outgoing.message.topic == f"t/{number}"
    assert looks < 5000
    assert not queue


def test_messages_taken_out_do_not_stay_in_memory() -> None:
    """Their places are given up before they are an eighth of the queue."""
    queue = MessageQueue(Holdings())
    queue.append(queued("first"))
    for number in range(100):
        queue.append(queued(f"t/{number}"))
    for number in range(100):
        queue.take_retained(f"t/{number}")
    assert len(queue._messages) == 1


def run_of(numbers: range) -> QueuedRun:
    """Return a run whose payloads are these numbers."""
    parser = PacketParser(1 << 20, 4)
    parser.known = {0x32: {b"a": 1, b"bb": 1}}
    parser.receive_data(
        b"".join(
            encode(p.Publish("a" if number % 5 else "bb", b"%d" % number, 1, packet_identifier=1), 4)
            for number in numbers
        )
    )
    run = parser.next_run()
    assert isinstance(run, Run)
    return QueuedRun(run.kept(False), "publisher", "user")


@given(st.lists(st.tuples(st.sampled_from(["run", "single", "pop", "first", "last", "leave"]), st.integers(1, 9))))
def test_runs_wait_in_order_with_single_messages(steps: list[tuple[str, int]]) -> None:
    """Whether they leave as runs or one by one: the same messages, counted alike."""
    holdings = Holdings()
    queue, model, added = MessageQueue(holdings), list[int](), 0
    for kind, count in steps:
        if kind == "run":
            queue.append_run(run_of(range(added, added + 1 + count)))
            model += range(added, added + 1 + count)
            added += 1 + count
        elif kind == "single":
            topic = "a" if added % 5 else "bb"
            queue.append(Queued(OutgoingMessage(ApplicationMessage(topic, b"%d" % added, 1)), 1, False, (), None))
            model.append(added)
            added += 1
        elif model and kind == "pop":
            message = queue.pop().outgoing.message
            assert int(message.payload) == model.pop(0)
        elif model and kind in ("first", "last"):
            first = queue.first if kind == "first" else queue.last
            assert int(first.outgoing.message.payload) == model[0 if kind == "first" else -1]
        elif model and kind == "leave" and (run := queue.run) is not None:
            leaving = min(count, run.kept.count)
            queue.drop_of_run(run, leaving)
            del model[:leaving]
        assert (len(queue), bool(queue)) == (len(model), bool(model))
        sizes = [held_size(1 if number % 5 else 2, NO_PROPERTIES, len(str(number))) for number in model]
        assert queue.bytes == holdings.queued_bytes == sum(sizes)
        assert holdings.queued_messages == len(model)
        for so_many in range(added + 1):
            assert queue.have_left(so_many) == (not model or model[0] >= so_many)
            assert [int(one.outgoing.message.payload) for one in queue.listed(so_many)] == model[so_many:]
    assert [int(queue.pop().outgoing.message.payload) for _ in list(model)] == model
    assert not queue.bytes
