"""Merging a staging area through the API, and reading the progress that it reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.access.interfaces import Access


class MergeFailed(Exception):
    """The merge ended before all rows were merged; the text says why."""


def merge_staged(
    access: Access, *, job: str, merge: str, rejected: int, staged: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Merge a staging area, and yield the ``state``, ``counts`` and ``rejects`` after each chunk.

    ``staged`` names the area; ``rejected`` messages were rejected before. Raises :class:`MergeFailed` or
    :class:`holdfast.access.interfaces.Inaccessible`.
    """
    arguments = {"job": job, "merge": merge, **({"rejected": str(rejected)} if rejected else {})}
    rest = b""
    for piece in access.pieces("/merge", arguments, "POST", json.dumps(staged).encode()):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            progress = json.loads(line)
            if progress["state"] == "failed":
                raise MergeFailed(progress["message"])
            yield progress
