"""Smoke test of the installed wheel, with the standard library only.

Twistd finds the plugin, the schema is built, and a retained message survives a restart with ``holdfast run``.
"""

import signal
import socket
import subprocess
import sys
from pathlib import Path

WORK = Path(sys.argv[1])
BIN = Path(sys.executable).parent
CONNECT = bytes.fromhex("10100004") + b"MQTT" + bytes.fromhex("0402000000") + b"\x04smok"
PUBLISH = b"\x33\x0d\x00\x05smoke\x00\x01kept"
SUBSCRIBE = b"\x82\x06\x00\x02\x00\x01#\x00"
TWISTD = (BIN / "twistd", "-n", "--pidfile=", "holdfast")
HOLDFAST_RUN = (BIN / "holdfast", "run")


def start(*command: str | Path) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [*command, "--data-dir", "data", "--listen", "tcp:0:interface=127.0.0.1"],
        cwd=WORK,
        stdout=subprocess.PIPE,
        text=True,
    )
    port = 0
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("listening "):
            port = int(line.strip().rsplit(":", 1)[1])
        if line.strip() == "ready":
            return process, port
    raise SystemExit("the broker did not become ready")


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    if process.returncode != 0:
        raise SystemExit(f"the broker ended with status {process.returncode} on SIGTERM")


def exchange(port: int, request: bytes, expected: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(CONNECT + request)
        received = b""
        while len(received) < 4 + len(expected):
            chunk = connection.recv(4096)
            if not chunk:
                break
            received += chunk
    if received[4:] != expected:
        raise SystemExit(f"expected {expected!r} after CONNACK, got {received!r}")


def main() -> None:
    listed = subprocess.run([BIN / "twistd", "--help"], capture_output=True, text=True, check=True, cwd=WORK).stdout
    if "holdfast" not in listed:
        raise SystemExit("twistd does not see the plugin")
    subprocess.run([BIN / "holdfast", "--version"], check=True, cwd=WORK)
    process, port = start(*TWISTD)
    exchange(port, PUBLISH, b"\x40\x02\x00\x01")
    stop(process)
    process, port = start(*HOLDFAST_RUN)
    exchange(port, SUBSCRIBE, b"\x90\x03\x00\x02\x00" + b"\x31\x0b\x00\x05smokekept")
    stop(process)
    print("the wheel works: plugin seen, schema built, a retained message survived a restart")


if __name__ == "__main__":
    main()
