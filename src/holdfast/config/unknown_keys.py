"""The message for an unknown key: the nearest known key, or that only EMQX has this key."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches

from holdfast.config.toml.text import dotted

#: Keys of EMQX that Holdfast does not have (yet). ``*`` is any name of a zone or listener.
_EMQX = frozenset(
    f"{table}.{key}" if table else key
    for table, keys in {
        "": "actions alarm api_key auto_subscribe bridges broker cluster conn_congestion"
        " connectors dashboard delayed durable_sessions durable_storage exhook flapping_detect force_gc gateway limiter"
        " overload_protection plugins prometheus psk_authentication rewrite rpc rule_engine slow_subs sources stats"
        " sys_topics sysmon telemetry topic_metrics",
        "force_shutdown": "max_heap_size",
        "listeners.*": "acceptors access_rules authentication bind enable enable_authn max_conn_rate max_connections"
        " mountpoint proxy_protocol proxy_protocol_timeout ssl_options tcp_options websocket",
        "log": "console file throttling audit",
        "mqtt": "client_attrs_init clientid_override exclusive_subscription keepalive_check_interval"
        " message_expiry_interval mqueue_default_priority mqueue_priorities peer_cert_as_clientid peer_cert_as_username"
        " retry_interval shared_subscription_initial_sticky_pick shared_subscription_strategy strict_mode"
        " use_username_as_clientid",
        "node": "cookie name process_limit max_ports role",
        "retainer": "backend external_backends",
        "zones.*": "conn_congestion durable_sessions flapping_detect force_gc overload_protection stats",
    }.items()
    for key in keys.split()
)


def explain(path: Sequence[str], siblings: Collection[str], elsewhere: Mapping[str, Sequence[str]]) -> str:
    """Return the message for an unknown key.

    ``siblings`` are the known keys of its table. ``elsewhere`` maps the last part of each known dotted key to all
    dotted keys that end in it.
    """
    *parents, name = path
    if _generic(path) in _EMQX:
        return "known to EMQX, not supported here (yet)"
    if len(parents) == 2 and parents[0] == "listeners" and parents[1] in ("tcp", "ssl", "ws", "wss", "quic"):
        return "EMQX's listeners.TYPE.NAME is not supported here; write listeners.NAME with an endpoint"
    if name in elsewhere:
        return f"unknown key; did you mean {' or '.join(elsewhere[name])}?"
    near = get_close_matches(name, siblings, n=1)
    if near:
        return f"unknown key; did you mean {dotted([*parents, near[0]])}?"
    return f"unknown key; known here: {', '.join(sorted(siblings))}"


def _generic(path: Sequence[str]) -> str:
    """Return the dotted key with ``*`` in place of the operator's names."""
    match list(path):
        case ["zones", _, ("mqtt" | "force_shutdown") as table, *rest]:
            return dotted([table, *rest])
        case [("zones" | "listeners") as tables, _, *rest]:
            return ".".join([tables, "*", *rest])
        case plain:
            return dotted(plain)
