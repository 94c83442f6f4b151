"""Clients, subscriptions and messages as JSON, with EMQX's names, and the schemas of that.

Values that the broker does not know are left out: no field is 0 for want of a better value.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from holdfast.admin.arguments import BOOLEAN, INTEGER, STRING, TIME, Schema, nullable, record
from holdfast.core.clients import ClientView, ConnectionView, SubscriptionView, WaitingMessage
from holdfast.core.units import date_of

#: in place of the seconds until a Session expires that never does, as in MQTT
_NEVER = 0xFFFFFFFF
#: a longer payload is left out: only its size is shown
LARGEST_SHOWN = 1 << 20

_PROTOCOLS = {3: "MQIsdp"}

CLIENT: Schema = record(
    {
        "clientid": STRING,
        "username": nullable(STRING),
        "connected": BOOLEAN,
        "node": STRING,
        "listener": STRING,
        "zone": STRING,
        "ip_address": STRING,
        "port": INTEGER,
        "connected_at": TIME,
        "disconnected_at": TIME,
        "created_at": TIME,
        "keepalive": INTEGER,
        "proto_name": STRING,
        "proto_ver": INTEGER,
        "clean_start": BOOLEAN,
        "is_bridge": BOOLEAN,
        "will": BOOLEAN,
        "unsent_bytes": INTEGER,
        "expiry_interval": INTEGER,
        "inflight_cnt": INTEGER,
        "inflight_max": INTEGER,
        "awaiting_rel_cnt": INTEGER,
        "awaiting_rel_max": INTEGER,
        "mqueue_len": INTEGER,
        "mqueue_max": {"type": "integer", "description": "0: unlimited"},
        "mqueue_bytes": INTEGER,
        "conflated_cnt": {"type": "integer", "description": "messages that newer ones have replaced (conflation)"},
        "subscriptions_cnt": INTEGER,
        "subscriptions_max": {"type": "integer", "description": "0: unlimited"},
        "principal": record(
            {"username": nullable(STRING), "groups": {"type": "array", "items": STRING}, "method": STRING}
        ),
    },
    required=("clientid", "username", "connected", "node", "listener", "mqueue_len", "subscriptions_cnt"),
)
SUBSCRIPTION: Schema = record(
    {
        "clientid": STRING, "node": STRING, "topic": STRING, "qos": INTEGER, "nl": INTEGER, "rap": INTEGER,
        "rh": INTEGER, "share_group": STRING, "subid": INTEGER, "conflate_ms": INTEGER,
    },
    required=("clientid", "node", "topic", "qos", "nl", "rap", "rh"),
)  # fmt: skip
WAITING: Schema = record(
    {
        "topic": STRING, "qos": INTEGER, "retain": BOOLEAN, "payload_size": INTEGER, "payload": STRING,
        "from_clientid": STRING, "from_username": STRING, "expires_at": TIME, "packet_id": INTEGER, "state": STRING,
    },
    required=("qos",),
)  # fmt: skip


def shown_client(client: ClientView, node: str, zone: str | None) -> dict[str, Any]:
    """Return a client."""
    connection = client.connection
    shown: dict[str, Any] = {
        "clientid": client.client_id,
        "username": client.username,
        "connected": connection is not None,
        "node": node,
        "listener": client.listener,
        "zone": zone,
        "ip_address": client.address,
        "connected_at" if connection is not None else "disconnected_at": _time(client.since),
        "created_at": _time(client.created_at),
        "expiry_interval": _NEVER if client.expiry_interval is None else int(client.expiry_interval),
        "inflight_cnt": client.inflight,
        "inflight_max": client.inflight_max,
        "awaiting_rel_cnt": client.awaiting_rel,
        "awaiting_rel_max": client.awaiting_rel_max,
        "mqueue_len": client.queued,
        "mqueue_max": client.queued_max or 0,
        "mqueue_bytes": client.queued_bytes,
        "conflated_cnt": client.conflated,
        "subscriptions_cnt": client.subscriptions,
        "subscriptions_max": client.subscriptions_max or 0,
        "principal": {"username": client.username, "groups": list(client.groups), "method": client.method},
        **({} if connection is None else _shown_connection(connection)),
    }
    return _known(shown, keep="username")


def shown_subscription(subscription: SubscriptionView, node: str) -> dict[str, Any]:
    """Return a subscription."""
    return _known(
        {
            "clientid": subscription.client_id,
            "node": node,
            "topic": subscription.topic_filter,
            "qos": subscription.qos,
            "nl": int(subscription.no_local),
            "rap": int(subscription.retain_as_published),
            "rh": subscription.retain_handling,
            "share_group": subscription.share,
            "subid": subscription.identifier,
            "conflate_ms": subscription.conflate,
        }
    )


def shown_message(message: WaitingMessage, with_payload: bool) -> dict[str, Any]:
    """Return a queued message or one in flight."""
    payload = message.payload
    small = payload is not None and len(payload) <= LARGEST_SHOWN
    return _known(
        {
            "packet_id": message.packet_identifier,
            "state": message.state,
            "topic": message.topic,
            "qos": message.qos,
            "retain": None if message.topic is None else message.retain,
            "payload_size": None if payload is None else len(payload),
            "payload": b64encode(payload).decode() if with_payload and small and payload is not None else None,
            "from_clientid": message.publisher,
            "from_username": message.username,
            "expires_at": _time(message.expires_at),
        }
    )


def _shown_connection(connection: ConnectionView) -> dict[str, Any]:
    return {
        "port": connection.port,
        "keepalive": connection.keep_alive,
        "proto_name": _PROTOCOLS.get(connection.protocol_version, "MQTT"),
        "proto_ver": connection.protocol_version,
        "clean_start": connection.clean_start,
        "is_bridge": connection.bridge,
        "will": connection.will,
        "unsent_bytes": connection.unsent_bytes,
    }


def _time(moment: int | None) -> str | None:
    return None if moment is None else date_of(moment)


def _known(fields: dict[str, Any], keep: str = "") -> dict[str, Any]:
    """Return the fields without those that are not known."""
    return {name: value for name, value in fields.items() if value is not None or name == keep}
