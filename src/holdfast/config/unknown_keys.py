"""The message for an unknown key: the nearest known key, or that only EMQX has this key.

Keys of EMQX whose purpose is served in another way are ignored with a warning, so that a table of its file can be used
as it is. All other keys of EMQX are problems: without them, the broker would not do what its operator expects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches

from holdfast.config.toml.text import dotted

#: Keys of EMQX that Holdfast does not have (yet). ``*`` is any name of a zone or listener.
_EMQX = frozenset(
    f"{table}.{key}" if table else key
    for table, keys in {
        "": "actions alarm api_key auto_subscribe bridges broker cluster conn_congestion"
        " connectors dashboard delayed durable_sessions durable_storage exhook flapping_detect gateway limiter"
        " overload_protection plugins prometheus psk_authentication rewrite rpc rule_engine slow_subs sources stats"
        " sys_topics sysmon telemetry topic_metrics",
        "listeners.*": "access_rules authentication bind enable enable_authn max_conn_rate max_connections"
        " mountpoint proxy_protocol proxy_protocol_timeout ssl_options tcp_options websocket",
        "log": "console file throttling audit",
        "mqtt": "client_attrs_init clientid_override exclusive_subscription keepalive_check_interval"
        " message_expiry_interval mqueue_default_priority mqueue_priorities peer_cert_as_clientid peer_cert_as_username"
        " retry_interval shared_subscription_initial_sticky_pick shared_subscription_strategy strict_mode"
        " use_username_as_clientid",
        "node": "name role",
        "zones.*": "conn_congestion durable_sessions flapping_detect overload_protection stats",
    }.items()
    for key in keys.split()
)

_MEMORY = "force_shutdown.max_bytes limits what waits for a connection, and limits.memory the whole broker"
_ERLANG = "it is about Erlang, in which Holdfast is not written"
#: Keys of EMQX that are not needed, and what takes their place.
_REPLACED = {
    "retainer.backend": "storage.url names the database of the retained messages",
    "retainer.external_backends": "storage.url names the database of the retained messages",
    "force_shutdown.max_heap_size": _MEMORY,
    "force_gc": _MEMORY,
    "zones.*.force_gc": _MEMORY,
    "listeners.*.acceptors": "one process accepts all connections",
    "node.cookie": _ERLANG,
    "node.max_ports": _ERLANG,
    "node.process_limit": _ERLANG,
}


def replacement(path: Sequence[str]) -> str | None:
    """Return what takes the place of a key of EMQX that is ignored; None for any other unknown key."""
    return _REPLACED.get(_generic(path))


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
