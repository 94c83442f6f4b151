"""mosquitto_sub, and mosquitto_pub for each message to publish."""

from __future__ import annotations

import subprocess
import threading

from tests.e2e.makes.face import Message, Options, RealClient
from tests.e2e.makes.paho_properties import EXPIRY
from tests.processes import PATIENCE

VERSIONS = {3: "mqttv31", 4: "mqttv311", 5: "mqttv5"}

#: everything but the payload, which comes last, is text without this separator
SEPARATOR = "|"
FORMAT = SEPARATOR.join(("%t", "%q", "%r", "%P", "%R", "%D", "%x"))


def run(*command: str, stdin: bytes = b"") -> str:
    """Run a command; return its stdout, failing on any other status than 0."""
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


class MosquittoClient(RealClient):
    """One mosquitto_sub.

    It does not report its subscription, and flushes stdout only for messages. So a retained message reports it.
    """

    name = "mosquitto"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.asks_for_its_will = options.version == 5
        self._common = ("-h", "127.0.0.1", "-p", str(options.port), "-V", VERSIONS[options.version])
        self._token = f"{options.client_id}/subscribed"
        self._subscribed = threading.Event()
        self.publish(Message(self._token, b"yes", 1, True))
        command = ["mosquitto_sub", *self._common, "-i", options.client_id, "-q", str(options.qos), "-F", FORMAT]
        for topic_filter in (*options.topic_filters, self._token):
            command += ["-t", topic_filter]
        if options.persistent:
            command += ["-c", *(("-x", str(EXPIRY)) if options.version == 5 else ())]
        if (will := options.will) is not None:
            command += ["--will-topic", will.topic, "--will-payload", will.payload.decode()]
            command += ["--will-qos", str(will.qos), *(["--will-retain"] if will.retain else [])]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._subscribed.wait(PATIENCE)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            topic, qos, retain, pairs, response_topic, correlation_data, payload = line.rstrip("\n").split(SEPARATOR)
            if topic == self._token:
                if retain == "1":
                    self._subscribed.set()
                continue
            self._arrived.put(
                Message(
                    topic,
                    bytes.fromhex(payload),
                    int(qos),
                    retain == "1",
                    tuple((name, value) for name, _, value in (pair.partition(":") for pair in pairs.split())),
                    response_topic,
                    correlation_data.encode(),
                )
            )

    def publish(self, message: Message) -> None:
        """Publish with mosquitto_pub, which ends when the message is acknowledged."""
        command = ["mosquitto_pub", *self._common, "-t", message.topic, "-q", str(message.qos)]
        command += ["-s"] if message.payload else ["-n"]
        if message.retain:
            command += ["-r"]
        for pair in message.user_properties:
            command += ["-D", "publish", "user-property", *pair]
        if message.response_topic:
            command += ["-D", "publish", "response-topic", message.response_topic]
        if message.correlation_data:
            command += ["-D", "publish", "correlation-data", message.correlation_data.decode()]
        run(*command, stdin=message.payload)

    def _disconnect(self) -> None:
        self._process.terminate()  # it sends DISCONNECT first
        self._end()

    def _abort(self) -> None:
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
