"""Server-sent events of a real broker over HTTP."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.e2e.test_admin_api import Place
from tests.processes import PATIENCE

RETAINER = "/api/v5/mqtt/retainer"


class Events:
    """A stream of events, as a browser reads it."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.id = ""

    def next(self, name: str) -> Any:
        """Return the data of the next event of a name."""
        found, data = "", ""
        while True:
            line = self._response.readline().decode()
            assert line, "the stream has ended"
            field, _, value = line.rstrip("\n").partition(": ")
            if field == "event":
                found = value
            elif field == "data":
                data = value
            elif field == "id":
                self.id = value
            elif not field and found:
                if found == name:
                    return json.loads(data)
                found = ""

    def ends(self) -> bool:
        """Read on; tell whether the stream ends. A stream that the broker breaks off may end with a reset."""
        with suppress(ConnectionResetError):
            while self._response.readline():
                pass
        return True


@contextmanager
def events(place: Place, query: str, **headers: str) -> Iterator[Events]:
    """Open a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=PATIENCE)
    try:
        connection.request("GET", f"/events?{query}", headers={k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        assert (response.status, response.getheader("Content-Type")) == (200, "text/event-stream")
        yield Events(response)
    finally:
        connection.close()


def test_a_page_lists_then_watches_and_goes_on_after_each_loss(tmp_path: Path) -> None:
    """No change is missing: between list and stream, while the stream is away, and over a restart.

    The stream ends with the key.
    """
    place = Place(tmp_path)
    place.broker.start()
    try:
        made = place.command("api-key", "add", "page", "--scope", "read", "--scope", "retained:write")
        key = {"Authorization": f"Bearer {made['api_key']}:{made['api_secret']}"}

        def put(topic: str, payload: str) -> None:
            assert place.ask("POST", f"{RETAINER}/messages", {"topic": topic, "payload": payload}, **key)[0] == 204

        put("plant/1", "listed")
        _, page, _ = place.ask("GET", f"{RETAINER}/messages?topic=plant/%23", **key)
        assert [row["topic"] for row in page["data"]] == ["plant/1"]
        put("plant/2", "between")
        put("other", "unwanted")
        query = f"retained={quote('plant/#')}&token={page['meta']['token']}"
        with events(place, f"{query}&monitor=true", **key) as stream:
            found = stream.next("retained")
            assert (found["event"], found["topic"], found["payload"]) == ("set", "plant/2", "YmV0d2Vlbg==")
            assert stream.next("monitor")["time_stamp"] is not None
            assert place.ask("DELETE", f"{RETAINER}/message/plant%2F1", **key)[0] == 204
            assert [(each["event"], each["topic"]) for each in [stream.next("retained")]] == [("clear", "plant/1")]
            last = stream.id
        put("plant/3", "away")
        with events(place, query, Last_Event_ID=last, **key) as stream:
            assert stream.next("retained")["topic"] == "plant/3"
            last = stream.id
        put("plant/4", "before the restart")
        place.broker.stop()
        place.broker.start()
        with events(place, query, Last_Event_ID=last, **key) as stream:
            while stream.next("retained")["topic"] != "plant/4":
                pass
            place.command("api-key", "revoke", "page")
            assert stream.ends()
    finally:
        place.broker.end()
