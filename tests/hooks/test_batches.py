"""Batches of hooks: bodies, signatures, and the times of their attempts."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.hooks.batches import Attempts, Batch, events_body, is_delivered, key_of, signed, text_body

EVENTS = [b'{"type":"client","event":"connected","clientid":"a"}', b'{"type":"missed","count":3}']


def test_a_body_has_all_events_and_names_the_hook() -> None:
    body = json.loads(events_body("home", 2, "abc", EVENTS))
    assert (body["hook"], body["node"], body["id"]) == ("home", "2", "abc")
    assert body["events"] == [json.loads(each) for each in EVENTS]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {"type": "alarm", "event": "raised", "name": "disk", "severity": "critical", "message": "It is full"},
            "alarm disk raised (critical): It is full",
        ),
        (
            {"type": "client", "event": "refused", "clientid": "a", "username": "u", "reason": "BANNED"},
            "client a refused as user u: BANNED",
        ),
        ({"type": "client", "event": "more", "count": 7}, "client  more (7 more)"),
        (
            {"type": "retained", "event": "set", "topic": "t", "size": 2, "payload": b64encode(b"21").decode()},
            "t = 21",
        ),
        ({"type": "retained", "event": "set", "topic": "t", "size": 99999, "payload_omitted": True}, "t = 99999 bytes"),
        ({"type": "retained", "event": "clear", "topic": "t"}, "t: cleared"),
        ({"type": "retained", "event": "expire", "topic": "t"}, "t: expired"),
        ({"type": "missed", "count": 3}, "events are missing: 3"),
        ({"type": "missed", "reason": "the broker has started"}, "events are missing: the broker has started"),
    ],
)
def test_text_has_a_line_for_each_event(event: dict[str, object], line: str) -> None:
    assert json.loads(text_body([json.dumps(event).encode()])) == {"text": line}


def test_a_long_or_binary_payload_is_text_too() -> None:
    payload = b64encode(b"\xff" * 1000).decode()
    event = {"type": "retained", "event": "set", "topic": "t", "size": 1000, "payload": payload}
    assert len(json.loads(text_body([json.dumps(event).encode()]))["text"]) < 300


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification."""
    key = key_of(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    batch = Batch("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', 1)
    headers = signed(batch, key, 1614265330.9)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == (batch.identifier, "1614265330")


def test_a_secret_of_another_form_is_the_key() -> None:
    assert key_of(b"plain") == b"plain"
    assert key_of(b"whsec_*") == b"whsec_*"
    assert "webhook-signature" not in signed(Batch("a", b"", 1), None, 0)


@given(st.lists(st.sampled_from([None, 500, 503, 301, 401, 429]), max_size=200), st.floats(0, 1), st.floats(1, 1e6))
def test_repetitions_end_and_their_pauses_are_bounded(
    statuses: list[int | None], chance: float, retry_for: float
) -> None:
    """Each pause is at most 5 minutes. The last attempt is at the end of the time, never later."""
    attempts, now = Attempts(retry_for, 100.0, lambda: chance), 100.0
    for status in statuses:
        pause = attempts.after(status, now)
        if pause is None:
            assert now >= 100.0 + retry_for
            return
        assert 0 < pause <= 300
        now += pause
        assert now <= 100.0 + retry_for + 1e-6 * retry_for


def test_pauses_double() -> None:
    attempts = Attempts(1e6, 0.0, lambda: 1.0)
    assert [attempts.after(None, 0.0) for _ in range(10)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert Attempts(1e6, 0.0, lambda: 0.0).after(None, 0.0) == 0.5


@pytest.mark.parametrize(("status", "most"), [(400, 3), (410, 3), (422, 3), (429, 100), (401, 100), (404, 100)])
def test_what_the_server_refuses_for_good_is_given_up_soon(status: int, most: int) -> None:
    attempts = Attempts(1e6, 0.0, lambda: 1.0)
    answers = [attempts.after(status, 0.0) for _ in range(most)]
    assert (answers[-1] is None) is (most == 3)


def test_only_2xx_delivers() -> None:
    """A redirect does not: nothing follows it."""
    assert [status for status in range(100, 600) if is_delivered(status)] == list(range(200, 300))
