"""What the API has to say about retained messages: EMQX's paths and shapes, and more fields."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any
from urllib.parse import unquote

from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.calls import DONE, NDJSON, Answer, Call, Refused, answer, bad_request, not_found
from holdfast.admin.records import BadRecord, detail_of, line_of, message_of, request_of, summary_of
from holdfast.retained.administration import BYTES, ROWS, Administration, Merge, Verdict
from holdfast.retained.limits import NotRetained
from holdfast.tickets import FailureKind, StorageFailure
from holdfast.topics import EVERY_TOPIC, InvalidTopicFilter, check_topic_filter

PREFIX = "/api/v5/mqtt/retainer"
#: the most messages of a page, as in EMQX
MOST_LISTED = 10_000
#: bytes of messages (without payloads) after which a page ends early
_PAGE_BYTES = 8 << 20
#: lines of one import
MOST_LINES = 10_000
_MOST_LEVELS = 65_536
_MOST = 2**53

Handler = Callable[["RetainerAPI", Call], "Deferred[Answer]"]


class RetainerAPI:
    """Answers calls about retained messages. ``config`` is shown as it is, and ``store`` names the database.

    ``health`` tells what is wrong with that: ``damage`` (None: nothing) and the files that are ``quarantined``.
    """

    _log = Logger()

    def __init__(
        self,
        administration: Administration,
        config: Mapping[str, Any],
        store: str,
        health: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        self._administration = administration
        self._config = config
        self._store = store
        self._health = health

    def answer(self, call: Call) -> Deferred[Answer]:
        """Answer a call, whatever it is; fails only with CancelledError, when it is cancelled."""
        return maybeDeferred(self._answer, call).addErrback(self._failed)

    def _answer(self, call: Call) -> Deferred[Answer]:
        if not call.path.startswith(PREFIX):
            raise not_found("there is no such path")
        path = call.path[len(PREFIX) :]
        if path.startswith("/message/"):
            arguments = {**call.arguments, "topic": _decoded(path.removeprefix("/message/"))}
            call = Call(call.method, path, arguments, call.body)
            path = "/message"
        methods = _ROUTES.get(path)
        if methods is None:
            raise not_found("there is no such path")
        known = methods.get(call.method)
        if known is None:
            allowed = ", ".join(methods)
            raise Refused(http.NOT_ALLOWED, "METHOD_NOT_ALLOWED", f"allowed here: {allowed}", (("Allow", allowed),))
        handler, names = known
        for name in call.arguments:
            if name not in names:
                raise bad_request(f"there is no argument {name[:40]!a} here; there are: {', '.join(names) or 'none'}")
        return handler(self, call)

    def _failed(self, failure: Failure) -> Answer:
        error = failure.value
        if isinstance(error, Refused):
            return error.answer()
        if isinstance(error, BadRecord):
            return bad_request(str(error)).answer()
        if isinstance(error, NotRetained):
            return Refused(http.BAD_REQUEST, "EXCEED_LIMIT", str(error)).answer()
        if isinstance(error, StorageFailure):
            if error.kind is FailureKind.REFUSED:
                return bad_request(str(error)).answer()
            return Refused(http.SERVICE_UNAVAILABLE, "SERVICE_UNAVAILABLE", str(error)).answer()
        failure.trap(Exception)  # not those that end the program
        if failure.check("twisted.internet.defer.CancelledError"):
            failure.raiseException()
        self._log.failure("a call failed", failure)
        return Refused(
            http.INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "this is a fault of the broker; see its log"
        ).answer()

    def config(self, _call: Call) -> Deferred[Answer]:
        """Show the configuration."""
        return _now(answer(self._config))

    def configure(self, _call: Call) -> Deferred[Answer]:
        """Refuse to change the configuration."""
        raise Refused(
            http.BAD_REQUEST,
            "UPDATE_FAILED",
            "the retainer's configuration cannot be changed while the broker runs; change its file and start it again",
        )

    def info(self, _call: Call) -> Deferred[Answer]:
        """Tell how much is retained, and what has been done here."""
        administration = self._administration
        statistics = administration.statistics()
        return _now(
            answer(
                {
                    "count": statistics.count,
                    "payload_bytes": statistics.payload_bytes,
                    "replays": administration.replay_count,
                    "node": administration.node,
                    "store": self._store,
                    **self._health(),
                    "api": dict(administration.counts),
                }
            )
        )

    @inlineCallbacks
    def messages(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """List messages: a page by its number, or what follows a cursor."""
        arguments = call.arguments
        topic_filter = _filter(arguments, EVERY_TOPIC)
        limit = _number(arguments, "limit", 100, MOST_LISTED)
        page = _number(arguments, "page", 1, _MOST)
        after = _cursor(arguments)
        skipped = (page - 1) * limit
        rows: list[dict[str, Any]] = []
        weight, done, full = 0, False, False
        cursor = after
        while not (done or full):
            listing = yield self._administration.listing(
                topic_filter, after, min(ROWS, skipped + limit + 1 - len(rows)), BYTES, False
            )
            after, done = listing.after, listing.done
            for entry in listing.entries:
                if skipped:
                    skipped -= 1
                    continue
                if len(rows) == limit or (rows and weight > _PAGE_BYTES):
                    full = True
                    break
                row = summary_of(entry)
                weight += 300 + 4 * len(row["topic"]) + len(str(row["properties"]))
                rows.append(row)
                cursor = entry.message.topic
            if not done:
                yield self._administration.pause()
        meta: dict[str, Any] = {"page": page, "limit": limit, "hasnext": full, "cursor": cursor if full else None}
        if "topic" not in arguments:
            meta["count"] = self._administration.statistics().count
        return answer({"data": rows, "meta": meta})

    @inlineCallbacks
    def retain(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Retain a message. Subscribers of today are not sent it."""
        message = request_of(call.body, self._administration.now())
        yield self._administration.set(message)
        return DONE

    @inlineCallbacks
    def clear(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Clear what matches, or count it. Without arguments, clear everything, and say no more than EMQX."""
        arguments = call.arguments
        if not arguments:
            yield self._administration.clear(EVERY_TOPIC)
            return DONE
        dry_run = _flag(arguments, "dry_run")
        rows = _number(arguments, "limit", 0, _MOST) or None
        cleared = yield self._administration.clear(_filter(arguments), _cursor(arguments), rows, dry_run)
        meta = {"hasnext": not cleared.done, "cursor": None if cleared.done else cleared.after}
        return answer({"count": cleared.count, "dry_run": dry_run, "meta": meta})

    @inlineCallbacks
    def message(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Show a topic's message, or the first that matches a filter."""
        listed = yield self._administration.first(_filter(call.arguments))
        if listed is None:
            raise not_found("Viewed message doesn't exist")
        return answer(detail_of(listed))

    @inlineCallbacks
    def clear_message(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Clear a topic, or all that match a filter."""
        cleared = yield self._administration.clear(_filter(call.arguments))
        if not cleared.count:
            raise not_found("Viewed message doesn't exist")
        return DONE

    def export(self, call: Call) -> Deferred[Answer]:
        """Return all that matches, line by line in topic order, as each is when its turn comes."""
        topic_filter = _filter(call.arguments, EVERY_TOPIC)
        after, done = _cursor(call.arguments), False

        @inlineCallbacks
        def more() -> Generator[Deferred[Any], Any, bytes]:
            nonlocal after, done
            while not done:
                listing = yield self._administration.listing(topic_filter, after, ROWS, BYTES, True)
                after, done = listing.after, listing.done
                if listing.entries:
                    return b"".join([line_of(entry.message) for entry in listing.entries])
                yield self._administration.pause()
            return b""

        return _now(Answer(content_type=NDJSON, more=more))

    @inlineCallbacks
    def merge(self, call: Call) -> Generator[Deferred[Any], Any, Answer]:
        """Import lines of an export; say how many were taken, and which were not and why."""
        try:
            merge = Merge(call.arguments.get("merge", Merge.NEWER.value))
        except ValueError:
            raise bad_request(f"merge is one of {', '.join(one.value for one in Merge)}") from None
        if call.body.count(b"\n") > MOST_LINES:
            raise bad_request(f"at most {MOST_LINES} lines at once")
        counts = {verdict.value: 0 for verdict in Verdict}
        rejects: list[dict[str, Any]] = []
        for numbers, lines in _parts(call.body):
            messages, places = [], []
            for number, line in zip(numbers, lines, strict=True):
                try:
                    messages.append(message_of(line, self._administration.now()))
                    places.append(number)
                except BadRecord as error:
                    rejects.append({"line": number, "code": "BAD_REQUEST", "message": str(error)})
            verdicts = yield self._administration.merge(messages, merge)
            for number, verdict in zip(places, verdicts, strict=True):
                if isinstance(verdict, Verdict):
                    counts[verdict.value] += 1
                else:
                    rejects.append({"line": number, "code": _code(verdict), "message": str(verdict)})
            yield self._administration.pause()
        return answer({**counts, "rejects": sorted(rejects, key=_line)})


#: what there is: by path and method, the handler and the arguments it knows
_ROUTES: Mapping[str, Mapping[str, tuple[Handler, tuple[str, ...]]]] = {
    "": {"GET": (RetainerAPI.config, ()), "PUT": (RetainerAPI.configure, ())},
    "/info": {"GET": (RetainerAPI.info, ())},
    "/messages": {
        "GET": (RetainerAPI.messages, ("topic", "page", "limit", "cursor")),
        "POST": (RetainerAPI.retain, ()),
        "DELETE": (RetainerAPI.clear, ("topic", "dry_run", "limit", "cursor")),
    },
    "/message": {"GET": (RetainerAPI.message, ("topic",)), "DELETE": (RetainerAPI.clear_message, ("topic",))},
    "/export": {"GET": (RetainerAPI.export, ("topic", "cursor"))},
    "/import": {"POST": (RetainerAPI.merge, ("merge",))},
}


def _now(content: Answer) -> Deferred[Answer]:
    done: Deferred[Answer] = Deferred()
    done.callback(content)
    return done


def _code(error: Exception) -> str:
    return "EXCEED_LIMIT" if isinstance(error, NotRetained) else "SERVICE_UNAVAILABLE"


def _line(reject: dict[str, Any]) -> int:
    line: int = reject["line"]
    return line


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise bad_request("the topic in the path is not UTF-8") from None


def _filter(arguments: Mapping[str, str], default: str | None = None) -> str:
    topic_filter = arguments.get("topic")
    if topic_filter is None:
        if default is None:
            raise bad_request("name a topic or a filter: ?topic=...")
        return default
    try:
        check_topic_filter(topic_filter, _MOST_LEVELS)
    except InvalidTopicFilter as error:
        raise bad_request(f"topic: {error}") from None
    return topic_filter


def _cursor(arguments: Mapping[str, str]) -> str:
    cursor = arguments.get("cursor", "")
    if "\0" in cursor:
        raise bad_request("cursor: take it as it stands in meta.cursor")
    return cursor


def _number(arguments: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = arguments.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 17 and 1 <= int(text) <= most):
        raise bad_request(f"{name} is a whole number from 1 to {most}")
    return int(text)


def _flag(arguments: Mapping[str, str], name: str) -> bool:
    text = arguments.get(name, "false")
    if text not in ("true", "false"):
        raise bad_request(f"{name} is true or false")
    return text == "true"


def _parts(body: bytes) -> Generator[tuple[list[int], list[bytes]]]:
    """Cut a body in parts of bounded numbers of lines and bytes. Empty lines are passed over."""
    numbers: list[int] = []
    lines: list[bytes] = []
    start, number, size = 0, 0, 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        number += 1
        line = body[start:end].strip()
        start = end + 1
        if line:
            numbers.append(number)
            lines.append(line)
            size += len(line)
        if len(lines) >= ROWS or size >= BYTES:
            yield numbers, lines
            numbers, lines, size = [], [], 0
    if lines:
        yield numbers, lines
