"""The JSON object in the body of a call, the last parts of its path, and the answers to failed calls."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.arguments import decoded
from holdfast.admin.calls import Answer, Call, RefusedCall, bad_request
from holdfast.config.problems import ConfigError
from holdfast.storage.errors import StoreUnusable
from holdfast.tickets import FailureKind, StorageFailure


def object_of(call: Call, example: str) -> dict[str, Any]:
    """Return the JSON object in the body."""
    try:
        fields = json.loads(call.body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise bad_request(f"the body is a JSON object such as {example}")
    return fields


def check_fields(fields: dict[str, Any], known: Collection[str]) -> None:
    """Refuse unknown fields."""
    for name in fields:
        if name not in known:
            raise bad_request(f"there is no field {name[:40]!a}; there are: {', '.join(known)}")


def rest_of(call: Call, prefix: str) -> list[str]:
    """Return the parts of the path after a prefix."""
    return [decoded(part) for part in call.path.removeprefix(prefix).split("/")[1:]]


def check_arguments(call: Call, known: Collection[str] = ()) -> None:
    """Refuse unknown arguments."""
    for name in call.arguments:
        if name not in known:
            raise bad_request(f"there is no argument {name[:40]!a} here; there are: {', '.join(known) or 'none'}")


def not_allowed(*methods: str) -> RefusedCall:
    """Return the refusal of another method than these."""
    allowed = ", ".join(methods)
    return RefusedCall(http.NOT_ALLOWED, "METHOD_NOT_ALLOWED", f"allowed here: {allowed}", (("Allow", allowed),))


def unavailable(message: str) -> RefusedCall:
    """Return the refusal of a call that may succeed later."""
    return RefusedCall(http.SERVICE_UNAVAILABLE, "SERVICE_UNAVAILABLE", message)


def refusal_of(failure: Failure, log: Logger) -> Answer:
    """Return the answer to a call that failed. Raises CancelledError if the caller has cancelled the call."""
    error = failure.value
    if isinstance(error, RefusedCall):
        return error.answer()
    if isinstance(error, StorageFailure) and error.kind is FailureKind.REFUSED:
        return bad_request(str(error)).answer()
    if isinstance(error, StorageFailure | StoreUnusable | ConfigError):
        return unavailable(str(error)).answer()
    failure.trap(Exception)  # let SystemExit and KeyboardInterrupt pass
    if failure.check(CancelledError):
        failure.raiseException()
    log.failure("a call failed", failure)
    return RefusedCall(
        http.INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "this is a fault of the broker; see its log"
    ).answer()
