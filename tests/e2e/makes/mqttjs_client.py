"""MQTT.js, in a Node.js process for each client."""

from __future__ import annotations

import base64
import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.e2e.makes.face import Message, Options, RealClient
from tests.e2e.makes.paho_properties import EXPIRY
from tests.processes import PATIENCE

PROGRAM = Path(__file__).parent.parent / "mqttjs.js"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _properties(message: Message) -> dict[str, Any]:
    """Return the properties of PUBLISH. Values with one name are grouped, because MQTT.js has no other form."""
    properties: dict[str, Any] = {}
    for name, value in message.user_properties:
        properties.setdefault("userProperties", {}).setdefault(name, []).append(value)
    if message.response_topic:
        properties["responseTopic"] = message.response_topic
    if message.correlation_data:
        properties["correlationData"] = _text(message.correlation_data)
    return properties


class MqttJsClient(RealClient):
    """One ``node mqttjs.js``, which reads the messages to publish from stdin."""

    name = "mqttjs"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        connect: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": options.port,
            "clean": not options.persistent,
            "protocolVersion": options.version,
            "reconnectPeriod": 0,
        }
        if options.client_id:
            connect["clientId"] = options.client_id
        if options.websocket:
            connect |= {"protocol": "ws", "path": options.websocket}
        if options.authority:
            connect |= {"protocol": "wss", "host": "localhost", "ca": options.authority}
        if options.version == 3:
            connect["protocolId"] = "MQIsdp"
        if options.version == 5 and options.persistent:
            connect["properties"] = {"sessionExpiryInterval": EXPIRY}
        if options.will is not None:
            will = options.will
            connect["will"] = {
                "topic": will.topic,
                "payload": _text(will.payload),
                "qos": will.qos,
                "retain": will.retain,
            }
        arguments = (connect, options.topic_filters, options.qos)
        self._process = subprocess.Popen(
            ["node", str(PROGRAM), *map(json.dumps, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._expect("ready")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if told["what"] != "message":
                self._answers.put(told["what"])
                continue
            self._arrived.put(
                Message(
                    told["topic"],
                    base64.b64decode(told["payload"]),
                    told["qos"],
                    told["retain"],
                    tuple((name, value) for name, value in told["userProperties"]),
                    told["responseTopic"],
                    base64.b64decode(told["correlationData"]),
                )
            )
        self._answers.put("end")

    def _expect(self, answer: str) -> None:
        assert self._answers.get(timeout=PATIENCE) == answer

    def publish(self, message: Message) -> None:
        """Publish, and wait for PUBACK or PUBCOMP."""
        options = {"qos": message.qos, "retain": message.retain, "properties": _properties(message)}
        line = json.dumps({"topic": message.topic, "payload": _text(message.payload), "options": options})
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        self._expect("published")

    def _disconnect(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()

    def _abort(self) -> None:
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
