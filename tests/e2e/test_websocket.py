"""MQTT over WebSocket with real clients: in Node.js, in Python, and on web pages in a real browser."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.e2e.makes import HERE, needs_mqttjs
from tests.e2e.makes.face import Message, Options, RealClient
from tests.e2e.makes.mqttjs_client import MqttJsClient
from tests.e2e.makes.paho_client import PahoRealClient
from tests.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("websocket")]

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
BUNDLE = HERE.parent / "node_modules" / "mqtt" / "dist" / "mqtt.min.js"
needs_browser = pytest.mark.skipif(CHROMIUM is None or not BUNDLE.exists(), reason="Chromium or MQTT.js is missing")

APP = "http://app.example"

CONFIG = f"""
[listeners.plain]
endpoint = "tcp:0:interface=127.0.0.1"

[listeners.web]
endpoint = "tcp:0:interface=127.0.0.1"
transport = "websocket"

[listeners.pages]
endpoint = "tcp:0:interface=127.0.0.1"
transport = "websocket"
path = "/live"
origins = ["{APP}"]
"""


SECURE = """
[listeners.secure]
endpoint = "tcp:0:interface=127.0.0.1"
transport = "websocket"
tls = { certificate = "server.pem", key = "server.key" }
"""


class WebBroker:
    """A broker with a plain listener and two for WebSocket."""

    def __init__(self, folder: Path) -> None:
        file = folder / "holdfast.toml"
        self.authority = Authority()
        self.authority.write(folder, "ca")
        self.authority.issue("localhost", ["localhost"]).write(folder, "server")
        self.ca = (folder / "ca.pem").read_text()
        file.write_text(CONFIG + SECURE)
        self.process = BrokerProcess(folder, "--config", str(file), listen=False).start()
        self.ports = {
            name: int(self.process.wait_for(rf"^listening {name} ").rsplit(":", 1)[1])
            for name in ("plain", "web", "pages", "secure")
        }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    """One broker for all tests. Its log must have no complaints in the end."""
    broker = WebBroker(tmp_path_factory.mktemp("websocket"))
    yield broker
    assert broker.process.stop() == (0, "")
    log = "\n".join(broker.process.lines)
    assert "Traceback" not in log
    assert "utobahn" not in log


MAKES = [pytest.param(PahoRealClient, id="paho"), pytest.param(MqttJsClient, marks=needs_mqttjs, id="mqttjs")]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("make", MAKES)
def test_clients_exchange_messages_with_plain_clients(broker: WebBroker, make: type[RealClient], version: int) -> None:
    """Also a message that is longer than a frame, and one that fills many reads. Each make has its usual path."""
    topic = f"exchange/{make.name}/{version}"
    plain = PahoRealClient(Options(broker.ports["plain"], 5, f"plain-{topic}", (f"{topic}/#",)))
    path = "/" if make is MqttJsClient else "/mqtt"
    web = make(Options(broker.ports["web"], version, f"web-{topic}", (f"{topic}/#",), websocket=path))
    for publisher in (plain, web):
        for qos, size in ((0, 0), (1, 5), (2, 70_000), (1, 900_000)):
            message = Message(topic, bytes(range(256)) * (size // 256) + b"x" * (size % 256), qos)
            publisher.publish(message)
            assert plain.receive() == message
            assert web.receive() == message
    web.close()
    plain.close()


@needs_mqttjs
def test_a_client_in_node_exchanges_messages_over_tls(broker: WebBroker) -> None:
    options = Options(broker.ports["secure"], 5, "secure", ("secure",), websocket="/mqtt", authority=broker.ca)
    client = MqttJsClient(options)
    for message in (Message("secure", b"x" * size, 1) for size in (1, 100_000)):
        client.publish(message)
        assert client.receive() == message
    client.close()


@pytest.mark.parametrize("make", MAKES)
def test_a_lost_client_has_its_will_published(broker: WebBroker, make: type[RealClient]) -> None:
    topic = f"will/{make.name}"
    watcher = PahoRealClient(Options(broker.ports["plain"], 5, f"watcher-{topic}", (topic,)))
    leaver = make(Options(broker.ports["web"], 4, f"left-{topic}", will=Message(topic, b"left", 1), websocket="/mqtt"))
    leaver.close()
    make(Options(broker.ports["web"], 4, topic, will=Message(topic, b"gone", 1), websocket="/mqtt")).drop()
    assert watcher.receive() == Message(topic, b"gone", 1)
    watcher.close()


def test_a_plain_request_is_answered_and_other_bytes_are_closed(broker: WebBroker) -> None:
    for sent, answer in (
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 426 Upgrade Required\r\n"),
        (b"\x10\x0c", b""),
    ):
        with socket.create_connection(("127.0.0.1", broker.ports["web"]), 30) as peer:
            peer.sendall(sent)
            received = b""
            while data := peer.recv(4096):
                received += data
        assert received.startswith(answer)
        assert bool(received) == bool(answer)
    broker.process.wait_for("does not speak WebSocket: it sent MQTT without WebSocket")


# --- web pages

SCRIPT = """
async ([url, topic]) => {
  const client = mqtt.connect(url, {reconnectPeriod: 0, connectTimeout: 20000})
  const connected = await new Promise((resolve) => {
    client.once('connect', () => resolve(true))
    client.once('close', () => resolve(false))
    client.once('error', () => resolve(false))
  })
  if (!connected) return null
  const messages = []
  client.on('message', (topic, payload) => messages.push([topic, payload.length, payload[0]]))
  await client.subscribeAsync(topic, {qos: 1})
  for (const size of [1, 100000]) await client.publishAsync(topic, new Uint8Array(size).fill(7), {qos: 1})
  while (messages.length < 2) await new Promise((resolve) => setTimeout(resolve, 10))
  await client.endAsync()
  return messages
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser, for all tests with pages."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The pages come from no server, so the browser takes them for strangers in this machine's network.
        arguments = ["--no-sandbox", "--disable-features=LocalNetworkAccessChecks"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


def run_on_page(browser: Any, origin: str, url: str, topic: str) -> object:
    """Use MQTT.js on a page of this origin; return what it has received, or None if it could not connect."""
    page = browser.new_page()
    try:
        html, script = '<!doctype html><script src="mqtt.min.js"></script>', BUNDLE.read_text()
        page.route(f"{origin}/", lambda route: route.fulfill(content_type="text/html", body=html))
        page.route(f"{origin}/mqtt.min.js", lambda route: route.fulfill(content_type="text/javascript", body=script))
        page.goto(f"{origin}/")
        return page.evaluate(SCRIPT, [url, topic])
    finally:
        page.close()


@needs_browser
def test_pages_of_the_listed_origin_connect_and_others_do_not(broker: WebBroker, browser: Any) -> None:
    url = f"ws://127.0.0.1:{broker.ports['pages']}/live"
    assert run_on_page(browser, APP, url, "page/a") == [["page/a", 1, 7], ["page/a", 100000, 7]]
    assert run_on_page(browser, "http://evil.example", url, "page/b") is None
    broker.process.wait_for("is refused a WebSocket: 403, pages of this origin may not connect")


@needs_browser
def test_without_a_list_only_pages_of_the_same_host_connect(broker: WebBroker, browser: Any) -> None:
    here = f"127.0.0.1:{broker.ports['web']}"
    assert run_on_page(browser, f"http://{here}", f"ws://{here}/mqtt", "page/c") is not None
    assert run_on_page(browser, APP, f"ws://{here}/mqtt", "page/d") is None
