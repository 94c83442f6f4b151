"""The layers of a listener as it is configured."""

from __future__ import annotations

import subprocess
import sys

from twisted.internet.task import Clock

from holdfast.config.sections.listeners import ListenerConfig
from holdfast.transports.configured import layers_of
from holdfast.transports.websocket import WebSocketLayer


def test_a_listener_for_websocket_has_its_layer_for_each_connection() -> None:
    make = layers_of(ListenerConfig(transport="websocket"), 1000, Clock(), None)
    assert make is not None
    (first,), (second,) = make(), make()
    assert isinstance(first, WebSocketLayer)
    assert first is not second


def test_a_start_without_websocket_does_not_load_its_library() -> None:
    code = (
        "import sys, holdfast.broker.compose; from holdfast.config.sections.listeners import ListenerConfig;"
        "from holdfast.transports.configured import layers_of; layers_of(ListenerConfig(), 1000, None, None);"
        "print(sorted({'websockets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
