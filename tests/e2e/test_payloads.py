"""Large Application Messages arrive unchanged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.makes import makes
from tests.e2e.makes.face import Message, Options, RealClient
from tests.e2e.makes.paho_client import PahoRealClient
from tests.processes import BrokerProcess

pytestmark = pytest.mark.e2e

SIZE = 10 << 20
CONFIG = 'mqtt.max_packet_size = "16MB"\n'


@pytest.fixture(scope="module")
def tolerant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that takes large packets."""
    folder = tmp_path_factory.mktemp("payloads")
    (folder / "holdfast.toml").write_text(CONFIG)
    broker = BrokerProcess(folder, "--config", "holdfast.toml").start()
    yield broker
    assert broker.stop() == (0, "")


def check(message: Message, topic: str, payload: bytes, qos: int) -> None:
    """Expect the published message."""
    assert (message.topic, message.qos, len(message.payload)) == (topic, qos, len(payload))
    intact = message.payload == payload  # not in the assertion, because pytest would print megabytes of difference
    assert intact


@makes(4, 5)
def test_ten_megabytes_arrive_intact(tolerant: BrokerProcess, make: type[RealClient], version: int) -> None:
    """This is true of QoS 0, 1 and 2, if mqtt.max_packet_size allows it."""
    name = f"{make.name}-{version}"
    subscriber = make(Options(tolerant.port, version, f"{name}-subscriber", (f"{name}/+",)))
    publisher = make(Options(tolerant.port, version, f"{name}-publisher"))
    for qos in (0, 1, 2):
        payload = random.Random(qos).randbytes(SIZE)
        publisher.publish(Message(f"{name}/{qos}", payload, qos))
        check(subscriber.receive(), f"{name}/{qos}", payload, qos)
    publisher.close()
    subscriber.close()


@pytest.mark.crash
def test_ten_megabytes_in_a_queue_survive_a_kill(broker_in: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """Acknowledged messages of an offline Session are complete after kill -9."""
    (tmp_path / "holdfast.toml").write_text(CONFIG)
    broker = broker_in("--config", "holdfast.toml").start()
    PahoRealClient(Options(broker.port, 5, "subscriber", ("large",), persistent=True)).drop()
    publisher = PahoRealClient(Options(broker.port, 5, "publisher"))
    payloads = {qos: random.Random(qos).randbytes(SIZE) for qos in (1, 2)}
    for qos, payload in payloads.items():
        publisher.publish(Message("large", payload, qos))
    broker.kill()
    broker.start()
    subscriber = PahoRealClient(Options(broker.port, 5, "subscriber", persistent=True))
    for qos, payload in payloads.items():
        check(subscriber.receive(), "large", payload, qos)
    subscriber.close()
