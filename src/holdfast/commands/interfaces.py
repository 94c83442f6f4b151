"""Calls of the API, answered by a broker or by its stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Protocol

Arguments = Mapping[str, str]
NO_ARGUMENTS: Arguments = MappingProxyType({})


class Inaccessible(Exception):
    """A call was not answered, or was refused; the text says why."""


class Refused(Inaccessible):
    """A call was refused. ``content`` is the content of the answer."""

    def __init__(self, message: str, content: object) -> None:
        super().__init__(message)
        self.content = content


class Access(Protocol):
    """Makes calls of the API."""

    @property
    def reaches_subscribers(self) -> bool:
        """Whether a broker answers, so that changes reach its present subscribers."""

    def call(self, method: str, path: str, arguments: Arguments = ..., body: bytes = ...) -> Any:
        """Return the content of the answer, decoded from JSON. Raises :class:`Inaccessible`."""

    def pieces(self, path: str, arguments: Arguments = ..., method: str = ..., body: bytes = ...) -> Iterator[bytes]:
        """Yield a long answer piece by piece. Raises :class:`Inaccessible`, also after some pieces."""


def content_of(status: int, body: bytes) -> Any:
    """Return the content of an answer. Raises :class:`Inaccessible` if the answer is a refusal."""
    try:
        content = json.loads(body) if body else None
    except ValueError as error:
        raise Inaccessible(f"the answer (status {status}) is not JSON: {body[:60]!r}") from error
    if status >= HTTPStatus.BAD_REQUEST:
        message = content["message"] if isinstance(content, dict) and "message" in content else f"{status}"
        raise Refused(message, content)
    return content
