"""Answers of a busy broker, made up but consistent: a million topics, clients, a history, alarms."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

from tests.dashboard.hostile import HOSTILE

MANY = 100_000
_SITES, _BUILDINGS, _ROOMS = 10, 100, 1000
_BYTES = 64


def ago(now: float, seconds: float) -> str:
    """Return a time before now as the API writes it."""
    return datetime.fromtimestamp(now - seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def level(now: float, prefix: str | None, name: str, count: int, leaf: bool, age: float) -> dict[str, Any]:
    """Return one node of the tree."""
    return {
        "name": name,
        "topic": name if prefix is None else f"{prefix}/{name}",
        "count": count,
        "bytes": count * _BYTES,
        "newest": ago(now, age),
        "exact": count < MANY * 5,
        "has_message": leaf,
        "children": not leaf,
    }


def children(now: float, prefix: str | None, start: int, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return a part of the children of a node, and how many it has. A million topics exist only in this function."""
    whole = _SITES * _BUILDINGS * _ROOMS
    parts = [] if prefix is None else prefix.split("/")
    match parts:
        case []:
            named = [("building", 3), ("empty", 2), ("hostile", len(HOSTILE)), ("many", MANY), ("site", whole)]
            found = [level(now, None, name, count, False, 40 * at) for at, (name, count) in enumerate(named)]
            return found[start : start + limit], len(found)
        case ["site"]:
            return part(now, prefix, start, limit, _SITES, whole // _SITES, "site-{}")
        case ["site", _]:
            return part(now, prefix, start, limit, _BUILDINGS, _ROOMS, "building-{:02}")
        case ["site", _, _]:
            return part(now, prefix, start, limit, _ROOMS, 1, "room-{:03}")
        case ["many"]:
            return part(now, prefix, start, limit, MANY, 1, "device-{:06}")
        case ["building"]:
            found = [
                level(now, prefix, name, 1, True, 70 * at)
                for at, name in enumerate(("humidity", "report", "temperature"))
            ]
            return found[start : start + limit], len(found)
        case ["empty"]:
            return [level(now, prefix, "", 2, False, 5)][start:], 1
        case ["empty", ""]:
            return [level(now, prefix, "leaf", 1, True, 5), level(now, prefix, "other", 1, True, 5)][start:], 2
        case ["hostile"]:
            found = [level(now, prefix, name, 1, True, 9) for name in sorted(HOSTILE)]
            return found[start : start + limit], len(found)
    return [], 0


def part(
    now: float, prefix: str | None, start: int, limit: int, total: int, each: int, name: str
) -> tuple[list[dict[str, Any]], int]:
    """Return some of many children."""
    end = min(total, start + limit)
    return [level(now, prefix, name.format(at), each, each == 1, 3 + at % 900) for at in range(start, end)], total


def payload_of(topic: str, step: int = 0) -> bytes:
    """Return the payload of a topic: a number, JSON, bytes or a hostile text."""
    if topic.endswith("humidity"):
        return f"{45 + 9 * math.sin(step / 5):.1f}".encode()
    if topic.endswith("report"):
        return bytes(range(256)) * 3
    if topic.startswith("hostile/"):
        name = topic.removeprefix("hostile/")
        return json.dumps(
            {name: [name, {"<b>": name}], "__proto__": {"polluted": True}, "n": 12345678901234567890}
        ).encode()
    degrees = round(21 + 2.5 * math.sin(step / 4), 2)
    content = {
        "degrees": degrees, "unit": "C", "battery": {"volts": round(3.1 - step / 400, 3), "ok": True},
        "serial": 9007199254740993123, "labels": ["north", "floor 2"], "site": topic.partition("/")[0],
    }  # fmt: skip
    return json.dumps(content).encode()


def message(now: float, topic: str, age: float = 42) -> dict[str, Any]:
    """Return a message without its payload."""
    payload = payload_of(topic)
    hostile = topic.startswith("hostile/")
    name = topic.removeprefix("hostile/")
    pairs = [[name, name]] if hostile else [["firmware", "4.2.1"], ["site", "north"], ["site", "again"]]
    return {
        "msgid": "0000000000001A2B", "topic": topic, "qos": 1, "publish_at": ago(now, age),
        "from_clientid": name if hostile else "gateway-07", "from_username": name if hostile else "building",
        "size": len(payload), "expiry_at": ago(now, -3600 * 24) if topic.endswith("humidity") else None,
        "properties": {"content_type": name if hostile else "application/json", "user_properties": pairs},
        "revision": "90071992547409931",
    }  # fmt: skip


def detail(now: float, topic: str) -> dict[str, Any]:
    """Return a message with its payload."""
    return {**message(now, topic), "payload": b64encode(payload_of(topic)).decode()}


def history(now: float, topic: str, start: int, limit: int, total: int = 180) -> list[dict[str, Any]]:
    """Return changes of a topic, the newest first. One of them is a clear, by another client."""
    found = []
    for at in range(start, min(total, start + limit)):
        cleared = at == 12
        payload = b"" if cleared else payload_of(topic, total - at)
        row = {
            **message(now, topic, 42 + 300 * at), "seq": str(5000 - at), "changed_at": ago(now, 42 + 300 * at),
            "op": "clear" if cleared else "set", "origin": "api" if at == 30 else "publish",
            "operator": "anna" if at == 30 else None,
            "revision": str(90071992547409931 - at), "size": len(payload), "payload": b64encode(payload).decode(),
        }  # fmt: skip
        if cleared:
            row["from_clientid"] = "maintenance-laptop"
        found.append(row)
    return found


def client(now: float, identifier: str, at: int) -> dict[str, Any]:
    """Return a client."""
    connected = at % 5 != 4
    return {
        "clientid": identifier, "username": identifier if identifier in HOSTILE else f"device-{at % 7}",
        "ip_address": f"10.0.{at // 250}.{at % 250}", "port": 40000 + at % 20000, "connected": connected,
        "connected_at": ago(now, 60 * (at + 1)) if connected else None,
        "disconnected_at": None if connected else ago(now, 30 * at), "created_at": ago(now, 90 * (at + 1)),
        "keepalive": 60, "proto_name": "MQTT", "proto_ver": 5 if at % 3 else 4, "clean_start": bool(at % 2),
        "expiry_interval": 0 if at % 2 else 86400, "inflight_cnt": at % 4, "inflight_max": 32, "awaiting_rel_cnt": 0,
        "mqueue_len": at * 7 % 90, "mqueue_max": 1000, "mqueue_bytes": at * 700,
        "subscriptions_cnt": 1 + at % 5, "subscriptions_max": 0, "awaiting_rel_max": 100, "unsent_bytes": 0,
        "listener": "mqtt", "node": "holdfast", "zone": "default", "will": at % 3 == 0, "is_bridge": False,
        "principal": {"username": f"device-{at % 7}", "groups": [], "method": "file"},
    }  # fmt: skip


def node(now: float, number: int) -> dict[str, Any]:
    """Return a member of a cluster: 1 answers, 2 does not, 3 is dead."""
    told = {
        "version": "0.9.0", "uptime": 303_000_000, "connections": 2011, "live_connections": 1843, "carrier": "postgres",
    }  # fmt: skip
    return {
        **(told if number == 1 else {}),
        "node": str(number),
        "node_status": "stopped" if number == 3 else "running",
        "local": number == 1,
        "cluster": "plant",
        "state": "dead" if number == 3 else "member",
        "silent": number == 2,
        "incarnation": 4,
        "lease_until": ago(now, -4),
        "lease_seconds": 4.2,
        "lag": 12 * (number - 1),
        "configuration": "5f0c17aa93d1",
        "address": f"<i>mqtt{number}</i>.example.org:1883",
    }


def sample(now: float, age: float) -> dict[str, Any]:
    """Return what the broker measured at a time."""
    wave = math.sin((now - age) / 40)
    return {
        "time_stamp": int((now - age) * 1000),
        "received_msg_rate": 2400 + 600 * wave, "sent_msg_rate": 9100 + 2500 * wave,
        "received_bytes_rate": 310_000 + 80_000 * wave, "sent_bytes_rate": 1_200_000 + 300_000 * wave,
        "connections": 2210, "live_connections": 1843, "sessions": 2210, "subscriptions": 6120 + int(40 * wave),
        "retained_msg_count": 1_000_132 - int(age / 3), "retained_bytes": 84_000_000 - int(age * 20),
        "puback_p50_ms": 2.1 + 0.4 * wave, "puback_p99_ms": 7.9 + 2 * wave, "reactor_lag_p99_ms": 1.4 + 0.5 * abs(wave),
        "writer_queue_bytes": 182_000, "disk_free_bytes": 412 << 30, "memory_bytes": (281 << 20) + int(wave * 3e6),
    }  # fmt: skip
