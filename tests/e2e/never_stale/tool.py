"""A broker's control socket, as the command ``holdfast retainer`` uses it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.admin.address import API_PREFIX, SOCKET_NAME


class Tool:
    """Makes calls of the operators' API to the broker with this data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / SOCKET_NAME

    async def clean(self, topic_filter: str) -> None:
        """Clear the matching topics like ``holdfast retainer clean --quiet``; return when they are cleared."""
        await self._call("DELETE", f"/messages?topic={quote(topic_filter, safe='')}&quiet=true")

    async def put(self, topic: str, payload: str, qos: int) -> None:
        """Retain a message, as ``holdfast retainer set --quiet`` does; return when it is stored."""
        request = {"topic": topic, "payload": payload, "qos": qos, "quiet": True}
        await self._call("POST", "/messages", json.dumps(request).encode())

    async def look(self, topic_filter: str) -> None:
        """List retained messages. The broker writes delayed ones before."""
        await self._call("GET", f"/messages?topic={quote(topic_filter, safe='')}&limit=1000")

    async def replays(self) -> int:
        """Return the number of running replays."""
        replays: int = (await self.info())["replays"]
        return replays

    async def info(self) -> dict[str, Any]:
        """Return what ``holdfast retainer info`` shows."""
        info: dict[str, Any] = await self._call("GET", "/info")
        return info

    async def _call(self, method: str, path: str, body: bytes = b"") -> Any:
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            head = (
                f"{method} {API_PREFIX}{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nPrefer: wait=60\r\n"
            )
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.read()
        finally:
            writer.close()
        status_line, _, content = answer.partition(b"\r\n\r\n")
        status = int(status_line.split(b" ", 2)[1])
        assert status < 300, answer
        return json.loads(content) if content else None
