"""``holdfast trace``: the packets of one client, as they come and go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.cli.broker_options import broker_options, load_config
from holdfast.cli.failures import Failed
from holdfast.cli.reporting import say, show, show_json

_LONGEST = 24 * 3600
_ARROWS = {"received": "->", "sent": "<-"}


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    """Read a duration as whole seconds."""
    from holdfast.config.units import parse_duration

    try:
        seconds = parse_duration(value)
    except ValueError:
        raise click.BadParameter("give a duration such as 90s, 5m or 1h") from None
    if not 1 <= seconds <= _LONGEST:
        raise click.BadParameter("a trace lasts from 1s to 24h")
    return int(seconds)


@click.command()
@click.argument("client_id", metavar="CLIENT")
@click.option("--for", "seconds", default="5m", show_default=True, metavar="DURATION", callback=_seconds,
              help="How long to trace: 90s, 5m, 1h.")  # fmt: skip
@click.option("--payload", "payload_bytes", type=click.IntRange(0, 65536), default=128, show_default=True,
              metavar="BYTES", help="How much of each payload to show.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print lines of JSON, an object for each packet.")
@broker_options
def trace(
    client_id: str,
    seconds: int,
    payload_bytes: int,
    as_json: bool,
    config: Path | None,
    data_dir: str | None,
    storage: str | None,
) -> None:
    """Print the packets that one client sends and gets.

    CLIENT is a Client Identifier. -> marks packets from the client, <- packets to it. The client may connect later: the
    trace has its next CONNECT too, even a refused one. Passwords are left out. Ctrl-C ends the trace; the client
    notices nothing.
    """
    from holdfast.access.client import BrokerClient
    from holdfast.admin.broker.paths import TRACE_PATH

    settings = load_config(config, data_dir, storage)
    broker = BrokerClient(settings)
    if not broker.answers():
        raise Failed(f"no broker runs for {settings.data_dir}: only a running one can be traced")
    say(f"tracing {client_id!r} for {seconds} s; Ctrl-C ends it")
    arguments = {"clientid": client_id, "seconds": str(seconds), "payload_bytes": str(payload_bytes)}
    try:
        for line in _lines(broker.pieces(TRACE_PATH, arguments)):
            event = json.loads(line)
            if as_json:
                show_json(event)
            else:
                show(_text(event))
    except KeyboardInterrupt:
        say("the trace is over")


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield whole lines, without the empty ones that keep the connection."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from filter(None, lines)


def _text(event: dict[str, Any]) -> str:
    """Return the line of one event: its time, its direction, the packet and its fields."""
    moment, kind = event.pop("time"), event.pop("event")
    packet = event.pop("packet", "")
    fields = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in event.items())
    return " ".join(filter(None, (moment[11:23], _ARROWS.get(kind, kind), packet, fields)))
