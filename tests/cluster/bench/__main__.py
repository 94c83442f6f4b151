"""Runs cycles: ``python -m tests.cluster.bench --seed 1 --cycles 3``.

The exit status is 0 if no invariant was broken and the machine was fast enough; with ``--broken``, if one was.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from tests.cluster.bench.broken import BREAKS
from tests.cluster.bench.figures import Figures
from tests.cluster.bench.run import Options, run


def main() -> int:
    """Read the options, and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.bench", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--bus", choices=("postgres", "nats"), default="postgres")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--broken", choices=sorted(BREAKS), help="let the nodes run with one broken line")
    parser.add_argument("--keep", type=Path, help="folder for the histories of failed cycles, and the logs")
    parser.add_argument("--settled", action="store_true", help="let stored Sessions stay at their nodes")
    parser.add_argument("--long", action="store_true", help="let processes stand still for 20 seconds, too")
    given = parser.parse_args()
    options = Options(
        seed=given.seed, cycles=given.cycles, bus=given.bus, nodes=given.nodes, broken=given.broken, keep=given.keep,
        roaming=not given.settled, long=given.long, first=given.broken is not None,
    )  # fmt: skip
    figures = asyncio.run(_run(options))
    if figures is None:
        return 130
    print(figures.table())
    if given.broken is not None:
        return 0 if figures.violations else 1
    if not figures.counts:
        print("The run does not count: too many fencings without a fault. The machine is too slow, or busy.")
        return 2
    return 1 if figures.violations else 0


async def _run(options: Options) -> Figures | None:
    """Run the cycles; None if SIGTERM or SIGINT came. All processes are ended then, too."""
    running = asyncio.ensure_future(run(options, lambda line: print(line, flush=True)))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return None


if __name__ == "__main__":
    sys.exit(main())
