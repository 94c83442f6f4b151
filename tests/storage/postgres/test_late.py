"""A Postgres that is not up yet is late; one that refuses this broker is not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from holdfast.storage.database import Durability
from holdfast.storage.location import StoreLate, StoreUnusable
from holdfast.storage.postgres import PostgresDatabase
from tests.postgres import server, url_of

#: what a client sends first to ask for TLS, and for GSSAPI
_ASKS = (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30")


def refusal(sqlstate: str) -> bytes:
    """Return an ErrorResponse of Postgres. Its text is translated, so only the SQLSTATE tells what it means."""
    fields = f"SFATAL\0VFATAL\0C{sqlstate}\0Mnon\0\0".encode()
    return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], int]]:
    """Start a server without TLS that gives one answer to each session; return its port."""
    opened: list[socket.socket] = []

    def serve(listening: socket.socket, answer: bytes) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:  # closed at the end of the test
                return
            with client:
                while client.recv(4096)[4:8] in _ASKS:
                    client.sendall(b"N")
                client.sendall(answer)

    def start(answer: bytes) -> int:
        listening = socket.create_server(("127.0.0.1", 0))
        opened.append(listening)
        threading.Thread(target=serve, args=(listening, answer), daemon=True).start()
        return int(listening.getsockname()[1])

    yield start
    for each in opened:
        each.shutdown(socket.SHUT_RDWR)
        each.close()


def failure(url: str) -> StoreUnusable:
    with pytest.raises(StoreUnusable) as raised:
        PostgresDatabase(make_url(url), Durability.FULL).check_present()
    return raised.value


def at(port: int, options: str = "") -> str:
    return f"postgresql+psycopg://holdfast:secret@127.0.0.1:{port}/holdfast{options}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def test_a_server_that_does_not_answer_is_late(tmp_path: Path) -> None:
    found = failure(at(free_port()))
    assert isinstance(found, StoreLate)
    assert "refused" in str(found)
    assert "secret" not in str(found)
    assert isinstance(failure(f"postgresql+psycopg:///holdfast?host={tmp_path}"), StoreLate)


def test_a_name_that_is_not_known_is_late() -> None:
    assert isinstance(failure("postgresql+psycopg://holdfast@nowhere.invalid/holdfast"), StoreLate)


def test_a_server_that_starts_is_late(answering: Callable[[bytes], int]) -> None:
    assert isinstance(failure(at(answering(refusal("57P03")))), StoreLate)


@pytest.mark.parametrize("sqlstate", ["28P01", "28000", "3D000", "53300"])
def test_a_server_that_refuses_this_broker_is_not_late(answering: Callable[[bytes], int], sqlstate: str) -> None:
    """A wrong password, no permission, no such database, too many connections."""
    assert not isinstance(failure(at(answering(refusal(sqlstate)))), StoreLate)


def test_a_server_without_tls_is_not_late(answering: Callable[[bytes], int]) -> None:
    assert not isinstance(failure(at(answering(refusal("28000")), "?sslmode=require")), StoreLate)


def test_a_missing_database_of_a_real_server_is_not_late() -> None:
    server()
    assert not isinstance(failure(url_of("holdfast_nowhere")), StoreLate)
