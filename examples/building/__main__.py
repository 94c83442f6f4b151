"""``python -m examples.building``: play the day of a building to a broker, and keep the broker's data."""

from __future__ import annotations

import signal
import sqlite3
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import click

from examples.building.broker import NotStarted, broker, configure
from examples.building.clock import DayClock
from examples.building.day import Building
from examples.building.devices import Devices, Unanswered, leave_sessions
from examples.building.events import HOUR, HOURS, Day

#: Seconds after the last hour until the broker has swept the expired messages.
_SWEPT = 0.5
_RECORDED = (
    "SELECT CASE WHEN op = 'set' AND origin = 'will' THEN 'Wills' ELSE op END AS what, count(*) "
    "FROM retained_history_events GROUP BY what ORDER BY what"
)
_SAID = {"set": "set", "clear": "cleared by a client", "expire": "expired", "Wills": "set by a Will"}


@click.command()
@click.option("--out", default="building", show_default=True, help="The folder for all of it: new, or empty.")
@click.option("--scale", type=click.FloatRange(0.001, 20), default=1.0, show_default=True, help="1: 50,000 topics.")
@click.option(
    "--seed", type=int, default=Day().seed, show_default=True, help="With the same number and --end: the same messages."
)
@click.option(
    "--end",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ"]),
    help="The end of the day, such as 2026-03-03T00:00:00Z.  [default: now]",
)
def main(out: str, scale: float, seed: int, end: datetime | None) -> None:
    """Play a day of a building: simulated devices publish to a broker that keeps a history.

    The day passes as fast as the broker can receive it. The broker's clock passes with it, so that the history and the
    payloads have the times of these 24 hours. An hour takes the minutes of its start: 08:40 to 09:40.
    """
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell lets its background jobs ignore SIGINT
        signal.signal(number, _interrupted)
    folder = Path(out)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            _fail(f"{out}: exists already; remove it, or name another folder: --out FOLDER")
        now = datetime.now(UTC).replace(microsecond=0)
        end = now if end is None else end.replace(tzinfo=UTC)
        if end > now:
            _fail(f"--end {end:%Y-%m-%dT%H:%M:%SZ}: is in the future; the day must have ended")
        folder.mkdir(parents=True, exist_ok=True)
        _play(folder, Building.of(scale, Day(end - timedelta(hours=HOURS), seed)))
    except KeyboardInterrupt:
        click.echo(f"\ninterrupted: the broker has ended; the day in {out} is not complete: remove it", err=True)
        raise SystemExit(1) from None
    except (NotStarted, Unanswered, OSError) as error:
        _fail(str(error))


def _play(folder: Path, building: Building) -> None:
    began = time.monotonic()
    file = configure(folder)
    day, clients = building.day, building.clients()
    clock_file = folder / "clock"
    clock = DayClock(clock_file, day.milliseconds(-1))
    with broker(file, clock_file) as port:
        devices = Devices(port, clients, day, clock)
        _tell(f"{day.clock(0)}: {len(clients)} clients, {building.rooms} rooms on {building.floors} floors; hour")
        devices.play(building.first_values())
        for hour in range(HOURS):
            _tell(f" {hour}")
            devices.play(building.hour(hour))
        clock.set(day.milliseconds(HOURS * HOUR))
        click.echo()
        kept = leave_sessions(port)
        time.sleep(_SWEPT)
        devices.end()
    clock_file.unlink()
    for what, count in devices.counts.items():
        click.echo(f"{count:>9,} {what}")
    click.echo(f"{kept:>9,} Subscriptions kept by Sessions of readers that are away")
    database = folder / "data" / "holdfast.db"
    with closing(sqlite3.connect(f"file:{database.absolute()}?mode=ro", uri=True)) as connection:
        recorded: dict[str, int] = dict(connection.execute(_RECORDED).fetchall())
        ((retained,),) = connection.execute("SELECT count(*) FROM retained_messages").fetchall()
    click.echo("In the history: " + ", ".join(f"{count:,} {_SAID[what]}" for what, count in recorded.items()))
    click.echo(f"{retained:,} messages are retained; {time.monotonic() - began:.0f} seconds. Go on with {file}")


def _tell(text: str) -> None:
    click.echo(text, nl=False)
    sys.stdout.flush()


def _fail(message: str) -> NoReturn:
    click.echo(message, err=True)
    raise SystemExit(1)


def _interrupted(_number: int, _frame: Any) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT):  # a second signal must not keep us from ending the broker
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
