"""The entries that a reader finds in a file: messages, and places with a problem instead of a message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen


class UnreadableFile(Exception):
    """The file, or the rest of it, cannot be read; the text says where and why."""


@frozen
class FileEntry:
    """A place in a file: the fields of a message there (:mod:`holdfast.retained.fields`), or a problem.

    With a problem there is no message, and ``fields`` has the topic at most.
    """

    place: str
    fields: Mapping[str, Any] | None = None
    problem: str | None = None


def properties_json(properties: Mapping[str, Any]) -> str | None:
    """Return the present properties as the column ``properties_json``, None if there is none."""
    present = {name: value for name, value in properties.items() if value not in (None, [], "")}
    return json.dumps(present, ensure_ascii=False, separators=(",", ":")) if present else None
