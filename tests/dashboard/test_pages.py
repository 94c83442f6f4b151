"""Every page opens on every screen, in both colours, without complaints, and everybody can use it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.dashboard.dashboard import AXE, Dashboard
from tests.dashboard.fake_api import PROXIED, FakeAPI, answer_mqtt
from tests.dashboard.hostile import HOSTILE
from tests.hostile_strings import obeyed

PLACES: list[tuple[str, dict[str, str]]] = [
    ("overview", {}),
    ("retained/tree", {}),
    ("retained/tree", {"topic": "building/temperature"}),
    ("retained/tree", {"topic": "building/report"}),
    ("retained/tree", {"topic": "building/temperature", "tab": "history"}),
    ("retained/tree", {"topic": "building", "tab": "below"}),
    ("retained/search", {"q": "building/#", "publisher": "gateway-07", "topic": "building/humidity"}),
    ("retained/search", {"q": "none/#"}),
    ("retained/changes", {}),
    ("replays", {}),
    ("clients", {"q": "sensor-000"}),
    ("clients", {"id": "sensor-0001"}),
    ("clients", {"id": "sensor-0001", "tab": "queue"}),
    ("subscriptions", {"by": "clientid", "q": "sensor-0001"}),
    ("console", {}),
    ("alarms", {}),
    ("alarms", {"show": "past"}),
    ("nodes", {}),
    ("listeners", {}),
    ("bans", {}),
    ("keys", {}),
    ("configuration", {}),
]
_TOO_WIDE = "document.documentElement.scrollWidth - innerWidth"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_every_page_opens_and_axe_finds_nothing_serious(browser: Any, api: FakeAPI, width: int, dark: bool) -> None:
    """At 1280 and 390 pixels, light and dark. Pages are never wider than the screen. Half of them are examined."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed")
    examined = dark == (width == 390)
    with Dashboard.opened(browser, api, width, dark) as dashboard:
        dashboard.page.route_web_socket("**/mqtt", lambda socket: None)
        found: list[object] = []
        for place, params in PLACES:
            dashboard.go(place, **params)
            assert dashboard.page.evaluate(_TOO_WIDE) <= 0, (place, params)
            assert dashboard.page.evaluate("document.title").endswith("Holdfast")
            if examined:
                found += [(place, params, each) for each in dashboard.violations()]
        assert found == []
        dashboard.check()


def test_hostile_texts_stay_text_on_every_page(browser: Any, api: FakeAPI) -> None:
    """No text becomes an element, runs, or hides its characters: not in a name, a topic, a payload or a property."""
    elements = (
        "[...document.querySelectorAll('script, img, iframe, object, [onload], [onerror]')].map(each => each.outerHTML)"
    )
    with Dashboard.opened(browser, api) as dashboard:
        dashboard.page.route_web_socket("**/mqtt", lambda socket: None)
        dashboard.go("overview")
        before = dashboard.page.evaluate(elements)
        places = [
            *PLACES,
            ("clients", {}),
            ("subscriptions", {}),
            ("retained/search", {"q": "#"}),
            *(("retained/tree", {"topic": f"hostile/{name}"}) for name in HOSTILE[::3]),
            *(("clients", {"id": name}) for name in HOSTILE[:4]),
            *(("retained/search", {"q": name, "publisher": name, "at": name}) for name in HOSTILE[:8]),
        ]
        for place, params in places:
            dashboard.go(place, **params)
            assert dashboard.page.evaluate(elements) == before, (place, params)
            shown = dashboard.text
            assert obeyed(shown) <= {"\n", "\t"}, (place, params)
        assert dashboard.page.evaluate("[window.broken, ({}).polluted]") == [None, None]
        links = dashboard.page.evaluate("[...document.querySelectorAll('a')].map(each => new URL(each.href).origin)")
        assert set(links) == {api.origin}
        dashboard.go("retained/tree", topic=f"hostile/{HOSTILE[6]}")
        assert "\\u202egpj.exe" in dashboard.text
        dashboard.expected.append("status of 404")
        dashboard.check()


def test_a_page_that_does_not_exist_becomes_the_overview(dashboard: Dashboard) -> None:
    dashboard.go("nothing/here")
    dashboard.page.wait_for_url("**/#/overview")


def test_a_page_loads_by_itself_when_the_network_is_back(dashboard: Dashboard, api: FakeAPI) -> None:
    """It says so in between, and nobody has to press a button."""
    dashboard.expected += ["ERR_INTERNET_DISCONNECTED", "ERR_NETWORK"]
    dashboard.go("alarms")
    dashboard.live()
    dashboard.page.context.set_offline(True)
    dashboard.page.evaluate("() => { location.hash = '#/clients'; }")
    dashboard.sees("The broker cannot be reached")
    dashboard.page.context.set_offline(False)
    dashboard.page.get_by_role("table").wait_for()
    assert dashboard.page.get_by_text("The broker cannot be reached").count() == 0


def test_a_failed_call_is_told_with_a_way_to_try_again(dashboard: Dashboard, api: FakeAPI) -> None:
    """The error has the broker's words, also about a field, and goes away when the call succeeds."""
    from tests.dashboard.fake_api import Refusal

    api.fail["/clients"] = Refusal(400, "limit is a number", "limit", "1 to 10000")
    dashboard.expected.append("status of 400")
    dashboard.go("clients")
    dashboard.sees("limit is a number")
    dashboard.sees("1 to 10000")
    api.fail.clear()
    dashboard.click("Try again")
    dashboard.sees("sensor-0000")


def test_the_colours_can_be_chosen_and_are_kept(dashboard: Dashboard) -> None:
    """System, light, dark: also after the page is loaded again."""
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dashboard.go("overview")
    light = dashboard.page.evaluate(ground)
    dashboard.click("Colours: system. Change to light")
    dashboard.click("Colours: light. Change to dark")
    assert dashboard.page.evaluate(ground) != light
    dashboard.page.reload()
    dashboard.settle()
    assert dashboard.page.evaluate(ground) != light


def test_a_caller_who_may_only_read_sees_no_changes_to_make(dashboard: Dashboard, api: FakeAPI) -> None:
    """Pages and buttons that the scopes do not allow are absent."""
    api.scopes = ["read"]
    dashboard.go("retained/tree", topic="building/temperature")
    names = dashboard.page.get_by_role("button").all_inner_texts()
    assert not {"Set…", "Clear…", "Restore…", "New message…"} & set(names)
    assert dashboard.page.get_by_role("link", name="API keys").count() == 0
    dashboard.go("clients", id="sensor-0001")
    assert dashboard.page.get_by_role("button", name="Kick…").count() == 0


def test_the_list_of_pages_opens_on_a_phone(browser: Any, api: FakeAPI) -> None:
    """A button opens it, Escape closes it, and it leads to the pages."""
    with Dashboard.opened(browser, api, 390) as dashboard:
        dashboard.go("overview")
        clients = dashboard.page.get_by_role("link", name="Clients", exact=True)
        assert not clients.is_visible()
        dashboard.click("Pages")
        clients.wait_for()
        dashboard.page.keyboard.press("Escape")
        clients.wait_for(state="hidden")
        dashboard.click("Pages")
        clients.click()
        dashboard.page.wait_for_url("**/#/clients")
        clients.wait_for(state="hidden")
        dashboard.check()


def test_the_dashboard_works_below_a_path_of_a_proxy(dashboard: Dashboard, api: FakeAPI) -> None:
    """Everything that it asks for is below the path: files, calls, events, downloads, and the console's WebSocket."""
    asked: list[str] = []
    dashboard.page.on("request", lambda request: asked.append(request.url))
    dashboard.page.route_web_socket(f"ws{api.origin.removeprefix('http')}{PROXIED}/mqtt", answer_mqtt)
    dashboard.page.goto(f"{api.origin}{PROXIED}/#/retained/search?q=building%2F%23")
    dashboard.live()
    dashboard.page.locator("summary", has_text="Export").click()
    with dashboard.page.expect_download() as download:
        dashboard.page.get_by_role("link", name="as NDJSON").click()
    asked.append(download.value.url)
    dashboard.click("Console", "link")
    dashboard.page.get_by_text("connected", exact=True).wait_for()
    assert {"events", "api/v5/session", "api/v5/mqtt/retainer/export"} <= {
        url.partition("?")[0].removeprefix(f"{api.origin}{PROXIED}/") for url in asked
    }
    assert all(url.startswith(f"{api.origin}{PROXIED}/") for url in asked)


def test_one_is_singular(dashboard: Dashboard, api: FakeAPI) -> None:
    """No page says "1 clients"."""
    api.clients = ["sensor-0001"]
    for place, params in (
        ("clients", {}), ("subscriptions", {}), ("clients", {"id": "sensor-0001"}), ("retained/search", {"q": "a/b"}),
        ("retained/tree", {"topic": "building/temperature"}),
    ):  # fmt: skip
        dashboard.go(place, **params)
        assert re.findall(r"\b1 [A-Za-z]{2,}s\b", dashboard.text) == [], place
