"""Logins with SCRAM-SHA-256, and the users of a broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
from scramp import ScramClient

from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient

METHOD = "SCRAM-SHA-256"


class Refused(Exception):
    """The broker has ended the connection with this Reason Code, after this challenge."""

    def __init__(self, reason: int, challenge: str) -> None:
        super().__init__(f"0x{reason:02x}")
        self.reason = reason
        self.challenge = challenge


class Login(RawClient):
    """Connects as a user by way of scramp's client, with the Client Identifier ``client-of-USER`` or another one.

    With ``expiry``, in seconds, its Session lasts, and it resumes one.
    """

    def __init__(self, port: int, user: str, password: str, client_id: str = "", expiry: int | None = None) -> None:
        self.user = user
        self.password = password
        self.expiry = expiry
        self.challenge = ""
        self.session_present = False
        super().__init__(port, client_id or f"client-of-{user}", 5, expiry is None)

    def greet(self, connect: p.Connect) -> None:
        """Authenticate, and connect. Raises Refused."""
        expiry = self.expiry
        self.exchange(
            lambda data: attrs.evolve(
                connect, properties=attrs.evolve(self.properties(data), session_expiry_interval=expiry)
            )
        )

    def again(self) -> None:
        """Authenticate again."""
        self.exchange(lambda data: p.Auth(ReasonCode.RE_AUTHENTICATE, self.properties(data)))

    def exchange(self, begin: Callable[[bytes], p.Packet]) -> None:
        """Complete an exchange. The server must prove its identity."""
        scram = ScramClient([METHOD], self.user, self.password)
        self.send(begin(scram.get_client_first().encode()))
        self.challenge = self.said()
        scram.set_server_first(self.challenge)
        answer = self.properties(scram.get_client_final().encode())
        self.send(p.Auth(ReasonCode.CONTINUE_AUTHENTICATION, answer))
        scram.set_server_final(self.said())

    def said(self) -> str:
        """Return the Authentication Data of the next packet."""
        packet = next(self.packets())
        assert isinstance(packet, p.Connack | p.Auth | p.Disconnect)
        if packet.reason_code >= ReasonCode.UNSPECIFIED_ERROR:
            raise Refused(packet.reason_code, self.challenge)
        assert packet.properties.authentication_method == METHOD
        self.session_present = isinstance(packet, p.Connack) and packet.session_present
        assert packet.properties.authentication_data is not None
        return packet.properties.authentication_data.decode()

    def properties(self, data: bytes) -> Properties:
        """Return the properties of the method."""
        return Properties(authentication_method=METHOD, authentication_data=data)


def scram(folder: Path, *arguments: str, password: str = "") -> None:
    """Run ``holdfast scram`` on the users of the broker in this folder."""
    command = [
        sys.executable,
        "-m",
        "holdfast.commands",
        "scram",
        arguments[0],
        str(folder / "users.scram"),
        *arguments[1:],
    ]
    subprocess.run(command, input=password, text=True, check=True, capture_output=True, timeout=60)


def set_user(folder: Path, user: str, password: str) -> None:
    """Add a user, or change its password."""
    scram(folder, "set", user, "--password-stdin", "--iterations", "4096", password=password)
