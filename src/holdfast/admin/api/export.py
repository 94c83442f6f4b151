"""The call that exports retained messages, as lines of JSON or of CSV."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from attrs import frozen

from holdfast.admin.address import API_PREFIX
from holdfast.admin.api.lists import CONDITIONS, Lister, SearchLister, lister_of, search_of
from holdfast.admin.api.parameters import AT, CURSOR, FILTER, REFUSALS
from holdfast.admin.arguments import STRING, choice_of, cursor_of, filter_of, one_of
from holdfast.admin.call import CSV, NDJSON, Answer, Call, Scope, bad_request
from holdfast.admin.routing import Content, Route, query, routes_of
from holdfast.changes.history import RetainedHistory
from holdfast.core.messages import RetainedMessage
from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained import records
from holdfast.retained.administration import BYTES_IN_TURN, ROWS_IN_TURN, Administration
from holdfast.retained.records import line_of
from holdfast.scheduling.waiting import as_deferred


# Encoding a piece takes about 2 ms at most.
@frozen
class _Format:
    """A format of an export: its lines, the first one of all, and the most lines and bytes of messages in one piece."""

    content_type: str
    filename: str
    line_of: Callable[[RetainedMessage], bytes]
    most_lines: int
    most_bytes: int
    header: bytes = b""


_FORMATS = {
    "ndjson": _Format(NDJSON, "retained.ndjson", line_of, 100, 1 << 18),
    # Every character of a cell is looked at.
    "csv": _Format(CSV, "retained.csv", records.csv_line_of, 50, 1 << 16, records.header()),
}


class ExportCalls:
    """Answers the call."""

    def __init__(self, administration: Administration, history: RetainedHistory) -> None:
        self._administration = administration
        self._history = history
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=f"{API_PREFIX}/export",
        scope=Scope.READ,
        summary="Export the matching messages with their payloads, one on each line",
        parameters=(
            FILTER,
            CURSOR,
            AT,
            query("format", one_of(*_FORMATS), "lines of JSON, or CSV for a spreadsheet"),
            *CONDITIONS,
        ),
        answers={200: Content(STRING, "the messages", NDJSON, also=(CSV,))},
        refusals=REFUSALS,
    )
    @as_deferred
    async def export(self, call: Call) -> Answer:
        """Return the matching messages as lines in topic order, each as it is when the export reaches its topic."""
        arguments = call.arguments
        topic_filter = filter_of(arguments, EVERY_TOPIC)
        form = _FORMATS[choice_of(arguments, "format", tuple(_FORMATS))]
        lister = await self._lister(call, topic_filter)
        after, done, header = cursor_of(arguments), False, form.header
        pieces: deque[list[RetainedMessage]] = deque()

        @as_deferred
        async def more() -> bytes:
            nonlocal after, done, header
            if header:
                first, header = header, b""
                return first
            while not (pieces or done):
                listing = await lister(topic_filter, after, ROWS_IN_TURN, BYTES_IN_TURN, True)
                after, done = listing.after, listing.done
                pieces.extend(_pieces_of([entry.message for entry in listing.entries], form))
                if not pieces:
                    await self._administration.pause()
            return b"".join(map(form.line_of, pieces.popleft())) if pieces else b""

        # A browser saves the answer instead of showing what clients wrote.
        headers = (("Content-Disposition", f'attachment; filename="{form.filename}"'),)
        return Answer(content_type=form.content_type, headers=headers, more=more)

    async def _lister(self, call: Call, topic_filter: str) -> Lister:
        search = search_of(call.arguments, topic_filter, self._administration.now())
        if search.plain:
            lister: Lister = await lister_of(call.arguments, self._administration, self._history, topic_filter)
            return lister
        if "at" in call.arguments:
            raise bad_request("at is not allowed together with conditions", "at", "nothing")
        return SearchLister(self._administration.searches, search).listing


def _pieces_of(messages: Iterable[RetainedMessage], form: _Format) -> Iterator[list[RetainedMessage]]:
    """Yield the messages in pieces within the bounds of a format; each has at least one message."""
    piece: list[RetainedMessage] = []
    size = 0
    for message in messages:
        size += len(message.payload)
        if piece and (len(piece) == form.most_lines or size > form.most_bytes):
            yield piece
            piece, size = [], len(message.payload)
        piece.append(message)
    if piece:
        yield piece
