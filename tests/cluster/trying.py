"""A cluster to try on the loopback: Postgres, NATS, three members, and a balancer before them (``make cluster``).

How it works. Everything is in one folder, which is deleted at the end. A member that ends, or is killed, is started
again after some seconds, as a service manager does. It runs until Ctrl-C.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.e2e.balancer import Balancer
from tests.nats_server import NatsProcess, running
from tests.postgres import own_server, own_url
from tests.processes import BrokerProcess

#: the port of the balancer, and those of the first member and its dashboard; the others have the next ones
_PORT, _MEMBERS, _DASHBOARDS = 1883, 11883, 18083
#: seconds until a member that has ended is started again
_PAUSE = 3.0
_CONFIGURATION = """
[cluster]
name = "try"
address = "127.0.0.1:{port}"
bus = "{nats}"
secret = "file:../secret"

[node]
id = {number}

[listeners.default]
endpoint = "tcp:{port}:interface=127.0.0.1"

[admin]
endpoint = "tcp:{dashboard}:interface=127.0.0.1"
"""
_TOLD = """
Three members serve clients. A balancer leads each connection to the next of them:

    mosquitto_sub -p {port} -i watcher -c -q 2 -t 'plant/#' -v
    for n in $(seq 1000); do mosquitto_pub -p {port} -q 2 -t plant/n -m $n; done

Kill a member while these run; it is started again. Nothing is missing, and nothing comes twice:

{kills}

Dashboards (holdfast dashboard --config FILE prints a link to sign in):

{dashboards}

Ctrl-C ends everything, and deletes {folder}.
"""


def main() -> None:
    """Run the cluster until it is interrupted."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="holdfast-cluster-")))
        print("starting Postgres, NATS and three members", flush=True)
        url = own_url(stack.enter_context(own_server(folder)))
        nats = NatsProcess(folder)
        stack.enter_context(running(nats))
        secret = folder / "secret"
        secret.touch(0o600)
        secret.write_text("only for trying: " + "0" * 32)
        members = [_member(folder, number, url, nats.url) for number in (1, 2, 3)]
        for member in members:
            stack.callback(member.end)
            member.launch()
        for member in members:
            member.wait_for("^ready$")
        ports = [_MEMBERS + place for place in range(len(members))]
        balancer = stack.enter_context(Balancer(ports, _PORT))
        dashboards = [
            f"http://127.0.0.1:{_DASHBOARDS + place}/  {member.directory / 'holdfast.toml'}"
            for place, member in enumerate(members)
        ]
        kills = [f"pkill -9 -f {member.directory}/data" for member in members]
        told = _TOLD.format(port=balancer.port, folder=folder, kills=_lines(kills), dashboards=_lines(dashboards))
        print(told, flush=True)
        try:
            _keep_running(members)
        except (KeyboardInterrupt, SystemExit):
            print("ending")


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _member(folder: Path, number: int, url: str, nats: str) -> BrokerProcess:
    own = folder / str(number)
    own.mkdir()
    place = number - 1
    text = _CONFIGURATION.format(number=number, port=_MEMBERS + place, dashboard=_DASHBOARDS + place, nats=nats)
    (own / "holdfast.toml").write_text(text)
    return BrokerProcess(own, "--config", "holdfast.toml", "--storage", url, listen=False, admin=None)


def _keep_running(members: list[BrokerProcess]) -> None:
    while True:
        time.sleep(0.5)
        for number, member in enumerate(members, 1):
            if not member.runs:
                print(f"member {number} has ended; it is started again in {_PAUSE:g} s", flush=True)
                time.sleep(_PAUSE)
                member.end()
                member.launch()
                print(f"member {number} starts", flush=True)


if __name__ == "__main__":
    main()
