"""``python -m examples.building``: play the day of a building to a broker, and keep the broker's data."""

from __future__ import annotations

import signal
import sqlite3
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import click

from examples.building.broker import NotStarted, broker, configure
from examples.building.day import HOURS, Building
from examples.building.devices import Devices, Unanswered, leave_sessions
from examples.building.rooms import SHORT

_SEED = 20260302
#: Seconds after the last hour until the broker has swept the expired messages.
_SWEPT = SHORT + 2
_RECORDED = (
    "SELECT CASE WHEN op = 'set' AND origin = 'will' THEN 'Wills' ELSE op END AS what, count(*) "
    "FROM retained_history_events GROUP BY what ORDER BY what"
)
_SAID = {"set": "set", "clear": "cleared by a client", "expire": "expired", "Wills": "set by a Will"}


@click.command()
@click.option("--out", default="building", show_default=True, help="The folder for all of it: new, or empty.")
@click.option("--scale", type=click.FloatRange(0.001, 20), default=1.0, show_default=True, help="1: 50,000 topics.")
@click.option("--seed", type=int, default=_SEED, show_default=True, help="The same number gives the same messages.")
def main(out: str, scale: float, seed: int) -> None:
    """Play a day of a building: simulated devices publish to a broker that keeps a history.

    The payloads have the time of that day. The day passes as fast as the broker can receive it, so the history has
    the times of the few minutes it took; OUT/hours.txt has the end of each hour.
    """
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell lets its background jobs ignore SIGINT
        signal.signal(number, _interrupted)
    folder = Path(out)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            _fail(f"{out}: exists already; remove it, or name another folder: --out FOLDER")
        folder.mkdir(parents=True, exist_ok=True)
        _play(folder, Building.of(scale, seed))
    except KeyboardInterrupt:
        click.echo(f"\ninterrupted: the broker has ended; the day in {out} is not complete: remove it", err=True)
        raise SystemExit(1) from None
    except (NotStarted, Unanswered, OSError) as error:
        _fail(str(error))


def _play(folder: Path, building: Building) -> None:
    began = time.monotonic()
    file = configure(folder)
    with broker(file) as port:
        devices = Devices(port, building.clients())
        _tell(f"{len(building.clients())} clients, {building.rooms} rooms on {building.floors} floors; hour")
        with (folder / "hours.txt").open("w", encoding="utf-8") as hours:
            devices.play(building.first_values())
            for hour in range(HOURS):
                _tell(f" {hour}")
                devices.play(building.hour(hour))
                devices.settle()
                print(f"{hour + 1:02}:00 {_now()}", file=hours, flush=True)
        click.echo()
        kept = leave_sessions(port)
        time.sleep(_SWEPT)
        devices.end()
    for what, count in devices.counts.items():
        click.echo(f"{count:>9,} {what}")
    click.echo(f"{kept:>9,} Subscriptions kept by Sessions of readers that are away")
    database = folder / "data" / "holdfast.db"
    with closing(sqlite3.connect(f"file:{database.absolute()}?mode=ro", uri=True)) as connection:
        recorded: dict[str, int] = dict(connection.execute(_RECORDED).fetchall())
        ((retained,),) = connection.execute("SELECT count(*) FROM retained_messages").fetchall()
    click.echo("In the history: " + ", ".join(f"{count:,} {_SAID[what]}" for what, count in recorded.items()))
    click.echo(f"{retained:,} messages are retained; {time.monotonic() - began:.0f} seconds. Go on with {file}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
