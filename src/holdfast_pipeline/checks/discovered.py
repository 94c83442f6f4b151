"""Findings without rules, in the retained messages and in their history. Pure.

Each kind of finding compares a topic with its siblings, the topics of the same shape, or with its own history. The
figures come from :mod:`holdfast_pipeline.judging.discovery`; the thresholds stand here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from holdfast_pipeline.checks.finding import Finding
from holdfast_pipeline.formatting import counted, moment, number, share, span, visible

#: Findings of one kind, and topics that a finding names: of malformed payloads more, since each is to be mended.
LISTED, EXAMPLES, NAMED = 12, 3, 50
#: Topics with fewer siblings are not compared with them.
SIBLINGS = 10
#: The parts of fewer devices are not compared. Nearly all have a part if this share of them do, or all but one.
FAMILY, NEARLY_ALL = 20, 0.98
#: Shapes of fewer messages are too few to tell which kind of payload is the wrong one.
_FEW = 5
#: From this share on, topics that differ are a second kind rather than mistakes.
SECOND_KIND = 0.1
#: A topic is chatty if it changed so many times as often as nine of ten siblings (or, without siblings, as 99 of 100
#: topics), and so often at least.
TIMES_MORE, LEAST_CHANGES = 20, 100
#: A value is stuck if it is published so many times in a row, and so many times as often as in nine of ten siblings.
LEAST_REPEATS, TIMES_LONGER = 20, 6
#: A topic is flapping if it goes to and fro quickly so often in a row, and TIMES_LONGER times as often as siblings do.
LEAST_FLIPS = 30
#: Topics that tell whether a device is online, and what they say then.
AVAILABILITY = ("availability", "available", "lwt", "online", "connected", "connection", "status", "$state")
ONLINE = ("online", "true", "1", "ready", "connected")
#: A topic has several publishers if they took turns so often.
LEAST_TURNS = 3
#: A value is far from the others if its robust z-score is beyond this, among so many values at least.
Z_SCORE, LEAST_VALUES = 10.0, 20
#: A client is gone if all of its messages are stale, and this share of all messages is of others.
STILL_THERE = 0.5


@frozen
class Malformed:
    """Messages of a shape, those whose payloads are ``unlike`` the others', which are of a ``kind``, and examples."""

    shape: str
    messages: int
    unlike: int
    kind: str
    topics: Sequence[str] = ()


@frozen
class Stale:
    """A device with so many ``stale`` topics, compared with their siblings. Ages are in seconds.

    The ``youngest`` of these topics; nine of ten of their siblings have the ``usual`` age, or less. More than one of
    the ``devices`` are a group below a level.
    """

    device: str
    stale: int
    youngest: int
    usual: int
    topics: Sequence[str]
    devices: int = 1


@frozen
class Missing:
    """So many ``lacking`` of the ``devices`` of a family have no topics ``parts``, which nearly all others have."""

    family: str
    parts: Sequence[str]
    devices: int
    lacking: int
    examples: Sequence[str]


@frozen
class Lone:
    """A device that alone of all ``devices`` of its family has the topics ``parts``.

    It may have been ``meant`` to have the topic that so many ``others`` have.
    """

    device: str
    family: str
    parts: Sequence[str]
    devices: int
    meant: str = ""
    others: int = 0


@frozen
class Uncompared:
    """A family whose devices have too many different ``sets`` of topics to be compared."""

    family: str
    sets: int


@frozen
class Command:
    """Retained ``messages`` of a shape that takes commands; ``devices`` of the family have other topics."""

    shape: str
    messages: int
    devices: int
    topics: Sequence[str]


@frozen
class Clock:
    """A device that states a time in a ``field``, ``off`` by so many seconds (positive: it tells earlier times)."""

    device: str
    field: str
    off: int
    topics: Sequence[str]


@frozen
class Undiscovered:
    """A device of so many retained ``configs`` for discovery whose topics have no message, with some of them."""

    device: str
    configs: int
    topics: Sequence[str]


@frozen
class Chatty:
    """A topic with its changes in some seconds, and the ``usual`` number of others. ``shape`` is "" without one."""

    topic: str
    shape: str
    changes: int
    usual: int
    seconds: int


@frozen
class Stuck:
    """A device whose ``field`` ("" for the whole payload) has had one value in so many ``messages`` in a row.

    It has had it ``since`` a time (milliseconds since the epoch). Nine of ten siblings have the same value in at most
    ``usual`` messages in a row.
    """

    device: str
    field: str
    value: float
    since: int
    messages: int
    usual: int
    topics: Sequence[str]


@frozen
class Flapping:
    """A device with topics that go to and fro between two values, with so many ``changes`` in some ``seconds``.

    Nine of ten siblings have changed ``usual`` times at most; 0 if there are no siblings. If it ``is_quick``, changes
    in a row are counted, each within a minute of the one before.
    """

    device: str
    one: str
    other: str
    changes: int
    usual: int
    seconds: int
    topics: Sequence[str]
    is_quick: bool = False


@frozen
class Lost:
    """A connection that ended without DISCONNECT ``at`` a time, as its Will Message in a topic tells.

    ``back`` is when the topic was published again, None if it was not; times are in milliseconds since the epoch.
    """

    topic: str
    client_id: str
    at: int
    back: int | None


@frozen
class Publishers:
    """A topic that several clients publish to in ``turns``."""

    topic: str
    turns: int
    clients: Sequence[str]


@frozen
class FarValues:
    """Values of a field of a shape ("" for the whole payload) that are ``far`` from the median, with topics."""

    shape: str
    field: str
    values: int
    far: int
    median: float
    deviation: float
    examples: Sequence[tuple[str, float]]


@frozen
class Gone:
    """A client that has set so many retained ``messages``, the newest of them ``age`` seconds ago, with some topics."""

    client_id: str
    messages: int
    age: int
    topics: Sequence[str]


@frozen
class Discovered:
    """The figures of a discovery at ``taken_at``, in milliseconds since the epoch."""

    taken_at: int
    malformed: Sequence[Malformed] = ()
    stale: Sequence[Stale] = ()
    chatty: Sequence[Chatty] = ()
    lost: Sequence[Lost] = ()
    publishers: Sequence[Publishers] = ()
    far: Sequence[FarValues] = ()
    gone: Sequence[Gone] = ()
    missing: Sequence[Missing] = ()
    lone: Sequence[Lone] = ()
    commands: Sequence[Command] = ()
    undiscovered: Sequence[Undiscovered] = ()
    clocks: Sequence[Clock] = ()
    stuck: Sequence[Stuck] = ()
    flapping: Sequence[Flapping] = ()
    uncompared: Sequence[Uncompared] = ()


NOTHING = Discovered(0)


def findings_in(found: Discovered) -> Iterator[Finding]:
    """Give the findings, at most :data:`LISTED` of each kind: those about most messages.

    A note tells that there are more.
    """
    for figures, told in (
        (found.malformed, malformed(found.malformed)),
        (found.commands, _commands(found.commands)),
        (found.undiscovered, _undiscovered(found.undiscovered)),
        (found.stale, _stale(found.stale)),
        (found.stuck, _stuck(found.stuck)),
        (found.flapping, _flapping(found.flapping)),
        (found.missing, _missing(found.missing)),
        (found.lost, _lost(found.lost, found.taken_at)),
        (found.chatty, _chatty(found.chatty)),
        (found.publishers, _publishers(found.publishers)),
        (found.clocks, _clocks(found.clocks)),
        (found.far, _far(found.far)),
        (found.lone, _lone(found.lone)),
        (found.uncompared, _uncompared(found.uncompared)),
        (found.gone, _gone(found.gone)),
    ):
        listed = list(told)
        yield from listed
        if len(listed) == LISTED < len(figures):
            yield Finding(
                severity="note",
                kind="more findings",
                subject=listed[0].kind,
                evidence=f"There are more findings of this kind than the {LISTED} that are told.",
                advice="Mend these, and look again.",
            )


def malformed(shapes: Iterable[Malformed]) -> Iterator[Finding]:
    """Give the shapes in which few payloads are of another kind than the others."""
    mistakes = [
        one for one in shapes if one.messages >= _FEW and 0 < one.unlike < SECOND_KIND * one.messages
    ]  # fmt: skip
    for one in sorted(mistakes, key=lambda each: (-each.unlike, each.shape))[:LISTED]:
        yield Finding(
            severity="error",
            kind="malformed payloads",
            subject=one.shape,
            evidence=f"{number(one.unlike)} of {number(one.messages)} payloads"
            f" ({share(one.unlike, one.messages)}) are of another kind than {one.kind}.",
            advice="Look at the payloads of the other kind, and mend their publishers. Consumers that decode this"
            " shape fail on them, or leave them out.",
            topics=tuple(one.topics[:NAMED]),
            weight=one.unlike,
        )


def _commands(shapes: Iterable[Command]) -> Iterator[Finding]:
    for one in sorted(shapes, key=lambda each: (-each.messages, each.shape))[:LISTED]:
        among = f"; its family has {number(one.devices)} devices" if one.devices > 1 else ""
        yield Finding(
            severity="warning",
            kind="retained command",
            subject=one.shape,
            evidence=f"{counted(one.messages, 'command')} {'is' if one.messages == 1 else 'are'} retained{among}.",
            advice="The device gets it again whenever it connects. Clear it, and publish commands without RETAIN.",
            topics=tuple(one.topics[:EXAMPLES]),
            weight=one.messages,
        )


def _undiscovered(devices: Iterable[Undiscovered]) -> Iterator[Finding]:
    for one in sorted(devices, key=lambda each: (-each.configs, each.device))[:LISTED]:
        yield Finding(
            severity="warning",
            kind="discovery without device",
            subject=one.device,
            evidence=f"{counted(one.configs, 'retained configuration')} for discovery"
            f" {'announces' if one.configs == 1 else 'announce'} it, and none of the topics there has a message.",
            advice="If the device is gone, clear these configurations: it is shown as unavailable until then.",
            topics=tuple(one.topics[:EXAMPLES]),
            weight=one.configs,
        )


def _stale(devices: Iterable[Stale]) -> Iterator[Finding]:
    for one in sorted(devices, key=lambda each: (-each.stale, -each.youngest, each.device))[:LISTED]:
        have = "has" if one.stale == 1 else "have"
        whose = "its topics" if one.devices == 1 else f"the topics of {number(one.devices)} devices below it"
        yield Finding(
            severity="warning",
            kind="stale device",
            subject=one.device,
            evidence=f"{number(one.stale)} of {whose} {have} not been stored again for {span(one.youngest)} or longer."
            f" Nine of ten siblings have been within {span(one.usual)}.",
            advice="Look whether it has power and a connection. If it is gone, clear its topics.",
            topics=tuple(one.topics[:EXAMPLES]),
            weight=one.stale,
        )


def _missing(devices: Iterable[Missing]) -> Iterator[Finding]:
    for one in sorted(devices, key=lambda each: (-each.lacking, each.family, each.parts))[:LISTED]:
        names = ", ".join(visible(device) for device in one.examples[:EXAMPLES])
        yield Finding(
            severity="note",
            kind="missing topics",
            subject=f"{one.family}: {', '.join(one.parts)}",
            evidence=f"{number(one.lacking)} of {counted(one.devices, 'device')}"
            f" {'has' if one.lacking == 1 else 'have'} no such topic, nearly all others do: {names}.",
            advice="Look whether this device is set up like the others.",
            topics=tuple(f"{device}/{part}" for device in one.examples[:EXAMPLES] for part in one.parts)[:EXAMPLES],
            weight=one.lacking,
        )


def _lone(devices: Iterable[Lone]) -> Iterator[Finding]:
    for one in sorted(devices, key=lambda each: (-each.devices, each.device))[:LISTED]:
        meant = f", and it lacks {visible(one.meant)}, which {number(one.others)} others have" if one.meant else ""
        yield Finding(
            severity="warning" if one.meant else "note",
            kind="misspelled topic" if one.meant else "lone topic",
            subject=one.device,
            evidence=f"Only this one of {counted(one.devices, 'device')} has"
            f" {', '.join(visible(part) for part in one.parts)}{meant}.",
            advice="Mend its publisher, and clear this topic." if one.meant else "If it is left over, clear it.",
            topics=tuple(f"{one.device}/{part}" for part in one.parts)[:EXAMPLES],
            weight=len(one.parts),
        )


def _uncompared(families: Iterable[Uncompared]) -> Iterator[Finding]:
    for one in sorted(families, key=lambda each: (-each.sets, each.family))[:LISTED]:
        yield Finding(
            severity="note",
            kind="not compared",
            subject=one.family,
            evidence=f"Its devices have {number(one.sets)} different sets of topics. So it is not known which of them"
            " lack a topic, or have one alone.",
            advice="Name the topics that each must have, in a rule of the type children.",
            weight=one.sets,
        )


def _lost(connections: Iterable[Lost], now: int) -> Iterator[Finding]:
    def away(one: Lost) -> int:
        return max(0, (now if one.back is None else one.back) - one.at)

    for one in sorted(connections, key=lambda each: (-away(each), each.topic, each.at))[:LISTED]:
        until = "and has not come back" if one.back is None else f"and came back after {span(away(one) // 1000)}"
        yield Finding(
            severity="warning",
            kind="lost connection",
            subject=one.topic,
            evidence=f"The client {visible(one.client_id)} lost its connection on {moment(one.at)}, {until}.",
            advice="Look at the power and the network of this client. Its devices have sent nothing meanwhile.",
            topics=(one.topic,),
            weight=1,
        )


def _chatty(topics: Iterable[Chatty]) -> Iterator[Finding]:
    for one in sorted(topics, key=lambda each: (-each.changes, each.topic))[:LISTED]:
        others = "nine of ten of its siblings" if one.shape else "99 of 100 topics"
        yield Finding(
            severity="warning",
            kind="chatty topic",
            subject=one.topic,
            evidence=f"It changed {number(one.changes)} times in {span(one.seconds)};"
            f" {others} changed at most {counted(one.usual, 'time')}.",
            advice="Have it publish less often, without RETAIN, or with a policy of the retainer (write_interval).",
            topics=(one.topic,),
            weight=one.changes,
        )


def _stuck(devices: Iterable[Stuck]) -> Iterator[Finding]:
    for one in sorted(devices, key=lambda each: (-each.messages, each.device))[:LISTED]:
        of = f" in {visible(one.field.lstrip('.'))}" if one.field else ""
        yield Finding(
            severity="warning",
            kind="stuck value",
            subject=one.device,
            evidence=f"It has published {one.value:g}{of} {counted(one.messages, 'time')} in a row, since"
            f" {moment(one.since)}. Nine of ten siblings repeat a value at most {counted(one.usual, 'time')}.",
            advice="Look at the sensor: its device goes on publishing, but it measures nothing new.",
            topics=tuple(one.topics[:EXAMPLES]),
            weight=len(one.topics),
        )


def _flapping(devices: Iterable[Flapping]) -> Iterator[Finding]:
    for one in sorted(devices, key=lambda each: (-each.changes, each.device))[:LISTED]:
        how = " so quickly" if one.is_quick else ""
        others = f" Nine of ten siblings changed{how} at most {counted(one.usual, 'time')}." if one.usual else ""
        yield Finding(
            severity="warning",
            kind="flapping",
            subject=one.device,
            evidence=f"It changed {number(one.changes)} times in {span(one.seconds)} between {visible(one.one, 40)} and"
            f" {visible(one.other, 40)}.{others}",
            advice="Look at its connection, a loose contact, or a threshold without hysteresis.",
            topics=tuple(one.topics[:EXAMPLES]),
            weight=len(one.topics),
        )


def _publishers(topics: Iterable[Publishers]) -> Iterator[Finding]:
    for one in sorted(topics, key=lambda each: (-each.turns, each.topic))[:LISTED]:
        names = ", ".join(visible(name) for name in sorted(one.clients)[:EXAMPLES])
        yield Finding(
            severity="warning",
            kind="several publishers",
            subject=one.topic,
            evidence=f"Several clients publish to it by turns: {names}; {counted(one.turns, 'turn')} in the history.",
            advice="If only one of them should, stop the others: each overwrites the messages of the others.",
            topics=(one.topic,),
            weight=one.turns,
        )


def _clocks(devices: Iterable[Clock]) -> Iterator[Finding]:
    for one in sorted(devices, key=lambda each: (-abs(each.off), each.device))[:LISTED]:
        yield Finding(
            severity="warning",
            kind="wrong clock",
            subject=one.device,
            evidence=f"The time in {visible(one.field)} is {span(abs(one.off))} too"
            f" {'early' if one.off > 0 else 'late'}, compared with its siblings.",
            advice="Set its clock, or look whether it sends old messages.",
            topics=tuple(one.topics[:EXAMPLES]),
            weight=1,
        )


def _far(fields: Iterable[FarValues]) -> Iterator[Finding]:
    few = [one for one in fields if 0 < one.far < SECOND_KIND * one.values]
    for one in sorted(few, key=lambda each: (-each.far, each.shape, each.field))[:LISTED]:
        shown = ", ".join(f"{value:g} in {visible(topic)}" for topic, value in one.examples[:EXAMPLES])
        yield Finding(
            severity="note",
            kind="unusual values",
            subject=f"{one.shape} {one.field}".rstrip(),
            evidence=f"{number(one.far)} of {counted(one.values, 'value')} {'is' if one.far == 1 else 'are'} far from"
            f" the median {one.median:g}, from which half of all differ by {one.deviation:g} at most: {shown}.",
            advice="Look whether these sensors are broken, or measure in another unit.",
            topics=tuple(topic for topic, _ in one.examples[:EXAMPLES]),
            weight=one.far,
        )


def _gone(clients: Iterable[Gone]) -> Iterator[Finding]:
    for one in sorted(clients, key=lambda each: (-each.messages, each.client_id))[:LISTED]:
        yield Finding(
            severity="note",
            kind="orphans",
            subject=one.client_id,
            evidence=f"This client has set {counted(one.messages, 'retained message')}, and none for {span(one.age)}.",
            advice="If the device is gone, clear its messages: holdfast retainer clean '#' --publisher CLIENT"
            " --older-than 30d --dry-run.",
            topics=tuple(one.topics[:EXAMPLES]),
            weight=one.messages,
        )
