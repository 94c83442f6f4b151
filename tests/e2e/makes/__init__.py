"""Real clients of different makes with one interface, so that a promise can be tested with each of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.makes.aiomqtt_client import AiomqttClient
from tests.e2e.makes.face import RealClient
from tests.e2e.makes.gmqtt_client import GmqttClient
from tests.e2e.makes.mosquitto_client import MosquittoClient
from tests.e2e.makes.mqttjs_client import MqttJsClient
from tests.e2e.makes.paho_client import PahoRealClient

HERE = Path(__file__).parent

needs_mosquitto = pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto-clients is not installed")
needs_mqttjs = pytest.mark.skipif(
    shutil.which("node") is None or not (HERE.parent / "node_modules" / "mqtt").exists(),
    reason="Node.js or the npm package mqtt is not installed",
)

#: each make with its needs beyond Python packages, and its protocol levels
MAKES: list[tuple[type[RealClient], tuple[int, ...], tuple[pytest.MarkDecorator, ...]]] = [
    (PahoRealClient, (3, 4, 5), ()),
    (AiomqttClient, (4, 5), ()),
    (GmqttClient, (4, 5), ()),
    (MqttJsClient, (3, 4, 5), (needs_mqttjs,)),
    (MosquittoClient, (3, 4, 5), (needs_mosquitto,)),
]


def makes(*versions: int) -> pytest.MarkDecorator:
    """Run a test with every make of client in each of these versions that the make supports."""
    return pytest.mark.parametrize(
        ("make", "version"),
        [
            pytest.param(make, version, id=f"{make.name}-{version}", marks=marks)
            for make, spoken, marks in MAKES
            for version in spoken
            if version in versions
        ],
    )
