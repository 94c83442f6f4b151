"""The operators' names, as the kernel tells them."""

from __future__ import annotations

import os
import pwd
import socket

import pytest
from attrs import frozen

from holdfast.admin.callers import UNKNOWN, operator_at, operator_with, this_operator


@frozen
class Transport:
    """A transport with a socket."""

    socket: socket.socket


def test_the_user_at_the_other_end_of_a_unix_socket_is_named() -> None:
    ends = socket.socketpair()
    try:
        operator = operator_at(Transport(ends[0]))
        assert operator == this_operator()
        assert (operator.uid, operator.name) == (os.getuid(), pwd.getpwuid(os.getuid()).pw_name)
    finally:
        for end in ends:
            end.close()


def test_a_user_without_a_name_has_a_number() -> None:
    assert operator_with(4_000_000).name == "uid 4000000"


@pytest.mark.parametrize("transport", [object(), None])
def test_without_a_unix_socket_the_operator_is_unknown(transport: object) -> None:
    assert operator_at(transport) == UNKNOWN
    with socket.socket() as tcp:
        assert operator_at(Transport(tcp)) == UNKNOWN
