"""Asking for a password: on a terminal, or as one line from standard input. It is never an argument."""

from __future__ import annotations

import sys

import click

from holdfast.cli.failures import Failed


def read_password(*, confirmed: bool) -> bytes:
    """Return the password. Asks for it on a terminal, twice if it is to be ``confirmed``."""
    if is_terminal():
        answer = click.prompt("Password", hide_input=True, confirmation_prompt=confirmed)
        password = str(answer).encode()
    else:
        password = line_of_stdin()
    if not password:
        raise Failed("a password has at least one character")
    if len(password) > 65535:
        raise Failed("a password in MQTT has at most 65535 bytes")
    return password


def line_of_stdin() -> bytes:
    """Return the first line of standard input, without its end and without the mark of some editors before it."""
    from holdfast.config.toml.file import without_mark

    return without_mark(sys.stdin.buffer.readline()).removesuffix(b"\n").removesuffix(b"\r")


def is_terminal() -> bool:
    """Tell whether somebody can be asked."""
    return sys.stdin.isatty()
