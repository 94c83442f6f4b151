"""The conditions of a PUBLISH: the message is stored only if the present retained message of its topic meets them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import frozen

from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.names import IF_ABSENT, IF_PAYLOAD_SHA256, IF_REVISION

#: revisions are signed integers of 64 bits in the databases
HIGHEST_REVISION = 2**63 - 1
_REVISION = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_NAMES = frozenset({IF_REVISION, IF_ABSENT, IF_PAYLOAD_SHA256})


@frozen
class Conditions:
    """All that are given must hold.

    ``revision`` is that of the present message, 0 for no message. ``absent``: there is none. ``payload_sha256`` is the
    digest of the present payload, in lower-case hexadecimal digits. ``present``: there is a message; only the broker
    itself asks for that.
    """

    revision: int | None = None
    absent: bool = False
    payload_sha256: str | None = None
    present: bool = False

    @property
    def may_hold_without_message(self) -> bool:
        """Whether the conditions hold if the topic has no message."""
        return not self.revision and self.payload_sha256 is None and not self.present


def conditions_of(properties: Sequence[tuple[str, str]]) -> Conditions | None:
    """Return the conditions of a PUBLISH, None if it has none. Raises :class:`BadRequest`."""
    found: dict[str, str] = {}
    for name, value in properties:
        if name in _NAMES:
            if name in found:
                raise BadRequest(f"User Property {name} is given more than once")
            found[name] = value
    if not found:
        return None
    revision, digest = found.get(IF_REVISION), found.get(IF_PAYLOAD_SHA256)
    if revision is not None and not (_REVISION.fullmatch(revision) and int(revision) <= HIGHEST_REVISION):
        raise BadRequest(f"User Property {IF_REVISION} is a whole number from 0 to {HIGHEST_REVISION}")
    if found.get(IF_ABSENT):
        raise BadRequest(f"User Property {IF_ABSENT} has an empty value")
    if digest is not None and not _SHA256.fullmatch(digest):
        raise BadRequest(f"User Property {IF_PAYLOAD_SHA256} has 64 hexadecimal digits")
    return Conditions(
        None if revision is None else int(revision), IF_ABSENT in found, None if digest is None else digest.lower()
    )


def has_condition(properties: Sequence[tuple[str, str]]) -> bool:
    """Tell whether one of the names of conditions is among User Properties."""
    return any(name in _NAMES for name, _ in properties)
