"""The control socket: its place, its mode, and files found in its place."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import succeed
from twisted.internet.error import CannotListenError
from twisted.internet.task import Clock

from holdfast.admin.address import SocketAddress
from holdfast.admin.call import answer
from holdfast.admin.http.control import ControlSocket, ControlUnusable
from holdfast.admin.http.site import APISite
from tests.storage.doubles import result_of


class Port:
    """A listening port."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def stopListening(self) -> None:
        self.path.unlink()


class Reactor(Clock):
    """Records the address that it should listen on, without a socket."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.asked: list[tuple[str, int, int]] = []

    def listenUNIX(self, address: str, _factory: object, mode: int) -> Port:
        before = os.umask(0)
        os.umask(before)
        self.asked.append((address, mode, before))
        if self.error is not None:
            raise self.error
        Path(address).touch()
        return Port(Path(address))


def control(directory: Path, reactor: Any) -> ControlSocket:
    return ControlSocket(
        reactor, directory, APISite(lambda _: succeed(answer({})), lambda _method, _path: 1000, reactor)
    )


def test_it_is_private_from_the_first_moment(tmp_path: Path) -> None:
    """The mask is set while the socket is made, and restored afterwards."""
    reactor = Reactor()
    before = os.umask(0o022)
    one = control(tmp_path, reactor)
    one.open()
    assert reactor.asked[0][1:] == (0o600, 0o177)
    assert os.umask(before) == 0o022
    result_of(one.close())
    assert list(tmp_path.iterdir()) == []
    assert one.close().called


def test_a_socket_left_behind_is_removed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        address = SocketAddress(tmp_path / "control.sock")
        left.bind(address.text)
        address.close()
    control(tmp_path, Reactor()).open()
    assert (tmp_path / "control.sock").is_file()  # the double makes a plain file


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_file_that_is_no_socket_is_refused_and_unchanged(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "control.sock"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    reactor = Reactor()
    with pytest.raises(ControlUnusable, match=r"control\.sock: is not a socket; move it away"):
        control(tmp_path, reactor).open()
    assert reactor.asked == []
    assert os.path.lexists(path)


def test_a_socket_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    reactor = Reactor(CannotListenError(None, "x", OSError(28, "No space left on device")))
    with pytest.raises(ControlUnusable, match="No space left"):
        control(tmp_path, reactor).open()


def test_closing_works_after_the_socket_was_removed(tmp_path: Path) -> None:
    one = control(tmp_path, Reactor())
    one.open()
    (tmp_path / "control.sock").unlink()
    result_of(one.close())
    assert list(tmp_path.iterdir()) == []


def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    """The kernel limits the length of a socket's address, but not of a data directory."""
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    reactor = Reactor()
    one = control(deep, reactor)
    one.open()
    assert len(reactor.asked[0][0]) < 108
    assert (deep / "control.sock").exists()
    result_of(one.close())
    assert list(deep.iterdir()) == []
