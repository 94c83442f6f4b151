"""Sending the lines of an export to be imported, in bounded chunks, and telling what became of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import IO

from attrs import define, field

from holdfast.access.interfaces import Access
from holdfast.cli.progress import Report

#: Lines and bytes sent at once.
_LINES = 1000
_BYTES = 1 << 20
#: A longer line is not the message of any broker: MQTT's longest is 256 MB, in base64.
_LONGEST_LINE = 400 << 20
_PIECE = 1 << 20
#: Characters kept of a rejected line that is too long.
_EXCERPT = 200


@define
class Import:
    """One import: ``counts`` by verdict, and how many were ``rejected``, with the ``reasons`` of the first ones."""

    access: Access
    merge: str
    rejects: IO[str] | None
    counts: Counter[str] = field(factory=Counter)
    rejected: int = 0
    reasons: list[str] = field(factory=list)
    _number: int = 0

    def run(self, source: IO[bytes], report: Report) -> None:
        """Import all lines. Raises :class:`holdfast.access.interfaces.Inaccessible`."""
        done = 0
        for lines in self._chunks(source):
            answer = self.access.call("POST", "/import", {"merge": self.merge}, b"".join(lines))
            for reject in answer.pop("rejects"):
                number = reject["line"]
                self._reject(self._number + number, reject["code"], reject["message"], lines[number - 1])
            self.counts.update(answer)
            self._number += len(lines)
            done += sum(map(len, lines))
            report(done)

    def _chunks(self, source: IO[bytes]) -> Iterator[list[bytes]]:
        lines: list[bytes] = []
        size = 0
        while line := source.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                if lines:
                    yield lines
                lines, size = [], 0
                self._reject(self._number + 1, "BAD_REQUEST", "this line is too long", line[:_EXCERPT])
                self._number += 1
                while (piece := source.readline(_PIECE)) and not piece.endswith(b"\n"):
                    pass
                continue
            lines.append(line if line.endswith(b"\n") else line + b"\n")
            size += len(line)
            if len(lines) == _LINES or size >= _BYTES:
                yield lines
                lines, size = [], 0
        if lines:
            yield lines

    def _reject(self, number: int, code: str, message: str, line: bytes) -> None:
        self.rejected += 1
        if len(self.reasons) < 10:
            self.reasons.append(f"line {number}: {message}")
        if self.rejects is not None:
            text = line.rstrip(b"\n").decode(errors="backslashreplace")
            json.dump({"line": number, "code": code, "message": message, "text": text}, self.rejects)
            self.rejects.write("\n")
