"""Hostile texts through the API: in JSON, lines, CSV, events and refusals they are text, and exact."""

from __future__ import annotations

import csv
import io
import json
from urllib.parse import quote

import pytest

from holdfast.admin.api.events import event
from holdfast.changes.recent import StoredChange
from holdfast.core.messages import ChangeKind
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties
from tests.admin.doubles import Desk
from tests.admin.test_clients import Desk as ClientDesk
from tests.admin.test_permissions import NEEDS
from tests.admin.test_site import HTTPClient
from tests.doubles import MemoryBroker
from tests.hostile_strings import NAMES, TEXTS, obeyed

#: what begins a formula in a spreadsheet
_FORMULAS = tuple("=+-@|%\t\r\uff1d\uff0b\uff0d\uff20")


@pytest.fixture(scope="module")
def desk() -> Desk:
    """A broker with a retained message for each name, which is its topic, its payload, and everything else of it."""
    desk = Desk(MemoryBroker(limits=Limits(control_characters=True)))
    for name in NAMES:
        client = desk.broker.client(name, 5, username=name)
        assert client.connack is not None
        assert client.connack.reason_code == 0, name
        properties = Properties(user_properties=((name, name),), content_type=name, response_topic=name)
        client.publish(name, name.encode(), retain=True, properties=properties)
        client.publish("off", b"")
    return desk


def test_lists_have_every_name_exactly_and_obey_none(desk: Desk) -> None:
    """One line of JSON, without a character that a terminal or a reader of lines would obey."""
    body = desk.answer("GET", "/messages", limit="1000").body.decode()
    assert (body.count("\n"), body[-1]) == (1, "\n")
    assert obeyed(body) == {"\n"}
    rows = json.loads(body)["data"]
    assert {row["topic"] for row in rows} == {row["from_clientid"] for row in rows} == set(NAMES)
    assert {row["from_username"] for row in rows} == set(NAMES)
    for row in rows:
        assert row["properties"]["user_properties"] == [[row["topic"], row["topic"]]]


@pytest.mark.parametrize("name", NAMES)
def test_one_message_is_found_by_its_name(desk: Desk, name: str) -> None:
    assert desk.ask("GET", f"/message/{quote(name, safe='')}")["topic"] == name


def test_lines_of_an_export_are_as_many_as_the_messages(desk: Desk) -> None:
    """For every reader of lines: Python's splitlines knows ten ends of a line."""
    exported = desk.export().decode()
    lines = exported.splitlines()
    assert [json.loads(line)["topic"] for line in lines] == [
        json.loads(line)["topic"] for line in exported.split("\n")[:-1]
    ]
    assert len(lines) == len(NAMES)
    assert obeyed(exported) == {"\n"}


def test_no_cell_of_csv_is_a_formula(desk: Desk) -> None:
    """Nor does a cell begin another line, or has a character that a terminal obeys."""
    exported = desk.export(format="csv").decode()
    assert obeyed(exported) == {"\r", "\n"}
    rows = list(csv.reader(io.StringIO(exported, newline="")))
    assert len(rows) == len(NAMES) + 1 == exported.count("\r\n")
    assert {len(row) for row in rows} == {10}
    for row in rows:
        assert not [cell for cell in row if cell.lstrip().startswith(_FORMULAS)]


def test_events_are_lines_of_their_own() -> None:
    for text in NAMES:
        change = StoredChange(text, 1, ChangeKind.SET, 1, size=1, client_id=text, username=text, payload=text.encode())
        name, data, *rest = event("retained", change.json()).decode("ascii").splitlines()
        assert (name, rest) == ("event: retained", [""])
        assert json.loads(data.removeprefix("data: "))["topic"] == text


def test_clients_are_listed_and_found_by_hostile_names() -> None:
    desk = ClientDesk()
    desk.broker.limits = Limits(control_characters=True)
    for name in NAMES:
        desk.broker.client(name, 5, username=name).subscribe(name)
    status, content = desk.call("GET", "/api/v5/clients", limit="1000")
    assert status == 200
    assert (
        {each["clientid"] for each in content["data"]} == {each["username"] for each in content["data"]} == set(NAMES)
    )
    status, content = desk.call("GET", "/api/v5/subscriptions", limit="1000")
    assert {each["topic"] for each in content["data"]} == set(NAMES)


@pytest.mark.parametrize("argument", ["topic", "cursor", "limit", "at", "publisher", "format", "prefix", "client_id"])
@pytest.mark.parametrize("path", ["/messages", "/export", "/tree", "/count"])
def test_arguments_are_refused_or_are_text(desk: Desk, path: str, argument: str) -> None:
    """With a problem that has nothing for a terminal to obey, and never as a failure of the broker."""
    for text in (*TEXTS, "z" * 15_000):
        answer = desk.answer("GET", path, **{argument: text})
        assert answer.status in (200, 400, 404), (text, answer)
        assert obeyed(answer.body.decode()) <= {"\n"}, text
        assert len(answer.body) < 2000 or answer.status == 200


def test_no_target_or_header_of_a_request_comes_back_in_a_header(desk: Desk) -> None:
    """Over HTTP, raw: line ends, NUL and bytes that are no UTF-8 in every place of the head."""
    for text in TEXTS:
        raw = text.encode("utf-8", "surrogatepass").decode("latin-1")
        for lines in ((f"GET /{raw} HTTP/1.1",), ("GET /a HTTP/1.1", f"Authorization: {raw}"),
                      ("GET /a HTTP/1.1", f"Cookie: holdfast={raw}"), (f"{raw} / HTTP/1.1",)):  # fmt: skip
            line = HTTPClient(desk.table.answer, most_bytes=1000)
            line.send(*lines)
            sent = line.transport.value()
            for head in [part for part in sent.split(b"\r\n\r\n") if part.startswith(b"HTTP/")]:
                assert b"evil" not in head, text
                assert b"Set-Cookie" not in head
                assert head.isascii()


def test_the_table_of_permissions_has_no_topic_in_a_path_alone() -> None:
    """Topics go into the query string or the body. Where one is in a path, a call for lists does the same."""
    with_topic = {(method, path) for method, path in NEEDS if path.endswith("/{topic}")}
    assert {(method, f"{path.removesuffix('/{topic}')}s") for method, path in with_topic} <= NEEDS.keys()
