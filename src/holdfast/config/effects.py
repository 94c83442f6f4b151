"""When a changed option takes effect in a running broker, after its configuration was read again.

This is the only list of it: the reload and the reference follow it. Every option stands here, by its key or by its
table; a test holds that. ``*`` stands for a name that the operator chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum


class TakesEffect(Enum):
    """When a changed option takes effect."""

    AT_ONCE = "at a reload"
    CONNECTING = "at a reload, for clients that connect from then on"
    RESTART = "at a restart of the broker"


_CONNECTING = {
    "listeners": ("*.transport", "*.path", "*.origins", "*.zone",
                  "*.allow_plaintext", "*.trusted_proxies", "*.max_connections", "*.max_connections_per_address",
                  "*.max_conn_rate", "*.max_conn_rate_per_address", "*.max_half_open_per_address", "*.tls"),
    "mqtt": ("max_packet_size", "max_clientid_len", "max_topic_levels", "max_qos_allowed", "max_topic_alias",
             "max_topic_alias_out", "max_user_properties", "max_properties_bytes", "control_characters",
             "retain_available", "wildcard_subscription", "shared_subscription", "subscription_identifiers",
             "response_information", "min_replay_levels", "server_keepalive", "max_keepalive", "keepalive_multiplier",
             "max_inflight", "max_inflight_bytes", "max_awaiting_rel", "await_rel_timeout", "max_subscriptions",
             "max_wildcard_patterns", "max_mqueue_len", "max_mqueue_bytes", "mqueue_full", "mqueue_store_qos0",
             "conflate_interval", "conflate_filter", "session_expiry_interval", "idle_timeout", "upgrade_qos",
             "ignore_loop_deliver"),
    "force_shutdown": ("enable", "policy", "max_mailbox_size", "max_bytes"),
    "retainer": ("retained_messages_mode", "stop_publish_clear_msg", "tell_publishers"),
    "admin": ("tls",),
    "limits": ("messages_rate", "bytes_rate"),
}  # fmt: skip

_RESTART = {
    "admin": ("endpoint", "max_connections", "max_connections_per_address"),
    "node": ("data_dir", "id"),
    "listeners": ("*.endpoint",),
    "mqtt": ("will_restart_grace",),
    "storage": ("url", "durability", "flush_interval", "max_pending", "on_corruption"),
    "retainer": ("changes.enable",),
    "limits": ("max_sessions", "guests_max_sessions", "max_waiting_bytes", "max_retained_messages",
               "max_retained_bytes", "guests_max_retained_messages", "guests_max_retained_bytes", "memory"),
    "log": ("formatter", "level"),
    "alarms": ("size_limit", "validity_period", "disk_free", "disk_full", "wal_size", "commit_time", "reactor_lag",
               "certificate_expiry", "failed_logins", "messages_dropped", "replay_stalled"),
}  # fmt: skip

_AT_ONCE = {
    # A whole listener that is new or removed; and clients that are not admitted any more are disconnected.
    "listeners": ("*", "*.authentication", "*.allow_anonymous"),
    "authentication": ("scram_file", "*.*"),
    "authorization": ("sources", "subscribe_partially", "check_retain_source", "administrators",
                      "administrator_groups", "on_revoke", "*.*"),
    "failed_logins": ("enable", "free_per_minute", "longest_delay", "max_count", "window_time", "ban_time"),
    "retainer": ("enable", "msg_expiry_interval", "msg_expiry_interval_override", "allow_never_expire",
                 "announce_expiry", "msg_clear_interval", "msg_clear_limit", "max_payload_size",
                 "max_retained_messages", "max_retained_bytes", "on_limit", "max_topic_length", "when_unavailable",
                 "tombstone_ttl", "lease_grace", "max_leases_per_client", "history",
                 "max_publish_rate", "delivery_rate", "deliver_rate", "max_concurrent_replays", "flow_control",
                 "policies", "client_quota", "topic_quotas", "changes.max_changes"),
    "sys_topics": ("sys_msg_interval",),
    "admin": ("hosts", "trusted_proxies", "allow_plaintext", "users_group", "config_writable"),
    "audit": ("file", "journal", "connections", "max_lines"),
    "log": ("connections",),
}  # fmt: skip

_TABLES = (
    (TakesEffect.RESTART, _RESTART),
    (TakesEffect.CONNECTING, _CONNECTING),
    (TakesEffect.AT_ONCE, _AT_ONCE),
)


def takes_effect(path: Sequence[str]) -> TakesEffect:
    """Return when the option or the table with this path takes effect. Raises KeyError for one that is not listed."""
    table, *rest = path
    if table == "zones" and len(rest) > 1:
        return TakesEffect.RESTART if takes_effect(rest[1:]) is TakesEffect.RESTART else TakesEffect.CONNECTING
    for effect, tables in _TABLES:
        for listed in tables.get(table, ()):
            if _begins_with(rest, listed.split(".")):
                return effect
    raise KeyError(".".join(path))


def _begins_with(path: Sequence[str], listed: Sequence[str]) -> bool:
    """Tell whether a listed key is this one or a table around it. One that ends with ``*`` is no table around."""
    if len(listed) > len(path) or (listed[-1] == "*" and len(listed) != len(path)):
        return False
    return all(mark in ("*", part) for mark, part in zip(listed, path, strict=False))
