"""The snippets of the pages in docs/extensions with real clients, and a marker through kill -9."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from paho.mqtt import publish
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from tests.docs.pages import ROOT, blocks
from tests.e2e.makes import needs_mosquitto, needs_mqttjs
from tests.processes import PATIENCE, BrokerProcess

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "extensions" / "replay-end.md"
INFO = ROOT / "docs" / "extensions" / "replay-info.md"
HISTORY = PAGE.with_name("history.md")
SINCE = PAGE.with_name("replay-since.md")
ASKING = PAGE.with_name("asking.md")


def retain(port: int, topics: list[str]) -> None:
    """Retain one message for each topic."""
    publish.multiple([(topic, b"on", 1, True) for topic in topics], "127.0.0.1", port)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of one broker with two retained messages."""
    folder = tmp_path_factory.mktemp("extensions")
    configuration = folder / "holdfast.toml"
    configuration.write_text("[retainer.history]\nenable = true\n")
    broker = BrokerProcess(folder, "--config", str(configuration)).start()
    retain(broker.port, ["plant/a", "plant/b"])
    yield broker.port
    assert broker.stop() == (0, "")


def output_of(*command: str, program: str | None = None) -> str:
    """Return what a command prints that has its program as input; it has to end by itself."""
    return subprocess.run(
        command, input=program, check=True, capture_output=True, text=True, timeout=PATIENCE, cwd=Path(__file__).parent
    ).stdout


def snippet(language: str, page: Path = PAGE) -> str:
    """Return the snippet of a page in a language."""
    (found,) = [block.text for block in blocks(page) if block.language == language]
    return found


def test_the_snippet_in_python(port: int) -> None:
    """It prints the retained messages when the marker has come, and ends."""
    told = output_of(sys.executable, "-", str(port), program=snippet("python"))
    assert told == "2 messages: ['plant/a', 'plant/b']\n"


@needs_mqttjs
def test_the_snippet_in_javascript(port: int) -> None:
    """The same with MQTT.js."""
    told = output_of("node", "-", str(port), program=snippet("js"))
    assert told == "2 messages: plant/a,plant/b\n"


@pytest.fixture(scope="module")
def cleared(port: int) -> float:
    """When a message was set and cleared: the broker's history had begun before."""
    begun = time.time()
    publish.multiple([("plant/c", b"on", 1, True), ("plant/c", b"", 1, True)], "127.0.0.1", port)
    return begun


def test_the_snippet_of_the_past_in_python(port: int, cleared: float) -> None:
    """It prints a message that was retained a moment ago, and all changes of a topic in their order."""
    program = snippet("python", HISTORY)
    now = f"$history/at/{round(1000 * time.time())}/"
    assert output_of(sys.executable, "-", str(port), now, program=program) == "plant/a was on\n"
    changes = f"$history/changes/{int(1000 * cleared)}/-0s/"
    program = program.replace("plant/a", "plant/c")
    assert (
        output_of(sys.executable, "-", str(port), changes, program=program) == "plant/c was on\nplant/c was cleared\n"
    )


@needs_mqttjs
def test_the_snippet_of_the_past_in_javascript(port: int, cleared: float) -> None:
    """The same with MQTT.js."""
    program = snippet("js", HISTORY)
    now = f"$history/at/{round(1000 * time.time())}/"
    assert output_of("node", "-", str(port), now, program=program) == "plant/a was on\n"
    changes = f"$history/changes/{int(1000 * cleared)}/-0s/"
    program = program.replace("plant/a", "plant/c")
    assert output_of("node", "-", str(port), changes, program=program) == "plant/c was on\nplant/c was cleared\n"


OF_A_REVISION = r"plant/a is of \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z revision \d+\n"


def test_the_snippet_of_the_age_in_python(port: int) -> None:
    """It prints when the retained message was stored."""
    assert re.fullmatch(OF_A_REVISION, output_of(sys.executable, "-", str(port), program=snippet("python", INFO)))


@needs_mqttjs
def test_the_snippet_of_the_age_in_javascript(port: int) -> None:
    """The same with MQTT.js."""
    assert re.fullmatch(OF_A_REVISION, output_of("node", "-", str(port), program=snippet("js", INFO)))


def test_asking_in_python(port: int) -> None:
    """It prints the retained messages that it has asked for, and ends."""
    told = output_of(sys.executable, "-", str(port), program=snippet("python", ASKING))
    assert told == "plant/a on\nplant/b on\n"


@needs_mqttjs
def test_asking_in_javascript(port: int) -> None:
    """It prints how many there are."""
    assert output_of("node", "-", str(port), program=snippet("js", ASKING)) == "2 messages\n"


@needs_mosquitto
def test_the_snippet_of_changes_in_python(port: int, tmp_path: Path) -> None:
    """The first time everything comes, then only the changes."""
    command = (sys.executable, "-", str(port), str(tmp_path / "token"))
    assert output_of(*command, program=snippet("python", SINCE)).splitlines() == [
        "plant/a on", "plant/b on", "these are all messages"
    ]  # fmt: skip
    publish.multiple([("plant/c", b"on", 1, True), ("plant/c", b"", 1, True)], "127.0.0.1", port)
    printed = output_of(*command, program=snippet("python", SINCE)).splitlines()
    assert printed == ["plant/c is cleared", "these are the changes"]
    assert output_of(*command, program=snippet("python", SINCE)).splitlines() == ["these are the changes"]


@needs_mqttjs
def test_the_snippet_of_changes_in_javascript(port: int) -> None:
    """Nothing is known of a time before the broker began."""
    assert output_of("node", "-", str(port), program=snippet("js", SINCE)) == "full\n"
    assert output_of("node", "-", str(port), "-0s", program=snippet("js", SINCE)) == "delta\n"


@pytest.mark.parametrize("language", ["python", pytest.param("js", marks=needs_mqttjs)])
def test_the_snippets_of_changes_say_why_they_are_refused(port: int, tmp_path: Path, language: str) -> None:
    """They end, and show the Reason String of SUBACK."""
    token = "nonsense"
    if language == "python":
        (tmp_path / "token").write_text(token)
        command = [sys.executable, "-", str(port), str(tmp_path / "token")]
    else:
        command = ["node", "-", str(port), token]
    program = snippet(language, SINCE)
    done = subprocess.run(
        command, input=program, check=False, capture_output=True, text=True, timeout=PATIENCE,
        cwd=Path(__file__).parent,
    )  # fmt: skip
    assert done.stdout == ""
    assert done.stderr.startswith("refused: User Property holdfast-replay-since: "), done.stderr


def test_the_command_of_mosquitto(port: int) -> None:
    """mosquitto_sub with MQTT 3.1.1 sees the marker behind the last retained message."""
    (command,) = [block.text.strip() for block in blocks(PAGE) if block.text.startswith("mosquitto_sub")]
    assert command == "mosquitto_sub -V 311 -t '$replay/end' -t 'plant/#' -v"
    lines = output_of(
        *("mosquitto_sub", "-p", str(port), "-V", "311", "-t", "$replay/end", "-t", "plant/#", "-v", "-C", "3")
    ).splitlines()
    assert lines[:2] == ["plant/a on", "plant/b on"]
    topic, _, payload = lines[2].partition(" ")
    assert topic == "$replay/end"
    assert json.loads(payload)["count"] == 2


@pytest.mark.crash
def test_marker_survives_a_kill(broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...]) -> None:
    """A client of MQTT 3.1.1 that stops in the midst of a replay gets the rest and the marker after kill -9."""
    broker = broker_in(*storage).start()
    retain(broker.port, [f"plant/{number}" for number in range(200)])
    came: list[str] = []

    def client(most: int | None) -> Client:
        found = Client(CallbackAPIVersion.VERSION2, "reader", clean_session=False, manual_ack=True)
        left = [most]

        def received(client: Client, _: object, message: MQTTMessage) -> None:
            if left[0] == 0:
                return
            if left[0] is not None:
                left[0] -= 1
            came.append(message.topic)
            client.ack(message.mid, message.qos)
            if message.topic == "$replay/end" or left[0] == 0:
                client.disconnect()

        found.on_message = received
        return found

    first = client(20)
    first.on_connect = lambda client, *_: client.subscribe([("$replay/end", 1), ("plant/#", 1)])
    first.connect("127.0.0.1", broker.port)
    first.loop_forever()
    broker.kill()
    broker.start()
    second = client(None)
    second.connect("127.0.0.1", broker.port)
    second.loop_forever()
    assert came[-1] == "$replay/end"
    assert set(came[:-1]) == {f"plant/{number}" for number in range(200)}


@pytest.mark.crash
def test_the_past_survives_a_kill(
    tmp_path: Path, broker_in: Callable[..., BrokerProcess], storage: tuple[str, ...]
) -> None:
    """A client that stops in the midst of two replays of the past gets the rest of both after kill -9, in order."""
    configuration = tmp_path / "holdfast.toml"
    configuration.write_text("[retainer.history]\nenable = true\n")
    broker = broker_in(*storage, "--config", str(configuration)).start()
    retain(broker.port, [f"before/{number}" for number in range(100)])
    time.sleep(0.01)
    begun = int(1000 * time.time())
    changes: list[tuple[str, bytes, int, bool]] = [
        (f"plant/{number % 3}", b"" if number % 7 == 6 else b"%d" % number, 1, True) for number in range(200)
    ]
    publish.multiple(list(changes), "127.0.0.1", broker.port)
    then = f"$history/at/{begun}/"
    between = f"$history/changes/{begun}/2099-01-01T00:00:00Z/"
    state: set[str] = set()
    came: list[tuple[str, bytes]] = []
    ends: list[dict[str, object]] = []

    def client(is_over: Callable[[], bool]) -> Client:
        found = Client(CallbackAPIVersion.VERSION2, "historian", clean_session=False, manual_ack=True)

        def received(client: Client, _: object, message: MQTTMessage) -> None:
            if is_over():
                return
            if message.topic == "$replay/end":
                ends.append(json.loads(message.payload))
            elif message.topic.startswith(then):
                state.add(message.topic.removeprefix(then))
            else:
                came.append((message.topic.removeprefix(between), bytes(message.payload)))
            client.ack(message.mid, message.qos)
            if is_over():
                client.disconnect()

        found.on_message = received
        return found

    first = client(lambda: len(came) == 60)
    filters = [("$replay/end", 1), (between + "#", 1), (then + "#", 1)]
    first.on_connect = lambda client, *_: client.subscribe(filters)
    first.connect("127.0.0.1", broker.port)
    first.loop_forever()
    stopped = len(came)
    publish.single("plant/later", b"x", 1, True, port=broker.port)  # its commit follows that of the positions
    broker.kill()
    broker.start()
    second = client(lambda: len(ends) == 2)
    second.connect("127.0.0.1", broker.port)
    second.loop_forever()
    expected = [(topic, payload) for topic, payload, _, _ in changes]
    assert state == {f"before/{number}" for number in range(100)}
    assert came[:stopped] == expected[:stopped]
    assert came[stopped:] == expected[len(expected) - len(came[stopped:]) :]
    assert len(came) >= len(expected)
    assert [end["complete"] for end in ends] == [True, True]
