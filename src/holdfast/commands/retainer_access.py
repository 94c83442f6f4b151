"""How commands on retained messages reach a broker, and go through its lists part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
