"""The retainer's store and limits from ``[retainer]``, for the broker and for operators' commands."""

from __future__ import annotations

from holdfast.config import Config
from holdfast.config.sections.limits import LimitsOfClients
from holdfast.config.sections.retainer import RetainerConfig
from holdfast.retained.limits import OnLimit, PayerLimits, PayerQuotas, Quota, RetainerLimits
from holdfast.retained.policies import Policies, Policy
from holdfast.retained.store.interfaces import Recorder
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.usage import GUESTS_ONLY, USERS
from holdfast.storage.store import DurableStore


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
                policy.record == "all",
                policy.record_acknowledge == "stored",
            )
            for number, policy in enumerate(retainer.policies, 1)
        ]
    )


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
