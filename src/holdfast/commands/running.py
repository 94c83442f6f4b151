"""``holdfast run``, ``ping``, ``dashboard`` and ``trace``: the running broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.commands.common import Failed, broker_options, json_option, load_config, say, show, show_json
from holdfast.core.terminal import ExitStatus

if TYPE_CHECKING:
    from holdfast.tap import Options


# ``holdfast run``: starts the broker as ``twistd -n --pidfile= holdfast`` does, where twistd cannot find the plugin.
#
# Twistd looks for the plugin in folders ``twisted/plugins`` on Python's path. A plain ``pip install -e`` puts no
# such folder there (see CONTRIBUTING.md). This command hands the plugin to twistd's own code, so that options, log,
# printed lines, signals and exit statuses are the same.


#: Options that end the command with an answer.
_ASKING = {"-h", "--help", "--version"}


@click.command(
    add_help_option=False,  # the options, and their help, are those of holdfast.tap.Options
    context_settings={"ignore_unknown_options": True},
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def run(options: tuple[str, ...]) -> None:
    """Start the broker, with the options of twistd holdfast."""
    from twisted.python.usage import UsageError

    from holdfast.tap import Options

    class BrokerOptions(Options):
        """The broker's options, with the usage of this command."""

        opt_h = Options.opt_help

        def getSynopsis(self) -> str:
            return "Usage: holdfast run [options]"

    try:
        if _ASKING & set(options):
            BrokerOptions().parseOptions(options)  # type: ignore[no-untyped-call]  # answers, and ends the process
        _start(BrokerOptions, options)
    except UsageError as error:
        say(f"holdfast run: {error}")
        raise SystemExit(ExitStatus.USAGE) from None


def _start(broker_options: type[Options], options: tuple[str, ...]) -> None:
    """Run twistd's own code with the broker as the only plugin. Raises UsageError."""
    from twisted.application.service import ServiceMaker
    from twisted.scripts.twistd import ServerOptions, runApp  # type: ignore[attr-defined]

    class TwistdOptions(ServerOptions):
        """The options of twistd."""

        loadedPlugins = {"holdfast": ServiceMaker("Holdfast", "holdfast.tap", "", "holdfast")}
        subCommands = [("holdfast", None, broker_options, "")]

    config: Any = TwistdOptions()  # type: ignore[no-untyped-call]
    config.parseOptions(["--nodaemon", "--pidfile=", "holdfast", *options])
    runApp(config)


# ``holdfast ping``: tell whether a broker answers.


@click.command("ping")
@broker_options
def ping(config: Path | None, data_dir: str | None, storage: str | None) -> None:
    """Tell whether the broker answers.

    The command calls the control socket of the broker with these options. The exit status is 0 if the broker answers,
    and 1 if not, or if it waits for its database.
    """
    from holdfast.commands.access import BrokerClient

    settings = load_config(config, data_dir, storage)
    broker = BrokerClient(settings)
    if not broker.answers():
        say(f"holdfast: no broker answers for {settings.data_dir}")
        raise SystemExit(ExitStatus.FAILED)
    closed = broker.closed_listeners()
    show("the broker answers" + (f"; these listeners do not listen yet: {', '.join(closed)}" if closed else ""))


# ``holdfast dashboard``: a link that logs in at the dashboard.


_PATH = "/api/v5/dashboard/link"


@click.command()
@broker_options
@json_option
def dashboard(config: Path | None, data_dir: str | None, storage: str | None, as_json: bool) -> None:
    """Show a link to the dashboard of the running broker.

    The link logs in once, within 15 minutes. It gives all permissions to its holder: show it to nobody.
    """
    from holdfast.commands.access import BrokerClient

    loaded = load_config(config, data_dir, storage)
    broker = BrokerClient(loaded)
    if not broker.is_there():
        raise Failed(f"no broker runs with the data in {loaded.data_dir}")
    link = broker.call("POST", _PATH)
    if as_json:
        show_json(link)
    else:
        show(link["url"])


# ``holdfast trace``: the packets of one client, as they come and go.


_LONGEST = 24 * 3600
_ARROWS = {"received": "->", "sent": "<-"}


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    """Read a duration as whole seconds."""
    from holdfast.core.units import parse_duration

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
    from holdfast.admin.address import TRACE_PATH
    from holdfast.commands.access import BrokerClient

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
