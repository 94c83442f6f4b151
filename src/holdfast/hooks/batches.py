"""One batch of events: its body, its signature, and the times of its attempts. No I/O, no clock.

How it works. A batch is made once, and keeps its id and its body until it is delivered or given up: a server can
recognise a repetition. Only the signature is new for each attempt, since it is over the time, too:

    webhook-id:         3f0c...            the batch
    webhook-timestamp:  1795341600         of this attempt, in seconds since the epoch
    webhook-signature:  v1,BASE64          HMAC-SHA256 of "ID.TIMESTAMP.BODY" with the secret

These are the headers of Standard Webhooks, so servers have libraries for them.

An attempt ends with a status, or without one. 2xx delivers. Everything else is repeated: after 1 s, 2 s, 4 s and so on
up to 5 minutes, each cut at random to between a half and the whole, so that many brokers do not come at one moment. A
batch is given up when its time is over, and sooner if the server refuses it for what it is: the third answer of 4xx,
other than those that say "not now" or "not you". Redirects are no delivery: a batch goes only where the operator said.
"""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from attrs import define, frozen

#: the bytes of a body, about
MOST_BYTES = 256 << 10
_SHORTEST, _LONGEST = 1.0, 300.0
#: refusals of this many attempts give a batch up, unless they are one of these statuses
_REFUSALS = 3
_MAY_CHANGE = frozenset({401, 403, 404, 408, 425, 429})
#: characters of a payload in a line of text
_SHOWN = 200
_STANDARD_SECRET = b"whsec_"


@frozen
class Batch:
    """The id and the body of one request, and how many events it has."""

    identifier: str
    body: bytes
    events: int


def events_body(hook: str, node: int, identifier: str, events: Sequence[bytes]) -> bytes:
    """Return the body with all events, each of them JSON."""
    head = json.dumps({"hook": hook, "node": str(node), "id": identifier}).encode()
    return head[:-1] + b', "events": [' + b",".join(events) + b"]}"


def text_body(events: Sequence[bytes]) -> bytes:
    """Return the body with a line of text for each event."""
    return json.dumps({"text": "\n".join(_line(json.loads(each)) for each in events)}).encode()


def _line(event: dict[str, Any]) -> str:
    what = event.get("event", "")
    match event["type"]:
        case "alarm":
            return f"alarm {event.get('name')} {what} ({event.get('severity')}): {event.get('message')}"
        case "client":
            user = f" as user {event['username']}" if event.get("username") else ""
            reason = f": {event['reason']}" if event.get("reason") else ""
            count = f" ({event['count']} more)" if what == "more" else ""
            return f"client {event.get('clientid') or ''} {what}{count}{user}{reason}"
        case "retained":
            if what != "set":
                return f"{event['topic']}: {'cleared' if what == 'clear' else 'expired'}"
            payload = event.get("payload")
            return f"{event['topic']} = {event['size']} bytes" if payload is None else _value(event["topic"], payload)
        case "missed":
            return f"events are missing: {event.get('reason') or event.get('count')}"
        case other:
            return f"{other} {what}"


def _value(topic: str, payload: str) -> str:
    text = b64decode(payload).decode("utf-8", "replace")
    return f"{topic} = {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"


def key_of(secret: bytes) -> bytes:
    """Return the key in a secret: the bytes behind ``whsec_`` in base64, or the secret itself."""
    if secret.startswith(_STANDARD_SECRET):
        try:
            return b64decode(secret[len(_STANDARD_SECRET) :], validate=True)
        except Error:
            return secret
    return secret


def signed(batch: Batch, key: bytes | None, now: float) -> dict[str, str]:
    """Return the headers of an attempt at this time, in seconds since the epoch. Without a key, it is not signed."""
    timestamp = str(int(now))
    headers = {"content-type": "application/json", "webhook-id": batch.identifier, "webhook-timestamp": timestamp}
    if key is not None:
        content = f"{batch.identifier}.{timestamp}.".encode() + batch.body
        headers["webhook-signature"] = f"v1,{b64encode(hmac.digest(key, content, sha256)).decode()}"
    return headers


@define
class Attempts:
    """The attempts of one batch, which began at a time in seconds. ``random`` returns a number from 0 to 1."""

    _retry_for: float
    _began: float
    _random: Callable[[], float]
    count: int = 0
    refusals: int = 0

    def after(self, status: int | None, now: float) -> float | None:
        """Return the seconds until the next attempt, None for none: the batch is given up. ``status`` is not 2xx."""
        self.count += 1
        if status is not None and 400 <= status < 500 and status not in _MAY_CHANGE:
            self.refusals += 1
        left = self._began + self._retry_for - now
        if left <= 0 or self.refusals >= _REFUSALS:
            return None
        pause = min(_LONGEST, _SHORTEST * 2.0 ** min(self.count - 1, 20))
        return min(left, pause * (0.5 + self._random() / 2))


def is_delivered(status: int) -> bool:
    """Tell whether an answer with this status delivers a batch."""
    return 200 <= status < 300
