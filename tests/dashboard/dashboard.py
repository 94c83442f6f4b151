"""The dashboard in a browser, as its user sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.dashboard.fake_api import FakeAPI

AXE = Path(__file__).resolve().parents[1] / "e2e" / "node_modules" / "axe-core" / "axe.min.js"
#: milliseconds until a missing element fails a test
_PATIENCE = 60_000
#: waits until nothing has been loading for a moment; a page begins to load only after it was drawn
_SETTLED = """patience => new Promise((resolve, reject) => {
  const end = performance.now() + patience;
  let calm = 0;
  const look = () => {
    const busy = document.querySelector('.placeholder, .refreshing, [aria-busy=true]') || !document.querySelector('h1');
    calm = busy ? 0 : calm + 1;
    if (calm > 4) resolve();
    else if (performance.now() > end) reject(new Error(`still loading: ${busy?.outerHTML?.slice(0, 200)}`));
    else setTimeout(look, 16);
  };
  look();
})"""
_AXE = """async () => {
  const found = await axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'], resultTypes: ['violations'],
  });
  const told = node => `${node.html.slice(0, 160)} ${node.failureSummary}`;
  return found.violations.filter(one => ['serious', 'critical'].includes(one.impact))
    .map(one => `${one.id}: ${one.nodes.slice(0, 3).map(told).join(' | ')}`);
}"""


class Dashboard:
    """One page of a browser. ``complaints`` are what it wrote to the console, and uncaught errors."""

    def __init__(self, page: Any, api: FakeAPI) -> None:
        self.page = page
        self.api = api
        self.complaints: list[str] = []
        #: complaints that contain one of these texts are expected
        self.expected: list[str] = []
        page.set_default_timeout(_PATIENCE)
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in {"error", "warning"} else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    @classmethod
    @contextmanager
    def opened(cls, browser: Any, api: FakeAPI, width: int = 1280, dark: bool = False) -> Iterator[Dashboard]:
        """Open a browser's window without any memory of other tests."""
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light", reduced_motion="reduce",
            has_touch=width < 600, accept_downloads=True,
        )  # fmt: skip
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        try:
            yield cls(context.new_page(), api)
        finally:
            context.close()

    def go(self, place: str = "", **params: str) -> None:
        """Go to a place of the dashboard, and wait until it shows what it has loaded."""
        search = "&".join(f"{name}={quote(value, safe='')}" for name, value in params.items())
        address = f"{self.api.origin}/#/{place}{'?' + search if search else ''}"
        if self.page.url.startswith(self.api.origin):
            self.page.evaluate("address => { location.href = address; }", address)
        else:
            self.page.goto(address)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is loading."""
        self.page.evaluate(_SETTLED, _PATIENCE)

    def check(self) -> None:
        """Fail if the page has complained."""
        unexpected = [said for said in self.complaints if not any(known in said for known in self.expected)]
        assert unexpected == [], unexpected

    def click(self, name: str, role: str = "button") -> None:
        """Click the first element of this role and name."""
        self.page.get_by_role(role, name=name, exact=True).first.click()

    def fill(self, label: str, text: str) -> None:
        """Write into a field."""
        self.page.get_by_label(label, exact=True).fill(text)

    def sees(self, text: str) -> None:
        """Wait until this text is shown."""
        self.page.get_by_text(text).first.wait_for()

    def live(self) -> None:
        """Wait until events arrive."""
        self.page.locator("nav .connection.ok").wait_for()

    @property
    def text(self) -> str:
        """All text of the page."""
        found: str = self.page.inner_text("body")
        return found

    def violations(self) -> list[str]:
        """Return the serious findings of axe-core."""
        if not self.page.evaluate("Boolean(window.axe)"):
            # An evaluation of the browser's tools is not bound by the policy of the page.
            self.page.evaluate(AXE.read_text())
        found: list[str] = self.page.evaluate(_AXE)
        return found
