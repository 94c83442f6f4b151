"""A real browser, controlled in its own protocol over two pipes: without a port, and without a driver to install."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

from tests.pipeline.commands import PATIENCE

_COMPLAINTS = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}

_DRAWN = """new Promise((tell) => {
  let left = 300;
  const look = () => {
    const shown = [...document.querySelectorAll('[data-chart]')].filter((one) => one.clientWidth);
    if (shown.every((one) => one.querySelector('svg'))) tell(true);
    else if (--left) requestAnimationFrame(look);
    else tell(false);
  };
  look();
})"""
_FRAMES = "new Promise((tell) => requestAnimationFrame(() => requestAnimationFrame(() => tell(true))))"

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


class Browser:
    """One page, with its errors in ``complaints`` and the URLs that it loads in ``requests``."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._read = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        (target,) = (one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method of the browser, and return the answer."""
        self._number += 1
        said = {"id": self._number, "method": method, "params": arguments}
        if self._session is not None:
            said["sessionId"] = self._session
        os.write(self._to, json.dumps(said).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._events.append(answer)

    def open(self, file: Path, width: int = 1280, dark: bool = False) -> None:
        """Open a file, and wait until it is loaded and drawn. Nothing on it moves by itself."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])
        self._events.clear()
        self.call("Page.navigate", url=file.absolute().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._next())
        self.drawn()

    def drawn(self) -> None:
        """Wait until each chart that is shown is drawn: at most for 300 frames."""
        assert self.ask(_DRAWN), "a chart is not drawn"

    def print(self) -> bytes:
        """Return the page as the printer gets it, as PDF."""
        return b64decode(self.call("Page.printToPDF")["data"])

    def point(self, selector: str, across: float, down: float, click: bool = False) -> None:
        """Move the mouse over an element, to these shares of its width and height, and click there if asked."""
        box = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{box}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        left, top, width, height = self.ask(f"(b => [b.left, b.top, b.width, b.height])({box}.getBoundingClientRect())")
        place = {"x": left + across * width, "y": top + down * height}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **{**place, "x": place["x"] - 2})
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)
        self.frames()

    def frames(self) -> None:
        """Wait two frames, in which ECharts draws what has changed."""
        self.ask(_FRAMES)

    def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, or of the promise that it returns."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    @property
    def complaints(self) -> list[dict[str, Any]]:
        """The messages on the console since the page was opened, and uncaught errors."""
        return [event for event in self._events if event.get("method") in _COMPLAINTS]

    @property
    def requests(self) -> list[str]:
        """The URLs that the page has loaded."""
        return [
            event["params"]["request"]["url"]
            for event in self._events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            assert select([self._from], [], [], PATIENCE)[0], "the browser does not answer"
            got = os.read(self._from, 1 << 16)
            assert got, "the browser has gone"
            self._read += got
        message, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile, and end it with the block.

    With --remote-debugging-pipe it reads from 3 and writes to 4.
    """
    assert CHROMIUM is not None
    its_input, to_browser = os.pipe()
    from_browser, its_output = os.pipe()

    process = subprocess.Popen(
        [
            "/bin/sh", "-c", 'exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null', "sh", CHROMIUM,
            "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
            "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank",
        ],
        stdin=its_input, stdout=its_output,
    )  # fmt: skip
    os.close(its_input)
    os.close(its_output)
    try:
        yield Browser(to_browser, from_browser)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to_browser)
        os.close(from_browser)
