"""Builds the parts that keep retained messages, and the API about them.

The commands' stand-in for a broker and the tests use :func:`compose_retainer` and :func:`compose_api`, so that they run
what the broker runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf

from attrs import asdict, evolve, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from holdfast.admin.api.retainer import RetainerAPI
from holdfast.admin.api.settings import Settings
from holdfast.admin.jobs import Jobs
from holdfast.broker.base import Base
from holdfast.broker.identity import IdentityParts
from holdfast.changes.entries import FOREVER, GENERAL, NOT_RECORDED, Depth, Rule, Rules
from holdfast.changes.history import HistoryLimits, RetainedHistory
from holdfast.changes.nodes import Epochs
from holdfast.changes.past import PastMessages
from holdfast.changes.recording import MOST_GATHERED, AppendingRecorder, GatheringRecorder, IChangesRecorder
from holdfast.changes.restoring import Restorer
from holdfast.changes.since import ChangesSince
from holdfast.changes.telemetry import Telemetry
from holdfast.changes.telemetry_table import TelemetryLimits
from holdfast.changes.watch import ChangeLog, ChangeWatch
from holdfast.config import Config
from holdfast.config.sections.authorization import STRICT
from holdfast.config.sections.retainer import PolicyConfig, RetainerConfig
from holdfast.core.tickets import CommitTicket
from holdfast.identity.bans import Bans
from holdfast.replay.pace import FlowControl
from holdfast.replay.registry import ReplayRegistry
from holdfast.retained.administration import Administration, IPublisher
from holdfast.retained.configured import limits_of as retainer_limits_of
from holdfast.retained.configured import (
    payer_limits_of,
    policies_of,
    store_of,
)
from holdfast.retained.importing import Merger
from holdfast.retained.leases import DurableLeaseRows
from holdfast.retained.limits import PayerLimits, flow_of
from holdfast.retained.rules import KeepRule
from holdfast.retained.service import RetainedMessages
from holdfast.retained.source_check import SourceCheck
from holdfast.retained.store.interfaces import Recorder
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.verdicts import PART_SECONDS
from holdfast.sessions.operator_publisher import OperatorPublisher
from holdfast.sessions.router import Router
from holdfast.storage.location import shown
from holdfast.storage.store import DurableStore


def judges_sources(config: Config) -> bool:
    """Tell whether replays judge the publishers of retained messages."""
    return bool(config.authorization.check_retain_source) and config.authorization.is_configured


def judges_guests(config: Config) -> bool:
    """Tell whether messages without a User Name are judged too."""
    return config.authorization.check_retain_source == STRICT


@frozen(kw_only=True)
class RetainerParts:
    """The parts that keep retained messages."""

    store: SQLRetainedStore
    retained: RetainedMessages
    replays: ReplayRegistry
    history: RetainedHistory
    telemetry: Telemetry
    #: follows the changes for streams of events; None if changes are not stored, or nobody asks
    changes: ChangeWatch | None = None


def build(config: Config, base: Base, identity: IdentityParts) -> RetainerParts:
    """Build the parts of the running broker."""
    parts = compose_retainer(
        config.retainer, durable=base.durable, clock=base.reactor, now=base.now,
        control_characters=config.mqtt.control_characters == "accept", keep_rule=identity.accounts.authorizer,
        judges_sources=judges_sources(config), judges_guests=judges_guests(config), bans=identity.bans,
        payers=payer_limits_of(config), max_packet_size=config.max_packet_size,
    )  # fmt: skip
    since = parts.replays.since
    if since is None:
        return parts
    return evolve(parts, changes=ChangeWatch(parts.store, ChangeLog(parts.store, since), base.reactor))


def compose_retainer(
    config: RetainerConfig,
    *,
    durable: DurableStore,
    clock: IReactorTime,
    now: Callable[[], int],
    keeps_history: bool = True,
    control_characters: bool = True,
    keep_rule: KeepRule | None = None,
    judges_sources: bool = True,
    judges_guests: bool = False,
    bans: Bans | None = None,
    payers: PayerLimits | None = None,
    max_packet_size: int,
) -> RetainerParts:
    """Build the parts that keep retained messages in ``durable``.

    ``now`` returns milliseconds since the epoch. ``control_characters`` tells whether operators may set such topics.
    With a ``keep_rule``, and while ``judges_sources``, replays withhold messages whose publishers may no longer retain
    them, and with ``judges_guests`` also messages without a User Name; always those of users in ``bans``. ``payers``
    has the quotas of users and guests. ``max_packet_size`` is the largest
    of all zones.
    """

    def flushed() -> CommitTicket:
        return store.flushed()

    # The history comes first: each part is called when the database opens, in this order, and the history must have
    # read its state before the retained store prepares its first write.
    history = RetainedHistory(
        durable, flushed=flushed, clock=clock, now=now, limits=history_limits_of(config),
        rules=history_rules_of(config), keeping=keeps_history,
    )  # fmt: skip
    recorder, changes = recorder_of(config, durable, history.recorder, gathers=keeps_history)
    epochs = Epochs(durable, now, recorded=changes is not None)
    store = store_of(config, durable, recorder, payers)
    limits = evolve(retainer_limits_of(config, max_packet_size), control_characters=control_characters, payers=payers)
    sources = None
    if keep_rule is not None:
        sources = SourceCheck(store, keep_rule, guests=judges_guests, clock=clock, enabled=judges_sources, bans=bans)
    retained = RetainedMessages(
        store, clock=clock, now=now, limits=limits, sources=sources, leases=DurableLeaseRows(durable)
    )  # fmt: skip
    since = None
    if changes is not None:
        since = ChangesSince(
            store, epochs, changes, clock=clock, now=now,
            keep=lambda: round(1000 * retained.admission.limits.tombstone_ttl),
        )  # fmt: skip
    replays = ReplayRegistry(
        store=store, feed=retained.feed, flow=FlowControl(clock, flow_of(config)), now=now, sources=sources,
        since=since, past=PastMessages(history, store),
    )  # fmt: skip
    telemetry = Telemetry(durable, clock=clock, now=now, limits=telemetry_limits_of(config))
    return RetainerParts(store=store, retained=retained, replays=replays, history=history, telemetry=telemetry)


def apply_settings(
    retained: RetainedMessages, replays: ReplayRegistry, history: RetainedHistory, retainer: RetainerConfig
) -> None:
    """Use the configured flow control, publish rate and policies from now on."""
    retained.change_policies(policies_of(retainer))
    history.change_rules(history_rules_of(retainer))
    replays.flow.change(flow_of(retainer))
    retained.admission.change_publish_rate(retainer.max_publish_rate)


# The recorders and the limits of the history and of the log of changes, from ``[retainer]``.


def recorder_of(
    retainer: RetainerConfig, durable: DurableStore, history: Recorder, gathers: bool = True
) -> tuple[Recorder, IChangesRecorder | None]:
    """Return the recorder of the store, and the one of changed topics if these are recorded.

    Both pass the changes on to the recorder of the ``history``. The latter may gather changes only in a process that
    appends them before its end.
    """
    if not retainer.changes.enable:
        return history, None
    changes: IChangesRecorder
    if durable.dialect == "sqlite":
        changes = GatheringRecorder(history, durable.bulk, most=MOST_GATHERED if gathers else 1)
    else:
        changes = AppendingRecorder(history)
    return changes, changes


def history_limits_of(retainer: RetainerConfig) -> HistoryLimits:
    """Return whether the history is kept, and its limits."""
    return HistoryLimits(**asdict(retainer.history))


def telemetry_limits_of(retainer: RetainerConfig) -> TelemetryLimits:
    """Return the limits of recorded messages without RETAIN."""
    telemetry = retainer.telemetry
    return TelemetryLimits(
        telemetry.keep, telemetry.max_messages or None, telemetry.max_bytes, telemetry.max_waiting_bytes
    )


def history_rules_of(retainer: RetainerConfig) -> Rules:
    """Return which topics the history records, and how long it keeps them, from the policies."""
    return Rules(Rule(policy.filter, _depth_of(policy)) for policy in retainer.policies)


def _depth_of(policy: PolicyConfig) -> Depth:
    if policy.history is False:
        return NOT_RECORDED
    if policy.history_keep is None:
        return GENERAL
    return FOREVER if policy.history_keep == inf else round(policy.history_keep * 1000)


def compose_api(
    config: RetainerConfig,
    *,
    administration: Administration,
    retained: RetainedMessages,
    replays: ReplayRegistry,
    history: RetainedHistory,
    telemetry: Telemetry,
    publisher: IPublisher,
    can_change: bool,
    location: str,
    health: Callable[[], Mapping[str, object]] = dict,
    merger: Merger | None = None,
    changes: ChangeWatch | None = None,
    jobs: Jobs | None = None,
) -> RetainerAPI:
    """Build the API for operators.

    The ``publisher`` gets the messages that a restore puts back. ``can_change`` says that settings may be changed.
    """
    return RetainerAPI(
        administration=administration,
        retained=retained,
        replays=replays,
        history=history,
        telemetry=telemetry,
        restorer=Restorer(history, retained, publisher, administration.now),
        settings=Settings(config, partial(apply_settings, retained, replays, history) if can_change else None),
        store=location,
        jobs=jobs or Jobs(administration.now),
        health=health,
        merger=merger,
        changes=changes,
    )


def build_api(config: Config, base: Base, parts: RetainerParts, router: Router) -> RetainerAPI:
    """Build the API about retained messages of the running broker, and let it tell of expiries."""

    def pause() -> Deferred[None]:
        return deferLater(base.reactor, 0)

    publisher = OperatorPublisher(router, base.reactor)
    parts.retained.announce_expiry(publisher, config.retainer.announce_expiry)
    return compose_api(
        config.retainer,
        administration=Administration(parts.retained, parts.store, base.now, pause, publisher),
        retained=parts.retained,
        replays=parts.replays,
        history=parts.history,
        telemetry=parts.telemetry,
        publisher=publisher,
        can_change=True,
        location=shown(config.storage.url),
        health=base.durable.soundness,
        merger=Merger(parts.retained, parts.store, now=base.now, pause=pause, hold=PART_SECONDS),
        changes=parts.changes,
        jobs=base.jobs,
    )
