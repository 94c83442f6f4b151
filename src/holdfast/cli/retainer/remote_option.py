"""Gives a command access to the retained messages of a broker on this machine, or of one that ``--url`` names."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import Any

import click

from holdfast.cli.retainer.access_option import with_access

_OPTIONS = (
    click.option("--url", metavar="URL", help="Ask this broker over MQTT 5: mqtts://HOST:PORT or mqtt://HOST:PORT."),
    click.option("--username", help="With --url: the User Name."),
    click.option(
        "--password-file",
        type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
        help="With --url: the file with the password in its first line; - is standard input.",
    ),
    click.option(
        "--ca",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="With --url: a PEM file with the certificates to trust, in place of the system's.",
    ),
    click.option(
        "--response-topic", metavar="TOPIC", help="With --url: where the answers come; the user may subscribe to it."
    ),
)
_REMOTE = ("username", "password_file", "ca", "response_topic")
_LOCAL = {"config": "--config", "data_dir": "--data-dir", "storage": "--storage", "at": "--at"}


def with_access_or_url(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its access as first argument."""
    local = with_access(command)

    def run(url: str | None, **options: Any) -> None:
        remote = {name: options.pop(name) for name in _REMOTE}
        if url is None:
            for name in _REMOTE:
                if remote[name] is not None:
                    raise click.UsageError(f"Give --{name.replace('_', '-')} together with --url.")
            local(**options)
            return
        for name, option in _LOCAL.items():
            if options.get(name) is not None:
                raise click.UsageError(f"Give --url or {option}, not both.")
        for name in ("config", "data_dir", "storage"):
            del options[name]
        from holdfast.access.remote import remote as connected

        password = _password(remote.pop("password_file"))
        with connected(url, remote["username"], password, remote["ca"], remote["response_topic"]) as access:
            command(access, **options)

    update_wrapper(run, local)
    for add in reversed(_OPTIONS):
        run = add(run)
    return run


def _password(file: Path | None) -> bytes | None:
    if file is None:
        return None
    with click.open_file(str(file), "rb") as source:
        line: bytes = source.readline()
    return line.rstrip(b"\r\n")
