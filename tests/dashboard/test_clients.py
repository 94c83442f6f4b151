"""Clients, their subscriptions, and their end."""

from __future__ import annotations

from tests.dashboard.dashboard import Dashboard
from tests.dashboard.fake_api import FakeAPI
from tests.dashboard.hostile import HOSTILE


def test_clients_are_searched_and_paged(dashboard: Dashboard, api: FakeAPI) -> None:
    """The search waits until the user pauses, and the pages go forth and back by the broker's cursors."""
    dashboard.go("clients")
    dashboard.click("Next")
    dashboard.sees("Page 2")
    dashboard.click("Previous")
    dashboard.settle()
    dashboard.page.get_by_label("Search clients").fill("sensor-0012")
    dashboard.page.wait_for_url("**q=sensor-0012**")
    dashboard.settle()
    dashboard.sees("1 client on this page")
    cursors = [given.get("cursor") for given, _ in api.called("GET", "/clients")]
    assert cursors == [None, "100", None, None]
    dashboard.page.get_by_label("that are").select_option("connected")
    dashboard.sees("No client matches this search.")


def test_lists_of_a_cluster_have_nodes_and_name_the_silent_ones(dashboard: Dashboard, api: FakeAPI) -> None:
    """A broker alone shows no nodes."""
    for place, what in (("clients", "clients"), ("subscriptions", "subscriptions")):
        api.silent = None
        dashboard.go(place)
        dashboard.sees("on this page")
        assert dashboard.page.get_by_role("status").filter(has_text="not complete").count() == 0
        assert dashboard.page.get_by_role("columnheader", name="Node", exact=True).count() == 0
        api.silent = ["2"]
        dashboard.page.reload()
        dashboard.sees(f"Node 2 does not answer: its {what} are missing.")
    api.silent = ["2", "3"]
    dashboard.go("clients")
    dashboard.sees("Nodes 2, 3 do not answer: their clients are missing.")
    assert dashboard.page.get_by_role("columnheader", name="Node", exact=True).count() == 1


def test_a_client_is_kicked_after_a_confirmation(dashboard: Dashboard, api: FakeAPI) -> None:
    """The dialog says what ends. A name with slashes and percent signs is that client's, not another path."""
    api.clients.append("a/b%2Fc?d#e")
    dashboard.go("clients", id="a/b%2Fc?d#e")
    dashboard.click("Kick…")
    dashboard.sees("its Session with it")
    dashboard.page.keyboard.press("Escape")
    assert "a/b%2Fc?d#e" in api.clients
    dashboard.click("Kick…")
    dashboard.page.get_by_label("Ban its Client Identifier, too").check()
    dashboard.expected.append("status of 404")
    dashboard.click("Kick")
    dashboard.sees("There is no such client.")
    assert "a/b%2Fc?d#e" not in api.clients
    assert api.bans[-1]["who"] == "a/b%2Fc?d#e"


def test_messages_that_wait_are_shown(dashboard: Dashboard) -> None:
    dashboard.go("clients", id="sensor-0003", tab="queue")
    dashboard.page.get_by_role("button", name="building/temperature").click()
    dashboard.sees("serial")
    dashboard.page.get_by_role("tab").nth(1).click()
    dashboard.sees("site/#")


def test_a_ban_is_made_refused_and_lifted(dashboard: Dashboard, api: FakeAPI) -> None:
    dashboard.go("bans")
    dashboard.click("Ban…")
    dashboard.page.get_by_label("As", exact=True).select_option("peerhost")
    dashboard.fill("Who", "nonsense")
    dashboard.expected.append("status of 400")
    dashboard.click("Ban")
    dashboard.sees("an IPv4 or IPv6 address")
    dashboard.fill("Who", "198.51.100.4")
    dashboard.click("Ban")
    dashboard.sees("Banned 198.51.100.4")
    dashboard.settle()
    dashboard.click("Lift…")
    dashboard.click("Lift the ban")
    dashboard.page.get_by_role("dialog").wait_for(state="detached")
    dashboard.sees("192.0.2.7 may connect again")
    assert [ban["who"] for ban in api.bans] == ["198.51.100.4"]


def test_changes_of_clients_are_announced_and_do_not_move_the_list(dashboard: Dashboard, api: FakeAPI) -> None:
    """The list stays while it is read; a button shows that there is news."""
    dashboard.go("clients", q="sensor")
    dashboard.live()
    api.tell("client", {"clientid": HOSTILE[0], "event": "connected"})
    dashboard.page.get_by_role("button", name="1 change since").wait_for()


def test_a_search_goes_on_over_pages_without_a_match(dashboard: Dashboard, api: FakeAPI) -> None:
    """The broker looks at some clients at a time: an empty page need not be the last one."""
    found = api.get_clients
    pages = iter([{"data": [], "meta": {"limit": 100, "hasnext": True, "cursor": str(at)}} for at in (1, 2)])
    api.get_clients = lambda given, body, *names: next(pages, None) or found({}, body)  # type: ignore[method-assign]
    try:
        dashboard.go("clients", q="sensor")
        dashboard.sees("sensor-0000")
    finally:
        del api.get_clients
    assert [given.get("cursor") for given, _ in api.called("GET", "/clients")] == [None, "1", "2"]
