"""The conditions of all alarms of the broker, with their meanings and remedies.

What an operator has to decide has an option; such a condition is off if its limit is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from attrs import define, frozen
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.broker.cluster import Carriers, ClusterParts
from holdfast.broker.figures import Heartbeat, Surroundings
from holdfast.changes.telemetry import Telemetry
from holdfast.config.sections.watching import AlarmsConfig
from holdfast.core.units import second_of
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.sessions.counters import Counters
from holdfast.sessions.memory_guard import MemoryGuard
from holdfast.storage.revisions import time_of
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.watch.alarms import Alarms, Condition, Growth, Severity
from holdfast.watch.audit import Audit
from holdfast.watch.log import LastingFailure

#: looks in a minute
_MINUTE = 60
_DAY = 86400.0
#: looks at a disk with enough room, until its alarm ends: several times its free space was measured anew
_DISK_LOOKS = 25
#: parts of what may wait for a commit: at the first the alarm begins, at the second it ends
_NEARLY_FULL, _EMPTIER = 0.8, 0.5
#: seconds that a clock may be off without an alarm
_CLOCK_TOLERANCE = 5.0
#: Seconds of its lease that a member has left at a renewal: at the first the alarm begins, at the second it ends. With
#: the shortest lease, a renewal in time has one second left.
_LEASE_NEARLY_LOST, _LEASE_RENEWED = 0.5, 0.75
#: bytes of SQLite's write-ahead log, which usually has less than 50 MB: a long one makes reads and the next start slow
LONG_LOG = 256 << 20
#: seconds that the commits of a minute take on average: each PUBACK waits for one
SLOW_COMMIT = 0.5
#: seconds that all clients have to wait in each of three seconds
LONG_WAIT = 0.24
#: failed logins in a minute
MANY_FAILURES = 20
#: seconds until a member, or NATS, is silent for too long; and until a member should have returned to NATS
_SILENT, _LEFT = 10, 30
#: messages between members that are missing in a minute; a member that falls back to the database costs one or two
_MANY_GAPS = 6
#: messages that are dropped in a minute
MANY_DROPPED = 100
#: seconds for which a replay delivers nothing
STALLED_SECONDS = 600.0

_WARNING, _CRITICAL = Severity.WARNING, Severity.CRITICAL


@frozen(kw_only=True)
class WatchedParts:
    """The parts that the conditions look at. ``now`` returns seconds since the epoch, ``wall`` the machine's time."""

    counters: Counters
    durable: DurableStore
    retained: RetainedMessages
    replays: ReplayRegistry
    audit: Audit
    heartbeat: Heartbeat
    guard: MemoryGuard | None
    telemetry: Telemetry
    surroundings: Callable[[], Surroundings]
    certificate_ends: Callable[[], Mapping[str, float]]
    cluster: ClusterParts | None
    now: Callable[[], float]
    wall: Callable[[], float]


def conditions_of(limits: AlarmsConfig, watched: WatchedParts) -> list[Condition]:
    """Return the conditions, without those that are off."""
    member = () if watched.cluster is None else _cluster(watched.cluster)
    return [*_storage(limits, watched), *_load(watched), *_security(limits, watched), *member]


def _storage(limits: AlarmsConfig, watched: WatchedParts) -> Iterator[Condition]:
    durable, surroundings = watched.durable, watched.surroundings

    def of_store(read: Callable[[OpenStore], float | None]) -> Callable[[], float | None]:
        return lambda: None if durable.parts is None else read(durable.parts)

    if limits.disk_free:
        yield Condition(
            name="disk_nearly_full", severity=_CRITICAL, meaning="The disk of node.data_dir is nearly full.",
            remedy="Make room, or move node.data_dir; on a full disk, changes are refused",
            measure=lambda: surroundings().disk_free_bytes,
            begins=limits.disk_free, ends=limits.disk_free + 1, ends_after=_DISK_LOOKS,
            tell=lambda free: f"The disk of node.data_dir has {free / (1 << 20):,.0f} MB left",
        )  # fmt: skip
    yield Condition(
        name="wal_growing", severity=_WARNING, meaning="SQLite's write-ahead log is long.",
        remedy="Look for a program that keeps a read of the database open, such as a backup or sqlite3",
        measure=lambda: surroundings().wal_bytes,
        begins=LONG_LOG, ends=LONG_LOG / 2,
        tell=lambda size: f"SQLite's write-ahead log has {size / (1 << 20):,.0f} MB",
    )  # fmt: skip
    yield Condition(
        name="database_unavailable", severity=_CRITICAL, meaning="The database cannot be reached or is locked.",
        remedy="Look at the database's server, or for the program that locks the file; acknowledgements wait meanwhile",
        measure=of_store(lambda parts: 0.0 if parts.available else 1.0),
        begins=1, ends=0, begins_after=2, tell=lambda _: "The database is not available",
    )  # fmt: skip
    yield Condition(
        name="database_damaged", severity=_CRITICAL,
        meaning="The database is damaged, and the broker has stopped storing.",
        remedy="Restart the broker with storage.on_corruption, or restore a backup: see faults.md",
        measure=of_store(lambda parts: 0.0 if parts.database.damage is None else 1.0),
        begins=1, ends=0, tell=lambda _: "The database is damaged",
    )  # fmt: skip
    yield Condition(
        name="changes_not_stored", severity=_CRITICAL, meaning="Changes could not be stored in the last minute.",
        remedy="Look for the cause in the log; publishers with QoS 1 or 2 were told",
        measure=Growth(of_store(lambda parts: parts.writer.counters.failed), _MINUTE),
        begins=1, ends=0, tell=lambda count: f"{count:.0f} changes could not be stored in the last minute",
    )  # fmt: skip
    yield Condition(
        name="telemetry_dropped", severity=_WARNING,
        meaning='Messages of policies with record = "all" were not recorded in the last minute.',
        remedy="Look at the disk or the database's server, and for the cause in the log; then at"
        " retainer.telemetry.max_waiting_bytes",
        # no change of the database would let it take longer topics, so these leave the alarm alone
        measure=Growth(lambda: watched.telemetry.dropped - watched.telemetry.too_long, _MINUTE), begins=1, ends=0,
        tell=lambda count: f"{count:,.0f} messages without RETAIN were not recorded in the last minute",
    )  # fmt: skip
    spent = Growth(of_store(lambda parts: parts.writer.counters.durations.total), _MINUTE)
    made = Growth(of_store(lambda parts: parts.writer.counters.durations.count), _MINUTE)

    def average() -> float | None:
        seconds, commits = spent(), made()
        return None if seconds is None or commits is None else seconds / max(commits, 1)

    yield Condition(
        name="commits_slow", severity=_WARNING, meaning="Commits take long, and acknowledgements wait for them.",
        remedy="Look at the disk or the database's server; holdfast doctor measures the disk",
        measure=average, begins=SLOW_COMMIT, ends=SLOW_COMMIT / 2, begins_after=5,
        tell=lambda seconds: f"The commits of the last minute took {1000 * seconds:,.0f} ms on average",
    )  # fmt: skip
    yield Condition(
        name="writer_queue_nearly_full", severity=_WARNING,
        meaning="Nearly as many changes wait for a commit as may: 64 MB.",
        remedy="Publishers are held when it is full: look at the disk",
        measure=of_store(lambda parts: parts.writer.pending_bytes / (parts.writer.pending_bytes + parts.writer.room)),
        begins=_NEARLY_FULL, ends=_EMPTIER, begins_after=2, ends_after=5,
        tell=lambda share: f"The changes that wait for a commit take {100 * share:.0f} % of what may wait",
    )  # fmt: skip


def _load(watched: WatchedParts) -> Iterator[Condition]:
    counters, guard, heartbeat = watched.counters, watched.guard, watched.heartbeat
    if guard is not None:
        yield Condition(
            name="memory_nearly_full", severity=_CRITICAL,
            meaning="The broker's memory is near limits.memory: new clients are refused, and costly ones disconnected.",
            remedy="Look for clients with long queues, lower mqtt.max_mqueue_bytes, or raise limits.memory",
            measure=lambda: float(guard.refuses), begins=1, ends=0,
            tell=lambda _: f"The broker's memory is near the {guard.most / (1 << 20):,.0f} MB of limits.memory",
        )  # fmt: skip
    yield Condition(
        name="reactor_lag_high", severity=_WARNING, meaning="All clients wait, because the broker is busy.",
        remedy="Look at the load of the processor, and at the rates and replays of clients",
        measure=heartbeat.take_worst, begins=LONG_WAIT, ends=LONG_WAIT / 2,
        begins_after=3, ends_after=30,
        tell=lambda seconds: f"Clients waited for {1000 * seconds:,.0f} ms in the last second",
    )  # fmt: skip
    yield Condition(
        name="messages_dropped", severity=_WARNING, meaning="Messages were dropped because queues were full.",
        remedy="Look for clients that are away or slow, or raise mqtt.max_mqueue_len and mqtt.max_mqueue_bytes",
        measure=Growth(lambda: counters.messages_dropped_queue_full, _MINUTE),
        begins=MANY_DROPPED, ends=0,
        tell=lambda count: f"{count:,.0f} messages were dropped in the last minute, because queues were full",
    )  # fmt: skip
    replays = watched.replays
    yield Condition(
        name="replay_stalled", severity=_WARNING, meaning="A replay has delivered nothing for a long time.",
        remedy="Its client does not read or acknowledge; end the replay with holdfast retainer replays --cancel",
        measure=replays.oldest_stalled, begins=STALLED_SECONDS, ends=STALLED_SECONDS / 2,
        tell=lambda seconds: f"A replay has delivered nothing for {seconds:,.0f} s",
    )  # fmt: skip

    def clock_error() -> float:
        """Return how many seconds the machine's time is behind that of the broker, or of its newest change."""
        parts = watched.durable.parts
        newest = 0.0 if parts is None else time_of(parts.clock.latest) / 1000
        return max(watched.now() - watched.wall(), newest - watched.now())

    yield Condition(
        name="clock_went_back", severity=_WARNING,
        meaning="The machine's clock was set back while the broker ran, or since the newest change was stored.",
        remedy="Look at NTP; new changes are stamped after the old ones, and messages expire by the broker's own time",
        measure=clock_error, begins=_CLOCK_TOLERANCE, ends=_CLOCK_TOLERANCE / 2,
        tell=lambda seconds: f"The machine's clock is {seconds:,.0f} s behind",
    )  # fmt: skip


def _security(limits: AlarmsConfig, watched: WatchedParts) -> Iterator[Condition]:
    counters = watched.counters
    failed = Growth(lambda: counters.logins_failed, _MINUTE)
    banned = Growth(lambda: counters.addresses_banned, _MINUTE)

    def guesses() -> float | None:
        """Return the failures. A ban raises the alarm too: it ends the failures of its address."""
        failures, bans = failed(), banned()
        return None if failures is None or bans is None else max(failures, MANY_FAILURES * bool(bans))

    yield Condition(
        name="logins_fail", severity=_WARNING, meaning="Many logins have failed in the last minute.",
        remedy="Look for their addresses in the audit log, and ban them with holdfast ban add",
        measure=guesses, begins=MANY_FAILURES, ends=MANY_FAILURES / 2,
        tell=lambda _: f"Failed logins of the last minute: {failed.latest:,.0f};"
        f" addresses banned for them: {banned.latest:,.0f}",
        details=lambda: {"addresses_banned": counters.addresses_banned},
    )  # fmt: skip
    if limits.certificate_expiry:
        soonest = watched.certificate_ends

        def left() -> float | None:
            ends = soonest()
            return min(ends.values()) - watched.now() if ends else None

        def ends() -> dict[str, object]:
            return {name: second_of(round(1000 * end)) for name, end in soonest().items()}

        yield Condition(
            name="certificate_expires", severity=_WARNING, meaning="A certificate of a listener expires soon.",
            remedy="Renew it: clients refuse an expired certificate. The broker notices the new file",
            measure=left, begins=limits.certificate_expiry, ends=limits.certificate_expiry + _DAY / 24,
            tell=lambda seconds: f"A certificate expires in {seconds / _DAY:,.1f} days"
            if seconds > 0 else "A certificate has expired",
            details=ends,
        )  # fmt: skip
    yield Condition(
        name="audit_lines_lost", severity=_WARNING, meaning="Lines of the audit log were lost in the last minute.",
        remedy="Look for the error in the log, and at the disk and the permissions of audit.file",
        measure=Growth(lambda: watched.audit.lost, _MINUTE), begins=1, ends=0,
        tell=lambda count: f"{count:,.0f} lines of the audit log were lost in the last minute",
    )  # fmt: skip


def _cluster(cluster: ClusterParts) -> Iterator[Condition]:
    membership, exchange = cluster.membership, cluster.exchange
    yield Condition(
        name="lease_nearly_lost", severity=_CRITICAL,
        meaning="A renewal of this node's lease in the cluster was late: little more, and it had served nobody.",
        remedy="Look at the database's server and the network to it, and at the load of this machine; or raise"
        " cluster.lease",
        measure=membership.take_worst, begins=_LEASE_NEARLY_LOST, ends=_LEASE_RENEWED,
        tell=lambda seconds: f"The lease of this node lasted for {max(seconds, 0.0):,.1f} s more when it was renewed",
    )  # fmt: skip
    yield Condition(
        name="clocks_differ", severity=_WARNING,
        meaning="The clocks of this machine and of the database's server differ by more than 5 seconds.",
        remedy="Look at NTP on both: messages expire at different times on the members of the cluster",
        measure=lambda: None if membership.offset is None else abs(membership.offset),
        begins=_CLOCK_TOLERANCE, ends=_CLOCK_TOLERANCE / 2,
        tell=lambda seconds: f"The clocks differ by {seconds:,.0f} s",
    )  # fmt: skip
    yield Condition(
        name="cluster_member_silent", severity=_WARNING,
        meaning="A member of the cluster has a lease, and this one hears nothing of it.",
        remedy="Look at that member's log and at the load of its machine; subscriptions wait for it meanwhile",
        measure=lambda: len(exchange.silent), begins=1, ends=0, begins_after=_SILENT,
        tell=lambda _: f"Nothing is heard of {_nodes(exchange.silent)}",
    )  # fmt: skip
    yield Condition(
        name="cluster_configurations_differ", severity=_WARNING,
        meaning="Members of the cluster have different configurations.",
        remedy="Give all members the same one, except for their own listeners, logs and the like; holdfast node list"
        " shows a sign of each",
        measure=lambda: len(membership.other_configurations), begins=1, ends=0, begins_after=_MINUTE,
        tell=lambda _: f"{_nodes(membership.other_configurations)}: another configuration than this node's",
    )  # fmt: skip
    yield Condition(
        name="cluster_gaps", severity=_WARNING,
        meaning="Messages between members were lost on the way again and again in the last minute.",
        remedy="Look at the network, at NATS, and at the load of the members' machines; only messages with QoS 0 are"
        " lost for good",
        measure=Growth(lambda: exchange.breaks, _MINUTE), begins=_MANY_GAPS, ends=0,
        tell=lambda count: f"Members had to tell everything anew {count:.0f} times in the last minute",
    )  # fmt: skip
    yield Condition(
        name="cluster_messages_lost", severity=_WARNING,
        meaning="Messages for other members found no room.",
        remedy="Look for a member that is dead, silent or overloaded; remove a dead one that does not come back",
        measure=Growth(lambda: exchange.lost, _MINUTE), begins=MANY_DROPPED, ends=0,
        tell=lambda count: f"{count:,.0f} messages for other members were lost in the last minute",
    )  # fmt: skip
    if cluster.carriers.settings is not None:
        yield from _nats(cluster.carriers)


def _nats(carriers: Carriers) -> Iterator[Condition]:
    yield Condition(
        name="cluster_nats_unavailable", severity=_WARNING,
        meaning="No server of NATS is connected; the database carries all messages between members.",
        remedy="Look at the servers in cluster.bus and the network to them; the broker's log has the reason",
        measure=lambda: None if carriers.is_connected is None else float(not carriers.is_connected),
        begins=1, ends=0, begins_after=_SILENT, tell=lambda _: "No server of NATS is connected",
    )  # fmt: skip
    yield Condition(
        name="cluster_nats_passes_nothing", severity=_WARNING,
        meaning="NATS is connected, but a member does not answer over it; the database carries messages to it.",
        remedy="Look at that member's cluster.bus and log, and at the routes between the servers of NATS",
        measure=lambda: float(len(carriers.left_to_database)) if carriers.is_connected else None,
        begins=1, ends=0, begins_after=_LEFT,
        tell=lambda _: f"The database carries the messages to {_nodes(carriers.left_to_database)}",
    )  # fmt: skip
    yield Condition(
        name="cluster_secrets_differ", severity=_WARNING,
        meaning="A member has another cluster.secret, so nothing reaches it over NATS.",
        remedy="Copy one secret to all members, and restart those that had another one",
        measure=lambda: None if carriers.fallback is None else float(len(carriers.fallback.with_another_sign)),
        begins=1, ends=0,
        tell=lambda _: "Another secret has "
        + _nodes(() if carriers.fallback is None else carriers.fallback.with_another_sign),
    )  # fmt: skip


def _nodes(numbers: Collection[int]) -> str:
    return f"node {', '.join(map(str, sorted(numbers)))}"


# Looks at all conditions periodically, and begins and ends alarms.


#: seconds between two looks
LOOK_INTERVAL = 1.0


@define
class _Watched:
    condition: Condition
    failure: LastingFailure
    bad: int = 0  #: looks in a row
    good: int = 0


class AlarmWatch(Service):
    """Looks every second while it runs. If one condition cannot be measured, the others still are."""

    def __init__(self, alarms: Alarms, conditions: Sequence[Condition], clock: IReactorTime) -> None:
        self._alarms = alarms
        self.conditions = tuple(conditions)
        self._watched = [
            _Watched(each, LastingFailure(f"measuring the alarm {each.name}", "so this alarm neither begins nor ends"))
            for each in conditions
        ]
        self._job = PeriodicJob(self.look, name="looking for alarms", interval=LOOK_INTERVAL, clock=clock)

    def startService(self) -> None:
        """Begin to look."""
        Service.startService(self)
        self._job.start(LOOK_INTERVAL)

    def stopService(self) -> None:
        """Look no more."""
        Service.stopService(self)
        self._job.stop()

    def states(self) -> dict[tuple[str, ...], float]:
        """Return 1 for each active alarm, 0 for all others, by name."""
        return {(each.name,): float(self._alarms.is_active(each.name)) for each in self.conditions}

    def look(self) -> None:
        """Look at all conditions once."""
        for watched in self._watched:
            try:
                self._look_at(watched)
            except Exception:  # noqa: BLE001 - the other alarms must not depend on this one
                watched.failure.failed(Failure())
            else:
                watched.failure.succeeded()

    def _look_at(self, watched: _Watched) -> None:
        condition = watched.condition
        value = condition.measure()
        if value is None:
            return
        watched.bad = watched.bad + 1 if condition.is_bad(value) else 0
        watched.good = watched.good + 1 if condition.is_good(value) else 0
        if watched.good >= condition.ends_after:
            self._alarms.end(condition.name)
        elif watched.bad >= condition.begins_after or self._alarms.is_active(condition.name):
            message = f"{condition.tell(value)}. {condition.remedy}"
            self._alarms.begin(condition.name, condition.severity, message, condition.details())
