"""The limits of Sessions and connections as the configuration sets them."""

from __future__ import annotations

from holdfast.config.document import Config, Zone
from holdfast.sessions.accounts import Accounts
from holdfast.sessions.limits import Limits, RetainMode, WhenFull

#: The largest Maximum Packet Size that usual clients take, in bytes: the largest Remaining Length. With a larger one,
#: paho refuses CONNACK.
MOST_TOLD = 268_435_455


def accounts_of(config: Config) -> Accounts | None:
    """Return the accounts of payers, None if no zone limits them, be it used by a listener or not."""
    zones = [config.limits, *(config.zone(name).limits for name in config.zones)]
    limited = any(
        (each.max_sessions, each.guests_max_sessions, each.max_waiting_bytes) != (None, None, None) for each in zones
    )
    return Accounts(config.authentication.is_configured) if limited else None


def limits_of(zone: Zone) -> Limits:
    """Return a zone's limits as the Session layer takes them."""
    mqtt, shutdown, limits = zone.mqtt, zone.force_shutdown, zone.limits
    return Limits(
        max_packet_size=min(mqtt.max_packet_size, MOST_TOLD),
        max_clientid_len=mqtt.max_clientid_len,
        max_topic_levels=mqtt.max_topic_levels,
        max_qos_allowed=mqtt.max_qos_allowed,
        max_topic_alias=mqtt.max_topic_alias,
        max_topic_alias_out=mqtt.max_topic_alias_out,
        max_user_properties=mqtt.max_user_properties,
        max_properties_bytes=mqtt.max_properties_bytes,
        control_characters=mqtt.control_characters == "accept",
        retain_available=mqtt.retain_available,
        retained_messages_mode=RetainMode(zone.retainer.retained_messages_mode),
        stop_publish_clear_msg=zone.retainer.stop_publish_clear_msg,
        tell_publishers=zone.retainer.tell_publishers,
        wildcard_subscription=mqtt.wildcard_subscription,
        shared_subscription=mqtt.shared_subscription,
        subscription_identifiers=mqtt.subscription_identifiers,
        response_information=mqtt.response_information,
        min_replay_levels=mqtt.min_replay_levels,
        server_keepalive=mqtt.server_keepalive,
        max_keepalive=mqtt.max_keepalive,
        keepalive_multiplier=mqtt.keepalive_multiplier,
        max_inflight=mqtt.max_inflight,
        max_inflight_bytes=mqtt.max_inflight_bytes,
        max_awaiting_rel=mqtt.max_awaiting_rel,
        await_rel_timeout=mqtt.await_rel_timeout,
        max_subscriptions=mqtt.max_subscriptions,
        max_wildcard_patterns=mqtt.max_wildcard_patterns,
        max_mqueue_len=mqtt.max_mqueue_len,
        max_mqueue_bytes=mqtt.max_mqueue_bytes,
        mqueue_full=WhenFull(mqtt.mqueue_full),
        mqueue_store_qos0=mqtt.mqueue_store_qos0,
        session_expiry_interval=mqtt.session_expiry_interval,
        idle_timeout=mqtt.idle_timeout,
        upgrade_qos=mqtt.upgrade_qos,
        ignore_loop_deliver=mqtt.ignore_loop_deliver,
        max_buffered_messages=shutdown.max_mailbox_size if shutdown.enable else 0,
        max_buffered_bytes=shutdown.max_bytes if shutdown.enable else 0,
        conflate_slow=shutdown.enable and shutdown.policy == "conflate",
        conflate_filter=mqtt.conflate_filter,
        conflate_interval=mqtt.conflate_interval,
        max_sessions=limits.max_sessions,
        guests_max_sessions=limits.guests_max_sessions,
        max_waiting_bytes=limits.max_waiting_bytes,
        messages_rate=limits.messages_rate,
        bytes_rate=limits.bytes_rate,
    )
