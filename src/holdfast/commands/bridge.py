"""``holdfast bridge``: list, pause and resume the bridges of the running broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from holdfast.commands.common import broker_options, json_lines_option, json_option, load_config, show, show_json

_PATH = "/api/v5/bridges"
_NAME = click.argument("name")


@click.group()
def bridge() -> None:
    """List, pause and resume the bridges to other brokers ([bridges.NAME] in the configuration).

    Works with a running broker.
    """


def _call(config: Path | None, data_dir: str | None, storage: str | None, method: str, path: str) -> Any:
    from holdfast.commands.access import BrokerClient
    from holdfast.commands.common import Failed

    settings = load_config(config, data_dir, storage)
    broker = BrokerClient(settings)
    if not broker.is_there():
        raise Failed(f"no broker answers for {settings.data_dir}: bridges run in the broker")
    return broker.call(method, path)


@bridge.command("list")
@broker_options
@json_lines_option
def list_bridges(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """List the bridges, with their states and the messages that wait for the remote brokers."""
    found = _call(config, data_dir, storage, "GET", _PATH)["data"]
    for one in found:
        if as_json:
            show_json(one)
        else:
            show(_text(one))
    if not found and not as_json:
        show("no bridge is configured")


@bridge.command("pause")
@_NAME
@broker_options
@json_option
def pause(name: str, config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Disconnect the bridge NAME until it is resumed, or the broker starts anew. Its messages wait."""
    _change(config, data_dir, storage, name, "pause", as_json)


@bridge.command("resume")
@_NAME
@broker_options
@json_option
def resume(name: str, config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Connect the bridge NAME now: a paused one, or one that waits before its next attempt."""
    _change(config, data_dir, storage, name, "resume", as_json)


def _change(
    config: Path | None, data_dir: str | None, storage: str | None, name: str, change: str, as_json: bool
) -> None:
    one = _call(config, data_dir, storage, "POST", f"{_PATH}/{quote(name, safe='')}/{change}")
    if as_json:
        show_json(one)
    else:
        show(_text(one))


def _text(one: dict[str, Any]) -> str:
    where = f" to {one['address']}" if one["address"] and one["state"] != "paused" else ""
    why = f" ({one['problem']})" if one["problem"] else ""
    counts = one["messages"]
    crossed = f"{counts['sent']} out, {counts['received']} in"
    waiting = f"{one['queued']} queued, {one['inflight']} in flight"
    losses = {"refused": counts["refused"], "left out": counts["left_out"]}
    lost = [f"{count} {word}" for word, count in losses.items() if count]
    return f"{one['name']}: {one['state']}{where}{why}; {', '.join([crossed, waiting, *lost])}"
