"""The invariants of the cluster, each a pure function of a history and of what the database had in the end.

They are those of the design, by number. Each returns what is wrong, the first :data:`MOST` of it.

A publisher repeats what was not acknowledged when it comes back. So a message with QoS 1 that was sent twice may come
twice, and older than another one. With QoS 2 nothing comes twice. A topic that several clients set may be corrected:
then its messages in queues may be replaced, so for these topics only the last value counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import islice

from tests.cluster.bench.history import Acknowledged, Measured, Stored, Violation
from tests.cluster.bench.views import NEVER, Delivery, Publication, Session, View

#: the violations of one invariant that are told
MOST = 20
#: a Will with at least this delay, in seconds, outlasts the cycle
LONG_DELAY = 30
#: Messages of a group for each of its members, from which on its members are compared, and by which part of the mean
#: they may differ.
_ENOUGH, _UNEVEN = 30, 0.2
#: what a node may hold more than in the beginning, and what may wait in the database: bytes, bytes, rows
_MORE_MEMORY, _MOST_RUNS, _RUNS_IN_THE_END, _ROWS_IN_THE_END = 256 << 20, 200 << 20, 1 << 20, 20_000

Check = Callable[[View, Stored], Iterator[Violation]]


def kept_for_sessions(view: View, stored: Stored) -> Iterator[Violation]:
    """1: an acknowledged message reaches each stored subscription with an earlier SUBACK, with QoS 2 exactly once."""
    for lost in view.lost:
        yield Violation(1, f"its stored Session was lost, {lost.at:.1f} s after the beginning", lost.client)
    for session in view.sessions:
        counted = view.counts(session)
        yield from _twice(view, session, counted)
        yield from _again(view, session, counted)
        if session.lasting and session.ended == NEVER and session.is_open:
            yield from _missing(1, view, session, counted)


def _twice(view: View, session: Session, counted: dict[int, list[Delivery]]) -> Iterator[Violation]:
    for number, deliveries in counted.items():
        made = view.publications.get(number)
        exact = [each for each in deliveries if each.qos == 2 and not each.retain]
        if made is not None and len(exact) > 1 and not view.is_contested(made.topic):
            yield Violation(1, f"QoS 2, and came {len(exact)} times", session.client, made.topic, number)


def _again(view: View, session: Session, counted: dict[int, list[Delivery]]) -> Iterator[Violation]:
    """Find messages that came twice on one connection without DUP, and were sent once."""
    for number, deliveries in counted.items():
        made = view.publications.get(number)
        if made is None or made.is_repeated or view.is_contested(made.topic):
            continue
        places = Counter(each.connection for each in deliveries if not each.dup and not each.retain)
        if any(count > 1 for count in places.values()):
            yield Violation(1, "came twice on one connection", session.client, made.topic, number)


def _missing(invariant: int, view: View, session: Session, counted: dict[int, list[Delivery]]) -> Iterator[Violation]:
    for subscription in session.plain:
        if not subscription.qos:
            continue
        for topic, publications in view.by_topic.items():
            if not subscription.takes(topic) or view.is_contested(topic):
                continue
            for made in publications:
                if (
                    made.qos
                    and made.is_acknowledged
                    and made.first > subscription.granted
                    and made.number not in counted
                ):
                    yield Violation(
                        invariant,
                        f"acknowledged with QoS {made.qos}, and never came",
                        session.client,
                        topic,
                        made.number,
                    )


def one_of_each(view: View, stored: Stored) -> Iterator[Violation]:
    """2: one connection for each client, one row for each Session, no commit of an incarnation that is over."""
    by_client: Counter[str] = Counter()
    for session in view.sessions:
        by_client[session.client] += sum(closed == NEVER for closed in session.connections.values())
    for client, count in by_client.items():
        if count > 1:
            yield Violation(2, f"has {count} connections", client)
    for client, owners in stored.sessions.items():
        if len(owners) > 1:
            yield Violation(2, f"has {len(owners)} Sessions, of the nodes {owners}", client)
    for (node, connection), incarnations in stored.commits.items():
        if len(incarnations) > 1:
            yield Violation(
                2, f"connection {connection} of node {node} has committed in the incarnations {incarnations}"
            )


def in_order(view: View, stored: Stored) -> Iterator[Violation]:
    """3: on a topic with one publisher no number falls on a connection, for each QoS, replays included."""
    for client, deliveries in view.deliveries.items():
        live: dict[tuple[int, str, int, int], int] = {}
        replayed: dict[tuple[int, str], int] = {}
        changes: dict[tuple[int, str], int] = {}
        for each in deliveries:
            made = None if each.number is None else view.publications.get(each.number)
            if made is None:
                continue
            place = each.connection, each.topic
            order = *place, made.qos, each.qos
            if _may_fall(view, made, each):
                pass
            elif each.retain and made.number < changes.get(place, 0):
                yield Violation(3, f"replayed behind {changes[place]}", client, each.topic, made.number)
            elif not each.retain and made.number < live.get(order, 0):
                yield Violation(3, f"QoS {each.qos}, behind {live[order]}", client, each.topic, made.number)
            elif not each.retain and (made.qos or made.retain) and made.number < replayed.get(place, 0):
                yield Violation(3, f"live, behind the replayed {replayed[place]}", client, each.topic, made.number)
            if each.retain:
                replayed[place] = max(made.number, replayed.get(place, 0))
            else:
                live[order] = max(made.number, live.get(order, 0))
            if made.retain:
                changes[place] = max(made.number, changes.get(place, 0))


def _may_fall(view: View, made: Publication, delivery: Delivery) -> bool:
    if made.is_repeated or delivery.dup:
        return True
    return made.topic in view.common or made.topic in view.will_topics


def in_agreement(view: View, stored: Stored) -> Iterator[Violation]:
    """4: the last value of each subscriber is the one in the database, also on a topic that several clients set.

    Messages of different QoS have no order, so it is a promise for topics with one QoS.
    """
    topics = [
        topic
        for topic, made in view.by_topic.items()
        if topic not in view.will_topics and all(each.retain and each.qos == made[0].qos for each in made)
    ]
    for session in view.sessions:
        if not session.is_open:
            continue
        last: dict[str, Delivery] = {}
        for each in view.deliveries.get(session.client, ()):
            if each.connection in session.connections:
                last[each.topic] = each
        for subscription in session.plain:
            if session.lasting and not subscription.qos:  # misses messages while it is away
                continue
            for topic in topics:
                if not subscription.takes(topic):
                    continue
                row = stored.retained.get(topic)
                seen = last.get(topic)
                value = None if seen is None or seen.empty else seen.number
                if value != row:
                    yield Violation(
                        4, f"saw {value} last, and the database has {row}", session.client, topic, row or value
                    )


def replayed_completely(view: View, stored: Stored) -> Iterator[Violation]:
    """5: a replay has each change that was acknowledged before SUBSCRIBE, and nothing that was cleared before it."""
    changes = {
        topic: [each for each in publications if each.retain]
        for topic, publications in view.by_topic.items()
        if not view.is_contested(topic)
    }
    for session in view.sessions:
        by_topic: dict[str, list[Delivery]] = defaultdict(list)
        for each in view.deliveries.get(session.client, ()):
            by_topic[each.topic].append(each)
        for subscription in session.subscriptions:
            if subscription.is_shared:
                continue
            for topic, made in changes.items():
                if made and subscription.takes(topic):
                    came = [
                        each
                        for each in by_topic.get(topic, ())
                        if each.connection == subscription.connection and each.place > subscription.asked
                    ]
                    is_open = session.connections[subscription.connection] == NEVER
                    yield from _replay(view, session.client, subscription.asked, topic, made, came, is_open)


def _replay(
    view: View, client: str, asked: int, topic: str, changes: list[Publication], came: list[Delivery], is_open: bool
) -> Iterator[Violation]:
    known = [each for each in changes if each.acknowledged < asked]
    if not known:
        return
    newest = max(known, key=lambda each: each.number)
    may_be_away = newest.clear or any(
        each.clear and (each.number > newest.number or each.last > newest.first) for each in changes
    )
    if is_open and not may_be_away and not any(each.number is None or each.number >= newest.number for each in came):
        yield Violation(5, "was set before SUBSCRIBE, and was not replayed", client, topic, newest.number)
    cleared = max((each.number for each in known if each.clear), default=0)
    for each in came:
        made = None if each.number is None else view.publications.get(each.number)
        if each.retain and made is not None and made.number < cleared and not made.is_repeated:
            yield Violation(5, f"replayed, and was cleared by {cleared} before SUBSCRIBE", client, topic, made.number)


def wills_as_promised(view: View, stored: Stored) -> Iterator[Violation]:
    """6: a Will comes at most once, once if its client never came back, and never behind its client's CONNACK."""
    watchers = [session for session in view.sessions if session.lasting and session.is_open and session.ended == NEVER]
    counted = {id(session): view.counts(session) for session in watchers}
    for place, will in view.wills:
        accepted = any(event.connection == will.connection for _, event in view.connects[will.client])
        closed, closing = view.closings.get(will.connection, (NEVER, None))
        back = [event for where, event in view.connects[will.client] if event.connection > will.connection]
        due = accepted and closing is not None and closing.by != "client" and not back
        delayed = due and will.delay >= LONG_DELAY
        never = accepted and (
            closing is None
            or (closing.by == "client" and closing.reason == 0)
            or (bool(back) and will.delay >= LONG_DELAY and back[0].present)
            or delayed
        )
        for session in watchers:
            for subscription in session.plain:
                if not subscription.takes(will.topic) or subscription.granted > place or not subscription.qos:
                    continue
                copies = [each.qos for each in counted[id(session)].get(will.number, ()) if not each.retain]
                if copies.count(2) > 1:  # a correction has QoS 1
                    yield Violation(6, f"a Will came {len(copies)} times", session.client, will.topic, will.number)
                if copies and never:
                    yield Violation(6, "a Will came without need", session.client, will.topic, will.number)
                if not copies and due and not delayed and closed < view.phases.get("quiet", NEVER):
                    yield Violation(6, "a Will never came", session.client, will.topic, will.number)
        if closing is None and accepted:
            said = [each for each in view.by_topic.get(will.topic, ()) if each.client == will.client]
            row = stored.retained.get(will.topic)
            if said and said[-1].is_acknowledged and row != said[-1].number:
                yield Violation(6, f"{row} is retained in spite of what its client said", will.client, will.topic, row)


def arrived_or_told(view: View, stored: Stored) -> Iterator[Violation]:
    """7: an acknowledged message reaches each connected subscriber; else its connection has ended with a reason."""
    for session in view.sessions:
        if not session.lasting and session.is_open:
            yield from _missing(7, view, session, view.counts(session))
    disturbed = view.phases.get("faults", NEVER), view.phases.get("groups", NEVER)
    for place, closing in view.closings.values():
        if closing.by == "broker" and closing.reason is None and not disturbed[0] <= place <= disturbed[1]:
            yield Violation(7, f"connection {closing.connection} ended without a reason or a fault", closing.client)


def still_stored(view: View, stored: Stored) -> Iterator[Violation]:
    """8: the database has what was acknowledged as retained, or something newer."""
    for topic, publications in view.by_topic.items():
        changes = [each for each in publications if each.retain]
        known = [each for each in changes if each.is_acknowledged]
        if not changes or view.is_contested(topic):
            continue
        row = stored.retained.get(topic)
        newest = max(known, key=lambda each: each.number, default=None)
        if row is not None and not any(each.number == row and not each.clear for each in changes):
            yield Violation(8, f"the database has {row}, which nobody has set", "", topic, row)
        elif newest is not None:
            later = [each for each in changes if each.number >= newest.number or each.last > newest.first]
            if not any((each.clear and row is None) or each.number == row for each in later):
                yield Violation(
                    8,
                    f"{newest.number} was acknowledged, and the database has {row}",
                    newest.client,
                    topic,
                    newest.number,
                )


def one_of_group(view: View, stored: Stored) -> Iterator[Violation]:
    """9: a group gets each acknowledged message, one member of it, and the members get equal parts."""
    groups: dict[str, list[Session]] = defaultdict(list)
    since: dict[str, int] = defaultdict(int)
    for session in view.sessions:
        for topic_filter in {each.topic_filter for each in session.subscriptions if each.is_shared}:
            groups[topic_filter].append(session)
            granted = min(each.granted for each in session.subscriptions if each.topic_filter == topic_filter)
            since[topic_filter] = max(granted, since[topic_filter]) if session.lasting else since[topic_filter]
    for topic_filter, members in groups.items():
        yield from _of_group(view, topic_filter, members, since[topic_filter])


def _of_group(view: View, topic_filter: str, members: list[Session], since: int) -> Iterator[Violation]:
    takers: dict[int, list[tuple[Session, Delivery]]] = defaultdict(list)
    name = topic_filter.split("/")[1]
    sample = next(each for each in members[0].subscriptions if each.topic_filter == topic_filter)
    for session in members:
        for number, deliveries in view.counts(session).items():
            takers[number] += [(session, each) for each in deliveries]
    begin, end = view.phases.get("groups", NEVER), view.phases.get("quiet", NEVER)
    parts: Counter[str] = Counter()
    for topic, publications in view.by_topic.items():
        if not sample.takes(topic):
            continue
        for made in publications:
            taken = takers.get(made.number, [])
            clients = {session.client for session, _ in taken}
            if begin < made.first < end:
                parts.update(clients)
            if not taken and made.qos and made.is_acknowledged and made.first > since and _all_last(members):
                yield Violation(9, f"group {name}: acknowledged, and nobody got it", "", topic, made.number)
            exact = [each for _, each in taken if each.qos == 2]
            if len(exact) > 1:
                yield Violation(9, f"group {name}: QoS 2, and came {len(exact)} times", "", topic, made.number)
            elif len(clients) > 1 and not made.is_repeated and all(_is_whole(each, session) for session, each in taken):
                yield Violation(9, f"group {name}: {', '.join(sorted(clients))} got it", "", topic, made.number)
    connected = [session for session in members if session.is_open]
    whole = [session for session in connected if _since(session, begin)]
    if len(whole) == len(connected) > 1 and sum(parts.values()) >= _ENOUGH * len(whole):
        mean = sum(parts.values()) / len(whole)
        for session in whole:
            if abs(parts[session.client] - mean) > _UNEVEN * mean:
                yield Violation(9, f"group {name}: got {parts[session.client]}, the mean is {mean:.0f}", session.client)


def _all_last(members: list[Session]) -> bool:
    return all(session.lasting and session.is_open for session in members)


def _is_whole(delivery: Delivery, session: Session) -> bool:
    """Tell whether the connection lasted: else the message may have gone to another member."""
    return session.connections[delivery.connection] == NEVER


def _since(session: Session, place: int) -> bool:
    return any(each.is_shared and each.granted < place for each in session.subscriptions) and all(
        closed == NEVER or closed < place for closed in session.connections.values()
    )


def bounded(view: View, stored: Stored) -> Iterator[Violation]:
    """10: nothing grows without bound, and what waits in the database is taken when all is well again."""
    first: dict[str, int] = {}
    for sample in view.history.of(Measured):
        for node, memory in sample.memory.items():
            grown = memory - first.setdefault(node, memory)
            if grown > _MORE_MEMORY:
                yield Violation(10, f"node {node} has {grown >> 20} MB more than in the beginning")
        if sample.runs > _MOST_RUNS:
            yield Violation(10, f"{sample.runs >> 20} MB of runs wait in the database")
    if stored.runs > _RUNS_IN_THE_END:
        yield Violation(10, f"{stored.runs >> 10} KB of runs wait in the database in the end")
    if stored.rows > _ROWS_IN_THE_END:
        yield Violation(10, f"{stored.rows} rows between nodes are left in the end")


CHECKS: tuple[Check, ...] = (
    kept_for_sessions, one_of_each, in_order, in_agreement, replayed_completely, wills_as_promised, arrived_or_told,
    still_stored, one_of_group, bounded,
)  # fmt: skip


def check(view: View, stored: Stored) -> list[Violation]:
    """Return what is wrong, at most :data:`MOST` violations of each invariant; a refused message is wrong too."""
    refused = [
        Violation(1, f"was refused with Reason Code 0x{event.reason:02X}", event.client, number=event.number)
        for event in view.history.of(Acknowledged)
        if event.reason >= 0x80
    ]
    found = [violation for each in CHECKS for violation in islice(each(view, stored), MOST)]
    return refused[:MOST] + found


def lost_with_qos_0(view: View) -> tuple[int, int]:
    """Return how many copies of messages with QoS 0 connected subscribers should have got, and how many they missed."""
    due = missed = 0
    for session in view.sessions:
        counted = view.counts(session)
        for subscription in session.plain:
            closed = session.connections[subscription.connection]
            for topic, publications in view.by_topic.items():
                if subscription.takes(topic):
                    for made in publications:
                        if made.qos == 0 and subscription.granted < made.first < closed:
                            due += 1
                            missed += made.number not in counted
    return due, missed
