"""Every control of every page works: it is pressed once, in a real browser.

How it works. The page itself says which controls it has: a script that runs before the dashboard's notes each element
that listens to a click or to a change. Elements that differ only in data, such as the rows of a table, count as one
control. The walk opens a page and presses the controls that it finds, one after the other; each press may show new
ones, in a dialog or in a tab. When nothing new is in sight, it opens the page again and goes the noted way to a control
that it has seen but not pressed. Controls that are only there on narrow screens are pressed on one.

A press must have an effect: the page changes, the API is called, or a file is saved. It must not lead to an error, to a
refused call, or to a call with an argument that says "undefined". In the end, each control that was seen was pressed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest

from tests.dashboard.dashboard import Dashboard
from tests.dashboard.fake_api import FakeAPI, answer_mqtt
from tests.dashboard.test_pages import PLACES

PAGES = list(dict.fromkeys(place for place, _ in PLACES))
SIGN_IN = "sign-in"
#: the chosen topic is the same part of three pages, and is walked on the first of them
SHARED = {"retained/search": ".right", "retained/changes": ".right"}
WIDE, NARROW = 1280, 390
#: most presses on one page: far more than there are controls
MOST = 500
#: milliseconds between two looks for the effect of a press, and how many there are
LOOK, LOOKS = 25, 600
#: the refusal that is a state of its page: the client has left
NO_CLIENT = "there is no such client"
#: arguments that say that a mistake in the page has made them
MISTAKES = {"undefined", "null", "NaN", "Invalid Date", "[object Object]"}

_NOTE = """(() => {
  const listens = new WeakSet();
  const add = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (kind, ...more) {
    if ((kind === 'click' || kind === 'change') && this instanceof Element) listens.add(this);
    return add.call(this, kind, ...more);
  };
  let calls = 0;
  const call = window.fetch;
  window.fetch = async (...given) => {
    calls += 1;
    try {
      const answer = await call(...given);
      await answer.clone().text();
      return answer;
    } finally {
      calls -= 1;
    }
  };
  const soon = new Set();  // timers of work that follows a press; a page that looks every second is at rest
  const { setTimeout, clearTimeout } = window;
  window.setTimeout = (work, time = 0, ...more) => {
    const timer = setTimeout(() => { soon.delete(timer); work(...more); }, time);
    if (time < 500) soon.add(timer);
    return timer;
  };
  window.clearTimeout = (timer) => { soon.delete(timer); clearTimeout(timer); };
  const idle = new WeakMap();  // the names that an element had while it was disabled

  const plain = (text) => text.replace(/[0-9][0-9,.]*/g, '0').replace(/\\s+/g, ' ').replace(/ \\(.*\\)$/, '').trim();
  const ours = (element) => {  // the text of an element without texts from outside
    const copy = element.cloneNode(true);
    copy.querySelectorAll('bdi').forEach(each => each.remove());
    return plain(copy.textContent);
  };
  const states = ['active', 'fresh', 'open', 'opens', 'selected'];
  const nameOf = (element) => {
    const own = [...element.classList].filter(each => !states.includes(each))[0] ?? '';
    const cell = element.closest('td, th');
    if (cell && element !== cell) return `${cell.tagName} ${cell.cellIndex} ${own}`;
    const one = element.closest('.json .line, .json, .toast, .chips, tr, [role=treeitem]');
    if (one) return `${one.tagName} ${own} ${one.ariaExpanded === null ? '' : 'opens'}`;
    const labels = [...(element.labels ?? [])].map(each => plain(each.textContent)).join();
    return plain(element.getAttribute('aria-label') ?? '') || labels || ours(element) || element.title || own;
  };
  const placeOf = (element) => {
    const about = element.closest('[role=tabpanel], section[aria-label], dialog, nav, header.top, .head');
    const title = about?.getAttribute('aria-label') ?? about?.querySelector('h2')?.textContent ?? about?.className;
    return `${location.hash.slice(2).split('?')[0]} > ${plain(title ?? '')}`;
  };
  const on = '[aria-current=page], [aria-checked=true], [aria-selected=true][role=tab], [type=radio]:checked';
  const isOn = (element) => element.matches(on);
  const isControl = (element) => listens.has(element) || element.matches('a[href], button, summary');
  window.controls = (whole, besides) => {
    const dialog = document.querySelector('dialog[open]');
    const around = whole ? document.body : document.getElementById('main') ?? document.body;
    const parts = dialog ? [dialog] : [around, ...document.querySelectorAll('.toasts')];
    window.found = parts.flatMap(each => [...each.querySelectorAll('*')])
      .filter(each => isControl(each) && !isOn(each) && !(besides && each.closest(besides)));
    return window.found.map(each => {
      const name = `${placeOf(each)} > ${each.tagName.toLowerCase()} ${nameOf(each)}`;
      if (each.disabled) idle.set(each, [...idle.get(each) ?? [], name]);
      const visible = each.checkVisibility({ visibilityProperty: true }) && each.getBoundingClientRect().width > 0;
      return { name, ready: visible && !each.disabled, before: idle.get(each) ?? [] };
    });
  };
  window.filled = new WeakSet();
  const loading = '.placeholder, .refreshing, [aria-busy=true]';
  const isShown = () => document.querySelector('h1') && !document.querySelector(loading);
  const isCalm = () => calls === 0 && soon.size === 0 && isShown();
  window.rest = () => new Promise(resolve => {
    let calm = 0;
    const look = () => { calm = isCalm() ? calm + 1 : 0; if (calm > 2) resolve(); else setTimeout(look, 8); };
    look();
  });
  window.picture = () => JSON.stringify([
    location.href, document.documentElement.dataset.theme, document.activeElement?.id, document.body.innerHTML, scrollY,
    [...document.querySelectorAll('input, select, textarea')].map(each => [each.value, each.checked]),
  ]);
})()"""
#: fill each text field of a form and each larger text once, as its user would
_FILL = """() => {
  for (const each of document.querySelectorAll('dialog input, form input, textarea')) {
    if (window.filled.has(each) || !each.checkVisibility() || ['checkbox', 'radio'].includes(each.type)) continue;
    window.filled.add(each);
    const label = each.labels?.[0]?.textContent ?? '';
    const known = { password: 'right', 'datetime-local': '2026-11-20T10:00:00' };
    const text = known[each.type] ?? /^Type (\\d+) to/.exec(label)?.[1] ?? '60';
    if (each.disabled || (each.value && each.tagName === 'INPUT')) continue;
    each.value += text;
    each.dispatchEvent(new Event('input', { bubbles: true }));
  }
}"""


@dataclass
class Walk:
    """The walk through one page.

    ``ways`` has each control that was seen: the place where the walk began, and the presses that led to the control. A
    control is rather noted where it can be pressed.
    """

    dashboard: Dashboard
    page: str
    ways: dict[str, tuple[tuple[str, dict[str, str]], tuple[str, ...]]] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    pressed: set[str] = field(default_factory=set)
    began: int = 0
    downloads: int = 0

    def run(self) -> None:
        """Press everything."""
        starts = [place for place in PLACES if place[0] == self.page] or [("", {})]
        for start in starts:
            self.begin(start)
            self.press_new(start, ())
        for width in (WIDE, NARROW):
            self.dashboard.page.set_viewport_size({"width": width, "height": 800})
            tried: set[str] = set()
            while name := next((each for each in self.ways if each not in self.pressed | tried), None):
                tried.add(name)
                start, way = self.ways[name]
                self.begin(start)
                if all(self.press(each) for each in way):
                    self.press_new(start, way)
        assert sorted(set(self.ways) - self.pressed) == []

    def begin(self, start: tuple[str, dict[str, str]]) -> None:
        """Load the page anew, with a stand-in that has not changed."""
        api = self.dashboard.api
        api.reset()
        api.jobs_last = True  # so that what is shown during a job can be pressed, too
        api.signed_in = self.page != SIGN_IN
        self.began += 1
        place, params = start
        search = "&".join(f"{name}={quote(value, safe='')}" for name, value in params.items())
        self.dashboard.page.goto(f"{api.origin}/?{self.began}#/{place}?{search}")
        self.rest()

    def press_new(self, start: tuple[str, dict[str, str]], way: tuple[str, ...]) -> None:
        """Press what was not pressed yet, until nothing of this page is left in sight."""
        for _ in range(MOST):
            seen = self.look()
            for name, ready in seen.items():
                if name not in self.ways or (ready and name not in self.ready):
                    self.ways[name] = (start, way)
            self.ready |= {name for name, ready in seen.items() if ready}
            new = next((name for name, ready in seen.items() if ready and name not in self.pressed), None)
            if new is None:
                return
            start, led = self.ways[new]
            assert self.press(new), new
            if self.has_left():
                return
            way = (*led, new)

    def look(self) -> dict[str, bool]:
        """Return the controls of the page, and which of them can be pressed now."""
        found: dict[str, bool] = {}
        for each in self.controls():
            found[each["name"]] = found.get(each["name"], False) or each["ready"]
        return found

    def controls(self) -> list[dict[str, Any]]:
        """Fill the fields, and return the controls with the names that they had while they were disabled."""
        self.dashboard.page.evaluate(_FILL)
        found: list[dict[str, Any]] = self.dashboard.page.evaluate(
            "([whole, besides]) => window.controls(whole, besides)", [self.page == PAGES[0], SHARED.get(self.page)]
        )
        return found

    def press(self, name: str) -> bool:
        """Press a control, and wait for its effect. Return false if it cannot be pressed now."""
        page = self.dashboard.page
        controls = self.controls()
        at = next((at for at, each in enumerate(controls) if each["name"] == name and each["ready"]), None)
        if at is None:
            return False
        element = page.evaluate_handle("at => window.found[at]", at).as_element()
        before = self.picture()
        self.pressed |= {name, *controls[at]["before"]}
        tag, box = element.evaluate("each => each.tagName"), element.bounding_box()
        if tag == "SELECT":
            element.select_option(index=element.evaluate("each => (each.selectedIndex + 1) % each.options.length"))
        elif box["x"] + box["width"] <= 0 or box["y"] + box["height"] <= 0:
            element.press("Enter")  # it comes into sight when it has the focus
        elif tag == "TR":
            element.click(position={"x": box["width"] - 2, "y": box["height"] - 2})  # beside what is in its cells
        else:
            element.click()
        for _ in range(LOOKS):
            if self.picture() != before:
                break
            page.wait_for_timeout(LOOK)
        else:
            pytest.fail(f"a press has no effect: {name}")
        self.rest()
        self.check(name)
        return True

    def picture(self) -> tuple[str, int, int]:
        """Return everything that a press may change."""
        return self.dashboard.page.evaluate("window.picture()"), len(self.dashboard.api.calls), self.downloads

    def rest(self) -> None:
        """Wait until nothing is loading."""
        self.dashboard.page.evaluate("window.rest()")

    def has_left(self) -> bool:
        """Tell whether another page is shown now."""
        here = self.dashboard.page.evaluate(
            "document.querySelector('.sign-in') ? 'sign-in' : location.hash.slice(2).split('?')[0]"
        )
        return bool(here != self.page)

    def check(self, name: str) -> None:
        """Fail if the press has led to an error, or to a call that no user means."""
        api = self.dashboard.api
        assert [each for each in api.refused if each[-1] != NO_CLIENT] == [], name
        self.dashboard.check()
        given = [value for _, _, arguments, _ in api.calls for value in arguments.values()]
        assert not MISTAKES & set(given), name
        told = self.dashboard.page.locator(".notice.error").all_inner_texts()
        assert [each for each in told if not each.startswith("Stopped")] == [], name


@pytest.mark.parametrize("page", [*PAGES, SIGN_IN])
def test_every_control_of_a_page_works(browser: Any, api: FakeAPI, page: str) -> None:
    with Dashboard.opened(browser, api, WIDE) as dashboard:
        dashboard.page.add_init_script(_NOTE)
        dashboard.page.route_web_socket("**/mqtt", answer_mqtt)
        dashboard.expected.append("Failed to load resource")  # the refused calls are looked at one by one
        walk = Walk(dashboard, page)
        dashboard.page.on("download", lambda _file: setattr(walk, "downloads", walk.downloads + 1))
        walk.run()


def test_every_page_is_walked(dashboard: Dashboard) -> None:
    """The list of pages is that of the dashboard."""
    dashboard.go("overview")
    links = dashboard.page.locator("nav li a").evaluate_all("found => found.map(each => each.getAttribute('href'))")
    assert set(links) == {f"#/{page.partition('/')[0]}" for page in PAGES}
