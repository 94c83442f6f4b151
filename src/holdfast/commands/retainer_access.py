"""How commands on retained messages reach a broker, and go through its lists part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.commands.common import broker_options, load_config, say
from holdfast.core.terminal import printable

if TYPE_CHECKING:
    from holdfast.commands.interfaces import Access
    from holdfast.config import Config


# Gives a command access to the retained messages of the broker that its options name.


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its access as first argument."""
    return _with(command, lambda access, _config: (access,))


def with_access_and_config(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same, and give the command the broker's configuration as second argument."""
    return _with(command, lambda access, config: (access, config))


def _with(command: Callable[..., None], given: Callable[[Access, Config], tuple[object, ...]]) -> Callable[..., None]:
    def run(config: Path | None, data_dir: str | None, storage: str | None, **options: Any) -> None:
        from holdfast.commands.opening import access_to

        loaded = load_config(config, data_dir, storage)
        with access_to(loaded) as access:
            command(*given(access, loaded), **options)

    update_wrapper(run, command)
    return broker_options(run)


# Gives a command access to the retained messages of a broker on this machine, or of one that ``--url`` names.


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
        from holdfast.commands.remote import remote as connected

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


# Calls that list or clear retained messages in parts, each of bounded size.


#: messages that one call lists, and that one call clears
_PAGE = 1000
_CLEARED = 5000


def pages(access: Access, selected: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield all selected messages, page by page."""
    arguments = {"limit": str(_PAGE), **selected}
    while True:
        page = access.call("GET", "/messages", arguments)
        yield from page["data"]
        if not page["meta"]["hasnext"]:
            say_left_out(page["meta"].get("left_out", ()))
            return
        arguments["cursor"] = page["meta"]["cursor"]


def say_left_out(filters: Iterable[str]) -> None:
    """Say which topics the history does not know at the time of an answer."""
    names = ", ".join(map(printable, filters))
    if names:
        say(f"left out, because the history does not know them then: the topics of {names}")


def clear(access: Access, selected: Mapping[str, str], report: Callable[[int], None], count: int = 0) -> int:
    """Clear all selected messages, part by part. Return ``count`` and their number; ``report`` is told each sum."""
    arguments = {"limit": str(_CLEARED), **selected}
    while True:
        answer = access.call("DELETE", "/messages", arguments)
        count += answer["count"]
        report(count)
        if not answer["meta"]["hasnext"]:
            return count
        arguments["cursor"] = answer["meta"]["cursor"]
