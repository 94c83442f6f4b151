"""The retainer's store and settings from ``[retainer]``, for the broker and for operators' commands."""

from __future__ import annotations

from math import inf

from attrs import asdict

from holdfast.config import Config
from holdfast.config.sections.limits import LimitsOfClients
from holdfast.config.sections.retainer import PolicyConfig, RetainerConfig
from holdfast.retained.changes.entries import FOREVER, GENERAL, NOT_RECORDED, Depth, Rule, Rules
from holdfast.retained.changes.history import HistoryLimits, RetainedHistory
from holdfast.retained.changes.recording import MOST_GATHERED, AppendingRecorder, GatheringRecorder, IChangesRecorder
from holdfast.retained.limits import OnLimit, PayerLimits, PayerQuotas, Quota, RetainerLimits, flow_of
from holdfast.retained.policies import Policies, Policy
from holdfast.retained.service import RetainedMessages
from holdfast.retained.store.interfaces import Recorder
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.usage import GUESTS_ONLY, USERS
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


def store_of(
    retainer: RetainerConfig, durable: DurableStore, recorder: Recorder, payers: PayerLimits | None = None
) -> SQLRetainedStore:
    """Return the store. It counts the usage of each configured quota, and of ``payers`` if they have quotas."""
    topic_filters = sorted({topic_filter for topic_filter, _ in _topic_quotas(retainer)})
    counts_clients = _client_quota(retainer) is not None
    return SQLRetainedStore(
        durable,
        counted_filters=topic_filters,
        counted_clients=counts_clients,
        counted_payers=None if payers is None else USERS if payers.names_proven else GUESTS_ONLY,
        counted_policies=policies_of(retainer),
        recorder=recorder,
    )


def payer_limits_of(config: Config) -> PayerLimits | None:
    """Return the quotas of users and guests, None if no zone has any, be it used by a listener or not."""
    payers = PayerLimits(
        config.authentication.is_configured,
        {name: _payer_quotas(config.zone(listener.zone).limits) for name, listener in config.listeners.items()},
        _payer_quotas(config.limits),
    )
    zones = (_payer_quotas(config.zone(name).limits) for name in config.zones)
    return payers if payers.is_limited or any(quotas.is_limited for quotas in zones) else None


def _payer_quotas(limits: LimitsOfClients) -> PayerQuotas:
    return PayerQuotas(
        Quota("limits.", limits.max_retained_messages or 0, limits.max_retained_bytes or 0),
        Quota("limits.guests_", limits.guests_max_retained_messages or 0, limits.guests_max_retained_bytes or 0),
    )


def limits_of(retainer: RetainerConfig, max_packet_size: int) -> RetainerLimits:
    """Return the limits; ``max_packet_size`` is the largest of all zones."""
    size, option = retainer.max_payload_size, "retainer.max_payload_size"
    if size is None:
        size, option = max_packet_size, "mqtt.max_packet_size"
    return RetainerLimits(
        enable=retainer.enable,
        msg_expiry_interval=retainer.msg_expiry_interval,
        msg_clear_interval=retainer.msg_clear_interval,
        msg_clear_limit=retainer.msg_clear_limit,
        max_payload_size=size,
        payload_option=option,
        max_retained_messages=retainer.max_retained_messages,
        tombstone_ttl=retainer.tombstone_ttl,
        refuse_unavailable=retainer.when_unavailable == "refuse",
        max_retained_bytes=retainer.max_retained_bytes,
        max_publish_rate=retainer.max_publish_rate,
        on_limit=OnLimit(retainer.on_limit),
        msg_expiry_interval_override=retainer.msg_expiry_interval_override,
        allow_never_expire=retainer.allow_never_expire,
        client_quota=_client_quota(retainer),
        topic_quotas=_topic_quotas(retainer),
        policies=policies_of(retainer),
    )


def policies_of(retainer: RetainerConfig) -> Policies:
    """Return the policies, compiled."""
    return Policies(
        [
            Policy(
                number,
                policy.filter,
                policy.msg_expiry_interval,
                policy.msg_expiry_interval_override,
                policy.max_payload_size,
                policy.max_retained_messages,
                policy.max_retained_bytes,
                policy.force_retain,
                policy.announce_expiry,
                policy.write_interval,
            )
            for number, policy in enumerate(retainer.policies, 1)
        ]
    )


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


def apply_settings(retained: RetainedMessages, history: RetainedHistory, retainer: RetainerConfig) -> None:
    """Use the configured flow control, publish rate and policies from now on."""
    retained.change_policies(policies_of(retainer))
    history.change_rules(history_rules_of(retainer))
    retained.replays.flow.change(flow_of(retainer))
    retained.admission.change_publish_rate(retainer.max_publish_rate)


def _client_quota(retainer: RetainerConfig) -> Quota | None:
    quota = retainer.client_quota
    if not quota.is_configured:
        return None
    return Quota("retainer.client_quota.", quota.max_retained_messages, quota.max_retained_bytes)


def _topic_quotas(retainer: RetainerConfig) -> tuple[tuple[str, Quota], ...]:
    return tuple(
        (
            quota.topic_filter,
            Quota(f"retainer.topic_quotas.{name}.", quota.max_retained_messages, quota.max_retained_bytes),
        )
        for name, quota in retainer.topic_quotas.items()
        if quota.is_configured
    )
