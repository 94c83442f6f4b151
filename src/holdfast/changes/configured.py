"""What the history and the log of changes record, and their limits, from ``[retainer]``."""

from __future__ import annotations

from math import inf

from attrs import asdict

from holdfast.changes.entries import FOREVER, GENERAL, NOT_RECORDED, Depth, Rule, Rules
from holdfast.changes.history import HistoryLimits
from holdfast.changes.recording import MOST_GATHERED, AppendingRecorder, GatheringRecorder, IChangesRecorder
from holdfast.config.sections.retainer import PolicyConfig, RetainerConfig
from holdfast.retained.store.interfaces import Recorder
from holdfast.storage.store import DurableStore


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


def history_rules_of(retainer: RetainerConfig) -> Rules:
    """Return which topics the history records, and how long it keeps them, from the policies."""
    return Rules(Rule(policy.filter, _depth_of(policy)) for policy in retainer.policies)


def _depth_of(policy: PolicyConfig) -> Depth:
    if policy.history is False:
        return NOT_RECORDED
    if policy.history_keep is None:
        return GENERAL
    return FOREVER if policy.history_keep == inf else round(policy.history_keep * 1000)
